"""What lets Jobs run in a cluster, as a process: it may read what its Role says, and finds all Jobs complete."""

from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.clouds.registry import emulators
from slipway.infra.program import declare
from slipway.infra.settings.loading import load
from slipway.rehearse.cluster.cluster_objects import ApiServer, Namespace, Objects, Token
from slipway.runtime.exits import StepError
from slipway.runtime.schedule import release
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import EXISTING, GCP, changed

OWN, OTHER = "cluster-run", "runner"
JOB = "kubernetes:batch/v1:Job"


@pytest.fixture(scope="module")
def recording() -> Recording:
    values = changed(EXISTING, {"pipelines.mnist.runs": "cluster"})
    config = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), config, preview=False, emulators=[Emulator(load(values).request)])


def api(recording: Recording, cluster: str = "here") -> ApiServer:
    objects = Objects()
    for resource in recording.resources:
        objects.add(resource)
    return ApiServer(Namespace(objects, cluster, "slipway"))


def run(server: ApiServer, account: str, folder: Path, *more: str) -> int:
    token = Token("secret", "slipway", account)
    (folder / "token").write_text(token.secret, encoding="utf-8")
    with server.serving(token) as url:
        flags = ["--api", url, "--service-account", str(folder), "--namespace", "slipway"]
        return release.main([*flags, "--jobs", OWN, "--attempts", f"{OWN}-attempts", *more])


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "stop_on_sigterm", lambda _: None)


def test_its_program_reads_the_list_and_finds_each_job_complete(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(api(recording), OWN, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    jobs = [job.name for job in recording.of(JOB) if job.name != "here-cluster-run"]
    assert sorted(lines) == sorted(f"{name}: done" for name in jobs)


@pytest.mark.slow
def test_with_a_budget_its_program_reads_limits_and_pods_and_without_one_may_not(
    recording: Recording, tmp_path: Path
) -> None:
    values = changed(GCP, {"pipelines.mnist.runs": "cluster", "budget": {"run": 40.0, "month": 900.0}})
    stand_ins = emulators(load(values).request)
    config = {name: setting for emulator in stand_ins for name, setting in emulator.configuration.items()}
    config |= {f"slipway:{key}": value for key, value in values.items()}
    limited = record(lambda: declare(ROOT), config, preview=False, emulators=stand_ins)
    assert run(api(limited, "dev"), OWN, tmp_path, "--limits", "limits") == 0
    with pytest.raises(StepError, match="forbidden"):
        run(api(recording), OWN, tmp_path, "--limits", "limits")
    pods = api(recording).answer(
        Token("secret", "slipway", OWN), "Bearer secret", "/api/v1/namespaces/slipway/pods"
    )
    assert pods[0] == 403


def test_another_account_may_read_none_of_it(recording: Recording, tmp_path: Path) -> None:
    with pytest.raises(StepError, match="forbidden"):
        run(api(recording), OTHER, tmp_path)


def test_what_is_not_in_its_role_is_forbidden_and_what_is_not_there_not_found(recording: Recording) -> None:
    server, token = api(recording), Token("secret", "slipway", OWN)

    def status(path: str) -> Any:
        return server.answer(token, "Bearer secret", path)[0]

    assert status("/apis/batch/v1/namespaces/slipway/jobs/cluster-run") == 403
    assert status("/apis/batch/v1/namespaces/other/jobs/cluster-run") == 403
    assert status("/api/v1/namespaces/slipway/configmaps/cluster-run") == 200
    assert status("/api/v1/namespaces/slipway/secrets/cluster-run") == 404
