"""A step with `checkpoints`, rehearsed: what it saved before it failed is there at the next rehearsal."""

from pathlib import Path
from typing import Any

import pytest

from slipway.rehearse.state import Phase
from tests.support.rehearsing import SMALL, pipeline_folder, rehearse_file, stack_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TRAIN = """
import os, pathlib, sys
folder, output = map(pathlib.Path, sys.argv[1:3])
assert str(folder) == os.environ["SLIPWAY_CHECKPOINT"] == os.environ["SAME"]
state = folder / "state"
if not state.exists():
    (folder / "state.new").write_text("half")
    (folder / "state.new").replace(state)
    sys.exit("the first attempt fails")
(output / "model").write_text(f"{state.read_text()} and half")
"""

DECLARED: dict[str, Any] = {
    "steps": {
        "train": {
            "run": ["python", "train.py", "{checkpoint}", "{output}"],
            "environment": {"SAME": "{checkpoint}"},
            "checkpoints": {"every": "10m"},
            "results": {"model": "model"},
        }
    }
}


def test_the_next_rehearsal_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    pipeline_folder(tmp_path / "toy", {"train.py": TRAIN}, **DECLARED)
    section = {"uses": str(tmp_path / "toy"), "steps": {"train": SMALL}}
    file = stack_file(tmp_path / "stack.yaml", pipelines={"toy": section})
    phases = []
    for _ in range(2):
        outcome, _ = rehearse_file(tmp_path / "out", file)
        phases += [record.phase for record in outcome.records if record.name == "toy-train"]
    assert phases == [Phase.FAILED, Phase.SUCCEEDED]
    (run,) = (tmp_path / "out/store/toy/train").iterdir()
    assert (run / "model").read_text() == "half and half"
    assert not list(run.glob("checkpoints*"))
