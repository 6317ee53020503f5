"""What is released: a package of the tag's version, with a section of the changelog."""

import os
from pathlib import Path

import pytest

from ci import release
from slipway.command.new import publishing
from tests.support.checkout import ROOT
from tests.support.tree import write_tree

CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\nNew.\n\n## [0.1.0] - 2026-11-01\n\nOld.\n"
)
PACKAGES = ("slipway_ml-0.2.0-py3-none-any.whl", "slipway_ml-0.2.0.tar.gz")


@pytest.mark.parametrize(
    ("tag", "changelog", "packages", "places"),
    [
        ("v0.2.0", CHANGELOG, PACKAGES, []),
        ("v0.2.0rc1", CHANGELOG, PACKAGES, ["TAG=v0.2.0rc1"]),
        ("v0.3.0", CHANGELOG, (), ["dist", "CHANGELOG.md"]),
        ("v0.2.0", CHANGELOG, ("slipway_ml-0.2.0.dev0+g1234567890.dirty-py3-none-any.whl",), ["dist"]),
        ("v0.2.0", CHANGELOG.replace(" - 2026-12-01", ""), PACKAGES, ["CHANGELOG.md"]),
        ("v0.2.0", CHANGELOG.replace("New.", ""), PACKAGES, ["CHANGELOG.md"]),
        ("v0.2.0", CHANGELOG.replace("[0.1.0]", "[0.3.0]"), PACKAGES, []),
        ("v0.1.0", CHANGELOG, PACKAGES, ["dist", "CHANGELOG.md"]),
        ("v0.2.0", CHANGELOG.replace("[Unreleased]", "[Unreleased]\n\nMore."), PACKAGES, ["CHANGELOG.md"]),
    ],
)
def test_what_does_not_agree_with_the_tag_is_refused(
    tag: str, changelog: str, packages: tuple[str, ...], places: list[str]
) -> None:
    assert [problem.partition(":")[0] for problem in release.problems(tag, changelog, packages)] == places


def test_the_notes_are_the_section_and_the_release_has_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    write_tree(tmp_path, {"CHANGELOG.md": CHANGELOG.replace("New.", ""), "dist/.gitignore": "*\n"})
    monkeypatch.setenv("TAG", "v0.2.0")
    assert release.main(["check"]) == 1
    assert capsys.readouterr().err.count("\n") == 2, "every problem, a line each"
    files = dict.fromkeys((f"dist/{name}" for name in (*PACKAGES, release.TEMPLATE)), "")
    write_tree(tmp_path, {**files, "CHANGELOG.md": CHANGELOG, "build/ci/release/slipway-0.2.0.cdx.json": "{}"})
    assert release.main(["check"]) == 0
    assert (tmp_path / release.NOTES).read_text() == "New.\n"
    (tmp_path / "gh").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >words\n')
    (tmp_path / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert release.main(["publish"]) == 0
    words = (tmp_path / "words").read_text().split()
    assert words[:4] == ["release", "create", "v0.2.0", "--verify-tag"]
    assert [Path(word).name for word in words[-4:]] == [*PACKAGES, release.TEMPLATE, "slipway-0.2.0.cdx.json"]


def test_the_changelog_can_be_released() -> None:
    sections = release.sections((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert next(iter(sections)) == "Unreleased"
    assert all(release.DATE.fullmatch(date) for name, (date, _) in sections.items() if name != "Unreleased")


def test_the_template_has_the_name_that_the_build_gives_it() -> None:
    assert release.TEMPLATE == publishing.ARCHIVE
