"""The kind of app that is a page: what its program is told, and what its pods may do."""

import pytest

from slipway.infra.kubernetes.apps.pod import PROXIES_VARIABLE
from slipway.infra.pipelines.app_kinds.page import Page, PageSettings, Pictures, declaration
from slipway.infra.pipelines.apps import AppDeclaration
from slipway.workloads.apps.page.__main__ import _options, _parser  # pyright: ignore[reportPrivateUsage]
from slipway.workloads.apps.page.app import Options


def understood(declared: AppDeclaration, **known: str) -> Options:
    """What the program makes of the declaration's arguments."""
    words = [word.format(port="8080", **known) for word in declared.arguments]
    given = _parser().parse_args(words)
    given.serving, given.serving_variable = "http://serving:8501", None
    return _options(given)


def test_the_program_understands_all_that_is_declared() -> None:
    pictures = Pictures(
        width=32, height=24, channels=3, ink="dark", fit="contain", share=0.5, black=-1.5, white=1e-07
    )
    page = Page(
        serving="serving",
        model="a model",
        title="--title {of} it",
        labels=["--port=1", "{store}", "ä b", ""],
        pictures=pictures,
    )
    options = understood(declaration("page", PageSettings(pool="cpu", rate=0.5, rate_of_all=30), page))
    assert (options.model, options.title) == ("a model", "--title {of} it")
    assert options.labels == ("--port=1", "{store}", "ä b", "")
    assert vars(options.pictures) == pictures.model_dump()
    assert (options.bounds.rate, options.bounds.rate_of_all) == (0.5, 30)


def test_defaults_are_the_programs_own() -> None:
    options = understood(declaration("page", PageSettings(pool="cpu"), Page(serving="serving", model="m")))
    plain = Options("http://serving:8501", "m")
    assert vars(options.bounds) == vars(plain.bounds)
    assert options.title == plain.title
    assert vars(options.pictures) == {
        **vars(plain.pictures),
        "share": pytest.approx(plain.pictures.share, abs=1e-5),
    }


@pytest.mark.parametrize(
    ("given", "in_cluster", "proxies"),
    [({}, None, 0), ({}, "3", 3), ({"proxies": 2}, None, 2), ({"proxies": 0}, "3", 0)],
)
def test_visitors_are_told_apart_behind_proxies(
    given: dict[str, int], in_cluster: str | None, proxies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what stands in front of the pod, which the cluster says, unless somebody knows better."""
    if in_cluster is not None:
        monkeypatch.setenv(PROXIES_VARIABLE, in_cluster)
    declared = declaration("page", PageSettings(pool="cpu", **given), Page(serving="serving", model="m"))
    assert understood(declared).bounds.proxies == proxies


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


def test_nobody_reads_its_metrics_where_people_go() -> None:
    declared = declaration("page", PageSettings(pool="cpu"), Page(serving="serving", model="m"))
    assert declared.metrics is not None
    assert declared.ports[declared.metrics.port] != declared.port
    assert declared.probe.path == "/healthz"
