"""Apps of the kind `tensorboard`: what they read, what they may not, and what they wait for."""

from pathlib import Path

from infra.pipelines import tensorboard
from infra.pipelines.lock_files import unpinned
from infra.pipelines.tensorboard import TensorBoardSettings
from tests.support.checkout import ROOT

ON_CPU = TensorBoardSettings(pool="cpu")


def test_it_shows_the_runs_of_a_step_or_of_the_whole_pipeline() -> None:
    of_step = tensorboard.declaration("board", ON_CPU, "train")
    assert of_step.arguments[:2] == ["--logdir", "{pipeline}/train"]
    assert tensorboard.declaration("board", ON_CPU).arguments[:2] == ["--logdir", "{pipeline}"]


def test_it_reads_the_store_alone_and_waits_for_no_step() -> None:
    found = tensorboard.declaration("board", ON_CPU, "train")
    assert found.uses_store
    assert not found.writes
    assert (found.after, dict(found.inputs), found.connects) == ((), {}, ())
    assert (found.placed_by.cpu, found.placed_by.memory) == ("250m", "1Gi")


def test_its_lock_file_pins_all_that_it_needs() -> None:
    lock = Path(ROOT, tensorboard.REQUIREMENTS)
    assert unpinned(lock) is None
    assert "\ntensorboard==" in lock.read_text(encoding="utf-8")
