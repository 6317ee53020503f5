"""Renovate knows every pinned chart, image and linter that it does not find by itself."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

CONFIG = json.loads((ROOT / "renovate.json").read_text(encoding="utf-8"))


def matches(path: str) -> Iterator[dict[str, str]]:
    """What the managers for the file find in it."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for manager in CONFIG["customManagers"]:
        if any(re.search(pattern.strip("/"), path) for pattern in manager["managerFilePatterns"]):
            for pattern in manager["matchStrings"]:
                yield from (match.groupdict() for match in re.finditer(pattern.replace("(?<", "(?P<"), text))


def test_every_chart_image_and_linter_is_known() -> None:
    charts = tomllib.loads((ROOT / "slipway/infra/data/charts.toml").read_text(encoding="utf-8"))
    assert {match["depName"]: match["currentValue"] for match in matches("slipway/infra/data/charts.toml")} == {
        name: chart["version"] for name, chart in charts.items()
    }
    images = tomllib.loads((ROOT / "slipway/infra/data/images.toml").read_text(encoding="utf-8"))
    assert {match["depName"]: match["currentValue"] for match in matches("slipway/infra/data/images.toml")} == {
        image["repository"]: image["tags"][0] for image in images.values()
    }
    proxy = tomllib.loads((ROOT / "slipway/infra/data/login-proxy.toml").read_text(encoding="utf-8"))
    [match] = matches("slipway/infra/data/login-proxy.toml")
    assert [*match.values()] == [proxy["repository"], proxy["version"], proxy["digest"]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [cli] = matches(".github/actions/sign-in/action.yml")
    assert f"{cli['depName']}=={cli['currentValue']}" in project["dependencies"]
    [linter] = matches("Makefile")
    assert linter["depName"] == "rhysd/actionlint"


@pytest.mark.slow
def test_its_file_is_what_the_schema_allows() -> None:
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.renovate"]
    done = subprocess.run([*command, ROOT / "renovate.json"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
