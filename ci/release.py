"""The steps of a release: ``python -m ci.release check``, ``try`` and ``publish``, with the tag in ``TAG``.

``check`` holds the tag to the package and the changelog, and writes the notes. ``try`` builds the package again,
installs the wheel into an environment of its own, rehearses a pipeline there and lists what is installed, as a
CycloneDX SBOM. ``publish`` makes the release. What is released lies in dist/ and `FOLDER`.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = Path("dist")
TEMPLATE = "slipway-template.zip"
"""What `pulumi new` begins a project with: `ARCHIVE` in `slipway.command.new.publishing`."""
FOLDER = Path("build/ci/release")
NOTES = FOLDER / "notes.md"
CHANGELOG = "CHANGELOG.md"

TAG = re.compile(r"v(\d+\.\d+\.\d+)")
HEADING = re.compile(r"^## \[([^\]]+)\](.*)$", re.MULTILINE)
DATE = re.compile(r" - \d{4}-\d{2}-\d{2}")

PIN = "packaging"
"""The package that the pipeline of ``try`` has in its lock file: a small one that ours has, too."""

PIPELINE = {
    "pipeline.yaml": """description: Compares two versions.
steps:
  compare:
    description: Writes which of two versions is newer.
    run: python compare.py {output}
    requirements: requirements.txt
""",
    "compare.py": (
        "import pathlib, sys, packaging.version\n"
        "newest = max(['0.9', '0.10'], key=packaging.version.Version)\n"
        "pathlib.Path(sys.argv[1], 'newest.txt').write_text(newest)\n"
    ),
}


class ReleaseError(Exception):
    """The release cannot be made; the text says why, a line for each reason."""


def sections(changelog: str) -> dict[str, tuple[str, str]]:
    """What stands behind each heading of a release on its line, and the text below it, the newest first."""
    parts = HEADING.split(changelog)[1:]
    return {parts[at]: (parts[at + 1], parts[at + 2].strip()) for at in range(0, len(parts), 3)}


def problems(tag: str, changelog: str, packages: Sequence[str]) -> Iterator[str]:
    """What keeps the commit with ``tag`` from being released; ``packages`` are the names of the built files."""
    match = TAG.fullmatch(tag)
    if match is None:
        yield f"TAG={tag}: not a release's; name it v1.2.3"
        return
    version = match[1]
    expected = {f"slipway_ml-{version}-py3-none-any.whl", f"slipway_ml-{version}.tar.gz"}
    if set(packages) != expected:
        yield (
            f"{DIST}: has {', '.join(sorted(packages)) or 'nothing'} in place of {', '.join(sorted(expected))}; "
            f"`make package` at the commit of {tag}, with no file changed"
        )
    releases = sections(changelog)
    if version not in releases:
        yield f"{CHANGELOG}: has no section of {version}; write `## [{version}] - <date>` below `## [Unreleased]`"
        return
    date, text = releases[version]
    if not DATE.fullmatch(date):
        yield f"{CHANGELOG}: the heading of {version} has no date; write `## [{version}] - 2026-12-31`"
    if not text:
        yield f"{CHANGELOG}: the section of {version} is empty; write what changes, and which Jobs run again"
    newest = next(name for name in releases if name != "Unreleased")
    if newest != version:
        yield f"{CHANGELOG}: its newest release is {newest}; {version} has to stand first"
    if releases.get("Unreleased", ("", ""))[1]:
        yield f"{CHANGELOG}: something is left below `Unreleased`; move it into the section of {version}"


def built() -> list[Path]:
    """The wheel and the source distribution, as far as they are there."""
    return sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])


def check(tag: str) -> None:
    """Raises ReleaseError with every problem; else writes the notes, the section of the changelog."""
    changelog = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    if wrong := [*problems(tag, changelog, [path.name for path in built()])]:
        raise ReleaseError("\n".join(wrong))
    FOLDER.mkdir(parents=True, exist_ok=True)
    NOTES.write_text(sections(changelog)[tag.removeprefix("v")][1] + "\n", encoding="utf-8")
    print(f"{tag}: the package and the changelog agree; {NOTES} has the notes")


def try_package() -> None:
    """Builds the package again and compares it; installs it, rehearses with it, and writes the SBOM."""
    [wheel] = DIST.glob("*.whl")
    shutil.rmtree(FOLDER / "python", ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        _compare_builds(Path(scratch))
        python = _environment(FOLDER / "python", "-c", str(ROOT / "requirements.txt"), str(wheel))
        _rehearse(python, Path(scratch))
        tool = _environment(
            Path(scratch, "sbom"), "--require-hashes", "-r", str(ROOT / "ci/sbom/requirements.txt")
        )
        sbom = FOLDER / f"{wheel.name.removesuffix('-py3-none-any.whl')}.cdx.json"
        run(tool.with_name("cyclonedx-py"), "environment", python, "--output-reproducible", "-o", sbom)
    print(f"{sbom} lists what the package installs")


def _compare_builds(scratch: Path) -> None:
    """Raises ReleaseError where a clone of this commit gives other bytes."""
    run("git", "clone", "--quiet", ROOT, scratch / "clone")
    again = scratch / "dist"
    words = ("build", "--quiet", "--python", sys.executable, "--no-build-isolation", "--out-dir", again)
    run(_uv(), *words, folder=scratch / "clone")
    for path in built():
        digests = [_digest(file) for file in (path, again / path.name)]
        if digests[0] != digests[1]:
            raise ReleaseError(f"{path.name}: a clone of this commit gives another file: {' and '.join(digests)}")
        print(f"{digests[0]}  {path.name}")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"


def _uv() -> Path:
    return Path(sys.executable).with_name("uv")


def _environment(folder: Path, *packages: str) -> Path:
    """The interpreter of a new environment in ``folder`` with these packages."""
    run(_uv(), "venv", "--quiet", "--python", sys.executable, folder)
    python = folder.absolute() / "bin/python"
    run(_uv(), "pip", "install", "--quiet", "--python", python, *packages)
    return python


def _rehearse(python: Path, scratch: Path) -> None:
    """A new project whose one pipeline has a lock file: TensorFlow is not installed, and not needed."""
    slipway = python.with_name("slipway")
    run(slipway, "new", "acme", folder=scratch)
    project = scratch / "acme"
    pipeline = project / "workloads/versions"
    pipeline.mkdir()
    for name, text in PIPELINE.items():
        (pipeline / name).write_text(text, encoding="utf-8")
    (pipeline / "requirements.txt").write_text(_pin(PIN), encoding="utf-8")
    run(slipway, "new", "--stack", "try", "--cloud", "existing", "--uses", "versions", folder=project)
    run(slipway, "rehearse", "--stack", "try", folder=project)
    [newest] = (project / "build/rehearsal/try/store").glob("versions/compare/*/newest.txt")
    if newest.read_text(encoding="utf-8") != "0.10":
        raise ReleaseError(f"the rehearsal of the installed package gave {newest.read_text(encoding='utf-8')!r}")


def _pin(package: str) -> str:
    """The lines that pin ``package`` in our lock file."""
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{package}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    assert match is not None
    return match[0]


def publish(tag: str) -> None:
    """Makes the release of the tag, which has to be there, with the notes that `check` wrote."""
    files = [*built(), DIST / TEMPLATE, *FOLDER.glob("*.cdx.json")]
    run("gh", "release", "create", tag, "--verify-tag", "--title", tag, "--notes-file", NOTES, *files)


def run(*command: str | Path, folder: Path = Path()) -> None:
    """Runs a command; raises ReleaseError where it fails, once it has said why."""
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    if subprocess.run(command, cwd=folder, check=False, env=environment).returncode:
        raise ReleaseError(f"failed: {' '.join(map(str, command))}")


def main(words: Sequence[str]) -> int:
    """Runs a command, and returns the exit code."""
    tag = os.environ.get("TAG", "")
    commands = {"check": lambda: check(tag), "try": try_package, "publish": lambda: publish(tag)}
    if len(words) != 1 or words[0] not in commands:
        print(f"usage: python -m ci.release {' | '.join(commands)}", file=sys.stderr)
        return 2
    try:
        commands[words[0]]()
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
