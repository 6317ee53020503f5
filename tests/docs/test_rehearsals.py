"""What the pages tell a reader to type works: rehearsals of stacks with the same pipeline, one after the other.

Each stack's store has what rehearsals of the others left there, so that a step with the same inputs and settings
finds its work done: the clusters, pools and gates are another stack's each time, the training seldom is.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.files import LOCK, MARK
from tests.docs.commands import new_clone, rehearses, run, typed_blocks
from tests.docs.fences import Block

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PAGES = ("rehearsal", "compare-gpus", "performance", "onprem", "teams", "your-project")
"""Pages whose stacks have the pipeline `mnist`, in the order in which they are read here."""

PIPELINE = "mnist"


def in_turn() -> list[Block]:
    """The blocks of the pages that rehearse, those first that begin anew."""
    rehearsing = [block for block in typed_blocks() if rehearses(block) and Path(block.page).stem in PAGES]
    return sorted(rehearsing, key=lambda block: (not _begins_anew(block), PAGES.index(Path(block.page).stem)))


def _begins_anew(block: Block) -> bool:
    return bool(re.search(r"\bFRESH=1|--fresh\b", block.body))


def stacks(block: Block) -> Iterator[str]:
    for line in block.body.splitlines():
        if match := re.search(r"(?:^make|-m slipway) (rehearse|demo)\b", line):
            named = re.search(r"(?:\bSTACK=|--stack )(\S+)", line)
            yield named[1] if named else {"rehearse": "gcp-dev", "demo": "demo"}[match[1]]


def lend(clone: Path, stack: str) -> None:
    """Gives a stack that was never rehearsed a store with the results of others."""
    folder = clone / "build" / "rehearsal" / stack
    if folder.exists():
        return
    for run_folder in clone.glob(f"build/rehearsal/*/store/{PIPELINE}/*/*"):
        target = folder.joinpath("store", *run_folder.parts[-3:])
        if not target.exists():
            shutil.copytree(run_folder, target)
    folder.mkdir(parents=True, exist_ok=True)
    # A folder without it is somebody else's.
    (folder / LOCK).write_bytes(MARK)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_clone(tmp_path_factory.mktemp("clone") / "slipway")


@pytest.mark.parametrize("block", in_turn(), ids=str)
def test_commands_run(block: Block, clone: Path) -> None:
    for stack in stacks(block):
        lend(clone, stack)
    run(block, clone)
