"""What the pages tell a reader to type works: a block fenced as ``sh`` runs in a copy of the repository.

`tests.docs.test_rehearsals` has the blocks that rehearse one stack after the other.
"""

from pathlib import Path

import pytest

from tests.docs.commands import new_clone, run, typed_blocks
from tests.docs.fences import Block
from tests.docs.test_rehearsals import in_turn

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ALONE = [block for block in typed_blocks() if block not in in_turn()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_clone(tmp_path_factory.mktemp("clone") / "slipway")


@pytest.mark.parametrize("block", ALONE, ids=str)
def test_commands_run(block: Block, clone: Path) -> None:
    run(block, clone)
