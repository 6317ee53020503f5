"""`slipway import`: the folder of a pipeline from a manifest, and what is said about it."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import jinja2
import yaml

from slipway.infra.commands import command, option
from slipway.infra.exits import Exit
from slipway.infra.kubernetes.shipping.bundle import left_out
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import Problem
from slipway.infra.settings.checks.pipelines import section_name_findings
from slipway.tools.importing.conversion import STARTER, STEP, Imported, Note, convert, jax_notes
from slipway.tools.importing.document import OPTION
from slipway.tools.importing.manifest import Manifest, read
from slipway.tools.new.writing import Draft, RefusedError, carry_out, name_clashes

TEMPLATE = Path(__file__).parent / "data" / "start.py.j2"

WIDTH = 110

WORD = "_WORD_"
"""What tells a word of a role's command from its variables, in the environment of `STARTER`."""

MOST_BYTES = 2**20
"""Bytes of a program that is copied: what a step ships has to fit into a ConfigMap."""


def write_imported(manifest: str, name: str, code: Path | None) -> Exit:
    """Writes it, as `carry_out` says."""

    def make() -> Draft:
        if not manifest:
            fix = f"write `{command('import', manifest='tfjob.yaml')}`, the path of its file"
            raise RefusedError([Problem(OPTION, None, "nothing says what to import", fix)])
        document = read(Path(manifest).expanduser())
        return draft(document, convert(document), name, code and code.expanduser())

    return carry_out(make, PROJECT)


def draft(manifest: Manifest, imported: Imported, name: str, code: Path | None) -> Draft:
    """The folder ``workloads/<name>`` with the pipeline and its program. Raises RefusedError."""
    name = name or re.sub(r"[^a-z0-9-]+", "-", manifest.name.lower()).strip("-") or "imported"
    target = PROJECT / WORKLOADS / name
    problems = [
        Problem(option("name"), name, finding.reason, finding.fix.partition(", and write")[0])
        for finding in section_name_findings((), name)
    ]
    if problems := problems or name_clashes(option("name"), name, target, PROJECT):
        raise RefusedError(problems)
    files = _program(manifest, imported, code)
    if clashes := [path for path, text in imported.files.items() if files.get(path, text) != text]:
        reason = f"it has another {clashes[0]} than the ConfigMap of the manifest"
        raise RefusedError([Problem(OPTION, clashes[0], reason, "remove one of them")])
    files |= imported.files
    if "nodes" in imported.pipeline["steps"][STEP]:
        imported.notes += [note for path, text in files.items() for note in jax_notes(path, text)]
    missing = [program for program in imported.programs if not program.startswith("/") and program not in files]
    by_name = {*filter(_is_python, files), *filter(_is_python, missing)} if imported.starter else set[str]()
    if programs := sorted(by_name | {path for path in imported.files if _is_python(path) or path.startswith(".")}):
        # They are started or opened by name, and only what a program imports travels by itself.
        imported.pipeline["steps"][STEP]["files"] = programs
    files["pipeline.yaml"] = _pipeline(imported, manifest)
    if imported.starter:
        files[STARTER] = _starter(imported)
    return Draft(target, files, tuple(_report(manifest, imported, name, files, missing)))


def _is_python(path: str) -> bool:
    return path.endswith(".py")


def _program(manifest: Manifest, imported: Imported, code: Path | None) -> dict[str, str]:
    """The program's files: those of ``code``, or those of the manifest's folder that the command names."""
    if code is not None:
        if not code.is_dir():
            raise RefusedError(
                [Problem(option("code"), str(code), "there is no such folder", "name the program's folder")]
            )
        files = dict(_texts(code))
    else:
        paths = [manifest.documents[0].file.parent / Path(program).name for program in imported.programs]
        files = {path.name: path.read_text(encoding="utf-8") for path in paths if path.is_file()}
    absolute = [program for program in imported.programs if code is None or program.startswith("/")]
    renamed = {program: Path(program).name for program in absolute if Path(program).name in files}
    step = imported.pipeline["steps"][STEP]
    step["run"] = [_rename(word, renamed) for word in step["run"]]
    if imported.by_role:
        words: Mapping[str, str] = step["environment"]
        step["environment"] = {key: _rename(word, renamed) if WORD in key else word for key, word in words.items()}
    imported.programs = [renamed.get(program, program) for program in imported.programs]
    return files


def _rename(word: str, names: Mapping[str, str]) -> str:
    """A word of the command with new names of programs: the whole word, or words in a shell's command."""
    for old, new in names.items():
        word = re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w./-])", lambda _, to=new: to, word)
    return word


def _texts(code: Path) -> Iterator[tuple[str, str]]:
    size = 0
    hidden = set(left_out(code))
    for path in sorted(code.rglob("*")):
        parts = path.relative_to(code).parts
        if not path.is_file() or any(part.startswith((".", "__pycache__")) for part in parts):
            continue
        if "/".join(parts) in hidden and path.suffix in {".png", ".jpg"}:
            continue
        content = path.read_bytes()
        size += len(content)
        if size > MOST_BYTES:
            reason = "its files are more than 1 MiB, the most that a step ships"
            raise RefusedError([_wrong_code(code, reason)])
        try:
            yield "/".join(parts), content.decode()
        except UnicodeDecodeError:
            reason = f"{'/'.join(parts)} is no text; data belongs into the store"
            raise RefusedError([_wrong_code(code, reason)]) from None


def _wrong_code(code: Path, reason: str) -> Problem:
    return Problem(option("code"), str(code), reason, "name the folder of the program alone")


def _pipeline(imported: Imported, manifest: Manifest) -> str:
    lines = [f"Imported from the {manifest.kind.kind} {manifest.name}."]
    for heading, notes in _groups(imported):
        lines += [f"{heading}:", *(f"- {note}" for note in notes)]
    head = "\n".join(
        f"# {part}"
        for line in lines
        for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False)
    )
    body = yaml.safe_dump(
        imported.pipeline, sort_keys=False, default_flow_style=None, width=WIDTH, allow_unicode=True
    )
    return f"{head}\n{body}"


def _starter(imported: Imported) -> str:
    shapes = {
        role: {"words": len(program["run"]), "variables": sorted(program["environment"])}
        for role, program in imported.by_role.items()
    }
    template = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    first = next((role for role in shapes if role == "worker"), next(iter(shapes), ""))
    return template.render(shapes=shapes, first=first, variables=imported.variables, filled=imported.filled)


def _groups(imported: Imported) -> Iterator[tuple[str, list[str]]]:
    """What there is to say, under headings: first what is lost."""
    lost = [_line(note) for note in imported.notes if not note.carried]
    changed = [_line(note) for note in imported.notes if note.carried]
    groups = {"Not carried over": lost, "In another form": changed, "The step's pool needs": imported.needs}
    yield from ((heading, notes) for heading, notes in groups.items() if notes)


def _line(note: Note) -> str:
    value = note.value if isinstance(note.value, str) else json.dumps(note.value, default=str)
    value = value if len(value) <= 60 else f"{value[:57]}…"
    return " ".join(f"{note.at}: {value}: {note.text}".split())


def _report(
    manifest: Manifest, imported: Imported, name: str, files: Mapping[str, str], missing: list[str]
) -> Iterator[str]:
    roles = ", ".join(f"{replica.role} {replica.count}" for replica in manifest.replicas)
    yield f"Read the {manifest.kind.kind} {manifest.name}: {roles}"
    for heading, notes in _groups(imported):
        yield f"{heading} ({len(notes)}):"
        yield from (f"  {note}" for note in notes)
    yield f"Wrote {WORKLOADS}/{name}/: {', '.join(sorted(files))}"
    absolute = [program for program in imported.programs if program.startswith("/")]
    if missing:
        here = f"put it into {WORKLOADS}/{name}/, or import again with CODE=<its folder>"
        yield f"Missing: {', '.join(missing)}: {here}"
    if absolute:
        yield f"In the image: {', '.join(absolute)}: `image` has to name it by digest; a rehearsal needs it here"
    yield "Next:"
    if imported.pipeline.get("parameters"):
        yield f"  give {', '.join(imported.pipeline['parameters'])} values in the stack file: they have no default"
    yield f"  {command('new', stack='mine', cloud='existing', uses=name)}    or another cloud"
    yield f"  {command('rehearse', stack='mine')}"
    yield "docs/import.md says what becomes of each field"
