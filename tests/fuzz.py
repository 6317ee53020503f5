"""Mutated stack and pipeline files: whatever is in one, it is previewed, or refused with the key, in bounded time
and memory.

    python -m tests.fuzz --kind stack --count 5000 --seed 1
    python -m tests.fuzz --kind pipeline --count 5000 --seed 1

A pipeline's file is mutated beside its other files, and previewed in a stack that runs it. Every case depends on
the seed and its number alone; ``--only NUMBER`` repeats one and shows its file. What is wrong is printed as it is
found, and the process exits with 1.
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
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from slipway.command.reference import shipped

ROOT = Path(__file__).parents[1]
STACKS = shipped.stacks()
WORKLOADS = ROOT / "workloads"
PIPELINES = "slipway:pipelines"

CPU = 10
"""Seconds of CPU time that one file may take."""

MEMORY = 1 << 30
"""Bytes that the whole process may map beyond what it has once everything is imported."""

LONGEST = 2000
"""Characters of any part of an error."""

EDITED = 0.25
"""The share of the files in which text is changed, not values."""

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
PIPELINE_VALUES: Sequence[Any] = (
    "{", "}", "{}", "{{", "{output}", "{store}", "{pipeline}", "{item}", "{previous}", "{port}", "{data}",
    "{token}", "{prepare}", "{train}", "{x}", "{" * 3000, "{store}/../x", "{store}/**/*", "*/" * 200 + "*",
    "**/*.py", "../x.py", "metrics.json#/a", "m.json#", "#/x", "x.png", "a/../../x.json#/~2", "python x.py",
    ["python"], ["python", "x.py"], ["{output}"], ["sh", "-c", "x"], ["python", "-m", "x", ""],
    "requirements.txt", "Dockerfile", "ordered", "valkey", "program", "tensorboard", "notebook", "max", "percent",
    "integer", "number", "boolean", 22, 80, 8080, 65536, {"run": ["python"]}, {"number": "m.json#/a"},
    {"count": 2, "wait": "1m"}, {"by": "x", "of": "max"}, {"files": "{prepare}/*.csv"}, {"pool": ["cpu", "gpu"]},
    {"a": list(range(200))}, {"type": "integer", "default": "x"}, {"type": "string", "choices": []}, {"x": ["x"]},
    {"train": "train"},
)  # fmt: skip
PIPELINE_KEYS = ("output", "store", "pipeline", "item", "pool", "uses", "steps", "class", "__init__", "mover")
SNIPPETS = (
    "!!bool ", "!!set ", "!!int ", "!!float ", "!!binary ", "!x ", "&a ", "*a", "<<: *a", "? ", "- ", ": ", "{",
    "}", "[", "]", "'", '"', "|\n", ">\n", "#", "%YAML 1.2\n", "---\n", "...\n", "\t", "\0", "\ufeff", "\u2028",
    "\x85", "~", "0b_", "0x", "1e400", ".inf", ".nan", "9" * 5000, '"\\ud800"', '"\\0"', "[" * 900, "null",
    "yes", "=", "@", "`", "\r",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """The text of a stack's file, or of that of the pipeline in the folder ``pipeline``."""

    stack: str
    text: str
    pipeline: str = ""


def stack_case(number: int, seed: int) -> Case:
    """A stack's file with one to three mutations."""
    chance = random.Random(f"{seed}:{number}")
    stack = STACKS[number % len(STACKS)]
    text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    if chance.random() < EDITED:
        return Case(stack, edit_text(text, chance))
    content = copy.deepcopy(_content(stack))
    _mutate_some(content["config"], chance)
    return Case(stack, _yaml(content))


def pipeline_case(number: int, seed: int) -> Case:
    """A pipeline's file with one to three mutations."""
    chance = random.Random(f"{seed}:{number}")
    stack, pipeline = _runs()[number % len(_runs())]
    text = (WORKLOADS / pipeline / "pipeline.yaml").read_text(encoding="utf-8")
    return Case(stack, mutate_pipeline(text, chance), pipeline)


def mutate_pipeline(text: str, chance: random.Random) -> str:
    """The text of a ``pipeline.yaml`` with one to three mutations."""
    if chance.random() < EDITED:
        return edit_text(text, chance)
    content = yaml.safe_load(text)
    _mutate_some(content, chance, (*VALUES, *PIPELINE_VALUES), (*KEYS, *PIPELINE_KEYS))
    return _yaml(content)


CASES: Mapping[str, Callable[[int, int], Case]] = {"stack": stack_case, "pipeline": pipeline_case}


def edit_text(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 3)):
        text = edit(text, chance)
    return text


def _mutate_some(
    content: dict[str, Any], chance: random.Random, values: Sequence[Any] = VALUES, keys: Sequence[str] = KEYS
) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        mutate(content, chance, values, keys)


def _yaml(content: dict[str, Any]) -> str:
    # JSON is YAML but for the pairs of surrogates, which `ensure_ascii` would write.
    return json.dumps(content, ensure_ascii=False, indent=1)


@cache
def _runs() -> Sequence[tuple[str, str]]:
    """Each stack with each of its pipelines that has the name of its folder."""
    sections = {stack: _content(stack)["config"].get(PIPELINES, {}) for stack in STACKS}
    return [(stack, name) for stack in STACKS for name, own in sections[stack].items() if "uses" not in own]


@cache
def _content(stack: str) -> dict[str, Any]:
    from slipway.infra.schema.yaml_files import read_yaml

    return read_yaml(ROOT / "stacks" / f"Pulumi.{stack}.yaml")


def edit(text: str, chance: random.Random) -> str:
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
    for key, item in list(items):
        yield value, key
        yield from _places(item)


def mutate(
    content: dict[str, Any], chance: random.Random, values: Sequence[Any] = VALUES, keys: Sequence[str] = KEYS
) -> None:
    places = list(_places(content))
    if not places:
        return
    holder, key = chance.choice(places)
    value = holder[key]
    match chance.randrange(9):
        case 0 | 1 | 2:
            holder[key] = copy.deepcopy(chance.choice(values))
        case 3 if isinstance(value, str):
            at = chance.randint(0, len(value))
            mark = chance.choice(("", "\n", " ", "\0", ".", "-", "/", "0", "X", "é", ":", "%", "[red]", "\x1b"))
            holder[key] = value[:at] + mark + value[at + chance.randint(0, 1) :]
        case 3 if isinstance(value, int | float):
            holder[key] = chance.choice((-value, value * 10**9, value + 1, value + 0.5, str(value), value * 1e300))
        case 4:
            del holder[key]
        case 5 if isinstance(holder, dict):
            renamed = chance.choice((*keys, f"{key}s", key[:-1], key.upper(), f"{key}\n", key.replace("_", "-")))
            holder[renamed] = holder.pop(key)
        case 6 if isinstance(holder, dict):
            holder[chance.choice(keys)] = copy.deepcopy(value)
        case 7:
            other, name = chance.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case _ if isinstance(value, list):
            holder[key] = chance.choice((value * 2, value[:-1], value * 3000, [value]))
        case _:
            holder[key] = copy.deepcopy(chance.choice(values))


class HangError(BaseException):
    """A case took more than its CPU time. Nothing takes it for an error of the pipeline's program."""


def _tree(folder: Path) -> Path:
    """The repository with stack files of its own."""
    for path in ROOT.iterdir():
        if path.name not in {"stacks", ".git", "build"}:
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "stacks", folder / "stacks")
    return folder


@cache
def _secrets() -> Any:
    from slipway.engine.evaluation.encoding import Secrets

    return Secrets(b"key")


@contextlib.contextmanager
def _written(case: Case, tree: Path) -> Generator[None]:
    """Has the case's file in ``tree``; a pipeline in a folder of its own, because discovery remembers each."""
    file = tree / "stacks" / f"Pulumi.{case.stack}.yaml"
    text = case.text
    folder = Path(tempfile.mkdtemp(dir=tree))
    try:
        if case.pipeline:
            shutil.copytree(WORKLOADS / case.pipeline, folder / case.pipeline)
            (folder / case.pipeline / "pipeline.yaml").write_bytes(case.text.encode("utf-8", "surrogatepass"))
            content = copy.deepcopy(_content(case.stack))
            content["config"][PIPELINES][case.pipeline]["uses"] = str(folder / case.pipeline)
            text = json.dumps(content)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        yield
    finally:
        # Other stacks read the file as it is in the repository.
        shutil.copyfile(ROOT / "stacks" / file.name, file)
        shutil.rmtree(folder)


def wrong(case: Case, tree: Path) -> tuple[str, str]:
    """What became of the file, ``accepted`` or the error's kind, and what is wrong with that."""
    from slipway.engine.evaluation.__main__ import evaluate_stack, other_stacks
    from slipway.engine.evaluation.decoding import decode
    from slipway.engine.evaluation.worker import evaluate_or_fail as printed
    from slipway.evaluated.model import document
    from slipway.infra.exits import Exit
    from slipway.infra.review.contract import Severity
    from slipway.preview.build import Options, build, exit_code
    from slipway.preview.markdown import comment
    from slipway.preview.revisions import Evaluations

    stack = case.stack
    with _written(case, tree):
        evaluations = printed(stack, tree, _secrets(), evaluate_stack) | other_stacks(stack, tree, _secrets())
    decoded = json.loads(json.dumps(evaluations))
    failure = decoded.get("failure")
    kind = failure["kind"] if failure else "accepted"
    if failure and (complaint := unclear(failure, stack, case.pipeline and "pipeline.yaml")):
        return kind, complaint
    options = Options(date(2026, 11, 22), lambda _: {})
    preview = build(Evaluations({stack: decode(stack, decoded)}, {}), options)
    if not failure and exit_code(preview, Severity.ERROR) == Exit.REFUSED:
        return kind, preview.stacks[0].failures[0].message
    shown = document(preview) + comment(preview)
    return kind, "a control character in the preview" if re.search(r"[\0-\x08\x0b-\x1f\x7f]", shown) else ""


def unclear(failure: Mapping[str, Any], stack: str, name: str = "") -> str:
    """What is wrong with a refusal: no error of the project's own, nothing named, or nothing fit to be shown.

    A problem names a key of the stack's file, or the file ``name`` of a pipeline.
    """
    message, problems = failure["message"], failure["problems"]
    if failure["kind"] not in REFUSALS:
        return f"{failure['kind']}: {message[:300]} ({failure['where']})"
    if failure["kind"] == "ConfigError":
        told = message.split("\n")
        if not all(f"Pulumi.{stack}.yaml" in line for line in told):
            return f"the file is not named: {message}"
    else:
        told = [problem[key] for problem in problems for key in ("key", "value", "reason", "fix")]
        named = all(
            problem["key"].startswith("slipway") or (name and name in problem["key"]) for problem in problems
        )
        if not all(told) or not told or not named:
            return f"a problem without its key, reason or fix: {problems}"
    unfit = [text for text in told if not text.isprintable() or len(text) > LONGEST]
    return f"not fit to be shown: {unfit[0][:300]!r}" if unfit else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description="Preview mutated files.")
    parser.add_argument("--kind", choices=CASES, default="stack", help="what is mutated")
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
    longest, slowest = 0.0, 0
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        tree = _tree(Path(folder))
        # Everything is imported before the memory is limited.
        wrong(Case(STACKS[0], (ROOT / f"stacks/Pulumi.{STACKS[0]}.yaml").read_text(encoding="utf-8")), tree)
        for size in Path("/proc/self/statm").read_text().split()[:1]:
            most = int(size) * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        for number in numbers:
            case = CASES[options.kind](number, options.seed)
            if options.only is not None:
                print(case.text)
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, CPU)
            try:
                kind, complaint = wrong(case, tree)
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
            longest, slowest = max((longest, slowest), (time.process_time() - begun, number))
            outcomes[kind] += 1
            if complaint:
                bad += 1
                print(
                    f"case {number} of seed {options.seed}, {case.stack} {case.pipeline}: {complaint}", flush=True
                )
    print(f"{sum(outcomes.values())} files: {dict(outcomes)}; {bad} wrong", file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"most CPU time {longest:.1f} s, case {slowest}; most memory {peak} MiB", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
