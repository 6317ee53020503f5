"""The kind of app that is a page: what its program is told, and what its pods may do."""

import pytest

from slipway.features.page.feature import Page, PageSettings, Pictures, declaration
from slipway.features.page.pod.__main__ import parser
from slipway.features.page.pod.app import Options
from slipway.infra.kubernetes.apps.pod import PROXIES_VARIABLE
from slipway.infra.pipelines.apps import AppDeclaration


def understood(declared: AppDeclaration) -> Options:
    """What the program makes of the declaration's arguments, as it begins."""
    words = [word.format(port="8080") for word in declared.arguments]
    return parser().parse_args(words, Options())


def test_the_program_understands_all_that_is_declared() -> None:
    page = Page(
        serving="serving",
        model="a model",
        title="--title {of} it",
        labels=["--port=1", "{store}", "ä b", ""],
        pictures=Pictures(ink="light"),
    )
    options = understood(declaration("page", PageSettings(pool="cpu", rate=0.5, rate_of_all=30), page))
    assert (options.model, options.title, options.ink) == ("a model", "--title {of} it", "light")
    assert options.labels == ["--port=1", "{store}", "ä b", ""]
    assert (options.rate, options.rate_of_all) == (0.5, 30)


def test_defaults_are_the_programs_own() -> None:
    options = understood(declaration("page", PageSettings(pool="cpu"), Page(serving="serving", model="m")))
    plain = Options(serving="SERVING_ADDRESS is not set", model="m", host="0.0.0.0")
    assert vars(options) == vars(plain)


@pytest.mark.parametrize(
    ("given", "in_cluster", "expected"),
    [({}, None, 0), ({}, "3", 3), ({"proxies": 2}, None, 2), ({"proxies": 0}, "3", 0)],
)
def test_visitors_are_told_apart_behind_proxies(
    given: dict[str, int], in_cluster: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what stands in front of the pod, which the cluster says, unless somebody knows better."""
    if in_cluster is not None:
        monkeypatch.setenv(PROXIES_VARIABLE, in_cluster)
    declared = declaration("page", PageSettings(pool="cpu", **given), Page(serving="serving", model="m"))
    assert understood(declared).proxies == expected


def test_a_page_without_samples_reads_nothing() -> None:
    alone = declaration("page", PageSettings(pool="cpu"), Page(serving="serving", model="m"))
    assert not alone.inputs
    assert not any("{store}" in word for word in alone.arguments)
    assert alone.connects == ["serving"]
    assert not alone.writes
    assert not alone.secrets
    reading = declaration(
        "page",
        PageSettings(pool="cpu"),
        Page(serving="serving", model="m", samples="{prepare}/images"),
        {"prepare": "prepare"},
    )
    assert "--samples={prepare}/images" in reading.arguments
    assert reading.inputs == {"prepare": "prepare"}


def test_a_probe_asks_whether_the_page_runs() -> None:
    declared = declaration("page", PageSettings(pool="cpu"), Page(serving="serving", model="m"))
    assert (declared.probe.path, declared.ports) == ("/healthz", {})
