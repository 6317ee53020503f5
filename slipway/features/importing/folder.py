"""`slipway import`: the folder of a pipeline from a manifest, and what is said about it."""

import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipway.command.lock import PACKAGES
from slipway.command.new.writing import WIDTH, Draft, RefusedError, carry_out, name_problems, yaml_text
from slipway.features.importing.manifest import SAID, Findings, Training, data, pattern, read, refused
from slipway.features.importing.pods import STEP, Conversion
from slipway.features.importing.program import Pod, relative_programs, say_needs
from slipway.infra.commands import command, option
from slipway.infra.exits import Exit
from slipway.infra.kubernetes.shipping.bundle import visible
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.pipelines.file import reading
from slipway.infra.pipelines.images import lock_problem
from slipway.infra.places import PROJECT
from slipway.infra.schema.names import spell
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.requirement_files import REQUIREMENTS
from slipway.infra.schema.secret_values import looks_like
from slipway.infra.settings.checks.pipelines import NAME_LIMIT

MOST_BYTES, MOST_COMMON = 2**20, 8
"""Bytes of a program that is copied, which has to fit into a ConfigMap; characters of words such as `postgres`."""


def write_imported(manifest: str, name: str, code: Path | None) -> Exit:
    """Writes it, as `carry_out` says."""

    def make() -> Draft:
        if not manifest:
            raise refused("no-manifest", "", command=command("import", manifest="tfjob.yaml"))
        return draft(read(Path(manifest).expanduser()), name, code and code.expanduser())

    return carry_out(make, PROJECT)


def draft(training: Training, name: str = "", code: Path | None = None) -> Draft:
    """The folder ``workloads/<name>`` with the pipeline and its program. Raises RefusedError with all problems."""
    name = name or spell(NAME_LIMIT, training.objects[0].name) or "imported"
    target, findings = PROJECT / WORKLOADS / name, Findings()
    problems = name_problems("name", name, target)
    manifests = [item.file.resolve() for item in [*training.objects, *training.beside]]
    files = dict(_texts(code, manifests)) if code else {}
    conversion = Conversion(training, findings)
    steps, pod = conversion.steps(has_code=code is not None), conversion.pod
    say_needs(pod, training, "\n".join(files.values()), findings)
    for program in relative_programs(pod.words) if code or not pod.starts_in else ():
        if program not in files:
            # In the image's own folder, in which a step does not start.
            missing = "program-missing" if code else "program-elsewhere"
            findings.add(missing, ("command",), program, code=code or option("code", "<folder>"))
    if any(path.endswith(".py") for path in files):
        # Without it a Python program ships what it imports; the manifest's has its whole folder.
        steps[STEP]["files"] = ["**/*.py"]
    if said := _take_packages(pod, steps[STEP], files, code):
        findings.add(f"needs.{said}")
    pipeline = {"description": f"Imported from the {training.kind} {training.objects[0].name}.", "steps": steps}
    files |= {**conversion.files, "pipeline.yaml": _text(pipeline, findings)}
    if any(len(value) > MOST_COMMON and value in text for value in findings.secrets for text in files.values()):
        findings.add("secret", what="it stands in another place, too")
    problems += [problem for _, problem in findings.problems] or _mistakes(files["pipeline.yaml"], name)
    if problems:
        shown = [map(findings.masked, (problem.value, problem.reason, problem.fix)) for problem in problems]
        raise RefusedError([Problem(problem.key, *texts) for problem, texts in zip(problems, shown, strict=True)])
    return Draft(target, files, tuple(_report(training, name, files, findings)))


def _texts(code: Path, manifests: list[Path]) -> Iterator[tuple[str, str]]:
    """The files of the program's folder but ``manifests``, by their paths in it. Raises RefusedError."""
    paths = [path for path in visible(code) if "__pycache__" not in path.parts and path.resolve() not in manifests]
    if not paths or sum(path.stat().st_size for path in paths) > MOST_BYTES:
        raise refused("code-size" if paths else "code-folder", (option("code"),), str(code))
    for path in paths:
        name, text = path.relative_to(code).as_posix(), path.read_bytes().decode(errors="replace")
        if name == "pipeline.yaml" or "\ufffd" in text or looks_like(text):
            wrong = "pipeline-there" if name == "pipeline.yaml" else "code-text"
            raise refused(wrong, (option("code"),), name)
        yield name, text


def _take_packages(pod: Pod, step: dict[str, Any], files: dict[str, str], code: Path | None) -> str:
    """Has the step install what a requirements.txt or a `pip install` names; what is said of it, if anything."""
    commands = " ".join(part["words"] for part in pattern("pip").finditer(" ".join(pod.words)))
    given = [word.strip("\"'") for word in commands.split() if not pattern("pip-plain").fullmatch(word)]
    is_plain = all(map(pattern("package").fullmatch, given))
    listed, packages = files.get(REQUIREMENTS), [word for word in given if is_plain and word != REQUIREMENTS]
    if listed is None and not packages:
        return "pip" if given else ""
    if "PYTHONPATH" in pod.environment:
        return "packages-by-path"
    step["requirements"] = REQUIREMENTS
    if not packages and code and not lock_problem(code / REQUIREMENTS):
        return ""
    files.pop(REQUIREMENTS, None)
    files[PACKAGES] = "\n".join([*(listed or "").splitlines(), *packages, ""])
    return "packages" if is_plain else "packages-and-pip"


def _mistakes(text: str, name: str) -> list[Problem]:
    """What the reader of pipelines says against the draft."""
    with tempfile.TemporaryDirectory(prefix="slipway-import-") as folder:
        Path(folder, "pipeline.yaml").write_text(text, encoding="utf-8")
        return list(reading.read(reading.Folder(Path(folder), f"{WORKLOADS}/{name}", name)).problems)


def _said(findings: Findings) -> Iterator[str]:
    for section in filter(findings.notes.get, SAID):
        yield f"{data('headings')[section]}:"
        yield from dict.fromkeys(f"- {findings.masked(line)}" for line in findings.notes[section])


def _text(pipeline: dict[str, Any], findings: Findings) -> str:
    lines = [pipeline["description"], *_said(findings)]
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join([*(f"# {part}" for line in lines for part in wrap.wrap(line)), yaml_text(pipeline)])


def _report(training: Training, name: str, files: dict[str, str], findings: Findings) -> Iterator[str]:
    roles = ", ".join(f"{role.name} {role.count}" for role in training.roles)
    yield f"Read the {training.kind} {training.objects[0].name}: {roles}"
    yield from _said(findings)
    yield f"Wrote {WORKLOADS}/{name}/: {', '.join(sorted(files))}"
    yield "Next:"
    yield from [f"  {command('lock', pipeline=name)}"] if PACKAGES in files else []
    yield f"  {command('new', stack='mine', cloud='existing', uses=name)}    or another cloud"
    yield f"  {command('rehearse', stack='mine')}"
