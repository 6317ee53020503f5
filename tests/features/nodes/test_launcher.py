"""Several pods of one step as real processes on the loopback: how they meet, fall and go on."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.features.items.pod.item_runner import ItemRunner
from slipway.features.nodes.pod.group import KILLED_AGAIN, NEIGHBOUR_FAILED, NODES_MISSING
from slipway.features.nodes.pod.pod import Ending, NodeRunner
from slipway.runtime.exits import BAD_INPUT, INTERRUPTED
from slipway.runtime.steps.outputs import NO_RESULT
from slipway.runtime.steps.program import Program, Runner
from slipway.runtime.store import check, publish, staging
from tests.features.nodes import impatient
from tests.support.checkout import ROOT
from tests.support.stand_in_job import StandInJob

Jobs = Callable[..., StandInJob]

PLAIN = ROOT / "tests" / "support" / "node_sums.py"

FOREVER = """
import os, pathlib, time
out, rank = pathlib.Path({out!r}), os.environ["RANK"]
with open(out / ("began-" + rank), "a") as file:
    file.write(os.environ["SLIPWAY_GENERATION"] + " ")
while not (out / "go").exists():
    time.sleep(0.02)
"""
"""Runs until the test lets it end."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Jobs]:
    """Starts a Job with a program of the test's; `{out!r}` in it is the output. Leaves no process behind."""
    jobs: list[StandInJob] = []

    def start_job(script: str | Path, count: int = 2, *flags: object, **options: Any) -> StandInJob:
        folder = tmp_path / options.pop("name", "job")
        out = folder / "out"
        out.mkdir(parents=True, exist_ok=True)
        wait = options.pop("wait", 60)
        only = options.pop("only", range(count))
        words = options.pop("words", ())
        program = folder / "program.py"
        program.write_text(
            script.read_text() if isinstance(script, Path) else script.replace("{out!r}", repr(str(out)))
        )
        outputs = ["--output", out, "--code", folder]
        job = StandInJob(
            folder,
            count,
            ["--wait", wait, "--step", "churn.train", *outputs, *flags],
            [sys.executable, program, *words],
            **options,
        )
        jobs.append(job)
        for index in only:
            job.start(index)
        return job

    yield start_job
    for job in jobs:
        for process in job.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        left = job.left_behind() if job.is_over else []
        job.kill()
        assert not left


def until(job: StandInJob, condition: Callable[[], object]) -> None:
    """Look after the pods until the condition holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, job.logs()
        job.look_after()
        time.sleep(0.02)


def began(job: StandInJob, rank: int) -> list[str]:
    """The generations in which the program of a rank was at work."""
    path = job.folder / "out" / f"began-{rank}"
    return path.read_text().split() if path.exists() else []


def at_work(job: StandInJob, generation: int) -> None:
    """Wait until the programs of all ranks are at work in a generation."""
    until(job, lambda: all(began(job, rank)[-1:] == [str(generation)] for rank in range(job.count)))


def finish(job: StandInJob) -> None:
    """Let the programs end that wait for it, and the Job with them."""
    (job.folder / "out" / "go").touch()
    job.run()


def last_error(job: StandInJob, index: int) -> str:
    text = job.text(index)
    assert "Traceback" not in text, text
    return [line for line in text.splitlines() if line.startswith("error: ")][-1]


def plain(job_folder: Path, steps: int = 30, seconds: float = 0.05) -> tuple[object, ...]:
    return (job_folder / "job" / "out", steps, seconds)


def expected(steps: int, count: int) -> str:
    """What the plain program leaves, computed alone."""
    import hashlib

    value = ""
    for done in range(steps):
        total = sum((rank + 1) * (done + 7) ** 2 % 1009 for rank in range(count))
        value = hashlib.sha256(f"{value} {total}".encode()).hexdigest()
    return value


def value(job: StandInJob) -> str:
    check(job.folder / "out")
    return json.loads((job.folder / "out" / "value.json").read_text())["value"]


@pytest.mark.slow
def test_all_start_at_once_know_of_one_another_and_rank_0_publishes(start: Jobs) -> None:
    script = """
import json, os, pathlib
names = ("TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLIPWAY_RECORD")
found = {name: os.environ.get(name) for name in names}
pathlib.Path({out!r}, "rank-" + os.environ["RANK"]).write_text(json.dumps(found))
"""
    record = {"SLIPWAY_RECORD": "record"}
    job = start(script, 3, "--roles", "chief=1,worker=2", "--result", "told=rank-2", environment=record, only=[])
    job._environment["SLIPWAY_RECORD"] = str(job.folder / "record")
    job.start_all()
    job.run()

    manifest = check(job.folder / "out")
    assert (manifest.step, sorted(manifest.files)) == ("churn.train", ["rank-0", "rank-1", "rank-2"])
    ports = job.ports
    for rank in range(3):
        told = json.loads((job.folder / "out" / f"rank-{rank}").read_text())
        cluster = {"chief": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]}
        task = {"type": "worker", "index": rank - 1} if rank else {"type": "chief", "index": 0}
        assert json.loads(told["TF_CONFIG"]) == {"cluster": cluster, "task": task}
        assert (told["RANK"], told["WORLD_SIZE"]) == (str(rank), "3")
        assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("127.0.0.1", str(ports[0]))
        assert told["SLIPWAY_RECORD"] is None
        assert "Generation 1: all 3 pods are here, all programs start" in job.text(rank)
        assert ("Published" in job.text(rank)) == (rank == 0)
    assert (job.folder / "record").exists()


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("whole_pod", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_lost_pod_takes_all_back_to_the_checkpoint(
    start: Jobs, tmp_path: Path, victim: int, whole_pod: bool
) -> None:
    job = start(PLAIN, 3, words=plain(tmp_path))
    checkpoint = job.folder / "out" / "checkpoint.json"
    until(job, lambda: checkpoint.exists() and json.loads(checkpoint.read_text())["done"] >= 3)
    others = {index: pod.pid for index, pod in job.pods.items() if index != victim}
    for process in job.processes(victim) if whole_pod else [job.pods[victim].pid]:
        os.kill(process, signal.SIGKILL)
    job.run()

    assert value(job) == expected(30, 3)
    # The others stayed: what they hold is not given up for a neighbour.
    assert {index: job.pods[index].pid for index in others} == others
    assert job.codes == {index: [-9, 0] if index == victim else [0] for index in range(3)}
    for index in range(3):
        lines = job.text(index).splitlines()
        assert f"Generation 2: pod {victim} was lost, all programs start again" in lines
        assert "step 0 of 30" in lines
        assert len([line for line in lines if re.fullmatch(r"step [1-9]\d* of 30", line)]) == 1


@pytest.mark.slow
def test_a_program_that_is_killed_starts_again_with_all_others(start: Jobs) -> None:
    job = start(FOREVER)
    at_work(job, 1)
    for process in job.programs(1):
        os.kill(process, signal.SIGKILL)
    at_work(job, 2)
    for process in job.programs(0):
        os.kill(process, signal.SIGTERM)
    at_work(job, 3)
    finish(job)
    assert job.codes == {0: [0], 1: [0]}
    assert "Generation 2: the program of pod 1 was killed by SIGKILL, all programs start again" in job.text(0)
    assert "Generation 3: the program of pod 0 was killed by SIGTERM, all programs start again" in job.text(1)


@pytest.mark.slow
def test_a_program_that_is_killed_again_and_again_ends_the_step_with_a_hint_at_memory(start: Jobs) -> None:
    script = """
import os, signal, time
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""
    job = start(script)
    job.run()
    assert job.failed == KILLED_AGAIN
    assert job.codes[1] == [KILLED_AGAIN]
    assert re.match(r"error: churn.train: this pod was killed 6 times in a row, .*memory", last_error(job, 1))
    assert not (job.folder / "out" / "manifest.json").exists()


@pytest.mark.slow
def test_an_error_in_one_program_is_that_pods_and_nobody_elses(start: Jobs, tmp_path: Path) -> None:
    """The others lose their neighbour and fail first: the cause is slow to end."""
    script = PLAIN.read_text().replace(
        '        time.sleep(seconds)\n        done = state["done"]',
        '        time.sleep(seconds)\n        done = state["done"]\n'
        "        if done == 3 and rank == 1:\n"
        "            peers[0].close()\n"
        "            time.sleep(1)\n"
        '            print("the data of day 3 is malformed", flush=True)\n'
        "            sys.exit(3)",
    )
    job = start(script, 3, words=plain(tmp_path))
    job.run()
    assert job.failed == 3
    assert job.codes[1] == [3]
    assert "the data of day 3 is malformed" in job.text(1)
    cause = "the program of pod 1 (127.0.0.1) failed with exit code 3: the data of day 3 is malformed"
    assert job.text(1).splitlines()[-1] == "error: churn.train: the data of day 3 is malformed (exit code 3)"
    for index in (0, 2):
        assert f"Generation 1 ended: {cause}" in job.text(index)
        assert job.pods[index].wait() == NEIGHBOUR_FAILED
        assert job.text(index).splitlines()[-1] == f"error: churn.train: stopped: {cause} (exit code 15)"


@pytest.mark.slow
def test_a_pod_that_is_told_to_end_while_its_program_resists_ends_in_time(start: Jobs) -> None:
    """The Job ends with the cause, and its other pods are told so while they still stop their programs."""
    script = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path({out!r}, "told").touch())
if os.environ["RANK"] == "1":
    sys.exit(3)
while True:
    time.sleep(0.02)
"""
    job = start(script)
    job.run()
    assert (job.folder / "out" / "told").exists()
    assert job.codes[1] == [3]
    assert job.pods[0].wait() == NEIGHBOUR_FAILED


@pytest.mark.slow
def test_an_exit_code_that_the_job_would_ignore_becomes_another(start: Jobs) -> None:
    job = start("import sys; sys.exit(15)")
    job.run()
    assert job.failed == 1
    texts = [job.text(0), job.text(1)]
    assert any("its exit code was 15 (exit code 1)" in text for text in texts)


@pytest.mark.slow
def test_who_is_missing_is_said_and_ends_the_wait(start: Jobs) -> None:
    job = start(FOREVER, 3, wait=4, only=[0, 2])
    job.run()
    assert job.failed == NODES_MISSING
    address = f"rank 1 at 127.0.0.1:{job.ports[1]}"
    for index in (0, 2):
        assert f"waiting for 1 of 3 pods: {address}, 2 s of 4 s" in job.text(index)
        code = job.pods[index].wait()
        # The second may have been told to end before it had heard of it.
        assert code in (NODES_MISSING, INTERRUPTED)
    ended = next(index for index in (0, 2) if job.codes[index] == [NODES_MISSING])
    assert f"waited for 1 of 3 pods: {address}, 4 s of 4 s; is there a node for each" in last_error(job, ended)
    assert began(job, 0) == []


@pytest.mark.slow
def test_a_pod_whose_rank_0_never_comes_ends_its_wait(start: Jobs) -> None:
    job = start(FOREVER, wait=3, only=[1])
    job.run()
    assert job.codes[1] == [NODES_MISSING]
    assert f"waiting for 1 of 2 pods: rank 0 at 127.0.0.1:{job.meet}, 2 s of 3 s" in job.text(1)
    assert "Connection refused" in last_error(job, 1)


@pytest.mark.slow
def test_a_name_that_is_not_known_yet_is_waited_for(start: Jobs) -> None:
    job = start(FOREVER, wait=3, only=[])
    at = job.command.index("--meet") + 1
    job.command[at] = "train-0.train.invalid:2221"
    job.start(1)
    job.run()
    assert job.codes[1] == [NODES_MISSING]
    assert re.search(r"rank 0 at train-0.train.invalid:2221, 3 s of 3 s; the last attempt: .+", last_error(job, 1))


@pytest.mark.slow
def test_pods_meet_over_ipv6(start: Jobs) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    job = start("", only=[])
    job.command = [word.replace("127.0.0.1", "[::1]") for word in job.command]
    job.start_all()
    job.run()
    assert job.codes == {0: [0], 1: [0]}


@pytest.mark.slow
def test_nothing_runs_twice_beside_itself_and_nothing_is_left(start: Jobs) -> None:
    """A program starts processes in sessions of their own, as torchrun does; the launcher is killed."""
    script = """
import os, pathlib, subprocess, sys, time
out, rank = pathlib.Path({out!r}), os.environ["RANK"]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
(out / f"child-{rank}").write_text(str(child.pid))
with open(out / ("began-" + rank), "a") as file:
    file.write(os.environ["SLIPWAY_GENERATION"] + " ")
while not (out / "go").exists():
    time.sleep(0.02)
"""
    job = start(script)
    at_work(job, 1)
    before = [int((job.folder / "out" / f"child-{rank}").read_text()) for rank in range(2)]
    job.pods[1].kill()
    at_work(job, 2)
    until(job, lambda: not any(Path(f"/proc/{process}").exists() for process in before))
    finish(job)
    assert job.left_behind() == []


@pytest.mark.slow
def test_an_evicted_pod_has_time_for_a_checkpoint_while_the_others_go_on(start: Jobs) -> None:
    script = """
import os, pathlib, signal, sys, time
out, rank = pathlib.Path({out!r}), os.environ["RANK"]
def stop(*_):
    (out / ("told-" + rank)).touch()
    while not (out / "saved").exists():
        time.sleep(0.02)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
with open(out / ("began-" + rank), "a") as file:
    file.write(os.environ["SLIPWAY_GENERATION"] + " ")
while not (out / "go").exists():
    time.sleep(0.02)
"""
    job = start(script)
    at_work(job, 1)
    out = job.folder / "out"
    job.pods[1].terminate()
    until(job, (out / "told-1").exists)
    assert not (out / "told-0").exists()
    (out / "saved").touch()
    at_work(job, 2)
    assert (out / "told-0").exists()
    finish(job)
    assert job.codes == {0: [0], 1: [INTERRUPTED, 0]}
    assert "Generation 1 ended: pod 1 was lost (it was told to stop)" in job.text(0)


SHARDS = """
import os, pathlib, signal, sys, time
out, rank, code = pathlib.Path({out!r}), os.environ["RANK"], int(sys.argv[1])
folder = pathlib.Path(os.environ["SLIPWAY_CHECKPOINT"])

def save(step):
    temporary = folder / f"step-{step}.tmp"
    temporary.mkdir()
    (temporary / f"{rank}.shard").write_text(f"{step} of {rank}")
    temporary.rename(folder / f"step-{step}")

def told(*_):
    assert pathlib.Path(os.environ["SLIPWAY_NOTICE"]).exists()
    save(99)
    sys.exit(code)

signal.signal(signal.SIGUSR1, told)
found = sorted(f"{path.parent.name}/{path.name}: {path.read_text()}" for path in folder.glob("*/*"))
with open(out / ("began-" + rank), "a") as file:
    file.write(",".join(["", *found]).replace(" ", "_") + ". ")
if os.environ["SLIPWAY_GENERATION"] == "1":
    save(1)
while not (out / "go").exists():
    time.sleep(0.02)
"""


@pytest.mark.slow
def test_all_pods_go_on_from_the_parts_of_one_checkpoint(start: Jobs) -> None:
    settings = json.dumps({"parts": True, "signal": "SIGUSR1", "grace": 20})
    job = start(SHARDS, 2, "--checkpoints", settings, words=(1,))
    until(job, lambda: all("part of checkpoint step-1" in job.text(rank) for rank in range(2)))
    # Its part of another checkpoint, which the other pod does not have, makes none.
    job.pods[1].terminate()
    until(job, lambda: all(len(began(job, rank)) == 2 for rank in range(2)))
    parts = ",step-1/0.shard:_1_of_0,step-1/1.shard:_1_of_1."
    assert [began(job, rank) for rank in range(2)] == [[".", parts]] * 2
    finish(job)
    assert job.codes == {0: [0], 1: [INTERRUPTED, 0]}
    assert not list((job.folder / "out").glob("checkpoints*"))


@pytest.mark.slow
def test_what_rank_0_wrote_is_restored_everywhere_and_a_damaged_one_nowhere(start: Jobs) -> None:
    job = start(SHARDS, 2, "--checkpoints", json.dumps({"signal": "SIGUSR1", "grace": 20}), words=(0,))
    until(job, lambda: "Checkpoint step-1" in job.text(0))
    job.pods[0].terminate()
    until(job, lambda: all(len(began(job, rank)) == 2 for rank in range(2)))
    assert [began(job, rank)[1] for rank in range(2)] == [",step-99/0.shard:_99_of_0."] * 2
    for path in (job.folder / "out").glob("checkpoints*/*/0/files/step-99/0.shard"):
        path.write_text("98 of 0")
    for process in job.programs(1):
        os.kill(process, signal.SIGKILL)
    until(job, lambda: all(began(job, rank)[-1].startswith(",step-1/") for rank in range(2)))
    finish(job)


@pytest.mark.slow
def test_parameter_servers_and_evaluators_end_with_the_workers(start: Jobs) -> None:
    script = """
import json, os, pathlib, signal, sys, time
role = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({out!r}, role).touch(), sys.exit(1)))
while role != "worker":
    time.sleep(0.02)
"""
    job = start(script, 3, "--roles", "ps=1,worker=1,evaluator=1")
    job.run()
    assert job.codes == {0: [0], 1: [0], 2: [0]}
    check(job.folder / "out")


@pytest.mark.slow
def test_a_pod_that_comes_back_after_the_end_finds_nothing_to_do(start: Jobs) -> None:
    job = start("")
    job.run()
    assert job.codes == {0: [0], 1: [0]}
    for index in (1, 0):
        job.start(index)
        assert job.pods[index].wait(30) == 0
        assert "Nothing to do" in job.text(index)


@pytest.mark.slow
def test_a_pod_that_waits_for_rank_0_sees_that_all_is_done(start: Jobs) -> None:
    """Rank 0 was killed after it had published, and its successor had nothing to do."""
    job = start(FOREVER)
    at_work(job, 1)
    os.kill(job.pods[0].pid, signal.SIGSTOP)
    (job.folder / "out" / "go").touch()
    until(job, lambda: not job.programs(1))
    alone = start("", 1, only=[])
    alone.command = [word.replace(str(alone.folder), str(job.folder)) for word in alone.command]
    # The same work, done by a pod that does not meet the other one.
    words = job.command[job.command.index("--") :]
    nodes = ["--meet", f"127.0.0.1:{alone.meet}", "--node", f"127.0.0.1:{alone.ports[0]}"]
    flags = job.command[3 + 2 + 4 : job.command.index("--")]
    alone.command = [*job.command[:3], *nodes, *flags, *words]
    os.kill(job.pods[0].pid, signal.SIGKILL)
    job.pods[0].wait()
    for process in job.processes(0):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    alone.start(0)
    assert alone.pods[0].wait(30) == 0, alone.logs()
    assert job.pods[1].wait(60) == 0, job.logs()
    assert "Nothing to do: the result is there" in job.text(1)
    job._done.update({0, 1})


@pytest.mark.slow
def test_pods_of_another_job_are_not_let_in(start: Jobs) -> None:
    job = start(FOREVER, only=[0], wait=30)
    stranger = start(FOREVER, only=[], wait=3, name="stranger", uid="another Job")
    stranger.command[stranger.command.index("--meet") + 1] = f"127.0.0.1:{job.meet}"
    stranger.start(1)
    stranger.run()
    assert stranger.codes[1] == [NODES_MISSING]
    assert "refused: it belongs to another Job" in last_error(stranger, 1)
    assert began(job, 0) == []
    job.start(1)
    at_work(job, 1)
    finish(job)


@pytest.mark.slow
def test_noise_at_the_meeting_point_disturbs_nobody(start: Jobs) -> None:
    job = start(FOREVER, only=[0])
    until(job, lambda: _can_connect(job.meet))
    noise = [socket.create_connection(("127.0.0.1", job.meet)) for _ in range(4)]
    noise[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    noise[1].sendall(b'{"type":"hello"}\n[1]\nnull\n')
    noise[2].sendall(os.urandom(200_000))
    job.start(1)
    at_work(job, 1)
    finish(job)
    for connection in noise:
        connection.close()


def _can_connect(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.slow
def test_the_newer_of_two_pods_of_one_rank_stays(start: Jobs) -> None:
    """The kubelet of a node that was cut off may bring a pod back that has a successor."""
    job = start(FOREVER)
    at_work(job, 1)
    before = job.pods[1]
    job.start(1)
    at_work(job, 2)
    assert before.wait(30) == INTERRUPTED
    assert "another pod has taken the place of this one" in job.text(1)
    finish(job)


@pytest.mark.slow
def test_a_port_that_is_still_held_is_not_given_to_the_program(start: Jobs) -> None:
    script = """
import os, pathlib
pathlib.Path({out!r}, "told-" + os.environ["RANK"]).write_text(os.environ["TF_CONFIG"])
"""
    job = start(script, only=[])
    with socket.create_server(("127.0.0.1", job.ports[1])):
        job.start_all()
        job.run()
    told = [json.loads((job.folder / "out" / f"told-{rank}").read_text())["cluster"] for rank in range(2)]
    assert told[0] == told[1]
    first, second = told[0]["worker"]
    assert first == f"127.0.0.1:{job.ports[0]}"
    assert second != f"127.0.0.1:{job.ports[1]}"
    assert f"port {job.ports[1]} is still held" in job.text(1)


@pytest.mark.slow
def test_secrets_are_masked_in_what_every_pod_prints(start: Jobs) -> None:
    script = """
import os, sys
print("the token is", os.environ["TOKEN"], flush=True)
if os.environ["RANK"] == "1":
    sys.exit("refused: " + os.environ["TOKEN"])
"""
    job = start(script, 2, "--secret", "TOKEN", environment={"TOKEN": "s3cr3t-0f-th3-st0r3"})
    job.run()
    assert job.failed == 1
    for index in range(2):
        assert "s3cr3t" not in job.text(index)
        assert "refused: [secret]" in job.text(index)


def test_inputs_are_checked_everywhere_and_damage_ends_all(start: Jobs, tmp_path: Path) -> None:
    with staging() as staged:
        (staged / "data").write_text("rows")
        publish(staged, tmp_path / "prepared", step="prepare", inputs={}, settings={}, summary={})
    (tmp_path / "prepared" / "data").write_text("rowz")
    job = start(FOREVER, 2, "--input", f"prepared={tmp_path / 'prepared'}")
    job.run()
    assert job.failed == BAD_INPUT
    assert began(job, 0) == []


@pytest.mark.slow
def test_one_pod_that_cannot_begin_ends_all_with_its_words(start: Jobs) -> None:
    """Its image lacks the program."""
    job = start(FOREVER, only=[0])
    job.command[job.command.index("--") + 1] = "/no/such/program"
    until(job, lambda: "waiting for 1 of 2 pods" in job.text(0))
    job.start(1)
    job.run()
    assert job.failed == BAD_INPUT
    assert job.codes[1] == [BAD_INPUT]
    assert "there is no program '/no/such/program'" in last_error(job, 1)
    assert "pod 1 (127.0.0.1) failed with exit code 4: there is no program" in job.text(0)


@pytest.mark.slow
def test_results_that_are_declared_otherwise_cost_no_second_training(start: Jobs) -> None:
    script = """
import os, pathlib
with open(pathlib.Path({out!r}, "runs-" + os.environ["RANK"]), "a") as file:
    file.write("run ")
"""
    job = start(script, 2, "--result", "model=no-such-file")
    job.run()
    assert job.failed == NO_RESULT
    assert "no-such-file" in last_error(job, 0)
    again = start(script, 2, "--result", "model=runs-0")
    again.run()
    assert again.failed is None, again.logs()
    assert (job.folder / "out" / "runs-1").read_text() == "run "


@pytest.mark.slow
def test_a_lost_pod_does_not_disturb_what_is_being_published(start: Jobs) -> None:
    """Rank 1 dies when its program has ended, and comes back while rank 0 is still at work."""
    script = """
import os, pathlib, time
out = pathlib.Path({out!r})
(out / ("began-" + os.environ["RANK"])).write_text(os.environ["SLIPWAY_GENERATION"])
while os.environ["RANK"] == "0" and not (out / "go").exists():
    time.sleep(0.02)
"""
    job = start(script)
    at_work(job, 1)
    until(job, lambda: "the program of this pod ended well; those of other pods are still at work" in job.text(1))
    job.pods[1].kill()
    until(job, lambda: job.codes[1] == [-9] and job.pods[1].poll() is None)
    finish(job)
    assert job.codes == {0: [0], 1: [-9, 0]}
    assert began(job, 0) == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("whole_pod", [False, True])
def test_who_stood_still_for_too_long_begins_again_with_all_others(
    start: Jobs, tmp_path: Path, victim: int, whole_pod: bool
) -> None:
    # Beside a launcher alone its program goes on, for longer than the silence that is borne.
    steps = 60 if whole_pod else 120
    job = start(PLAIN, 2, words=plain(tmp_path, steps), only=[])
    job.command[job.command.index("-m") + 1] = impatient.__name__
    job.start_all()
    checkpoint = job.folder / "out" / "checkpoint.json"
    until(job, checkpoint.exists)
    processes = job.processes(victim) if whole_pod else [job.pods[victim].pid]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    until(job, lambda: "was lost (it was silent for 3 s)" in job.text(1 - victim))
    for process in processes:
        os.kill(process, signal.SIGCONT)
    job.run()
    assert value(job) == expected(steps, 2)
    assert job.codes == {0: [0], 1: [0]}
    assert len(re.findall(r"^Generation 2: ", job.text(1), re.MULTILINE)) >= 1


@pytest.mark.slow
def test_wrong_flags_are_refused_by_name(tmp_path: Path) -> None:
    ask = functools.partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    base = [
        sys.executable,
        "-m",
        "slipway.features.nodes.pod.launcher",
        "--meet",
        "a:1",
        "--node",
        "a:2",
        "--node",
        "b:2",
        "--output",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "JOB_COMPLETION_INDEX": "0"}
    cases = [
        (["--", "true"], {"JOB_COMPLETION_INDEX": "2"}, "from 0 to 1"),
        (["--", "true"], {"JOB_COMPLETION_INDEX": ""}, "JOB_COMPLETION_INDEX"),
        (["--roles", "boss=2", "--", "true"], {}, "boss=2"),
        (["--wait", "0", "--", "true"], {}, "--wait 0"),
        (["--node", "c", "--", "true"], {}, "'c' is not HOST:PORT"),
        (["--nodes", "c:1", "--", "true"], {}, "--nodes"),
        (["--"], {}, "the program to start is missing"),
        (["--secret", "NO_SUCH", "--", "true"], {}, "NO_SUCH is not set"),
    ]
    for words, changed, said in cases:
        result = ask([*base, *words], env={**environment, **changed})
        assert result.returncode == 2, (words, result.stderr)
        assert said in result.stderr, (words, result.stderr)


def test_a_program_that_is_told_to_stop_while_its_rest_is_ended_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pod waits for that; an item's program has done its work by then."""
    clean_up = Runner._clean_up

    def stop_first(runner: Runner, *rest: Any) -> None:
        runner.stop(5.0)
        clean_up(runner, *rest)

    monkeypatch.setattr(Runner, "_clean_up", stop_first)
    program = Program(["true"], tmp_path, dict(os.environ))
    endings: queue.SimpleQueue[Ending] = queue.SimpleQueue()
    NodeRunner(lambda _, ending: endings.put(ending)).start(program, 1)

    assert endings.get(timeout=60).stopped
    assert not ItemRunner().run(program).stopped
