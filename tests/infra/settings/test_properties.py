"""Properties of settings: whatever stands in a file, it is read, or refused in one way."""

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.infra.clouds.gcp.catalogue import allocatable, machine_type, machine_types
from slipway.infra.clouds.gcp.settings import GcpPool, GpuSharing
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.schema.problems import SettingsError
from slipway.infra.schema.quantities import cpu_millicores, mebibytes, seconds
from slipway.infra.settings.loading import lay_over, load
from slipway.infra.settings.model import Settings, with_pipelines
from slipway.infra.settings.pipelines import each_of
from tests.support.clouds.aws_values import AWS
from tests.support.stack_values import EXISTING, GCP, GONE, changed

pytestmark = pytest.mark.slow

QUICK = settings(max_examples=150, deadline=None)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12)
junk = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)

sections = st.dictionaries(st.text(max_size=3), junk, max_size=4)


def paths(values: Any, prefix: str = "") -> list[str]:
    """The dotted path of every value in nested sections."""
    if not isinstance(values, dict):
        return []
    dotted: list[str] = []
    for key, value in values.items():
        # A dot inside a key would read as two keys.
        if "." not in str(key):
            dotted += [f"{prefix}{key}", *paths(value, f"{prefix}{key}.")]
    return dotted


def loaded(values: dict[str, Any]) -> Settings | SettingsError:
    """What loading gives; any other exception fails the test."""
    try:
        return load(values)
    except SettingsError as error:
        return error


@QUICK
@given(st.dictionaries(st.sampled_from(list(Settings.model_fields)) | st.text(max_size=8), junk, max_size=6))
def test_junk_is_refused_and_nothing_else_happens(values: dict[str, Any]) -> None:
    assert isinstance(loaded(values), SettingsError)


@QUICK
@given(st.data())
def test_junk_in_a_right_stack_is_read_or_refused_with_every_problem_once(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([GCP, AWS, EXISTING]))
    where = st.sampled_from(paths(base))
    changes = data.draw(st.dictionaries(where, junk | st.just(GONE), min_size=1, max_size=3))
    # A section and a part of it cannot both be changed.
    chosen = {
        path: value
        for path, value in changes.items()
        if not any(path.startswith(f"{other}.") for other in changes)
    }
    result = loaded(changed(base, chosen))
    if isinstance(result, SettingsError):
        reported = [(problem.key, problem.reason) for problem in result.problems]
        assert reported
        assert len(reported) == len(set(reported))
        assert all(problem.fix and problem.key.startswith("slipway") for problem in result.problems)


def sections_of(values: Any) -> list[str]:
    """The dotted path of every section whose keys are given: not those whose names are the writer's own."""
    named = ("clusters", "pools", "authorized_networks", "pipelines")
    return [path for path in paths(values) if not path.endswith(named) and isinstance(at(values, path), dict)]


def at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[part]
    return values


@QUICK
@given(
    st.sampled_from([(base, path) for base in (GCP, AWS) for path in sections_of(base)]),
    st.text(alphabet="abcdefgh_", min_size=1, max_size=9).filter(lambda key: key not in known_keys()),
)
def test_an_unknown_key_is_named_wherever_it_stands(place: tuple[dict[str, Any], str], key: str) -> None:
    base, path = place
    result = loaded(changed(base, {f"{path}.{key}": 1}))
    assert isinstance(result, SettingsError)
    unknown = [problem for problem in result.problems if problem.reason == "there is no such key"]
    assert [problem.key for problem in unknown] == [f"slipway:{path}.{key}"]
    # What a misspelt key holds is judged as well, and may not fit what is beside it.
    assert len(result.problems) == 1 or "did you mean" in unknown[0].fix


@cache
def known_keys() -> set[str]:
    """Keys of any section, those of pipelines and of their steps included."""

    def of(schema: Any) -> set[str]:
        names: set[str] = set()
        if isinstance(schema, dict):
            names |= set(schema.get("properties", {}))
            for part in schema.values():
                names |= of(part)
        elif isinstance(schema, list):
            for part in schema:
                names |= of(part)
        return names

    return of(with_pipelines(each_of(pipeline_names())).model_json_schema())


@pytest.mark.parametrize("base", [GCP, AWS, EXISTING], ids=["gcp", "aws", "existing"])
def test_loading_what_was_loaded_gives_the_same(base: dict[str, Any]) -> None:
    once = load(base)
    assert load(once.model_dump()) == once
    assert load(once.model_dump(mode="json")) == once


@st.composite
def pools(draw: st.DrawFn) -> GcpPool:
    """Pools of any machine type, with what it can have."""
    types = [machine for machine in machine_types().values() if machine.memory >= 4096]
    machine = draw(st.sampled_from(sorted(types, key=lambda machine: machine.name)))
    clients = draw(st.none() | st.integers(2, 48)) if machine.gpus else None
    return GcpPool(
        machine_type=machine.name,
        accelerator=machine.accelerator,
        disk_size_gb=draw(st.integers(30, 65536)),
        max_pods_per_node=draw(st.integers(8, 256)),
        gpu_sharing=GpuSharing(clients=clients) if clients else None,
        local_ssd_count=draw(st.sampled_from([0, *machine.local_ssds])),
    )


@QUICK
@given(pools())
def test_a_node_leaves_something_to_pods_and_less_than_it_has(pool: GcpPool) -> None:
    machine = machine_type(pool.machine_type)
    assert machine is not None
    node = allocatable(pool.node_shape)
    assert 0 <= node.cpu < machine.vcpus * 1000
    assert 0 < node.memory < machine.memory
    assert 0 < node.ephemeral_storage < max(pool.disk_size_gb, 375 * 32) * 1024
    assert node.gpus == machine.gpus * (pool.gpu_sharing.clients if pool.gpu_sharing else 1)


@QUICK
@given(st.integers(0, 10**9), st.integers(1, 10**5))
def test_quantities_come_back_as_they_were(amount: int, whole: int) -> None:
    assert cpu_millicores(f"{amount}m") == amount
    assert cpu_millicores(str(whole)) == whole * 1000
    assert mebibytes(f"{amount}Mi") == amount
    assert mebibytes(f"{whole}Gi") == whole * 1024
    assert mebibytes(str(amount)) == math.ceil(amount / 2**20)
    assert seconds(f"{whole}d") == 24 * seconds(f"{whole}h") == 1440 * seconds(f"{whole}m")


@QUICK
@given(st.text(max_size=10).filter(lambda text: not text[:1].isdigit()))
def test_text_that_is_no_quantity_is_no_quantity(text: str) -> None:
    for parse in (cpu_millicores, mebibytes, seconds):
        with pytest.raises(ValueError, match="is not a"):
            parse(text)


@QUICK
@given(sections, sections)
def test_an_overlay_wins_and_keeps_the_rest(base: dict[str, Any], overlay: dict[str, Any]) -> None:
    merged = lay_over(base, overlay)
    assert merged.keys() == base.keys() | overlay.keys()
    assert lay_over(merged, overlay).keys() == merged.keys()
    for key in overlay.keys() - base.keys():
        assert merged[key] is overlay[key]
    for key in base.keys() - overlay.keys():
        assert merged[key] is base[key]
