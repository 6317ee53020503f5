"""Files and folders that are written whole, and only where nothing is yet."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import yaml
from rich.text import Text

from slipway.infra.commands import command, option, page, shared_page
from slipway.infra.exits import Exit, report_error, report_problems
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.places import LIBRARY, PROJECT, PROJECT_FILE
from slipway.infra.schema.problems import Problem
from slipway.infra.settings.checks.pipelines import section_name_findings
from slipway.infra.terminal import new_console


class RefusedError(Exception):
    """Everything that keeps `make new` from writing anything."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{len(problems)} problems")


@dataclass(frozen=True)
class Draft:
    """What is to be written: the texts of ``files`` by their paths below ``target``, or the one file `target` is.

    A path in place of a text is a file that is copied. ``said`` is what to tell about it, line by line.
    """

    target: Path
    files: Mapping[str, str | Path] | str
    said: Sequence[str]


WIDTH = 110
"""Characters of a line that is written."""


class _Writer(yaml.SafeDumper):
    """Writes texts of several lines as they are."""

    def represent_text(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)  # pyright: ignore[reportUnknownMemberType]


_Writer.add_representer(str, _Writer.represent_text)


def yaml_text(content: Mapping[str, object]) -> str:
    """``content`` as YAML, in its order."""
    return yaml.dump(
        content, Dumper=_Writer, sort_keys=False, default_flow_style=None, width=WIDTH, allow_unicode=True
    )


def name_clashes(option: str, name: str, target: Path, root: Path) -> list[Problem]:
    """The problem of a target that is there, in letters of either case, as some file systems have one for both."""
    folder = target.parent
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    clash = next((existing for existing in names if existing.casefold() == target.name.casefold()), None)
    if clash is None:
        return []
    where = (folder / clash).relative_to(root).as_posix()
    return [Problem(option, name, f"{where} is there already", "choose another name; nothing is overwritten")]


def write(draft: Draft, root: Path) -> None:
    """Writes the draft: all of it or nothing. Raises FileExistsError where something is in its place by now."""
    place = root / "build" if (root / PROJECT_FILE).is_file() else root
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=place) as folder:
        made = Path(folder) / draft.target.name
        if isinstance(draft.files, str):
            made.write_text(draft.files, encoding="utf-8")
        else:
            for name, text in draft.files.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                if isinstance(text, Path):
                    shutil.copyfile(text, made / name)
                else:
                    (made / name).write_text(text, encoding="utf-8")
        if os.path.lexists(draft.target):
            raise FileExistsError(str(draft.target))
        draft.target.parent.mkdir(parents=True, exist_ok=True)
        made.rename(draft.target)


def carry_out(make: Callable[[], Draft], root: Path) -> Exit:
    """Writes what ``make`` returns below ``root``, and says so on the terminal."""
    try:
        draft = make()
        write(draft, root)
    except RefusedError as refused:
        refuse(refused)
        return Exit.REFUSED
    except OSError as error:
        report_error(f"it could not be written: {error}")
        return Exit.FAILED
    console = new_console()
    for line in draft.said:
        console.print(Text(line), soft_wrap=True)
    return Exit.DONE


def refuse(error: Exception) -> None:
    """Prints why nothing was written, on stderr; of a RefusedError every problem with its reason and fix."""
    if not isinstance(error, RefusedError):
        report_error(f"nothing was written: {error}")
        return
    report_problems(error.problems, "; nothing was written")


TEMPLATES = Path(__file__).parent / "templates" / "pipeline"
RENDERED = ".j2"
"""What the name of a template ends in that is more than copied."""


def name_problems(key: str, name: str, target: Path) -> list[Problem]:
    """What keeps the pipeline of the option ``key`` from having the name, or from standing at ``target``."""
    # The name of the folder is that of the section in stack files.
    problems = [
        Problem(option(key), name, finding.reason, finding.fix.partition(", and write")[0])
        for finding in section_name_findings((), name)
    ]
    return problems or name_clashes(option(key), name, target, PROJECT)


def draft(name: str) -> Draft:
    """The pipeline's folder. Raises `RefusedError` with everything that keeps it from being one."""
    target = PROJECT / WORKLOADS / name
    if problems := name_problems("pipeline", name, target):
        raise RefusedError(problems)
    files = {
        path.name.removesuffix(RENDERED): _text(path, name)
        for path in sorted(TEMPLATES.iterdir())
        if path.is_file()
    }
    said = (
        f"Wrote {WORKLOADS}/{name}/: {', '.join(files)}",
        "Next:",
        f"  {command('new', stack='mine', cloud='existing', uses=name)}    or another cloud",
        f"  {command('rehearse', stack='mine')}",
        f"{page('your-program.md')} says how your own programs take the place of prepare.py and train.py",
    )
    return Draft(target, files, said)


def _text(template: Path, name: str) -> str:
    text = template.read_text(encoding="utf-8")
    if template.suffix != RENDERED:
        return text
    return jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True).render(
        name=name, command=command, page=shared_page, is_clone=LIBRARY == PROJECT
    )
