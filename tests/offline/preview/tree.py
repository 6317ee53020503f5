"""A small tree to evaluate: the real engine and settings, with a program of the test's own."""

import json
from collections.abc import Mapping
from pathlib import Path

from slipway.infra.places import PACKAGE
from tests.support.tree import write_tree

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "slipway:clusters": {
        "here": {
            "cloud": "existing",
            "kubeconfig": "/nowhere",
            "pools": {"cpu": {"selector": {"a": "b"}, "cpu": "4", "memory": "16Gi", "ephemeral_storage": "40Gi"}},
        }
    },
    "slipway:store": {"kind": "pvc"},
}

PROGRAM = """
import pulumi

def shipping_problems(raw, root):
    return []

def declare():
    {body}

def thing(name, properties=None, opts=None, **more):
    return pulumi.CustomResource("kubernetes:core/v1:ConfigMap", name, {{**(properties or {{}}), **more}}, opts)

def was_run():
    return True
"""


def make_tree(root: Path, body: str, stacks: Mapping[str, Mapping[str, object]] | None = None) -> Path:
    """Writes a tree whose program is ``body``, which may use ``thing(name, …)`` and ``pulumi``.

    ``stacks`` are the configurations by stack, over small settings that are right; by default one stack, ``dev``.
    """
    (root / "stacks").mkdir(parents=True)
    (root / "infra").mkdir()
    for path in (ROOT / "infra").iterdir():
        # In shared bytecode, programs of one size and second would be taken for one another.
        if path.name not in {"program.py", "__pycache__"}:
            (root / "infra" / path.name).symlink_to(path)
    (root / "offline").symlink_to(ROOT / "offline")
    (root / PACKAGE).mkdir()
    for room in ("infra", "offline"):
        (root / PACKAGE / room).symlink_to(f"../{room}")
    files = {
        "Pulumi.yaml": "name: slipway\nruntime: python\nstackConfigDir: stacks\n",
        f"{PACKAGE}/__init__.py": "",
        "__main__.py": "from slipway.infra.program import declare\n\ndeclare()\n",
        "infra/program.py": PROGRAM.format(body=body.strip().replace("\n", "\n    ")),
    }
    for name, config in (stacks or {"dev": {}}).items():
        files[f"stacks/Pulumi.{name}.yaml"] = json.dumps({"config": {**SETTINGS, **config}})
    return write_tree(root, files)
