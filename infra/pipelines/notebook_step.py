"""A Jupyter notebook as the program of a step: papermill runs it with parameters, nbconvert makes a page of it.

Both come from the step's lock file or its image, as what the notebook imports does: its kernel is their Python.
"""

import json
import keyword
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Any

from slipway.infra.pipelines.pods import path_findings
from slipway.infra.pipelines.results import Page
from slipway.infra.pipelines.scripts import command_of
from slipway.infra.schema.problems import Finding, Path, listed

PACKAGES = ("papermill", "nbconvert", "ipykernel")
"""What runs a notebook: papermill 2.7.0 and nbconvert 7.17.2, of which papermill needs no ipykernel
(pypi.org/project/papermill, seen November 2026)."""

NAME = "notebook"

_REFERENCE = re.compile(r"\{([A-Za-z][\w-]*)\}")


def command_of_notebook(path: str, parameters: Mapping[str, Any], types: Mapping[str, str]) -> list[str]:
    """The command line that runs the notebook at ``path``; ``types`` are those of the pipeline's parameters.

    What it has shown is a result: the notebook, and a page of it, whether or not a cell failed.
    It starts in its own folder, as in Jupyter, or in the `directory` of the step, and finds modules of the
    folder of code in both.
    """
    name = PurePosixPath(path).stem
    folder = str(PurePosixPath(path).parent)
    start, code = "", "${SLIPWAY_CODE:-.}"
    if folder != ".":
        start = (
            'if [ -z "${SLIPWAY_CODE:-}" ]; then\n'
            "  SLIPWAY_CODE=$PWD\n"
            '  export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"\n'
            f"  cd {_quote(folder)}\n"
            "fi\n"
        )
        code = "$SLIPWAY_CODE"
    flags = "".join(f" \\\n  {_flag(key, value, types)}" for key, value in parameters.items())
    return command_of(
        f'{start}code=0; python -m papermill "{code}"/{_quote(path)} {{output}}/{_quote(name)}.ipynb'
        f" --kernel python3 --no-progress-bar --log-output{flags} || code=$?\n"
        f"python -m nbconvert --log-level WARN --to html {{output}}/{_quote(name)}.ipynb\n"
        f'[ $code = 0 ] || echo "error: a cell failed, which is named above; all that ran is in" '
        f"{{output}}/{_quote(name)}.html >&2\n"
        "exit $code\n"
    )


def page_of(path: str) -> Page:
    """The result that each step with the notebook at ``path`` has."""
    return Page(name=NAME, title=PurePosixPath(path).name, path=f"{PurePosixPath(path).stem}.html")


def notebook_findings(at: Path, path: str, parameters: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about the notebook of the step at ``at``, and about names of its ``parameters``."""
    yield from path_findings((*at, NAME), path)
    if not path.endswith(".ipynb"):
        yield Finding((*at, NAME), path, "not a notebook", "write the path of an `.ipynb` file below `code`")
    for name in parameters:
        if not name.isidentifier() or keyword.iskeyword(name):
            reason = "not the name of a variable in Python"
            yield Finding((*at, "parameters", name), name, reason, "write letters, digits and `_`, no digit first")


def notebook_problem(notebook: FilePath, lock: FilePath | None, *, known: bool) -> tuple[str, str] | None:
    """The reason why ``notebook`` cannot be run with the packages of ``lock``, and the fix; None where it can.

    What of its packages the image has is ``known`` unless the image is one of the pipeline's own.
    """
    try:
        content = json.loads(notebook.read_bytes())
        cells = content["cells"]
    except FileNotFoundError:
        return f"there is no such file as {notebook}", "add it, or correct the path"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"it cannot be read as a notebook: {error}", "save it again with Jupyter"
    if not isinstance(cells, list):
        return "it has no cells", "save it again with Jupyter"
    pinned = lock.read_text(encoding="utf-8") if lock and lock.is_file() else ""
    missing = [name for name in PACKAGES if not re.search(rf"(?mi)^{name}==", pinned)]
    if missing and known:
        reason = f"{listed(PACKAGES, 'and')} run it, and the step's lock file lacks {listed(missing, 'and')}"
        fix = f"write {listed(missing, 'and')} into `requirements.in`, make the lock file again, and name it as "
        return reason, f"{fix}`requirements`"
    return None


def _flag(name: str, value: Any, types: Mapping[str, str]) -> str:
    """What gives a parameter its value as the type that it has, and not as what its text looks like."""
    if isinstance(value, bool):
        return f"-y '{name}: {str(value).lower()}'"
    if isinstance(value, int | float):
        return f"-p {name} {value!r}"
    value = str(value)
    match = _REFERENCE.fullmatch(value)
    kind = types.get(match[1], "string") if match else "string"
    if kind == "boolean":
        return f'-y "{name}: {value}"'
    return f"-{'p' if kind in ('integer', 'number') else 'r'} {name} {_quote(value)}"


def _quote(text: str) -> str:
    """``text`` as one word of a script, with its references."""
    return '"{}"'.format(re.sub(r'(["\\`$])', r"\\\1", text))
