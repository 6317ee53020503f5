"""``make project TO=../acme``: from a clone of this repository to a project that uses the package.

It copies, and changes nothing in the clone. The names of the Pulumi project, of stacks and of files in pods stay,
so that the state of every stack fits. A preview against the clone then shows whether anything changes.
"""

import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.infra.commands import command
from slipway.infra.pipelines.discovery import RESERVED, WORKLOADS, location
from slipway.infra.pipelines.images import DATA, DIGESTS, IMAGES
from slipway.infra.places import LIBRARY, PACKAGE, PROJECT, PROJECT_FILE
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import Problem, without_prefix
from slipway.infra.schema.requirement_files import REQUIREMENTS
from slipway.infra.schema.yaml_files import read_yaml
from slipway.infra.settings.loading import clouds_of
from slipway.offline.engine.stack_config import ConfigError, load_stack, references, stack_names
from slipway.offline.preview.build import Options, build
from slipway.offline.preview.revisions import evaluate_trees
from slipway.tools import pin_images
from slipway.tools.new.project import EXTRAS, lock, named, template
from slipway.tools.new.publishing import INDEX
from slipway.tools.new.writing import RefusedError, refuse

ROOMS = ("infra", "offline", "tools", PACKAGE, "ci", *(f"{WORKLOADS}/{name}" for name in RESERVED))
"""Folders whose files the package brings: a file that was added to one is not read in a project."""

DIST = LIBRARY / "dist"
"""Where `make package` writes."""

PROGRAM = "__main__.py"
BACKEND = "PULUMI_BACKEND_URL"
UPSTREAM = "upstream/main"


@dataclass(frozen=True)
class Clone:
    """All files of a clone, those that upstream does not have, and those of upstream's that differ or are gone."""

    root: Path
    files: frozenset[str]
    added: frozenset[str]
    changed: frozenset[str]

    @classmethod
    def compare(cls, root: Path, base: str) -> "Clone":
        """Its working tree against the commit where it and ``base`` parted. Raises RefusedError."""
        commit = _git(root, "merge-base", "HEAD", base).strip()
        if not commit:
            reason = "no commit that this clone has in common with upstream's"
            fix = "name the branch of upstream's repository, or the commit that you began with or merged last"
            raise RefusedError([Problem("BASE", base, reason, fix)])
        words = _split(_git(root, "diff", "--name-status", "--no-renames", "-z", commit))
        by_name = dict(zip(words[1::2], words[::2], strict=True))
        files = _split(_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
        untracked = _split(_git(root, "ls-files", "-z", "--others", "--exclude-standard"))
        added = {name for name, letter in by_name.items() if letter == "A"} | {*untracked}
        present = frozenset(name for name in files if os.path.lexists(root / name))
        return cls(root, present, frozenset(added) & present, frozenset(by_name) - added)

    def below(self, folder: str) -> set[str]:
        """The files in ``folder``."""
        return {name for name in self.files if name.startswith(f"{folder}/")}


@dataclass(frozen=True)
class Plan:
    """What a project takes from a clone: stacks, the files of these and all others, and packages by extras.

    ``left`` are files that the user has changed or added and the project does not take.
    """

    stacks: Sequence[str]
    taken: frozenset[str]
    left: frozenset[str]
    extras: Sequence[str]


def main(
    to: Annotated[str, typer.Option(help="Folder of the project, which is not there yet.")] = "",
    stack: Annotated[
        list[str] | None, typer.Option(help="A stack to take; without it, all that are yours.")
    ] = None,
    base: Annotated[
        str, typer.Option(help="Upstream's branch, or the commit of it that was merged last.")
    ] = UPSTREAM,
) -> None:
    """Write a project that uses the package, with the stacks and pipelines of this clone, which stays as it is.

    Exits with 0 where a preview shows no change of these stacks, with 1 where it shows one, and with 2 where
    nothing was written.
    """
    target = Path(os.path.normpath(Path.cwd() / Path(to).expanduser()))
    try:
        clone = Clone.compare(PROJECT, base)
        made = plan(clone, target, stack or ())
        if made.left:
            print("NOT TAKEN, since the package brings its own. The clone keeps what you changed here:")
            print("\n".join(f"  {name}" for name in sorted(made.left)))
        warning = write(clone, made, target)
    except (RefusedError, ConfigError) as error:
        refuse(error)
        raise typer.Exit(2) from None
    print(f"Wrote {target}: {len(made.taken)} files of this clone, with the stacks {', '.join(made.stacks)}")
    if warning:
        print(f"Not pinned by digests: {warning}")
    changed = compare(clone.root, target, made.stacks)
    print("\n".join(changed or [f"Nothing changes in {', '.join(made.stacks)}"]))
    print(
        f"Next:\n  cd {target} && git init\n"
        f"  python3 -m venv .venv && .venv/bin/pip install --find-links {DIST} -r {REQUIREMENTS}\n"
        "  pulumi stack ls    the same stacks as here; else log in to the same backend first\n"
        f"  pulumi preview -s {made.stacks[0]}    no resource changes\n"
        "From the first `pulumi up` there, do not run it here any more: both have the same state."
    )
    raise typer.Exit(1 if changed else 0)


def plan(clone: Clone, target: Path, names: Sequence[str]) -> Plan:
    """What the project at ``target`` takes. Raises RefusedError with everything that is in the way."""
    problems = [*_target_problems(clone, target), *_backend_problems(clone.root)]
    known = stack_names(clone.root)
    yours = [name for name in known if _file(name) in clone.added | clone.changed]
    chosen = list(names or yours)
    problems += [
        Problem("STACK", name, "no stack of this clone", f"write one of {', '.join(known)}")
        for name in chosen
        if name not in known
    ]
    if not chosen:
        reason = "no stack file is new or changed"
        problems.append(
            Problem("STACK", None, reason, "name those that are up, even where their file is upstream's")
        )
    taken = {PROJECT_FILE, PROGRAM, f"{WORKLOADS}/__init__.py"}
    clouds = set[str]()
    for name in chosen:
        if name not in known:
            continue
        settings = without_prefix(load_stack(name, clone.root).values)
        clouds |= {*clouds_of(settings)}
        # The clusters of another stack are read from its file.
        chosen += [other.stack for other in references(settings) if other.stack in {*known} - {*chosen}]
        taken.add(_file(name))
        for section, values in mapping(settings.get("pipelines")).items():
            uses = str(mapping(values).get("uses") or section)
            folder = location(uses).path
            if folder.is_relative_to(clone.root):
                taken |= clone.below(folder.relative_to(clone.root).as_posix())
            elif not uses.startswith(("/", "~")) and Path(os.path.normpath(target / uses)) != folder:
                key = f"{name}: slipway:pipelines.{section}.uses"
                reason = f"seen from {target} it is another folder than {folder}"
                problems.append(Problem(key, uses, reason, f"choose a folder beside {clone.root.name}"))
    if problems:
        raise RefusedError(problems)
    others = {_file(name) for name in known} - taken
    taken |= {name for name in clone.added if not name.startswith(tuple(f"{room}/" for room in ROOMS))} - others
    left = (clone.changed | clone.added) - taken - others
    known_extras = tomllib.loads((LIBRARY / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    extras = sorted({*EXTRAS, *(clouds & {*known_extras})})
    return Plan(tuple(dict.fromkeys(chosen)), frozenset(taken & clone.files), frozenset(left), extras)


def write(clone: Clone, made: Plan, target: Path) -> str:
    """Writes the project, all or nothing. Returns what keeps its lock file from having digests, if anything."""
    index = DIST / INDEX
    requirements, warning = lock(made.extras, index.as_uri() if index.is_dir() else "")
    texts = {path: named(path, text, target.name) for path, text in template().items() if not _is_ours(path)}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as folder:
        project = Path(folder) / target.name
        for path, text in {**texts, REQUIREMENTS: requirements}.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
        for path in made.taken:
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(clone.root / path, project / path, follow_symlinks=False)
        if DATA.resolve().relative_to(LIBRARY).as_posix() in clone.changed:
            digests = {image: digest for images in IMAGES.values() for image, digest in images.items() if digest}
            pin_images.write_pins(digests, project / DIGESTS.name)
        project.rename(target)
    return warning


def compare(clone: Path, project: Path, stacks: Sequence[str]) -> list[str]:
    """What changes in the stacks of the project where the package has the code of the clone, a line for each."""
    # The package is not installed there yet.
    os.environ["PYTHONPATH"] = str(LIBRARY)
    evaluations = evaluate_trees(project, clone, stacks)
    preview = build(
        evaluations, Options(today=datetime.now(UTC).date(), configuration=lambda _: {}, base="the clone")
    )
    lines: list[str] = []
    for stack in preview.stacks:
        if stack.failures:
            lines.append(f"{stack.stack}: cannot be evaluated; `{command('preview', stack=stack.stack)}` says why")
        changes = stack.changes
        if changes:
            lines += [
                f"{stack.stack}: {change.operation} {change.type} {change.name}" for change in changes.resources
            ]
    return lines


def _is_ours(path: str) -> bool:
    """Whether a file of the template stands for what a clone has of its own."""
    return path in {PROJECT_FILE, PROGRAM} or path.startswith(("stacks/", f"{WORKLOADS}/"))


def _file(stack: str) -> str:
    return f"stacks/Pulumi.{stack}.yaml"


def _target_problems(clone: Clone, target: Path) -> Iterable[Problem]:
    if target == Path.cwd() or target.is_relative_to(clone.root):
        fix = f"write for example `{command('project', to='../acme')}`"
        yield Problem("TO", str(target), "a project stands outside of the clone", fix)
    elif os.path.lexists(target):
        yield Problem("TO", str(target), "it is there already", "choose another name; nothing is overwritten")


def _backend_problems(root: Path) -> Iterable[Problem]:
    """A backend in a folder that would be another one from the project: `up` would create everything anew."""
    backends: dict[str, Any] = {
        f"{PROJECT_FILE}: backend.url": mapping(mapping(read_yaml(root / PROJECT_FILE)).get("backend")).get("url"),
        BACKEND: os.environ.get(BACKEND),
    }
    for key, url in backends.items():
        if str(url).startswith("file://") and not str(url).removeprefix("file://").startswith(("/", "~")):
            reason = "a project elsewhere would look for the states in another folder, and find none"
            yield Problem(key, str(url), reason, "write the whole path: file:///…")


def _git(root: Path, *words: str) -> str:
    """What git prints; nothing where it fails."""
    done = subprocess.run(["git", "-C", str(root), *words], check=False, capture_output=True, text=True)
    return "" if done.returncode else done.stdout


def _split(text: str) -> list[str]:
    return text.removesuffix("\0").split("\0") if text else []


if __name__ == "__main__":
    typer.run(main)
