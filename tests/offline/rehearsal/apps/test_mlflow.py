"""MLflow's server in a rehearsal, its database in a file and in a real Postgres, and a run by the clock."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.review.stack import JOB, Resource
from slipway.offline.rehearsal.cluster.cluster_objects import contents
from slipway.offline.rehearsal.engine import Engine
from slipway.offline.rehearsal.machine.processes import free_ports
from slipway.workloads.apps.mlflow.importing import RECORDED
from slipway.workloads.schedule import run
from tests.support.rehearsing import SMALL, pipeline_folder, rehearse_file, stack_file, wait_until
from tests.workloads.json_server import serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TRAIN = """
import json, pathlib, sys
(pathlib.Path(sys.argv[1]) / "numbers.json").write_text(json.dumps({"score": 0.5}))
"""
CLOCK = "toy-schedule-29384940"
PASSWORD = "a b%/c"


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a Postgres of this machine with an empty database `runs`."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), *map(Path, os.environ["PATH"].split(os.pathsep))]
    programs = next((place for place in places if (place / "initdb").is_file()), None)
    if programs is None:
        pytest.skip("no PostgreSQL on this machine")
    # Postgres does not run as root.
    user = "nobody" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="slipway-postgres-"))
    (port,) = free_ports(1)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "password").write_text(PASSWORD)
        if user:
            shutil.chown(folder, user)
            shutil.chown(folder / "password", user)
        monkeypatch.setenv("PGPASSWORD", PASSWORD)

        def program(name: str, *words: str) -> None:
            subprocess.run([programs / name, *words], check=True, capture_output=True, cwd=folder, user=user)

        data = f"{folder}/data"
        program("initdb", "-D", data, "-U", "mlflow", "-A", "scram-sha-256", f"--pwfile={folder}/password")
        listening = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        program("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", listening, "start")
        stack.callback(program, "pg_ctl", "-D", data, "-m", "immediate", "stop")
        program("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "mlflow", "runs")
        monkeypatch.delenv("PGPASSWORD")
        yield port


class Kubernetes:
    """What a run by the clock asks of Kubernetes; its Jobs are run as those of an update are."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        plan = engine.objects.find("local", "ConfigMap", "slipway", "toy-schedule")
        assert plan is not None
        self._plan = plan
        time = {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-22T03:00:00Z"}
        metadata = {
            "name": CLOCK,
            "uid": "a-uid",
            "creationTimestamp": "2026-11-22T03:00:01Z",
            "annotations": time,
        }
        self._jobs: dict[str, dict[str, Any]] = {CLOCK: {"metadata": metadata}}

    def answer(self, method: str, path: str, content: Any) -> tuple[int, object]:
        name = path.partition("?")[0].rpartition("/")[2]
        if method == "POST":
            # The API server takes it from the path.
            content["metadata"]["namespace"] = "slipway"
            self._jobs[content["metadata"]["name"]] = content
            threading.Thread(target=self._run, args=[content]).start()
            return 201, content
        if "/configmaps/" in path:
            return 200, {"data": {key: value.decode() for key, value in contents(self._plan).items()}}
        if name == "jobs":
            # Those of the pipeline.
            return 200, {"items": [job for name, job in self._jobs.items() if name != CLOCK]}
        return 200, self._jobs.get(name, {"items": []})

    def _run(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        declared = Resource(f"urn:{name}", JOB, name, job, provider=self._plan.provider, inputs=job)
        outcome = "Failed"
        try:
            self._engine.run_job(declared)
            outcome = "Complete"
        finally:
            job["status"] = {"conditions": [{"type": outcome, "status": "True", "reason": "", "message": ""}]}


def runs_of(engine: Engine) -> list[dict[str, Any]]:
    """The runs of the pipeline in MLflow; none where it does not answer."""
    (server,) = [server for server in engine.services.servers if server.record.name == "toy-runs"]
    (port,) = server.ports.values()
    body = json.dumps({"experiment_ids": ["1"]}).encode()
    address = f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search"
    request = urllib.request.Request(address, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response).get("runs", [])
    except OSError:
        return []


def tags_of(engine: Engine) -> list[dict[str, str]]:
    """The tags of the runs that are complete: one of them is written last."""
    tags = [{tag["key"]: tag["value"] for tag in run["data"]["tags"]} for run in runs_of(engine)]
    return [tags_of_run for tags_of_run in tags if RECORDED in tags_of_run]


def rehearse_with_a_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, app: dict[str, Any], **settings: Any
) -> None:
    """A rehearsal of a training, and a run of it by the clock, both of which MLflow has then."""
    steps = {"train": {"run": ["python", "train.py", "{output}"], "results": {"score": "numbers.json#/score"}}}
    code = pipeline_folder(tmp_path / "toy", {"train.py": TRAIN}, steps=steps, apps={"runs": {"kind": "mlflow"}})
    section: dict[str, Any] = {"uses": code, "steps": {"train": SMALL}, "apps": {"runs": {"pool": "cpu", **app}}}
    section["schedule"] = {"cron": "0 3 * * *"}
    (tmp_path / "token").write_text("a-token")
    monkeypatch.setenv("POD_NAME", f"{CLOCK}-x7x7x")
    monkeypatch.setattr(run, "PAUSE", 0.1)
    monkeypatch.setattr(run, "stop_on_sigterm", str)

    def keep(engine: Engine) -> None:
        wait_until(lambda: [tags.get("step") for tags in tags_of(engine)] == ["train"], seconds=180)
        with serving(Kubernetes(engine).answer) as server:
            flags = ["--api", f"http://{server.address}", "--service-account", str(tmp_path)]
            assert run.main([*flags, "--namespace", "slipway", "--pipeline", "toy", "--jobs", "toy-schedule"]) == 0
        wait_until(lambda: len(tags_of(engine)) == 2, seconds=180)
        by_clock, by_update = sorted(tags_of(engine), key=lambda tags: "scheduled" not in tags)
        assert by_clock["scheduled"] == "20261122-0300"
        assert (by_clock["step"], by_clock["digest"]) == (by_update["step"], by_update["digest"])
        links = {run["info"]["artifact_uri"].rpartition("/")[2] for run in runs_of(engine)}
        assert links == {by_update["digest"], f"{by_update['digest']}-20261122-0300"}

    file = stack_file(tmp_path / "stack.yaml", pipelines={"toy": section}, **settings)
    outcome, printed = rehearse_file(tmp_path / "out", file, keep=keep)
    assert outcome.exit_code == 0, printed


def test_a_run_by_the_clock_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearse_with_a_night(tmp_path, monkeypatch, {"storage": "1Gi"})


def test_a_run_by_the_clock_appears_in_a_postgres(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: int
) -> None:
    monkeypatch.setenv("SLIPWAY_SECRET_RUNS", PASSWORD)
    database = {"address": f"127.0.0.1:{postgres}/runs", "password": "runs", "tls": False}
    egress = {"allow": {"databases": {"cidr": "10.0.0.0/8", "ports": [postgres]}}}
    rehearse_with_a_night(tmp_path, monkeypatch, {"database": database}, egress=egress)
