"""``slipway new acme``: the folder of a project that uses the package, which can be rehearsed at once."""

import subprocess
import sys
from pathlib import Path

import jinja2

from slipway.infra.places import PACKAGE
from slipway.infra.schema.names import DNS_LABEL
from slipway.infra.schema.problems import Problem
from slipway.infra.version import version
from slipway.tools.new.writing import RENDERED, Draft, RefusedError, name_clashes

TEMPLATES = Path(__file__).parent / "templates" / "project"

REQUIREMENTS = "requirements.txt"

EXTRAS = "rehearse"
"""The extras of the package that a new project asks for. A stack on a cloud needs that cloud's, too."""

LONGEST_NAME = 20
"""Characters: with a stack's name it stands in those of clusters, which have at most 40 (GKE)."""


def draft(name: str, folder: Path) -> Draft:
    """The project ``name`` below ``folder``. Raises RefusedError."""
    target = folder / name
    problems = name_clashes("NAME", name, target, folder)
    if not DNS_LABEL.fullmatch(name) or len(name) > LONGEST_NAME:
        reason = f"clusters and buckets carry it: lower-case letters, digits and `-`, at most {LONGEST_NAME}"
        problems = [Problem("NAME", name, reason, "write for example `acme`")]
    if problems:
        raise RefusedError(problems)
    files = {
        path.relative_to(TEMPLATES).as_posix().removesuffix(RENDERED): _text(path, name)
        for path in sorted(TEMPLATES.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    lock, warning = _lock()
    said = [
        f"Wrote {name}/: {len(files) + 1} files",
        *([f"Not pinned by digests: {warning}"] if warning else []),
        "Next:",
        f"  cd {name}",
        f"  {PACKAGE} rehearse    trains on this machine and reads ten digits",
        f"  {PACKAGE} preview     what it creates on a cluster, and what is wrong with it",
        f"  {PACKAGE} new --pipeline churn    another pipeline",
    ]
    return Draft(target, {**files, REQUIREMENTS: lock}, said)


def _text(template: Path, name: str) -> str:
    text = template.read_text(encoding="utf-8")
    if template.suffix != RENDERED:
        return text
    return jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True).render(name=name)


def _lock() -> tuple[str, str]:
    """The lock file of a project, and what keeps it from having digests, or nothing."""
    pin = f"{PACKAGE}[{EXTRAS}]=={version()}"
    words = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    words += ["--generate-hashes", "--no-annotate", "--no-header", "-"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, input=pin)
    how = f"# `echo '{pin}' | uv pip compile --universal --generate-hashes -` pins what it needs by digests.\n"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["uv failed"]
        return f"{how}{pin}\n", f"no package index answered for {pin}: {last[0].strip()}"
    return how + done.stdout, ""
