"""Publish a trained model as the version that TensorFlow Serving takes up, once it has answered real requests.

Whatever is refused is refused before anything is copied: what is served stays as it is. A version is there whole
or not at all, and servers learn of it by `models.config`, which is written last and names this one alone: a server
loads it, and then unloads the one before. No version is deleted.
Run as `python -m slipway.features.serving.pod.publish --name digits --model DIR --versions DIR
--requests FILE --output DIR`.
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

from slipway.features.serving.pod import versions
from slipway.features.serving.pod.answers import Examination, examine
from slipway.features.serving.pod.versions import Version
from slipway.runtime.devices import before_import
from slipway.runtime.exits import BAD_INPUT, OK, StepError, run, stop_on_sigterm
from slipway.runtime.store import (
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
REPORT = "published.json"
LAST_LINE = "Published"

CONFIG, MONITORING = "models.config", "monitoring.config"
"""The files that servers read beside the versions, as text protobufs of `ModelServerConfig` and `MonitoringConfig`
(tensorflow_serving/config of 2.21, seen November 2026). The second lets Prometheus read them."""


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT where the model is not whole, does not load or lacks the signature; MODEL_REFUSED
            where it answers wrongly; STORE_TROUBLE.
    """
    options = parse(arguments)
    stop_on_sigterm("what was served still is; the same command goes on")
    source, digests = _source(options.model)
    with store_errors(options.requests):
        if not options.requests.is_file():
            raise StepError(BAD_INPUT, f"--requests {options.requests}: there is no such file")
        inputs = {**digests, "requests": digest_of(options.requests).sha256}

    version = _with_source(options.versions, source)
    if version is None or not _is_examined(version, options):
        facts = _examine(options)
        version = version or _add(options, source, facts)
    _serve(options, version.number)
    settings = {name: getattr(options, name) for name in ("name", "signature")}
    _report(options.output, inputs, settings, {"version": version.number, **version.facts})
    print(f"{LAST_LINE}: {options.versions / CONFIG} names version {version.number}", flush=True)
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


def _serve(options: argparse.Namespace, number: int) -> None:
    """Write what servers read, `models.config` last. An unchanged file is left alone."""
    base_path = str(options.base_path or options.versions.absolute())
    files = {MONITORING: 'prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }\n'}
    if options.batch_largest is not None:
        largest, wait, queued = options.batch_largest, options.batch_wait, options.batch_queued
        # A text protobuf of the message `BatchingParameters`.
        files[f"batching-{largest}-{wait}-{queued}.config"] = (
            f"max_batch_size {{ value: {largest} }}\n"
            f"batch_timeout_micros {{ value: {wait} }}\n"
            f"max_enqueued_batches {{ value: {queued} }}\n"
        )
    files[CONFIG] = (
        "# Written by the step that publishes, and read again every few seconds by each server.\n"
        "model_config_list {\n"
        "  config {\n"
        f"    name: {json.dumps(options.name)}\n"
        f"    base_path: {json.dumps(base_path)}\n"
        '    model_platform: "tensorflow"\n'
        f"    model_version_policy {{ specific {{ versions: {number} }} }}\n"
        "  }\n"
        "}\n"
    )
    with store_errors(options.versions):
        for name, content in files.items():
            path = options.versions / name
            if not (path.is_file() and path.read_bytes() == content.encode()):
                write_atomically(path, content.encode())


def _report(output: Path, inputs: dict[str, str], settings: dict[str, Any], report: dict[str, Any]) -> None:
    earlier = finished(output, STEP, inputs, settings)
    if earlier is not None:
        with store_errors(output):
            if json.loads((output / REPORT).read_bytes()) == report:
                return
        # The version that was made of this training before is no longer whole.
        with store_errors(output):
            remove_file(output / MANIFEST)
    with staging() as staged:
        text = json.dumps(report, indent=2, allow_nan=False) + "\n"
        (staged / REPORT).write_text(text, encoding="utf-8")
        summary = {"version": report["version"]}
        publish(staged, output, step=STEP, inputs=inputs, settings=settings, summary=summary)


def _pair(text: str) -> tuple[str, str]:
    name, equals, array = text.partition("=")
    if not (name and equals and array):
        raise argparse.ArgumentTypeError(f"{text!r} is not INPUT=ARRAY")
    return name, array


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line; ends the process where they are wrong."""
    parser = argparse.ArgumentParser(prog="python -m slipway.features.serving.pod.publish", description=__doc__)
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
    add("--batch-largest", type=int, help="rows of a batch at most; with it servers are left a file about batches")
    add("--batch-wait", type=int, default=2000, help="microseconds that a batch waits for more (default: 2000)")
    add("--batch-queued", type=int, default=100, help="batches that wait at most (default: 100)")
    add("--base-path", help="the folder of the versions as servers see it (default: as this step does)")
    options = parser.parse_args(arguments)
    options.inputs = dict(options.input)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", options.name):
        parser.error("--name must be letters, digits, dots, dashes and underscores, at most 63")
    if options.min_accuracy is not None and not (options.truth and 0 <= options.min_accuracy <= 1):
        parser.error("--min-accuracy must be from 0 to 1, and needs --truth")
    if not (options.model / "saved_model.pb").is_file() and (options.model / "saved_model").is_dir():
        options.model = options.model / "saved_model"
    return options


if __name__ == "__main__":
    run(main)
