"""The commands that the pages tell a reader to type, and a clone in which they are typed."""

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests import test_newcomer
from tests.docs.fences import Block, blocks
from tests.support.checkout import ROOT, copy_checkout
from tests.support.clones import bash

BLOCKS = list(blocks(ROOT))

IN_FULL_ELSEWHERE = {"make demo", "make rehearse FRESH=1", "make rehearse STACK=gcp-dev BENCHMARK=1"}
"""Commands whose program other tests run, and look at what it makes: `test_demo_of_mnist.py`, `test_engine.py` and
`test_end_to_end.py` in `tests/rehearse`. `make` only says here what it would run.
"""

NEW = {"STACK": "stacks/Pulumi.{}.yaml", "PIPELINE": "workloads/{}"}
"""What `make new` writes, by the option that names it."""


def of(*infos: str) -> list[Block]:
    return [block for block in BLOCKS if block.info in infos]


def lines(block: Block) -> list[list[str]]:
    """The words of each command of a block."""
    joined = block.body.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def commands(program: str) -> list[tuple[Block, list[str]]]:
    return [(block, words) for block in of("sh", "sh cloud") for words in lines(block) if words[0] == program]


def new(option: str) -> set[str]:
    """The names that the pages give to `make new` as ``option``."""
    named = [words for _, words in commands("make") if words[1] == "new"]
    return {word.partition("=")[2] for words in named for word in words if word.startswith(f"{option}=")}


def typed_blocks() -> list[Block]:
    """The blocks that run here: each command of the pages is in one of them, or in a test of its own.

    A block whose lines stand one after the other in another block runs with that one.
    """
    shell = [block for block in of("sh") if block.page != test_newcomer.PAGE]
    return [block for place, block in enumerate(shell) if not _again(block, shell[:place], shell[place + 1 :])]


def _again(block: Block, before: Sequence[Block], after: Sequence[Block]) -> bool:
    longer = [other for other in before if other.body != block.body]
    return any(f"\n{block.body}" in f"\n{other.body}" for other in (*longer, *after))


def rehearses(block: Block) -> bool:
    return bool(re.search(r"(^make|-m slipway) (rehearse|demo)\b", _script(block), flags=re.MULTILINE))


def new_clone(target: Path) -> Path:
    """The working tree as a new clone would have it, with this environment already installed.

    What a page has the reader make is not there yet, even where somebody followed the page in this working tree.
    """
    root = copy_checkout(target)
    for option, place in NEW.items():
        for name in new(option):
            made = root / place.format(name)
            if made.is_dir():
                shutil.rmtree(made)
            made.unlink(missing_ok=True)
    return root


def run(block: Block, clone: Path) -> None:
    """Types the block in the clone. Fails where a command does."""
    # A demo would go on until somebody ends it.
    bash(clone, _script(block), FOR="1")


def _script(block: Block) -> str:
    """The block, of whose commands make only says what it would run where other tests run that, or it is tests."""

    def line(command: str) -> str:
        elsewhere = command in IN_FULL_ELSEWHERE or re.match(r"make (test|lint|bench)\b", command)
        return command.replace("make", "make --dry-run", 1) if elsewhere else command

    return "\n".join(map(line, block.body.splitlines()))
