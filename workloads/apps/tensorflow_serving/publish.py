"""Publish a trained model as a version that TensorFlow Serving takes up, once it has answered real requests.

Whatever is refused is refused before anything is copied: what is served stays as it is. A version is there whole
or not at all, and servers learn of it by `models.config`, which is written last.
Run as `python -m slipway.workloads.apps.tensorflow_serving.publish --name digits --model DIR --versions DIR
--requests FILE --output DIR`.

A label moves in three writes. TensorFlow Serving refuses a file in which a label moves to a version that it has
not loaded, and then loads nothing of it either, at this reading or a later one (`ServerCore::ReloadConfig` and
`UpdateModelVersionLabelMap` of 2.21, seen November 2026). So the first write adds the version, and the second,
once servers have read the first, moves the label; a server that still loads takes the second when it has loaded.
The third, once servers have read the second, drops the version that has no label any more: servers read at
different times, and whoever is told by one of them which version answers can ask any other for it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slipway.workloads.apps.tensorflow_serving import versions
from slipway.workloads.apps.tensorflow_serving.answers import Examination, examine
from slipway.workloads.apps.tensorflow_serving.model_config import (
    NAME,
    Choice,
    Served,
    choose_versions,
    decode,
    transition,
    versions_to_remove,
    write_server_files,
)
from slipway.workloads.apps.tensorflow_serving.versions import Version
from slipway.workloads.runtime.devices import before_import
from slipway.workloads.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.store import (
    MANIFEST,
    check,
    digest_of,
    finished,
    publish,
    remove_file,
    staging,
    store_errors,
    write_atomically,
)

STEP = "serving.publish"
REPORT = "versions.json"
LAST_LINE = "Published"

UNLESS = "unless the model is refused"
"""What is said first holds only then."""


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT where the model is not whole, does not load or lacks the signature, or a version to
            serve is not there; MODEL_REFUSED where it answers wrongly; STORE_TROUBLE.
    """
    options = parse(arguments)
    stop_on_sigterm("what was served still is; the same command goes on")
    source, digests = _source(options.model)
    with store_errors(options.requests):
        if not options.requests.is_file():
            raise StepError(BAD_INPUT, f"--requests {options.requests}: there is no such file")
        inputs = {**digests, "requests": digest_of(options.requests).sha256}

    earlier = _with_source(options.versions, source)
    choice = Choice(options.serve, options.canary, options.keep)
    _announce(options, choice, earlier)
    facts = earlier.facts if earlier and _is_examined(earlier, options) else _examine(options)
    version = earlier or _add(options, source, facts)
    report = _serve(options, choice, version)

    settings = {name: getattr(options, name) for name in ("name", "signature", "serve", "canary", "keep")}
    _report(options.output, inputs, settings, report)
    print(f"{LAST_LINE}: {options.versions / NAME}")
    return OK


def _source(model: Path) -> tuple[str, dict[str, str]]:
    """What names the result that ``model`` is of: the digest of its step's manifest, else one of its files."""
    for folder in (model, model.parent):
        if (folder / MANIFEST).is_file():
            only = f"{model.name}/" if folder != model else ""
            digest = check(folder, only=only).digest
            return digest, {"model": digest}
    files = versions.files_of(model)
    if not files:
        raise StepError(BAD_INPUT, f"--model {model}: there is no SavedModel")
    text = json.dumps({name: vars(entry) for name, entry in files.items()}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return digest, {"model": digest}


def _with_source(folder: Path, source: str) -> Version | None:
    """The whole version that was made of ``source`` earlier. One that is damaged is published anew."""
    for version in reversed(versions.read_published(folder).values()):
        if version.source == source:
            why = versions.damage(folder, version)
            if not why:
                return version
            print(f"Publishing again: version {version.number} was made of this model, but {why}", flush=True)
    return None


def _announce(options: argparse.Namespace, choice: Choice, earlier: Version | None) -> None:
    """Say first what will be removed, and what people will get an answer from."""
    numbers = [*versions.read_published(options.versions)]
    number = earlier.number if earlier else max(numbers, default=0) + 1
    try:
        labels = choose_versions(choice, sorted({*numbers, number}))
    except StepError:
        # Said once the model is examined and published: it does not hang on this one.
        return
    removed = versions_to_remove(
        sorted({*numbers, number}), {*labels.values(), *_current(options.versions).versions}, choice.keep
    )
    if removed:
        kept = f"keeps the newest {choice.keep}"
        print(f"Removes from {options.versions}, {UNLESS}: {_name_versions(removed)}; {kept}", flush=True)
    if labels != dict(_current(options.versions).labels):
        shown = ", ".join(f"{label} is version {number}" for label, number in labels.items())
        print(f"Changes what answers, {UNLESS}: {shown}", flush=True)


def _is_examined(version: Version, options: argparse.Namespace) -> bool:
    """Whether what was measured of ``version`` answers what is asked now."""
    least, accuracy = options.min_accuracy, version.facts.get("accuracy")
    same = version.facts.get("asked") == _question_digest(options)
    return same and (least is None or (accuracy is not None and accuracy >= least))


def _examine(options: argparse.Namespace) -> dict[str, Any]:
    before_import(keras=False)
    examination = Examination(
        options.requests, options.signature, options.inputs, options.truth, options.score, options.min_accuracy
    )
    began = time.monotonic()
    with store_errors(options.model):
        facts = examine(options.model, examination)
    right = f", {facts['accuracy']:.4f} of them rightly" if "accuracy" in facts else ""
    print(f"The model answered {facts['requests']} requests{right}: {time.monotonic() - began:.1f} s", flush=True)
    return {**facts, "asked": _question_digest(options)}


def _question_digest(options: argparse.Namespace) -> str:
    question = [
        digest_of(options.requests).sha256,
        options.signature,
        options.inputs,
        options.truth,
        options.score,
    ]
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


def _add(options: argparse.Namespace, source: str, facts: dict[str, Any]) -> Version:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    version = versions.add(
        options.versions, options.model, source, {**facts, "model": options.name, "published": now}
    )
    print(f"Version {version.number} is {options.versions / str(version.number)}", flush=True)
    return version


def _serve(options: argparse.Namespace, choice: Choice, version: Version) -> dict[str, Any]:
    """Tell servers which versions answer, and remove what nobody needs any more; returns the report."""
    folder, published = options.versions, versions.read_published(options.versions)
    labels = choose_versions(choice, [*published])
    for label, number in labels.items():
        if why := versions.damage(folder, published[number]):
            raise StepError(BAD_INPUT, f"version {number}, for {label}, is not whole: {why}; choose another one")
    write_server_files(folder, options.batch_largest, options.batch_wait, options.batch_queued)
    before, after = _current(folder), Served(tuple(sorted({*labels.values()})), labels)
    _move(options, before, after)
    for label, number in labels.items():
        print(f"{label} is version {number}", flush=True)
    removed = versions_to_remove([*published], {*after.versions, *before.versions}, choice.keep)
    if removed:
        versions.remove(folder, removed)
        print(f"Removed {_name_versions(removed)}", flush=True)
    return {
        "published": version.number,
        "serves": labels,
        "removed": [{"version": number} for number in removed],
        "versions": [
            {
                "version": number,
                "labels": ", ".join(label for label, labelled in labels.items() if labelled == number),
                "accuracy": version.facts.get("accuracy"),
                "published": version.facts.get("published", ""),
                "source": version.source[:12],
            }
            for number, version in sorted(published.items(), reverse=True)
            if number not in removed
        ],
    }


def _move(options: argparse.Namespace, before: Served, after: Served) -> None:
    """Write ``after``, with as many writes before it as servers need that go by ``before``.

    Each write follows from what the file says, so that whoever was stopped between two of them goes on.
    """
    steps = transition(before, after)
    for step in steps:
        if step != before:
            _write(options, step)
        if step != steps[-1]:
            print(f"{_description(step)}; the next change in {options.settle:g} s", flush=True)
            # Also after an earlier attempt, which may have been stopped right after its write.
            time.sleep(options.settle)


def _description(served: Served) -> str:
    labels = ", ".join(f"{label} is version {number}" for label, number in served.labels.items())
    return f"Servers are told to load {_name_versions(served.versions)}; {labels}"


def _current(folder: Path) -> Served:
    with store_errors(folder):
        path = folder / NAME
        return decode(path.read_bytes()) if path.is_file() else Served()


def _write(options: argparse.Namespace, served: Served) -> None:
    """Write what servers read. An unchanged file is left alone."""
    with store_errors(options.versions):
        path = options.versions / NAME
        content = served.encode(options.name, str(options.base_path or options.versions.absolute()))
        if not (path.is_file() and path.read_bytes() == content):
            write_atomically(path, content)


def _report(output: Path, inputs: dict[str, str], settings: dict[str, Any], report: dict[str, Any]) -> None:
    earlier = finished(output, STEP, inputs, settings)
    if earlier is not None:
        with store_errors(output):
            if json.loads((output / REPORT).read_bytes()) == report:
                return
        # What lies there was true when it was written: versions of other trainings came since, or went.
        with store_errors(output):
            remove_file(output / MANIFEST)
    with staging() as staged:
        text = json.dumps(report, indent=2, allow_nan=False) + "\n"
        (staged / REPORT).write_text(text, encoding="utf-8")
        summary = {"version": report["published"], **report["serves"]}
        publish(staged, output, step=STEP, inputs=inputs, settings=settings, summary=summary)


def _name_versions(numbers: Any) -> str:
    listed = [str(number) for number in numbers]
    return f"version{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _pair(text: str) -> tuple[str, str]:
    name, equals, array = text.partition("=")
    if not (name and equals and array):
        raise argparse.ArgumentTypeError(f"{text!r} is not INPUT=ARRAY")
    return name, array


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line; ends the process where they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m slipway.workloads.apps.tensorflow_serving.publish", description=__doc__
    )
    add = parser.add_argument
    add("--name", required=True, help="the model's name in the addresses of servers")
    add(
        "--model", type=Path, required=True, help="folder with saved_model.pb, or the result of a step that has it"
    )
    add("--versions", type=Path, required=True, help="the folder of the model's versions, with models.config")
    add("--requests", type=Path, required=True, help="real requests: an .npz file, or a JSON object of lists")
    add("--output", type=Path, required=True, help="where the report of what is served goes")
    add("--input", type=_pair, action="append", default=[], metavar="INPUT=ARRAY",
        help="the array of the requests for an input of the signature (default: the one of its name)")  # fmt: skip
    add("--truth", metavar="ARRAY", help="the array with the right class of each request")
    add(
        "--score",
        metavar="OUTPUT",
        help="the output whose classes are compared with the truth (default: the only one)",
    )
    add("--min-accuracy", type=float, help="share of requests that have to be answered rightly, 0 to 1")
    add("--signature", default="serving_default", help="default: serving_default")
    add("--serve", default="latest", help="what answers people: latest, previous or a number (default: latest)")
    add("--canary", help="what is tried beside it, under the label canary: latest, previous or a number")
    add("--keep", type=int, default=5, help="versions that are kept, the newest (default: 5)")
    add("--settle", type=float, default=15, metavar="SECONDS",
        help="how long servers have to read models.config before a label moves (default: 15)")  # fmt: skip
    add("--batch-largest", type=int, help="rows of a batch at most; with it servers are left a file about batches")
    add("--batch-wait", type=int, default=2000, help="microseconds that a batch waits for more (default: 2000)")
    add("--batch-queued", type=int, default=100, help="batches that wait at most (default: 100)")
    add("--base-path", help="the folder of the versions as servers see it (default: as this step does)")
    options = parser.parse_args(arguments)
    options.inputs = dict(options.input)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", options.name):
        parser.error("--name must be letters, digits, dots, dashes and underscores, at most 63")
    for choice in filter(None, (options.serve, options.canary)):
        if not re.fullmatch(r"latest|previous|[1-9]\d{0,8}", choice):
            parser.error(f"--serve and --canary are latest, previous or a number, not {choice!r}")
    if options.keep < 1 or options.settle < 0:
        parser.error("--keep must be at least 1, --settle not negative")
    if options.min_accuracy is not None and not (options.truth and 0 <= options.min_accuracy <= 1):
        parser.error("--min-accuracy must be from 0 to 1, and needs --truth")
    if not (options.model / "saved_model.pb").is_file() and (options.model / "saved_model").is_dir():
        options.model = options.model / "saved_model"
    return options


if __name__ == "__main__":
    run(main)
