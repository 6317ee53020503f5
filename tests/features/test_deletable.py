"""A feature can be deleted: without its folder, its tests and its line, the rest evaluates, imports and lints."""

import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.features.registry import NAMES
from slipway.infra.pipelines.file.shape import APP_KINDS as KINDS
from tests.support.checkout import copy_checkout

pytestmark = pytest.mark.long

IMPORTS_ALL = """import importlib, pathlib
for path in sorted(pathlib.Path("slipway").rglob("*.py")):
    parts = path.with_suffix("").parts
    if not {"templates", "pod", "runtime", "__main__"} & {*parts} and parts[-2:] != ("serving", "stub"):
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
"""


def python(checkout: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


NEEDED_BY = {"items": ("search",)}
"""Features that go with one."""


def drop(checkout: Path, feature: str) -> None:
    """Takes the keys of the feature and its apps, with those that name one, out of MNIST and its stacks."""
    kinds = {
        kind.model_json_schema()["properties"]["kind"]["const"] for kind in KINDS if feature in kind.__module__
    }
    pipeline = checkout / "workloads/mnist/pipeline.yaml"
    content: dict[str, Any] = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
    apps = content["apps"]
    gone = {name for name, app in apps.items() if app["kind"] in kinds}
    gone |= {name for name, app in apps.items() if app.get("serving") in gone}
    [step.pop(feature, None) for step in content["steps"].values()]
    content["apps"] = {name: app for name, app in apps.items() if name not in gone}
    pipeline.write_text(yaml.safe_dump(content), encoding="utf-8")
    file = f"slipway.features.{feature}.feature"
    sections = (
        {f"slipway:{key}" for key in import_module(file).FEATURE.sections} if find_spec(file) else set[str]()
    )
    for stack in checkout.glob("stacks/*.yaml"):
        content = yaml.safe_load(stack.read_text(encoding="utf-8"))
        content["config"] = {key: value for key, value in content["config"].items() if key not in sections}
        section = (content["config"].get("slipway:pipelines") or {}).get("mnist") or {}
        [step.pop(feature, None) for step in section.get("steps", {}).values()]
        for name in gone & {*section.get("apps", ())}:
            del section["apps"][name]
        stack.write_text(yaml.safe_dump(content), encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_rest_works_without_a_feature(name: str, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "slipway")
    registry = checkout / "slipway/features/registry.py"
    for gone in (name, *NEEDED_BY.get(name, ())):
        [shutil.rmtree(checkout / folder / "features" / gone) for folder in ("slipway", "tests")]
        registry.write_text(registry.read_text(encoding="utf-8").replace(f'    "{gone}",\n', ""), encoding="utf-8")
        drop(checkout, gone)

    python(checkout, "-m", "ruff", "check", "--quiet", "slipway")
    python(checkout, "-c", IMPORTS_ALL)
    python(checkout, "-m", "slipway", "check", "--stack", "demo", "--stack", "gcp-serving")
    assert name != "importing" or "\n  import " not in python(checkout, "-m", "slipway", "--help")
