"""What the pages show is there.

A block fenced as ``sh`` runs in `tests.docs.test_commands`. One fenced ``sh cloud`` needs an account or a cluster:
its stacks, make targets and configuration keys have to exist, and where the Pulumi CLI is on PATH its commands and
flags too. One fenced ``yaml <stack>`` is laid over that stack's settings, which then have to be accepted. One
fenced ``diff <stack> <stack>`` is all that the files of the two stacks differ in.
"""

import difflib
import itertools
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.schema.problems import without_prefix
from slipway.infra.settings.loading import lay_over, load
from slipway.infra.settings.model import Settings
from tests.docs.commands import BLOCKS, NEW, commands, new
from tests.docs.fences import Block
from tests.support.checkout import ROOT
from tests.support.stack_values import other_stacks, stack_config

KNOWN = {"mermaid", "sh", "sh cloud", "text", "python", "python matrix", "json"}


def test_every_block_says_what_it_is() -> None:
    stacks = {path.stem.removeprefix("Pulumi.") for path in (ROOT / "stacks").glob("Pulumi.*.yaml")}
    known = KNOWN | {f"yaml {stack}" for stack in stacks} | {"yaml"}
    known |= {f"diff {one} {other}" for one in stacks for other in stacks}
    assert [f"{block}: {block.info!r}" for block in BLOCKS if block.info not in known] == []


def option(words: list[str], *names: str) -> str | None:
    for name, value in itertools.pairwise(words):
        if name in names:
            return value
    return None


def test_stacks_that_are_named_exist() -> None:
    made = {words[-1] for _, words in commands("cp")}
    made |= {NEW["STACK"].format(name) for name in new("STACK")}
    missing = [
        f"{block}: {stack}"
        for block, words in commands("pulumi")
        for stack in [option(words, "-s", "--stack")]
        if stack and (file := f"stacks/Pulumi.{stack}.yaml") not in made and not (ROOT / file).exists()
    ]
    assert missing == []


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, flags=re.MULTILINE))
    missing = [
        f"{block}: make {word}"
        for block, words in commands("make")
        # What stands behind `show` are results.
        for word in (words[1:2] if words[1] == "show" else words[1:])
        if "=" not in word and not word.startswith("-") and word not in targets
    ]
    assert missing == []


def test_configuration_keys_that_are_named_exist() -> None:
    missing = [
        f"{block}: {key}"
        for block, words in commands("pulumi")
        if words[1:3] == ["config", "set"]
        for key in [next(word for word in words[3:] if ":" in word)]
        if not (
            key.partition(":")[0] in CLOUDS
            or (key.startswith("slipway:") and key[8:].split(".")[0] in Settings.model_fields)
        )
    ]
    assert missing == []


@pytest.mark.skipif(shutil.which("pulumi") is None, reason="the Pulumi CLI is not on PATH")
@pytest.mark.parametrize(("block", "words"), commands("pulumi"), ids=lambda part: str(part)[:60])
def test_pulumi_commands_have_the_flags_that_are_shown(block: Block, words: list[str]) -> None:
    subcommands = []
    for word in words[1:]:
        if not re.fullmatch(r"[a-z-]+", word) or word.startswith("-") or len(subcommands) == 2:
            break
        subcommands.append(word)
    done = subprocess.run(["pulumi", *subcommands, "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}: {done.stderr}"
    flags = [word.split("=")[0] for word in words if word.startswith("-")]
    assert [flag for flag in flags if not re.search(rf"(^|\s){re.escape(flag)}\b", done.stdout)] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.info.startswith("yaml ")], ids=str)
def test_settings_that_are_shown_are_accepted(block: Block) -> None:
    stack = block.info.split()[1]
    shown: dict[str, Any] = yaml.safe_load(block.body)
    config = lay_over(stack_config(stack, ROOT), shown.get("config", shown))
    load(without_prefix(config), other_stacks(stack).resolve)


def bare(stack: str) -> list[str]:
    """The lines of a stack file but for comments and empty ones."""
    lines = (ROOT / f"stacks/Pulumi.{stack}.yaml").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.strip().startswith("#")]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.info.startswith("diff ")], ids=str)
def test_a_diff_of_two_stacks_is_all_that_they_differ_in(block: Block) -> None:
    _, one, other = block.info.split()
    changes = {line[0] + line[2:] for line in difflib.ndiff(bare(one), bare(other)) if line[0] in "+-"}
    assert {line for line in block.body.splitlines() if line[0] in "+-"} == changes


def test_links_that_the_site_leaves_as_they_are_lead_somewhere() -> None:
    """Those of files that are no pages, such as the README, and those to files outside of the pages; `make docs`
    checks all others."""
    links = [
        (page, target)
        for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
        if page.parent == ROOT or target.startswith("../")
    ]
    assert [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()] == []


READERS = ("docs/own", "tests/own")
"""Folders that a reader's own repository has and this one has not."""

SPAN = re.compile(r"`([^`\n]+)`")


def paths_in(text: str, tops: set[str]) -> list[str]:
    """What stands in backticks outside of fences and begins like a path of this repository."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        span for span in SPAN.findall(prose) if span.partition("/")[0] in tops and "/" in span and " " not in span
    ]


def is_there(path: str) -> bool:
    """Whether the repository has it: `<cloud>` and `*` stand for any one name, `{a,b}` for both."""
    choice = re.search(r"\{([^{}]+)\}", path)
    if choice:
        start, end = choice.span()
        return all(is_there(path[:start] + name + path[end:]) for name in choice[1].split(","))
    return any(ROOT.glob(re.sub(r"<[^<>]+>", "*", path.rstrip("/"))))


def test_paths_in_prose_exist() -> None:
    tops = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in {"build", ".venv"}}
    written = [*READERS, *(NEW[option].format(name) for option in NEW for name in new(option))]
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    missing = [
        f"{page.name}: {path}"
        for page in pages
        for path in paths_in(page.read_text(encoding="utf-8"), tops)
        if not is_there(path) and not any(f"{path}/".startswith(f"{place}/") for place in written)
    ]
    assert missing == []


def test_the_files_of_a_cloud_exist() -> None:
    """The page about clouds names its files from the folder of the cloud."""
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    spans = SPAN.findall(re.split(r"^## ", page.partition("\n## Add a cloud\n")[2], flags=re.MULTILINE)[0])
    below = re.compile(r"(?!slipway/|tests/)[\w*/{},]+\.(py|toml|json|yaml\.j2)")
    files = [span for span in spans if below.fullmatch(span)]
    assert len(files) > 10
    assert [file for file in files if not is_there(f"infra/clouds/<cloud>/{file}")] == []


def test_a_path_that_is_not_there_is_found() -> None:
    text = "`infra/platform.py`, `infra/clouds/<cloud>/pools.py`, `infra/nowhere.py`, `infra/<cloud>/review`"
    spans = paths_in(f"{text}\n```sh\n`infra/fence.py`\n```\n", {"infra"})
    assert [path for path in spans if not is_there(path)] == ["infra/nowhere.py", "infra/<cloud>/review"]
