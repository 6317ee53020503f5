"""The contract of clouds: what a subclass has to have, and what it costs to know all of them."""

import re
import subprocess
import sys

import pytest

from slipway.infra.clouds import registry
from slipway.infra.clouds.contract import Cloud
from slipway.infra.clouds.registry import CLOUDS, CLUSTERS, STORES
from slipway.infra.platform import Resources
from slipway.infra.schema.problems import SettingsError
from slipway.infra.schema.request import Wish
from tests.support.checkout import ROOT

PACKAGES = ROOT / "infra" / "clouds"

PROGRAM = """
import sys
from slipway.infra.clouds.registry import CLOUDS
print(*sys.modules)
for cloud in CLOUDS.values():
    cloud.checks(), cloud.provider_problems({})
print(*sys.modules)
"""
SDK = re.compile(r"pulumi(_\w+)?")
PART = re.compile(r"infra\.clouds\.\w+\.(rules|review|platforms|emulator|doctor|live_cluster)")


def test_each_package_has_one_cloud() -> None:
    assert {path.parent.name for path in PACKAGES.glob("*/__init__.py")} == CLOUDS.keys()
    assert {name: type(cloud).__module__ for name, cloud in CLOUDS.items()} == {
        name: f"slipway.infra.clouds.{name}" for name in CLOUDS
    }
    assert len(set(CLUSTERS)) == len(CLOUDS)
    assert len({store.model_fields["kind"].annotation for store in STORES}) == len(STORES)


def test_a_cloud_whose_package_is_not_installed_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.require_packages(CLOUDS)
    monkeypatch.setattr(registry, "find_spec", lambda module: None if module == "pulumi_aws" else object())
    registry.require_packages(["gcp", "existing"])
    with pytest.raises(SettingsError) as raised:
        registry.require_packages(CLOUDS)
    [problem] = raised.value.problems
    assert (problem.key, problem.value) == ("slipway:clusters", "aws")
    assert "slipway-ml[aws]" in problem.fix


def test_the_settings_of_all_clouds_import_no_sdk_and_no_other_part() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    with_settings, with_rules = (line.split() for line in run.stdout.splitlines())
    assert [name for name in with_settings if SDK.fullmatch(name) or PART.match(name)] == []
    assert [name for name in with_rules if SDK.fullmatch(name)] == []


def test_a_cloud_without_its_parts_is_refused() -> None:
    class Unfinished(Cloud):
        name = "unfinished"

    with pytest.raises(TypeError, match=r"checks.*emulator.*platforms.*review"):
        Unfinished()  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize("name", CLOUDS)
def test_a_starter_is_there_where_the_cloud_says_so(name: str) -> None:
    cloud, wish = CLOUDS[name], Wish(None, None, Resources(1000, 1024), None)
    if cloud.has_starter:
        assert cloud.starter(wish)
    else:
        with pytest.raises(NotImplementedError):
            cloud.starter(wish)


@pytest.mark.parametrize("name", CLOUDS)
def test_a_package_stays_small(name: str) -> None:
    assert len(list((PACKAGES / name).rglob("*.py"))) <= 22
