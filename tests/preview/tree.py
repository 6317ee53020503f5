"""A small tree to evaluate: the real engine and settings, with a program of the test's own."""

import json
from collections.abc import Mapping
from pathlib import Path

from slipway.infra.places import PACKAGE
from tests.support.tree import write_tree

ROOT = Path(__file__).parents[2]
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
    infra = root / PACKAGE / "infra"
    infra.mkdir(parents=True)
    # In shared bytecode, programs of one size and second would be taken for one another.
    for path in (ROOT / PACKAGE / "infra").iterdir():
        if path.name not in {"program.py", "__pycache__"}:
            (infra / path.name).symlink_to(path)
    for path in (ROOT / PACKAGE).iterdir():
        if path.name not in {"__init__.py", "__pycache__", "infra"}:
            (root / PACKAGE / path.name).symlink_to(path)
    files = {
        "Pulumi.yaml": "name: slipway\nruntime: python\nstackConfigDir: stacks\n",
        f"{PACKAGE}/__init__.py": "",
        "__main__.py": "from slipway.infra.program import declare\n\ndeclare()\n",
        f"{PACKAGE}/infra/program.py": PROGRAM.format(body=body.strip().replace("\n", "\n    ")),
    }
    for name, config in (stacks or {"dev": {}}).items():
        files[f"stacks/Pulumi.{name}.yaml"] = json.dumps({"config": {**SETTINGS, **config}})
    return write_tree(root, files)
