"""What is refused before anything is declared on Google Cloud."""

import pytest

from slipway.engine.stack_config import for_engine
from slipway.infra import program
from slipway.infra.clouds.gcp import platforms
from slipway.infra.clouds.gcp.rules import provider_problems
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.settings.loading import load
from tests.support.clouds.gcp import declare, raw
from tests.support.recording import record


def problems(project: str | None = "a-project") -> list[Problem]:
    config = {"gcp:project": project} if project else {}
    return record(platforms.preflight_problems, config, preview=True).result


@pytest.fixture(autouse=True)
def _no_project_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def test_a_good_stack_has_no_problems() -> None:
    assert problems() == []


def test_a_stack_without_a_project_says_how_to_name_one() -> None:
    (problem,) = problems(project=None)
    assert problem.key == "gcp:project"
    assert "pulumi config set gcp:project" in problem.fix


def test_nothing_is_declared_with_problems() -> None:
    settings = load(raw())
    with pytest.raises(SettingsError, match="gcp:project"):
        declare(settings, project="")


@pytest.mark.parametrize("project", ["Demo Project", "demo", "123456789012", "demo-", "d" * 31])
def test_what_is_no_project_id_is_refused_with_all_other_problems(project: str) -> None:
    configuration = {"gcp:project": project, "slipway:store": {"kind": "gcs", "location": "Iowa"}}
    configuration |= {"slipway:clusters": raw()["clusters"]}
    with pytest.raises(SettingsError) as error:
        record(program.declare, for_engine(configuration), preview=True)
    assert [problem.key for problem in error.value.problems] == ["slipway:store.location", "gcp:project"]
    assert "gcloud projects list" in error.value.problems[1].fix


@pytest.mark.parametrize("project", ["a-project", "example.com:a-project", "demo12"])
def test_project_ids_are_right(project: str) -> None:
    assert provider_problems({"gcp:project": project}) == []
