"""`slipway show`: a result of a stack that `pulumi up` has run, read from its store.

Where the store is a volume, only a pod can see into it. So a pod is made for the time of reading, from the
template of a Job of the stack that mounts the store and needs no GPU: it has everything that the namespace demands
of pods.
"""

import contextlib
import json
import re
import secrets
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from slipway.evaluated.model import Model, document
from slipway.files import remove
from slipway.infra import pulumi_cli
from slipway.infra.exits import Exit, report_error
from slipway.infra.kubernetes.results import infinite, selected
from slipway.infra.pipelines.results import SHOW, STACK_OUTPUTS
from slipway.infra.places import PROJECT
from slipway.infra.review.stack import mapping, mappings
from slipway.infra.terminal import new_console

STORE = "store"
"""Name of the volume, in every pod that uses the store."""

READ_SECONDS = 1800
"""After which the cluster itself ends a pod that was left behind."""

START_SECONDS = 900
"""For the pod to start, a node that the autoscaler adds included."""


class ShowError(Exception):
    """What keeps a result from being shown. The text says why, and what to do about it."""


@dataclass(frozen=True)
class Described:
    """Where a result is, as the stack's output `SHOW` says it.

    ``kubectl`` is the command that reaches the namespace, ``reader`` the Job whose template pods are made from,
    ``path`` the file or folder below the store's root, ``select`` a JSON pointer, ``then`` a command for what was
    copied here, ``job`` the URN of the Job that wrote it.
    """

    kubectl: Sequence[str]
    reader: str
    path: str
    select: str
    then: str
    job: str


@dataclass(frozen=True)
class Copy:
    """A file or a folder that was copied here, and the command that opens it; as text both."""

    copy: str
    then: str

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.copy, self.then)))


FORMAT = 1
"""Of `Shown`; it is raised where a key goes or means something else."""


def main(names: Sequence[str], stack: str, output: Path | None, *, as_json: bool = False) -> Exit:
    """Shows the results of these names, without any what there is; copies go to the folder ``output``."""
    console = new_console()
    try:
        outputs = outputs_of(stack)
        if as_json:
            sys.stdout.write(document(shown(names, stack, outputs, output or PROJECT / "build" / "show" / stack)))
            return Exit.DONE
        if not names:
            print_names(console, stack, outputs)
        for name in names:
            show(name, stack, outputs, output or PROJECT / "build" / "show" / stack, console)
    except ShowError as error:
        report_error(error)
        return Exit.FAILED
    return Exit.DONE


def outputs_of(stack: str) -> Mapping[str, Any]:
    """The outputs of the stack's last `pulumi up`; raises ShowError."""
    try:
        outputs = pulumi_cli.outputs_of(stack)
    except pulumi_cli.CliError as error:
        raise ShowError(str(error)) from error
    if not outputs:
        raise ShowError(f"the stack {stack} has no outputs: `pulumi up -s {stack}` has not ended well yet")
    return outputs


def print_names(console: Console, stack: str, outputs: Mapping[str, Any]) -> None:
    """What there is to show."""
    names = ", ".join(sorted(results_of(outputs)))
    console.print(f"The stack {escape(stack)} shows: {escape(names)}", soft_wrap=True)


def results_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """What can be shown, by name: ``store``, and of a pipeline each output with its name, ``mnist.accuracy``."""
    values: dict[str, Any] = {}
    for name in outputs.keys() - {SHOW}:
        below: Mapping[str, Any] = {} if name in STACK_OUTPUTS else mapping(outputs[name])
        values |= {f"{name}.{key}": below[key] for key in below} or {name: outputs[name]}
    return {**values, **mapping(outputs.get(SHOW))}


def resolve(name: str, stack: str, names: Collection[str]) -> str:
    """The one of ``names`` that ``name`` is, or the end of; raises ShowError where there is none, or several."""
    matches = [name] if name in names else sorted(known for known in names if known.endswith(f".{name}"))
    if not matches:
        raise ShowError(f"the stack {stack} has no result {name!r}; it has {', '.join(sorted(names))}")
    if matches[1:]:
        raise ShowError(f"the stack {stack} has several results {name!r}: name one of {', '.join(matches)}")
    return matches[0]


def show(name: str, stack: str, outputs: Mapping[str, Any], folder: Path, console: Console) -> None:
    """Shows one result, or those of all steps that have one of that name. Raises ShowError.

    It is read from the outputs where it is there, else from the store.
    """
    full = resolve(name, stack, results_of(outputs))
    read = contents_of(full, stack, outputs, folder)
    contents = {step: str(content) if isinstance(content, Copy) else content for step, content in read.items()}
    if "" not in contents and not any(isinstance(content, (list, dict)) for content in contents.values()):
        print_value(console, name, contents)
        return
    for step, content in contents.items():
        print_value(console, " ".join(filter(None, (name, step))), content)


def contents_of(name: str, stack: str, outputs: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A result by the steps that have it; by the empty name where it is of none of them. Raises ShowError."""
    value = results_of(outputs)[name]
    stored = mapping(outputs.get(SHOW))
    steps = [step for step in mapping(value) if f"{name}.{step}" in stored]
    if not steps and name not in stored:
        return {"": value}
    places = {step: _parse(stored[f"{name}.{step}"]) for step in steps} or {"": _parse(stored[name])}
    copies = fetch(places, stack, folder)
    return {step: _content(name, copies[step], place, stack) for step, place in places.items()}


class Shown(Model):
    """What a stack has to show. ``results`` are those that were named, by step where several have one."""

    format: Literal[1] = FORMAT
    stack: str
    names: list[str]
    results: dict[str, Any]


def shown(names: Sequence[str], stack: str, outputs: Mapping[str, Any], folder: Path) -> Shown:
    """The results as data. Raises ShowError."""
    known = results_of(outputs)
    full = [resolve(name, stack, known) for name in names]
    read = {name: contents_of(name, stack, outputs, folder) for name in full}
    results = {name: contents.get("", contents) for name, contents in read.items()}
    return Shown(stack=stack, names=sorted(known), results=results)


def _parse(place: object) -> Described:
    texts = {key: str(value) for key, value in mapping(place).items()}
    return Described(kubectl=words(texts.pop("kubectl")), **texts)


def _content(name: str, copied: Path, described: Described, stack: str) -> Any:
    """What a copy says, or where it is, with the command that opens it."""
    if copied.is_file() and copied.suffix == ".json":
        content = _select(copied, described, stack)
        if number := infinite(content):
            # As in the outputs of a stack whose store the engine reads.
            step = described.job.rpartition("::")[2]
            return f"result {name} of step {step} is {number} in {described.path}"
        return content
    return Copy(str(copied), described.then.format(copy=shlex.quote(str(copied))))


def words(command: str) -> list[str]:
    """The words of a shell command, a home directory that a word begins with expanded as the shell does."""
    return [str(Path(word).expanduser()) if word.startswith("~") else word for word in shlex.split(command)]


def print_value(console: Console, name: str, value: Any) -> None:
    """A table for a list of alike entries, a line each for a mapping, the value itself for the rest."""
    entries = mappings(value)
    if entries and len(entries) == len(value):
        columns = [key for key, value in entries[0].items() if not isinstance(value, (list, dict))]
        table = Table(title=name, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for key in columns:
            table.add_column(Text(key), justify="left" if isinstance(entries[0][key], str) else "right")
        for entry in entries:
            table.add_row(*(Text(_cell(entry.get(key))) for key in columns))
        console.print(table)
    elif values := mapping(value):
        for key, inner in values.items():
            console.print(Text.assemble((f"{key}: ", "bold"), _cell(inner)), soft_wrap=True)
    else:
        console.print(Text(_cell(value)), soft_wrap=True)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def fetch(places: Mapping[str, Described], stack: str, folder: Path) -> dict[str, Path]:
    """Copies files and folders of the store into ``folder`` and returns them there; raises ShowError.

    One pod in each cluster reads all of them.
    """
    copies: dict[str, Path] = {}
    for reader in {(*place.kubectl, place.reader): place for place in places.values()}.values():
        with reader_pod(reader) as (pod, mount):
            for name, place in places.items():
                if (place.kubectl, place.reader) == (reader.kubectl, reader.reader):
                    copies[name] = _copy(place, stack, folder, pod, mount)
    return copies


def _copy(described: Described, stack: str, folder: Path, pod: str, mount: str) -> Path:
    target = folder / described.path
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [*described.kubectl, "exec", pod, "--", "tar", "-C", mount, "-cf", "-", described.path]
        failure = unpack(command, Path(temporary))
        if "No such file" in failure:
            _raise_gone(described, stack)
        if failure:
            raise ShowError(f"{described.path} could not be copied: {failure}")
        copied = Path(temporary) / described.path
        if target.is_dir():
            # An earlier copy of the same run's folder: nobody else's, for the path has the run's digest.
            remove(target)
        copied.replace(target)
    return target


def unpack(command: Sequence[str], folder: Path) -> str:
    """Unpacks into ``folder`` the archive that a command writes. Returns why it could not; empty where it did."""
    failure = ""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints)
        assert process.stdout is not None
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                archive.extractall(folder, filter="data")
        except (tarfile.TarError, OSError, EOFError) as error:
            failure = str(error)
        process.stdout.close()
        code = process.wait()
        complaints.seek(0)
        said = complaints.read().decode("utf-8", "replace").strip()
    return said or failure or f"exit code {code}" if code or failure else ""


def _select(file: Path, described: Described, stack: str) -> Any:
    try:
        return selected(json.loads(file.read_text(encoding="utf-8")), described.select)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ShowError(
            f"{described.path} is damaged: it is not what its Job wrote ({error}). {_again(described, stack)}"
        ) from error


def _raise_gone(described: Described, stack: str) -> NoReturn:
    raise ShowError(f"{described.path} is not in the store. {_again(described, stack)}")


def _again(described: Described, stack: str) -> str:
    return f"Make it again: pulumi up --stack {stack} --replace {shlex.quote(described.job)}"


@contextlib.contextmanager
def reader_pod(described: Described) -> Generator[tuple[str, str]]:
    """A running pod that mounts the store, by its name, and where; deleted in the end. Raises ShowError."""
    pod, mount = pod_of(_job(described))
    name = str(pod["metadata"]["name"])
    run_kubectl(described, ["create", "-f", "-"], json.dumps(pod))
    try:
        try:
            run_kubectl(described, ["wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={START_SECONDS}s"])
        except ShowError as error:
            reason = "{.status.conditions[?(@.status=='False')].message}"
            why = run_kubectl(described, ["get", "pod", name, "--output", f"jsonpath={reason}"]).strip()
            raise ShowError(f"the pod that reads the store did not start: {why or error}") from error
        yield name, mount
    finally:
        with contextlib.suppress(ShowError):
            run_kubectl(described, ["delete", "pod", name, "--wait=false", "--grace-period=1"])


def _job(described: Described) -> Mapping[str, Any]:
    return mapping(json.loads(run_kubectl(described, ["get", "job", described.reader, "--output", "json"])))


def pod_of(job: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """A pod like those of ``job`` that sleeps, and where it mounts the store."""
    template = mapping(mapping(job.get("spec")).get("template"))
    metadata, spec = mapping(template.get("metadata")), dict(mapping(template.get("spec")))
    container = dict(mappings(spec.get("containers"))[0])
    mounts = {
        str(volume_mount["name"]): str(volume_mount["mountPath"])
        for volume_mount in mappings(container.get("volumeMounts"))
    }
    container |= {"command": ["sleep", str(READ_SECONDS)], "args": []}
    labels = {
        key: value
        for key, value in mapping(metadata.get("labels")).items()
        # The Job controller would count the pod as its own.
        if not re.search(r"(^|/)(controller-uid|job-name)$", key)
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"show-{secrets.token_hex(4)}",
            "labels": labels,
            "annotations": dict(mapping(metadata.get("annotations"))),
        },
        "spec": {
            **spec,
            "containers": [container],
            "initContainers": [],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": READ_SECONDS,
        },
    }
    return pod, mounts[STORE]


def run_kubectl(described: Described, arguments: Sequence[str], given: str | None = None) -> str:
    """What kubectl prints when it is run in the namespace of what is described. Raises ShowError."""
    command = [*described.kubectl, *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, input=given)
    except FileNotFoundError as error:
        raise ShowError(f"{command[0]} is not on PATH; it reads the store through a pod of the cluster") from error
    if done.returncode:
        raise ShowError(f"{shlex.join(command)}: {done.stderr.strip()}")
    return done.stdout
