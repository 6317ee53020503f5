"""``slipway new acme``: the folder of a project that uses the package, which can be rehearsed at once."""

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from slipway.command.new.writing import Draft, RefusedError, name_clashes
from slipway.infra.places import DISTRIBUTION, LIBRARY, PACKAGE, PROJECT_FILE
from slipway.infra.schema.names import DNS_LABEL
from slipway.infra.schema.problems import Problem
from slipway.infra.schema.requirement_files import REQUIREMENTS
from slipway.infra.schema.uv import BY_DIGESTS, FOR_ALL_PLATFORMS, UvError, compile_pins
from slipway.infra.version import version

TEMPLATE = Path(__file__).parent / "templates" / "project"
"""The template as `pulumi new` takes it, but for `REQUIREMENTS`, which is made for a built package."""

NAME = "${PROJECT}"
"""What stands in the template's files for the name of the project."""

TESTED = next(path for folder in (LIBRARY / PACKAGE, LIBRARY) if (path := folder / REQUIREMENTS).is_file())
"""The versions that this version of the package was tested with, of all that it may need."""

EXTRAS = ("rehearse",)
"""The extras of the package that a new project asks for. A stack on a cloud needs that cloud's, too."""

WHEELS = "wheels"
"""The folder of a project with the package, where no index has it."""

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
    files: dict[str, str | Path] = {path: named(path, text, name) for path, text in template().items()}
    wheel = installed_from()
    if isinstance(wheel, Path):
        # The project installs what it was made with, on any machine.
        files[f"{WHEELS}/{wheel.name}"] = wheel
    requirements, warning = lock(EXTRAS, source=wheel)
    said = [
        f"Wrote {name}/: {len(files) + 1} files",
        *([f"Not pinned by digests: {warning}"] if warning else []),
        "Next:",
        f"  cd {name}",
        f"  {PACKAGE} rehearse    trains on this machine and reads ten digits",
        f"  {PACKAGE} preview     what it creates on a cluster, and what is wrong with it",
        f"  {PACKAGE} new --pipeline churn    another pipeline",
    ]
    return Draft(target, {**files, REQUIREMENTS: requirements}, said)


def template() -> dict[str, str]:
    """The files of the template by their paths in a project."""
    return {
        path.relative_to(TEMPLATE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(TEMPLATE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def named(path: str, text: str, name: str) -> str:
    """The file ``path`` of the template in the project ``name``, byte for byte as `pulumi new` writes it.

    That puts a name into YAML as a whole document, line end included (`CopyTemplateFiles` in
    pkg/cmd/pulumi/templates/project_templates.go of pulumi/pulumi 3.260, read 2026-11-26), and writes
    `Pulumi.yaml` anew, without the section `template`.
    """
    scalar = name if yaml.safe_load(name) == name else f'"{name}"'
    if path == PROJECT_FILE:
        return f"{text.partition(_SECTION)[0]}\n".replace(NAME, scalar)
    return text.replace(NAME, f"{scalar}\n" if path.endswith(".yaml") else name)


_SECTION = "\ntemplate:\n"


def installed_from() -> Path | str:
    """What this package was installed from: a wheel that is still there, an address, or nothing: an index.

    Installers note it (PEP 610, https://packaging.python.org/en/latest/specifications/direct-url/, November 2026).
    """
    try:
        noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    origin: dict[str, Any] = json.loads(noted or "{}")
    url, vcs = str(origin.get("url", "")), origin.get("vcs_info")
    if vcs:
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    if not url.startswith("file:"):
        return url
    path = Path(unquote(urlsplit(url).path))
    return path if path.suffix == ".whl" and path.is_file() else ""


def lock(extras: Sequence[str], index: str = "", source: Path | str = "") -> tuple[str, str]:
    """The lock file of a project, and what keeps it from having digests, or nothing.

    ``index`` is the address of one that has this version, beside that of all other packages. ``source`` is what
    `installed_from` returns: a wheel is found in the project's folder `WHEELS`.
    """
    requirement = f"{DISTRIBUTION}[{','.join(extras)}]"
    address = source if isinstance(source, str) else ""
    pin = f"{requirement} @ {address}" if address else f"{requirement}=={version()}"
    # Without extras nobody could tell from the file which of its lines they asked for. A commit has no digest.
    options = [*FOR_ALL_PLATFORMS, "--no-strip-extras", *([] if address.startswith("git+") else [BY_DIGESTS])]
    words = [*options, "--no-header", "--constraints", str(TESTED), *(["--index", index] if index else [])]
    beside = ""
    if isinstance(source, Path):
        beside = f"--find-links {WHEELS}\n"
        options += ["--find-links", WHEELS]
        words += ["--find-links", str(source.parent)]
    how = f"# `echo '{pin}' | uv pip compile {' '.join(options)} -` pins what it needs by digests.\n{beside}"
    try:
        return how + compile_pins([pin], *words, folder=Path()), ""
    except UvError as error:
        return f"{how}{pin}\n", f"no package index answered for {pin}: {error}"
