"""Indexed Jobs: several pods of one Job, side by side, each with its index."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from slipway.rehearse.cluster.job_controller import COMPLETION_INDEX, CONTROLLER_UID
from slipway.rehearse.state import Phase
from tests.rehearse.toy import TRAINING, Toys, ignore_disruption, on_exit_code, rehearse, variable
from tests.support import rehearsing
from tests.support.rehearsing import record

MEET = """
import os, pathlib, sys, time
index = os.environ["JOB_COMPLETION_INDEX"]
pathlib.Path(sys.argv[1], index).write_text(os.environ.get("JOB_UID", ""))
while len(os.listdir(sys.argv[1])) < 3: time.sleep(0.02)
print("worker", index, "is through")
"""
"""Ends when three of it run at once."""


JOB_UID = variable("JOB_UID", field=f"metadata.labels['{CONTROLLER_UID}']")


def log(folder: Path) -> list[str]:
    return rehearsing.log(folder, "days").splitlines()


def days(script: str, *arguments: str, workers: int = 3, **job: Any) -> None:
    Toys().job("days", script, *arguments, workers=workers, deadline=30, **job)


def test_pods_run_side_by_side_and_know_their_index_and_their_job(tmp_path: Path) -> None:
    env = [JOB_UID, variable("INDEX", field=f"metadata.annotations['{COMPLETION_INDEX}']")]
    outcome, printed = rehearse(lambda: days(MEET + "print(os.environ['INDEX'])", "/store", env=env), tmp_path)
    job = record(outcome)
    assert (job.phase, job.workers, job.attempts) == (Phase.SUCCEEDED, 3, 3), printed
    uids = {(tmp_path / "store" / str(index)).read_text() for index in range(3)}
    assert len(uids) == 1
    assert uids != {""}
    lines = log(tmp_path)
    for index in range(3):
        assert [f"[{index}] worker {index} is through", f"[{index}] {index}"] == [
            line for line in lines if line.startswith(f"[{index}]") and "# pod" not in line
        ]
    assert "succeeded on cpu, 3 pods" in printed


def test_every_run_of_a_job_has_a_uid_of_its_own(tmp_path: Path) -> None:
    for change in ("", "#"):
        script = "import os, sys; open(sys.argv[1], 'a').write(os.environ['JOB_UID'] + chr(10))" + change
        rehearse(lambda script=script: days(script, "/store/uids", workers=2, env=[JOB_UID]), tmp_path)
    uids = (tmp_path / "store" / "uids").read_text().split()
    assert [len(list(group)) for _, group in itertools.groupby(uids)] == [2, 2]


@pytest.mark.slow
def test_one_failed_pod_fails_the_job_and_ends_the_others(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('told to end') or 143))\n"
        "if os.environ['JOB_COMPLETION_INDEX'] == '1': time.sleep(0.5); sys.exit(10)\n"
        "time.sleep(600)"
    )
    outcome, printed = rehearse(lambda: days(script), tmp_path)
    job = record(outcome)
    assert (job.phase, job.exit_code, job.attempts) == (Phase.FAILED, 10, 3)
    assert job.reason == "worker 1: container 'main' failed without a word (exit code 10)"
    assert {"[0] told to end", "[2] told to end"} <= set(log(tmp_path))
    assert "[0] told to end" in printed


def test_an_ignored_exit_code_starts_that_index_again_and_no_other(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "index = os.environ['JOB_COMPLETION_INDEX']\n"
        "mark = pathlib.Path(sys.argv[1], index)\n"
        "seen = mark.exists(); mark.touch(); print('runs')\n"
        "sys.exit(0 if seen or index != '2' else 137)"
    )
    outcome, printed = rehearse(lambda: days(script, "/store", rules=[on_exit_code("Ignore", 137)]), tmp_path)
    assert (record(outcome).phase, record(outcome).attempts) == (Phase.SUCCEEDED, 4)
    assert "worker 2: container 'main' exited with 137 (Error); not counted, trying again" in printed
    assert [line.count("runs") for line in log(tmp_path)].count(1) == 4


def test_failures_of_all_indexes_count_together(tmp_path: Path) -> None:
    """As `backoffLimit` does where there is no limit for each index."""
    outcome, _ = rehearse(lambda: days("raise SystemExit(1)", workers=2, backoff_limit=1), tmp_path)
    assert (record(outcome).phase, record(outcome).attempts) == (Phase.FAILED, 2)


@pytest.mark.slow
def test_one_disrupted_worker_is_tried_again_and_not_counted(tmp_path: Path) -> None:
    script = TRAINING.replace('sys.argv[1], "epochs"', "sys.argv[1], os.environ['JOB_COMPLETION_INDEX']")
    script = script.replace("import pathlib", "import os, pathlib")
    outcome, printed = rehearse(
        lambda: days(script, "/store", "0.2", workers=2, rules=[ignore_disruption()]), tmp_path, disrupt="days"
    )
    assert (record(outcome).phase, record(outcome).attempts) == (Phase.SUCCEEDED, 3), printed
    assert "worker 0 evicted (DisruptionTarget)" in printed
    assert sum(line.startswith("[0] # pod") for line in log(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_pods_for_which_no_node_has_room_wait(tmp_path: Path, workers: int) -> None:
    script = "import os, time; print('runs'); time.sleep(0.5)"
    outcome, _ = rehearse(lambda: days(script, workers=workers, cpu="1000m"), tmp_path)
    assert record(outcome).phase is Phase.SUCCEEDED
    waited = [note for note in record(outcome).notes if "Pending" in note]
    assert bool(waited) is (workers > 2)
