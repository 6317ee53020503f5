"""A pipeline's results in the store, as a notebook reads them, and its steps, as a notebook runs them.

The kind `notebook` tells what there is in the environment: `SLIPWAY_STORE`, `SLIPWAY_PIPELINE` (the pipeline's
directory in the store) and `SLIPWAY_STEPS` (JSON, from the name of a step to what `StepInfo` has).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slipway.workloads.runtime.store import MANIFEST, Manifest, NotWholeError, load_manifest

STORE, PIPELINE, STEPS = "SLIPWAY_STORE", "SLIPWAY_PIPELINE", "SLIPWAY_STEPS"
FOLDER = "SLIPWAY_NOTEBOOK_FOLDER"
RECORDS = ".runs"
"""The store's folder of records (`slipway.infra.kubernetes.run`)."""

BY_HAND = "by-hand"
"""The folder for the results of steps that were run by hand, in the one that is kept."""

CODE = Path(__file__).resolve().parents[3]
"""The folder with the package `workloads`."""


class NothingThereError(LookupError):
    """The store has no whole result of a step, or none of that digest."""


@dataclass(frozen=True)
class StepInfo:
    """What is known of a step.

    `words` is its command line with references, and `environment` its own variables. `inputs` maps names of
    references to steps: one, or several where it reads all variants of one, of which `best` says how one is
    chosen: `path` and `select` of the number, `of` is `max` or `min`. `code` is the folder in which a program of
    its own starts. `results` are what its pipeline declares worth showing (infra/pipelines/results.py).
    """

    name: str
    words: Sequence[str]
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    best: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    results: Sequence[Mapping[str, Any]] = ()
    code: str | None = None


@dataclass(frozen=True)
class Result:
    """A whole result of a step: its directory, when a Job made it or last found it made, and its manifest."""

    step: str
    directory: Path
    made: datetime
    manifest: Manifest

    @property
    def digest(self) -> str:
        """What names it in the store, and at the end of the Job's name."""
        return self.directory.name

    def read(self, path: str, select: str = "") -> Any:
        """A JSON file of the result; `select` is the JSON pointer of what of it is wanted."""
        return resolve_pointer(json.loads((self.directory / path).read_text(encoding="utf-8")), select)

    def __str__(self) -> str:
        return f"{self.step} {self.digest} of {self.made:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True)
class Runs:
    """The results of one pipeline. `directory` is its own in the store, `folder` is where a person may write."""

    store: Path
    directory: Path
    steps: Mapping[str, StepInfo]
    folder: Path

    @classmethod
    def here(cls) -> Runs:
        """Those that this notebook is beside.

        Raises:
            LookupError: the environment does not say which.
        """
        lacking = [name for name in (STORE, PIPELINE, STEPS) if name not in os.environ]
        if lacking:
            raise LookupError(f"{', '.join(lacking)} is not set: this is no notebook of a pipeline")
        steps = {name: StepInfo(name=name, **fields) for name, fields in json.loads(os.environ[STEPS]).items()}
        folder = Path(os.environ.get(FOLDER, "."))
        return cls(Path(os.environ[STORE]), Path(os.environ[PIPELINE]), steps, folder)

    def results(self, step: str) -> list[Result]:
        """All whole results of a step, the newest first: one for each of the settings it was run with.

        Raises:
            LookupError: the pipeline has no such step.
        """
        self._info(step)
        results: list[Result] = []
        for manifest in (self.directory / step).glob(f"*/{MANIFEST}"):
            try:
                content = load_manifest(manifest.parent)
            except NotWholeError:
                continue
            results.append(Result(step, manifest.parent, self._time_of_use(manifest), content))
        return sorted(results, key=lambda result: result.made, reverse=True)

    def result(self, step: str, digest: str = "") -> Result:
        """The newest whole result of a step, or the one whose digest begins so.

        Raises:
            NothingThereError: there is none.
        """
        results = self.results(step)
        for result in results:
            if result.digest.startswith(digest):
                return result
        what = (
            f"none of {digest}; there are {', '.join(result.digest for result in results)}"
            if results
            else "none yet"
        )
        raise NothingThereError(f"{self.directory / step} has no whole result: {what}")

    def numbers(self) -> list[tuple[str, str, float]]:
        """Step, title and value of each number that the pipeline declares, of the newest results."""
        return [
            (result.step, shown["title"], result.read(shown["path"], shown["select"]))
            for result, shown in self._declared_results("number")
        ]

    def curves(self) -> list[tuple[Result, Mapping[str, Any], list[Mapping[str, float]]]]:
        """Result, declaration and points of each group of curves that the pipeline declares."""
        return [
            (result, shown, result.read(shown["path"], shown["select"]))
            for result, shown in self._declared_results("curves")
        ]

    def pictures(self) -> list[Path]:
        """The files of the pictures that the pipeline declares."""
        return [result.directory / shown["path"] for result, shown in self._declared_results("picture")]

    def files(self, pattern: str) -> list[Path]:
        """The files of a pattern with references to steps: `{prepare}/images/*.png`, sorted."""
        text = self._fill(pattern, None)
        root = Path(text).anchor
        return sorted(Path(root).glob(os.path.relpath(text, root)))

    def command(self, step: str, /, **options: object) -> list[str]:
        """The command line of a step on the newest results, with its result in the folder `by-hand`.

        `options` replace those of the command line: `epochs=1` is `--epochs 1`.

        Raises:
            LookupError: the pipeline has no such step, it has no such option, or an input is not there.
        """
        info = self._info(step)
        words: list[str] = []
        for word in info.words:
            words += self._word(word, info)
        for name, value in options.items():
            _replace(words, f"--{name.replace('_', '-')}", str(value), step)
        if words[0] in {"python", "python3"}:
            words[0] = sys.executable
        return words

    def run(self, step: str, /, **options: object) -> Path:
        """Run a step here, with its output in this notebook; returns the directory of its result.

        Raises:
            LookupError: as `command` does.
            subprocess.CalledProcessError: it ended with another code than 0.
        """
        info, words = self._info(step), self.command(step, **options)
        output = self.by_hand(step)
        output.mkdir(parents=True, exist_ok=True)
        variables = {name: self._fill(value, info) for name, value in info.environment.items()}
        with subprocess.Popen(
            words,
            cwd=CODE / info.code if info.code else CODE,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, words)
        return output

    def by_hand(self, step: str) -> Path:
        """Where the result of a step lies that was run by hand."""
        return self.folder / BY_HAND / step

    def _time_of_use(self, manifest: Path) -> datetime:
        """When a Job made a result, or last found it made.

        Each Job that ends well touches its record: going back to earlier settings makes their result the newest.
        """
        directory = manifest.parent
        records = (self.store / RECORDS / directory.relative_to(self.store)).glob("*")
        moments = [file.stat().st_mtime for file in (manifest, *records)]
        return datetime.fromtimestamp(max(moments), UTC)

    def _declared_results(self, kind: str) -> list[tuple[Result, Mapping[str, Any]]]:
        """Each declared result of a kind whose file is there."""
        shown: list[tuple[Result, Mapping[str, Any]]] = []
        for info in self.steps.values():
            wanted = [entry for entry in info.results if entry["kind"] == kind]
            newest = self.results(info.name)[:1] if wanted else []
            shown += [
                (result, entry)
                for result in newest
                for entry in wanted
                if (result.directory / entry["path"]).exists()
            ]
        return shown

    def _info(self, step: str) -> StepInfo:
        if step not in self.steps:
            raise LookupError(f"the pipeline has no step {step!r}; it has {', '.join(self.steps)}")
        return self.steps[step]

    def _best(self, among: Sequence[str], by: Mapping[str, str]) -> Result:
        """The newest result of the variant whose number is the largest or the smallest."""
        results = [self.result(step) for step in among]
        choose = max if by["of"] == "max" else min
        return choose(results, key=lambda result: result.read(by["path"], by["select"]))

    def _word(self, word: str, info: StepInfo) -> list[str]:
        """One argument; or one for each variant, where it is the reference to a step that was made several."""
        whole = re.fullmatch(r"\{([\w-]+)\}", word)
        among = info.inputs.get(whole[1], ()) if whole else ()
        if len(among) > 1 and whole and whole[1] not in info.best:
            return [str(self.result(step).directory) for step in among]
        return [self._fill(word, info)]

    def _fill(self, text: str, info: StepInfo | None) -> str:
        places: dict[str, str] = {"store": str(self.store), "pipeline": str(self.directory)}
        inputs = info.inputs if info else {name: [name] for name in self.steps}
        if info is not None:
            places["output"] = str(self.by_hand(info.name))

        def place(reference: re.Match[str]) -> str:
            name = reference[1]
            if name in places:
                return places[name]
            if info is not None and name in info.best:
                return str(self._best(inputs[name], info.best[name]).directory)
            if name in inputs:
                return str(self.result(inputs[name][0]).directory)
            raise LookupError(f"{text!r} needs `{{{name}}}`, which a notebook has not")

        # `{{` is a brace that means nothing.
        parts = re.split(r"(\{\{|\}\})", text)
        return "".join(
            part[0] if part in {"{{", "}}"} else re.sub(r"\{([\w:-]+)\}", place, part) for part in parts
        )


def resolve_pointer(content: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def _replace(words: list[str], option: str, value: str, step: str) -> None:
    """Put another value behind `option`."""
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            words[index + 1] = value
            return
        if word.startswith(f"{option}="):
            words[index] = f"{option}={value}"
            return
    known = ", ".join(word.partition("=")[0] for word in words if word.startswith("--"))
    raise LookupError(f"the command line of {step} has no {option}; it has {known}")
