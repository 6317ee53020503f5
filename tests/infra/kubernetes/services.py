"""A queue and a step with items that connects to it, as several tests declare them."""

from pathlib import Path

from slipway.features.items.feature import Items
from slipway.infra.placed import Command, Service, Step
from slipway.infra.platform import Platform, Resources
from tests.support.stand_in import step

IMAGE = "example/valkey@sha256:" + "1" * 64

FILES = {
    "workloads/__init__.py": "",
    "work/prepare.py": "",
    "days/train_day.py": "",
}
"""The repository that the steps ship from."""


def queue(on: Platform, **changes: object) -> Service:
    values: dict[str, object] = {
        "pipeline": "digits",
        "name": "queue",
        "image": IMAGE,
        "platform": on,
        "pool": on.pools["cpu"],
        "resources": Resources(cpu=500, memory=1024, ephemeral_storage=512),
        "arguments": ["valkey-server", "--port", "{port}", "--dir", "{data}", "--requirepass", "{password}"],
        "port": 6379,
        "storage": 1024,
        "clients": ["days"],
        **changes,
    }
    return Service(**values)  # type: ignore[arg-type]


def days(on: Platform, root: Path, service: Service | None = None, workers: int = 3, **changes: object) -> Step:
    """A step with items, which `queue` hands out; without a ``service`` each worker has its own share."""
    prepare = step(on, name="prepare")
    values: dict[str, object] = {
        "name": "days",
        "module": None,
        "command": Command(root / "days"),
        "arguments": ["python", "train_day.py", "--day", "{item}", "--previous", "{previous}", "{output}"],
        "inputs": {"prepare": prepare},
        "parts": [Items("{prepare}/days/*.csv", "ordered", service.name if service else None, 3, 1, 60, workers)],
        "connects": {service.name: service} if service else {},
        **changes,
    }
    return step(on, **values)
