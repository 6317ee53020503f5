"""`slipway update`: another version of the package in a project's requirements.txt."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.infra.exits import Exit
from slipway.infra.places import LIBRARY
from slipway.tools import update
from slipway.tools.changelog import between
from slipway.tools.update import UpdateError, find
from tests.workloads.wheels import pin, write_wheel

HEAD = "# Compiled from slipway-ml[rehearse]==1.0.0.\n--no-index\n--find-links ./wheels\n"


CHANGELOG = """# Changelog

## [Unreleased]

### Added

- Soon.

## [1.2.0] - 2026-03-01

### Added

- A search.

### Harm first

- **Jobs run once more.**

### What to do

1. Wait for the night.

## [1.1.0] - 2026-02-01

### Changed

- The namespace.

### Harm first

- A bucket goes.

## [1.0.0] - 2026-01-01

- Everything.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose index has three versions of the package and of what these need."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    changelog = {"slipway/CHANGELOG.md": CHANGELOG.encode()}
    for version, engine in (("1.0.0", "1"), ("1.1.0", "2"), ("1.2.0", "2")):
        needs = [f"Requires-Dist: engine=={engine}", 'Requires-Dist: trainer; extra == "rehearse"']
        more = [*needs, *(["Requires-Dist: added"] if version == "1.2.0" else [])]
        write_wheel(wheels, "slipway-ml", version, changelog, ["Provides-Extra: rehearse", *more])
    write_wheel(wheels, "reports", "1", {}, ["Requires-Dist: engine<2"])
    (tmp_path / "pins").mkdir()
    (tmp_path / "pins" / "ours.txt").write_text("slipway-ml==1.0.0\n", encoding="utf-8")
    for name, versions in (("engine", "12"), ("trainer", "12"), ("added", "1"), ("pandas", "12")):
        for version in versions:
            write_wheel(wheels, name, version, {})
    return tmp_path


def locked(project: Path, extras: str = "[rehearse]") -> str:
    wheels = project / "wheels"
    lines = {
        name: pin(name, version, wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl")
        for name, version in (("engine", "1"), ("pandas", "1"), ("slipway-ml", "1.0.0"), ("trainer", "1"))
    }
    lines["pandas"] = f"# for reports\n{lines['pandas'].strip()}  # ours\n"
    return HEAD + "".join(lines.values()).replace("slipway-ml==", f"slipway-ml{extras}==")


def write(project: Path, text: str) -> Path:
    file = project / "requirements.txt"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_newest_version_takes_what_it_needs_and_keeps_all_else(project: Path) -> None:
    write(project, locked(project))
    newest = find(project)

    assert dict(newest.versions) == {"slipway-ml": ("1.0.0", "1.2.0"), "added": ("", "1"), "engine": ("1", "2")}
    assert newest.text.startswith(HEAD.replace("1.0.0", "1.2.0")), "the head and the options stay"
    kept = locked(project).partition("# for reports")[2].partition("slipway-ml")[0]
    assert f"# for reports{kept}" in newest.text, "a line of the project's own stays as it is written"
    for name, version in (("slipway-ml", "1.2.0"), ("engine", "2"), ("trainer", "1"), ("added", "1")):
        wheel = project / "wheels" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        assert pin(name, version, wheel).split("--hash=")[1].strip() in newest.text

    write(project, newest.text)
    assert find(project).versions == {}, "what is written is what it then finds"
    back = find(project, "1.0.0")
    assert dict(back.versions) == {"slipway-ml": ("1.2.0", "1.0.0"), "added": ("1", ""), "engine": ("2", "1")}
    write(project, back.text)
    assert find(project, "1.2.0").text == newest.text


def test_a_file_without_digests_gets_the_number_alone(project: Path) -> None:
    text = f"{HEAD}pandas  # any\nslipway-ml[rehearse]==1.0.0  # the platform\n"
    write(project, text)
    assert find(project, "1.1.0").text == text.replace("==1.0.0  #", "==1.1.0  #")


def test_a_version_of_a_commit_is_updated_too(project: Path) -> None:
    """`slipway new` of a wheel that was built from a commit pins one, and its local part is no bound."""
    write_wheel(project / "wheels", "slipway-ml", "1.1.1.dev3+g0123456789", {}, ["Provides-Extra: rehearse"])
    write(project, f"{HEAD}slipway-ml[rehearse]==1.1.1.dev3+g0123456789\n")
    assert find(project).versions["slipway-ml"] == ("1.1.1.dev3+g0123456789", "1.2.0")


def test_check_writes_nothing_and_fails_where_there_is_an_update(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "PROJECT", project)
    file = write(project, locked(project))
    assert update.main("", check=True) is Exit.FAILED
    assert file.read_text("utf-8") == locked(project)
    assert update.main("") is Exit.DONE
    assert file.read_text("utf-8") != locked(project)
    assert update.main("", check=True) is Exit.DONE


def test_it_shows_what_the_releases_between_change_and_their_harm_first(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(update, "PROJECT", project)
    entries = ["A bucket goes.", "Jobs run once more.", "The namespace.", "A search.", "Wait for the night."]
    write(project, locked(project))
    update.main("", check=True)
    checked = capsys.readouterr().out
    update.main("")
    forth = capsys.readouterr().out
    update.main("1.1.0")
    back = capsys.readouterr().out

    for text in (checked, forth):
        places = [text.index(entry) for entry in entries]
        assert places == sorted(places)
        assert places[-1] < text.index("slipway-ml 1.0.0 → 1.2.0")
        assert not {"Soon.", "Everything."} & {*text.replace("- ", "").splitlines()}
    assert "Jobs run once more." in back
    assert "A bucket goes." not in back
    assert [part.text for part in between(CHANGELOG, "1.2.0", "1.2.1.dev3+g1")] == ["- Soon."]


@pytest.mark.parametrize(
    ("text", "wanted", "words"),
    [
        (lambda _: "", "", "slipway-ml[rehearse]==0.1.0"),
        (lambda _: "slipway-ml>=1.0.0\n", "", "requirements.txt:1"),
        (lambda _: "./wheels/slipway_ml-1.0.0-py3-none-any.whl\n", "", "--find-links"),
        (lambda _: "slipway-ml @ git+https://example.com/ours@v1\n", "", "git+https://example.com/ours@v1"),
        (lambda _: "-r pins/ours.txt\n", "", "includes"),
        (locked, "1.9.0", "slipway-ml[rehearse]==1.9.0"),
        (locked, "latest", "latest"),
        (lambda project: f"{locked(project)}reports==1 --hash=sha256:{'0' * 64}\n", "1.1.0", "engine"),
    ],
    ids=[
        "no line",
        "no version",
        "a wheel",
        "a repository",
        "another file",
        "no such version",
        "no number",
        "no solution",
    ],
)
def test_what_cannot_be_updated_is_refused(
    text: Callable[[Path], str], wanted: str, words: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "PROJECT", project)
    file = write(project, written := text(project))
    with pytest.raises(UpdateError) as refused:
        find(project, wanted)
    assert words in str(refused.value)
    assert update.main(wanted) is Exit.REFUSED
    assert file.read_text("utf-8") == written


def test_a_clone_is_updated_by_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "PROJECT", LIBRARY)
    assert update.main("") is Exit.REFUSED
