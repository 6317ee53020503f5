"""Mutated stack files: whatever is in one, it is previewed, or refused with the key, in bounded time and memory.

    python -m tests.fuzz --count 5000 --seed 1

Every case depends on the seed and its number alone; ``--only NUMBER`` repeats one and shows its file. What is
wrong is printed as it is found, and the process exits with 1.
"""

import argparse
import contextlib
import copy
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from tools.reference import shipped

ROOT = Path(__file__).parents[1]
STACKS = shipped.stacks()

CPU = 10
"""Seconds of CPU time that one file may take."""

MEMORY = 1 << 30
"""Bytes that the whole process may map beyond what it has once everything is imported."""

LONGEST = 2000
"""Characters of any part of an error."""

REFUSALS = {"SettingsError", "ConfigError"}

VALUES: Sequence[Any] = (
    None, True, False, 0, 1, -1, 2, 7, 64, 0.5, -0.0, 1e308, 2**31, 4294967296, 2**63, 2**64, 10**18, "", " ",
    "\n", "\t", "\0", "\x1b[31m", "\x85", "\u202e", "\u2028", "é", "\uff11\uff12", "\u0663", "`x`", "[bold]x[/]",
    "<script>", "|", "${x}", "$(id)", "{{x}}", "%s", "%n", "x" * 64, "x" * 300, "x" * 5000, "9" * 400,
    "9" * 5000, "1Pi", "999999999Pi", "1e3", "1E", "1m", "0", "0Gi", "-1Gi", "1.0000000001Gi", "4Gi\n", "500m\n",
    "30m\n", "8192", "10.0.0.0/8", "0.0.0.0/0", "127.0.0.0/8", "10.0.0.0/8\n", "::/0", "300.1.1.1/20",
    "10.0.0.0/99", "/", "//", "/.", "/etc", "/proc", "/var/../etc", "..", "../../etc/passwd", "a/../b", "~",
    "store:", "store:..", "store:/x", "docs", "stacks", "https://", "https://x:99999", "https://[::1",
    "http://a b", "s3://x", "localhost:0", "2026-02-30T00:00:00Z", "2026-01-01", "99999999999999d", "1.34.99999",
    "1", "latest", "a@sha256:" + "0" * 64, "us-central1", "us-central1-a", "us-east-1", "us-east-1a",
    "europe-west-4", "a3-highgpu-8g", "p5.48xlarge", "n1-custom-9999999999999999999999-1", "cpu", "predict",
    "kube-system", "existing", "gcp", "aws", "pvc", "nfs", [], {}, [None], [[]], [{}], ["x", "x"], [1, "1"],
    {"": 1}, {"x": None}, {"a.b": {"c": 1}}, {"key": "x", "effect": "x"}, {"secure": "v1:x"},
    {"secure": {"x": 1}}, {"0": 1, "00": 2}, {"-1": 0.1}, {"total_min": 10**9, "total_max": 10**9},
)  # fmt: skip
KEYS = (
    "",
    " ",
    "x",
    "X",
    "a.b",
    "a/b",
    "a b",
    "\n",
    "\x1b[1m",
    "[0]",
    "é",
    "-",
    "_",
    "kube-system",
    "0",
    "x" * 70,
    "~",
)
SNIPPETS = (
    "!!bool ", "!!set ", "!!int ", "!!float ", "!!binary ", "!x ", "&a ", "*a", "<<: *a", "? ", "- ", ": ", "{",
    "}", "[", "]", "'", '"', "|\n", ">\n", "#", "%YAML 1.2\n", "---\n", "...\n", "\t", "\0", "\ufeff", "\u2028",
    "\x85", "~", "0b_", "0x", "1e400", ".inf", ".nan", "9" * 5000, '"\\ud800"', '"\\0"', "[" * 900, "null",
    "yes", "=", "@", "`", "\r",
)  # fmt: skip


def text_of(number: int, seed: int) -> tuple[str, str]:
    """A stack's name, and its file with one to three mutations."""
    chance = random.Random(f"{seed}:{number}")
    stack = STACKS[number % len(STACKS)]
    text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    if chance.random() < 0.25:
        for _ in range(chance.randint(1, 3)):
            text = edited(text, chance)
        return stack, text
    content = copy.deepcopy(_content(stack))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        mutate(content["config"], chance)
    # JSON is YAML but for the pairs of surrogates, which `ensure_ascii` would write.
    return stack, json.dumps(content, ensure_ascii=False, indent=1)


@cache
def _content(stack: str) -> dict[str, Any]:
    from infra.schema.yaml_files import read_yaml

    return read_yaml(ROOT / "stacks" / f"Pulumi.{stack}.yaml")


def edited(text: str, chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    row = chance.randrange(len(lines))
    column = chance.randrange(len(lines[row]))
    line = lines[row]
    colon = line.find(": ") + 2
    match chance.randrange(8):
        case 0:
            lines[row] = line[:column] + chance.choice(SNIPPETS) + line[column:]
        case 1 if colon > 1:
            lines[row] = line[:colon] + chance.choice(SNIPPETS) + line[colon:]
        case 2 if colon > 1:
            lines[row] = line[:colon] + chance.choice(SNIPPETS) + "\n"
        case 3:
            del lines[row]
        case 4:
            lines.insert(chance.randrange(len(lines)), line)
        case 5:
            lines[row] = " " * chance.randint(0, 9) + line.lstrip()
        case 6:
            return "".join(lines[: row + 1])[: -chance.randint(1, 9)] or "x"
        case _:
            lines[row] = line[:column] + line[column + 1 :]
    return "".join(lines) or "x"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        yield value, key
        yield from _places(each)


def mutate(content: dict[str, Any], chance: random.Random) -> None:
    places = list(_places(content))
    if not places:
        return
    holder, key = chance.choice(places)
    value = holder[key]
    match chance.randrange(9):
        case 0 | 1 | 2:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
        case 3 if isinstance(value, str):
            at = chance.randint(0, len(value))
            mark = chance.choice(("", "\n", " ", "\0", ".", "-", "/", "0", "X", "é", ":", "%", "[red]", "\x1b"))
            holder[key] = value[:at] + mark + value[at + chance.randint(0, 1) :]
        case 3 if isinstance(value, int | float):
            holder[key] = chance.choice((-value, value * 10**9, value + 1, value + 0.5, str(value), value * 1e300))
        case 4:
            del holder[key]
        case 5 if isinstance(holder, dict):
            renamed = chance.choice((*KEYS, f"{key}s", key[:-1], key.upper(), f"{key}\n", key.replace("_", "-")))
            holder[renamed] = holder.pop(key)
        case 6 if isinstance(holder, dict):
            holder[chance.choice(KEYS)] = copy.deepcopy(value)
        case 7:
            other, name = chance.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case _ if isinstance(value, list):
            holder[key] = chance.choice((value * 2, value[:-1], value * 3000, [value]))
        case _:
            holder[key] = copy.deepcopy(chance.choice(VALUES))


class HangError(Exception):
    """A case took more than its CPU time."""


def _tree(folder: Path) -> Path:
    """The repository with stack files of its own."""
    for each in ROOT.iterdir():
        if each.name not in {"stacks", ".git", "build"}:
            (folder / each.name).symlink_to(each)
    shutil.copytree(ROOT / "stacks", folder / "stacks")
    return folder


@cache
def _secrets() -> Any:
    from offline.evaluation.encoding import Secrets

    return Secrets(b"key")


def wrong(stack: str, text: str, tree: Path) -> tuple[str, str]:
    """What became of the file, ``accepted`` or the error's kind, and what is wrong with that."""
    from infra.review.policy import Severity
    from offline.evaluation.__main__ import evaluate_stack, other_stacks
    from offline.evaluation.worker import evaluated as printed
    from offline.preview.build import NOT_EVALUATED, Options, build, exit_code
    from offline.preview.evaluated_stack import evaluated
    from offline.preview.markdown import comment
    from offline.preview.model import document
    from offline.preview.revisions import Evaluations

    file = tree / "stacks" / f"Pulumi.{stack}.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        there = printed(stack, tree, _secrets(), evaluate_stack) | other_stacks(stack, tree, _secrets())
    finally:
        # Other stacks read the file as it is in the repository.
        shutil.copyfile(ROOT / "stacks" / file.name, file)
    found = json.loads(json.dumps(there))
    failure = found.get("failure")
    kind = failure["kind"] if failure else "accepted"
    if failure and (complaint := unclear(failure, stack)):
        return kind, complaint
    options = Options(date(2026, 11, 22), lambda _: {})
    preview = build(Evaluations({stack: evaluated(stack, found)}, {}), options)
    if not failure and exit_code(preview, Severity.ERROR) == NOT_EVALUATED:
        return kind, preview.stacks[0].failures[0].message
    shown = document(preview) + comment(preview)
    return kind, "a control character in the preview" if re.search(r"[\0-\x08\x0b-\x1f\x7f]", shown) else ""


def unclear(failure: Mapping[str, Any], stack: str) -> str:
    """What is wrong with a refusal: no error of the project's own, nothing named, or nothing fit to be shown."""
    message, problems = failure["message"], failure["problems"]
    if failure["kind"] not in REFUSALS:
        return f"{failure['kind']}: {message[:300]} ({failure['where']})"
    if failure["kind"] == "ConfigError":
        if f"Pulumi.{stack}.yaml" not in message:
            return f"the file is not named: {message}"
        told = [message]
    else:
        told = [each[key] for each in problems for key in ("key", "value", "reason", "fix")]
        if not all(told) or not told or not all(each["key"].startswith("slipway") for each in problems):
            return f"a problem without its key, reason or fix: {problems}"
    unfit = [each for each in told if not each.isprintable() or len(each) > LONGEST]
    return f"not fit to be shown: {unfit[0][:300]!r}" if unfit else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description="Preview mutated stack files.")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="repeat this case, and show its file")
    options = parser.parse_args(arguments)
    numbers = range(options.first, options.first + options.count) if options.only is None else [options.only]

    def hang(*_: object) -> None:
        raise HangError

    def leave(code: int) -> None:
        raise MemoryError(f"left with {code}")

    signal.signal(signal.SIGPROF, hang)
    # The worker leaves like this when its memory is exhausted; here the number of the case would be lost.
    os._exit = leave
    outcomes = Counter[str]()
    bad = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        tree = _tree(Path(folder))
        # Everything is imported before the memory is limited.
        wrong(STACKS[0], (ROOT / f"stacks/Pulumi.{STACKS[0]}.yaml").read_text(encoding="utf-8"), tree)
        for size in Path("/proc/self/statm").read_text().split()[:1]:
            most = int(size) * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number in numbers:
            stack, text = text_of(number, options.seed)
            if options.only is not None:
                print(text)
            signal.setitimer(signal.ITIMER_PROF, CPU)
            try:
                kind, complaint = wrong(stack, text, tree)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    break
                where = traceback.extract_tb(error.__traceback__)[-1]
                kind, complaint = (
                    "outside",
                    f"{type(error).__name__}: {error!s:.300} ({where.filename}:{where.lineno})",
                )
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            outcomes[kind] += 1
            if complaint:
                bad += 1
                print(f"case {number} of seed {options.seed}, {stack}: {complaint}", flush=True)
    print(f"{sum(outcomes.values())} files: {dict(outcomes)}; {bad} wrong", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
