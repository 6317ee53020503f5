"""Whole rehearsals of small programs: order, failures, what runs again and what does not."""

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.files import LOCK, MARK, BusyError, FolderError, Lock
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.rehearse.session import configure
from slipway.rehearse.state import Phase
from tests.rehearse.toy import TRAINING, Toys, ignore_disruption, rehearse
from tests.support.checkout import ROOT
from tests.support.rehearsing import phases, record, resumed_after, texts_below
from tests.support.tree import write_tree

APPEND = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
"""Adds its second argument to the file that its first names, so that a test sees which Jobs ran in which order."""


def ran(folder: Path) -> str:
    file = folder / "store" / "ran"
    return file.read_text() if file.exists() else ""


def three(second: str = "b", replace_with: bool = False) -> Callable[[], None]:
    def program() -> None:
        toys = Toys()
        one = toys.job("one", APPEND, "/store/ran", "a")
        two = toys.job("two", APPEND, "/store/ran", second, after=[one])
        toys.job("three", APPEND, "/store/ran", "c", after=[two])
        pulumi.export("order", two.metadata.name)
        pulumi.export("hidden", pulumi.Output.secret("a secret"))

    return program


def test_jobs_run_in_order_and_later_only_those_that_changed_as_depends_on_only_orders(tmp_path: Path) -> None:
    outcome, printed = rehearse(three(), tmp_path)
    assert outcome.exit_code == 0
    assert ran(tmp_path) == "abc"
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}
    assert json.loads((tmp_path / "outputs.json").read_text()) == {"hidden": "[secret]", "order": "two"}
    assert not any("a secret" in text for text in [printed, *texts_below(tmp_path)])

    outcome, printed = rehearse(three(), tmp_path)
    assert ran(tmp_path) == "abc"
    assert set(phases(outcome).values()) == {Phase.UNCHANGED}
    assert "0 Jobs run, 3 unchanged" in printed

    outcome, _ = rehearse(three(second="B"), tmp_path)
    assert ran(tmp_path) == "abcB"
    assert phases(outcome) == {"one": Phase.UNCHANGED, "two": Phase.SUCCEEDED, "three": Phase.UNCHANGED}


def test_replace_with_runs_a_job_again_together_with_another(tmp_path: Path) -> None:
    def program(second: str) -> Callable[[], None]:
        def declare() -> None:
            toys = Toys()
            two = toys.job("two", APPEND, "/store/ran", second)
            toys.job("three", APPEND, "/store/ran", "c", after=[two], replace_with=[two])

        return declare

    rehearse(program("b"), tmp_path)
    rehearse(program("B"), tmp_path)
    assert ran(tmp_path) == "bcBc"


@pytest.mark.slow
def test_fresh_and_a_store_that_is_gone_make_all_run_again_and_delete_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(MARK)
    (tmp_path / "mine.txt").write_text("kept")
    for fresh in (False, True, False):
        _, printed = rehearse(three(), tmp_path, fresh=fresh)
        assert ran(tmp_path) == "abc"
        assert ("store" in printed and "MiB" in printed and "report.html, of 20" in printed) == fresh
        if fresh:
            shutil.rmtree(tmp_path / "store")
    assert (tmp_path / "mine.txt").read_text() == "kept"


@pytest.mark.slow
def test_a_failure_stops_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        broken = toys.job("broken", "print('no such digit'); raise SystemExit(3)")
        dependent = toys.job("dependent", APPEND, "/store/ran", "x", after=[broken])
        toys.job("dependent-of-dependent", APPEND, "/store/ran", "x", after=[dependent])
        other = toys.job("other", "import time; time.sleep(0.5)")
        toys.job("after-other", APPEND, "/store/ran", "y", after=[other])
        pulumi.export("after", broken.metadata.name)
        pulumi.export("both", {"other": {"name": other.metadata.name}, "broken": broken.metadata.name})
        pulumi.export("applied", broken.metadata.apply(lambda _: pytest.fail("apply of a resource that failed")))

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert ran(tmp_path) == "y"
    assert phases(outcome) == {
        "broken": Phase.FAILED,
        "dependent": Phase.NOT_RUN,
        "dependent-of-dependent": Phase.NOT_RUN,
        "other": Phase.SUCCEEDED,
        "after-other": Phase.SUCCEEDED,
    }
    assert record(outcome, "broken").exit_code == 3
    assert "its last line: no such digit (exit code 3)" in printed
    assert "│ no such digit" in printed
    assert "Not run, for they need what failed: dependent, dependent-of-dependent" in printed
    assert outcome.evaluation.outputs["after"].known is False
    assert (
        "both: \n  broken: unknown, for what it comes from did not run\n  other: \n    name: other\n" in printed
    ), printed
    outputs = json.loads((tmp_path / "outputs.json").read_text(encoding="utf-8"))
    assert outputs["after"] is None
    assert outputs["both"] == {"other": {"name": "other"}, "broken": None}


@pytest.mark.parametrize("replace_unready", [True, False])
def test_a_failed_job_runs_again_where_it_is_annotated_so(tmp_path: Path, replace_unready: bool) -> None:
    """Without the annotation the old failure is repeated."""

    def program() -> None:
        script = APPEND + "; raise SystemExit(1)"
        Toys().job("job", script, "/store/ran", "x", replace_unready=replace_unready)

    rehearse(program, tmp_path)
    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert ran(tmp_path) == ("xx" if replace_unready else "x")
    assert ("pulumi.com/replaceUnready" in printed) is not replace_unready


def test_jobs_that_nobody_waits_for_run_in_their_turn(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        first = toys.job("first", APPEND, "/store/ran", "1", held=True)
        second = toys.job("second", APPEND + "; raise SystemExit(1)", "/store/ran", "2", held=True, after=[first])
        toys.job("third", APPEND, "/store/ran", "4", held=True, after=[second])

    outcome, _ = rehearse(program, tmp_path)
    assert phases(outcome) == {"first": Phase.SUCCEEDED, "second": Phase.FAILED, "third": Phase.NOT_RUN}
    rehearse(program, tmp_path)
    assert ran(tmp_path) == "122"


@pytest.mark.slow
def test_independent_jobs_run_side_by_side(tmp_path: Path) -> None:
    """Each waits for all the others, so they only end together; and there are more than asyncio has threads."""
    meet = (
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1], sys.argv[2]).touch()\n"
        "while len(os.listdir(sys.argv[1])) < 8: time.sleep(0.02)\n"
    )

    def program() -> None:
        toys = Toys()
        for index in range(8):
            toys.job(f"job-{index}", meet, "/store", str(index), deadline=30)

    outcome, _ = rehearse(program, tmp_path)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}


@pytest.mark.slow
def test_a_pod_that_no_pool_takes_fails_at_once_with_the_reasons(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.job("greedy", "print('never')", cpu="4000", deadline=3600)
        toys.job("gpu", "print('never')", gpus=1, deadline=3600)

    outcome, printed = rehearse(program, tmp_path)
    assert phases(outcome) == {"greedy": Phase.FAILED, "gpu": Phase.FAILED}
    assert "cpu: 1 Insufficient cpu (requested 4000000m" in printed
    assert "cpu: 1 Insufficient nvidia.com/gpu (requested 1, allocatable 0)" in printed


@pytest.mark.slow
def test_two_pods_that_do_not_fit_together_run_one_after_the_other(tmp_path: Path) -> None:
    nodes = ExistingEmulator(configure("local", ROOT).settings.request).standing_nodes()
    most = f"{max(node.allocatable.cpu for node in nodes)}m"

    def program() -> None:
        toys = Toys()
        for name in ("first", "second"):
            toys.job(name, "import time; time.sleep(0.4)", cpu=most)

    outcome, _ = rehearse(program, tmp_path)
    first, second = sorted(outcome.records, key=lambda job: job.finished)
    assert {first.phase, second.phase} == {Phase.SUCCEEDED}
    assert second.pending >= 0.3
    assert any("Insufficient cpu" in note for note in second.notes)


@pytest.mark.slow
def test_a_disrupted_training_is_retried_and_goes_on_where_it_was(tmp_path: Path) -> None:
    def program() -> None:
        Toys().job("toy-train", TRAINING, "/store", "0.02", rules=[ignore_disruption()])

    outcome, printed = rehearse(program, tmp_path, disrupt="train")
    train = record(outcome, "toy-train")
    assert (train.phase, train.attempts, train.epochs) == (Phase.SUCCEEDED, 2, (12, 12))
    assert 4 <= resumed_after(tmp_path) < 12
    assert "evicted after epoch 4 (DisruptionTarget)" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "disrupt", "told"),
    [
        ("[step {epoch}/12] loss 1", "train", "evicted after step 4 "),
        ("nothing", "train:0:after=1s", "evicted 1 s after its program was started "),
    ],
)
def test_a_training_is_disrupted_after_steps_or_seconds(
    line: str, disrupt: str, told: str, tmp_path: Path
) -> None:
    script = TRAINING.replace("Epoch {epoch}/12", line)

    def program() -> None:
        Toys().job("toy-train", script, "/store", "0.2", rules=[ignore_disruption()])

    outcome, printed = rehearse(program, tmp_path, disrupt=disrupt)
    assert (record(outcome, "toy-train").attempts, outcome.exit_code) == (2, 0), printed
    assert told in printed


@pytest.mark.parametrize("quiet", [0, 2])
def test_a_disruption_that_finds_no_pod_says_so(quiet: int, tmp_path: Path) -> None:
    def program() -> None:
        Toys().job("toy-train", "print('step', '1 of 3')")

    outcome, printed = rehearse(program, tmp_path, disrupt="train:after=60s", quiet=quiet)
    assert "--disrupt train:after=60s: nothing was evicted" in printed
    assert outcome.exit_code == 1


def test_what_the_api_server_would_refuse_is_refused(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.job("no-account", "print('never')", service_account="nobody")
        big = toys.declare(k8s.core.v1.ConfigMap, "big", data={"x": "y" * (1024 * 1024 + 1)})
        toys.job("needs-big", "print('never')", after=[big])
        toys.declare(k8s.core.v1.ConfigMap, "lost", metadata={"namespace": "elsewhere"})
        toys.job("Upper", "print('never')")

    outcome, printed = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert phases(outcome)["needs-big"] is Phase.NOT_RUN
    for reason in (
        'serviceaccount "nobody" not found',
        "big failed: data: ",
        'namespaces "elsewhere" not found',
        "Upper: failed: metadata.name: ",
    ):
        assert reason in printed, reason


def test_a_file_that_cannot_be_written_is_the_reason_why_a_job_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "logs" / "one.log").mkdir(parents=True)
    (tmp_path / LOCK).write_bytes(MARK)
    outcome, printed = rehearse(three(), tmp_path)
    assert outcome.exit_code == 1
    assert f"{tmp_path}/logs/one.log: Is a directory" in printed


def test_two_rehearsals_of_a_stack_do_not_run_together(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(BusyError, match=r"another rehearsal \(process \d+\) is at work"):
        rehearse(three(), tmp_path)
    lock.close()
    assert rehearse(three(), tmp_path)[0].exit_code == 0


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"file/below cannot be written to: Not a directory"):
        rehearse(three(), tmp_path / "file" / "below")


def texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("lock", [None, "", "4711", "of another program"])
def test_a_folder_of_somebody_else_is_left_alone(lock: str | None, tmp_path: Path) -> None:
    files = {
        "logs/mine": "mine",
        "pods/mine": "mine",
        "state.json": "{}",
        **({LOCK: lock} if lock is not None else {}),
    }
    write_tree(tmp_path, files)
    with pytest.raises(FolderError, match="is not empty, and no rehearsal made it"):
        rehearse(three(), tmp_path, fresh=True)
    assert texts(tmp_path) == files


def test_the_folder_of_an_earlier_rehearsal_is_known_with_and_without_a_mark(tmp_path: Path) -> None:
    rehearse(three(), tmp_path)
    (tmp_path / LOCK).write_text("4711")
    assert set(phases(rehearse(three(), tmp_path)[0]).values()) == {Phase.UNCHANGED}
    assert (tmp_path / LOCK).read_bytes().startswith(MARK)


@pytest.mark.parametrize("name", ["pods", "logs", "services"])
def test_what_a_link_in_the_folder_leads_to_is_left_alone(name: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "rehearsal", tmp_path / "other"
    rehearse(three(), folder)
    files = {"mine/file": "mine", "prepare.log": "mine"}
    write_tree(other, files)
    (other / "mine" / "file").chmod(0o400)
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).symlink_to(other)
    assert rehearse(three(), folder)[0].exit_code == 0
    assert texts(other) == files
    assert stat.S_IMODE((other / "mine" / "file").stat().st_mode) == 0o400


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"other": MARK.decode(), "folder/file": ""})
    (tmp_path / "folder" / LOCK).symlink_to(tmp_path / "other")
    with pytest.raises(FolderError):
        rehearse(three(), tmp_path / "folder")
    assert (tmp_path / "other").read_bytes() == MARK
