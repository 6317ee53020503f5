"""Apps of the kind `tensorboard`: what they read, what they may not, and what they wait for."""

from pathlib import Path

from slipway.features.tensorboard import feature as tensorboard
from slipway.features.tensorboard.feature import TensorBoardSettings
from slipway.features.tensorboard.pod import serve
from slipway.infra.pipelines.discovery import apps_of
from slipway.infra.pipelines.images import lock_problem
from slipway.infra.settings.loading import load
from tests.infra.pipelines.shop import SHOP, stack, written
from tests.support.checkout import ROOT
from tests.support.stack_values import changed

ON_CPU = TensorBoardSettings(pool="cpu")


def test_it_shows_the_runs_of_a_step_or_of_the_whole_pipeline() -> None:
    of_step = tensorboard.declaration("board", ON_CPU, "train")
    assert of_step.arguments[:2] == ["--logdir", "{pipeline}/train"]
    assert tensorboard.declaration("board", ON_CPU).arguments[:2] == ["--logdir", "{pipeline}"]


def test_of_a_sweep_it_shows_every_variant(tmp_path: Path) -> None:
    several = {
        "steps.train.matrix": {"colour": ["red", "blue"]},
        "steps.train.run": ["python", "train.py", "{prepare}", "--output", "{output}", "{colour}"],
        "apps": {"curves": {"kind": "tensorboard", "step": "train"}},
    }
    folder = written(tmp_path / "shop", changed(SHOP, several))
    settings = load(stack(folder, {"apps": {"curves": {"pool": "cpu"}}})).pipelines["shop"]
    (curves,) = apps_of(str(folder), settings)
    store = tmp_path / "store"
    (store / "shop/train-red").mkdir(parents=True)
    started = serve.command([argument.format(pipeline=store / "shop", port=6006) for argument in curves.arguments])
    shown = Path(started[started.index("--logdir") + 1])
    assert {path.name for path in shown.iterdir()} == {"train-red", "train-blue"}
    # What comes later is shown, too.
    assert [path.name for path in shown.iterdir() if path.is_dir()] == ["train-red"]
    (store / "shop/train-blue").mkdir()
    assert all(path.is_dir() for path in shown.iterdir())
    assert started[-2:] == ["--port", "6006"]


def test_it_reads_the_store_alone_and_waits_for_no_step() -> None:
    board = tensorboard.declaration("board", ON_CPU, "train")
    assert board.uses_store
    assert not board.writes
    assert (board.after, dict(board.inputs), board.connects) == ((), {}, ())
    assert (board.placed_by.cpu, board.placed_by.memory) == ("250m", "1Gi")


def test_its_lock_file_pins_all_that_it_needs() -> None:
    lock = Path(ROOT, tensorboard.REQUIREMENTS)
    assert lock_problem(lock) is None
    assert "\ntensorboard==" in lock.read_text(encoding="utf-8")
