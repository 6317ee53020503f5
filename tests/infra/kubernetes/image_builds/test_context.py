"""The context of an image: which files it has, what its digest depends on, and which Dockerfiles are refused."""

import subprocess
from pathlib import Path

import pytest

from slipway.infra.kubernetes.image_builds.context import Context, context_of, left_out, movable, patterns
from slipway.infra.kubernetes.shipping.sizes import ShippingError
from tests.support.tree import write_tree

DIGEST = "sha256:" + "1" * 64
PLAIN = f"FROM debian@{DIGEST}\nCOPY . /app\n"


def context(folder: Path, **files: str) -> Context:
    write_tree(folder, {"Dockerfile": PLAIN, **{name.replace("__", "/"): text for name, text in files.items()}})
    return context_of(folder)


def test_a_context_is_what_git_would_ship(tmp_path: Path) -> None:
    files = {
        "Dockerfile": PLAIN,
        ".gitignore": "*.log\n",
        "app/main.py": "print()\n",
        "app/debug.log": "noise",
        ".config/settings": "hidden, and shipped",
        "gone.txt": "deleted after it was added",
    }
    write_tree(tmp_path, files)
    for words in (["init", "-q"], ["add", "gone.txt"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "gone.txt").unlink()
    assert set(context_of(tmp_path).files.contents) == {
        "Dockerfile",
        ".gitignore",
        "app/main.py",
        ".config/settings",
    }


def test_dockerignore_leaves_files_out_and_the_dockerfile_in(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "Dockerfile": PLAIN,
            ".dockerignore": "# all but the program\n*\n!app\napp/**/*.tmp\n",
            "app/main.py": "",
            "app/deep/er/x.tmp": "",
            "notes.md": "",
        },
    )
    assert set(context_of(tmp_path).files.contents) == {"Dockerfile", "app/main.py"}


@pytest.mark.parametrize(
    ("text", "path", "out"),
    [
        ("docs", "docs/a/b.md", True),
        ("/docs/", "docs/a.md", True),
        ("docs", "src/docs/a.md", False),
        ("**/docs", "src/docs/a.md", True),
        ("*.md", "a.md", True),
        ("*.md", "docs/a.md", False),
        ("**/*.md\n!README.md", "README.md", False),
        ("!README.md\n*.md", "README.md", True),
        ("data/?.bin", "data/12.bin", False),
        ("data/[0-9].bin", "data/1.bin", True),
        ("**", "any/thing", True),
        ("./a/../b", "b", True),
    ],
)
def test_patterns_are_read_as_docker_reads_them(text: str, path: str, out: bool) -> None:
    assert left_out(path, patterns(text)) is out


def test_the_digest_changes_with_all_that_decides_the_image_and_with_nothing_else(tmp_path: Path) -> None:
    first = context(tmp_path / "a", tool="echo")
    assert context(tmp_path / "b", tool="echo").digest == first.digest
    assert context(tmp_path / "c", tool="echo more").digest != first.digest
    (tmp_path / "b" / "tool").chmod(0o755)
    assert context_of(tmp_path / "b").digest != first.digest
    assert context_of(tmp_path / "a", arguments={"VERSION": "2"}).digest != first.digest


def test_the_dockerfile_is_found_however_its_path_is_written(tmp_path: Path) -> None:
    write_tree(tmp_path, {"docker/app": PLAIN})
    assert context_of(tmp_path, "./docker//app").digest == context_of(tmp_path, "docker/app").digest


def test_a_dockerfile_that_git_ignores_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"Dockerfile": PLAIN, ".gitignore": "Docker*\n"})
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(ShippingError, match=r"git ignores it.*`\.gitignore`"):
        context_of(tmp_path)


@pytest.mark.parametrize(("mode", "same"), [(0o600, True), (0o664, True), (0o645, True), (0o700, False)])
def test_a_file_is_executable_as_git_takes_it_for_one(tmp_path: Path, mode: int, same: bool) -> None:
    """Whoever reads it, and with whatever umask it was checked out."""
    before = context(tmp_path, tool="echo")
    (tmp_path / "tool").chmod(mode)
    assert (context_of(tmp_path).digest == before.digest) is same


def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    first = context(tmp_path / "a", tool="echo", other="echo")
    write_tree(tmp_path / "b", {"Dockerfile": PLAIN, "tool": "echo"})
    (tmp_path / "b" / "other").symlink_to("tool")
    assert context_of(tmp_path / "b").digest == first.digest
    (tmp_path / "b" / "tool").write_text("echo more")
    assert set(context_of(tmp_path / "b").files.contents.values()) == {PLAIN.encode(), b"echo more"}


def test_a_repository_s_own_files_are_in_no_context(tmp_path: Path) -> None:
    """Its configuration may hold a token: of one in a folder that git does not know, too."""
    write_tree(tmp_path, {"Dockerfile": PLAIN, "library/a.py": "", "library/.git/config": "url = https://token@x"})
    assert set(context_of(tmp_path).files.contents) == {"Dockerfile", "library/a.py"}


def test_a_hook_of_another_repository_changes_no_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "hooked"):
        write_tree(tmp_path / name, {"Dockerfile": PLAIN, f"{name}.txt": ""})
        subprocess.run(["git", "init", "-q"], cwd=tmp_path / name, check=True)
        subprocess.run(["git", "add", "."], cwd=tmp_path / name, check=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hooked" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "hooked" / ".git" / "index"))
    assert set(context_of(tmp_path / "here").files.contents) == {"Dockerfile", "here.txt"}


def test_a_folder_of_data_is_refused_before_it_is_read(tmp_path: Path) -> None:
    write_tree(tmp_path, {"Dockerfile": PLAIN})
    with (tmp_path / "data.bin").open("wb") as file:
        # Sparse: it takes no room on the disk, and would take a terabyte of memory.
        file.truncate(1 << 40)
    with pytest.raises(ShippingError, match=r"data\.bin \(1099511627776 bytes\)"):
        context_of(tmp_path)


def test_a_context_that_no_configmap_holds_is_refused_with_its_biggest_file(tmp_path: Path) -> None:
    with pytest.raises(ShippingError, match=r"model\.bin \(1048577 bytes\).*\.dockerignore"):
        context(tmp_path, **{"model.bin": "x" * (1024 * 1024 + 1)})


def test_a_link_out_of_the_context_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"secret": "x", "docker/Dockerfile": PLAIN})
    (tmp_path / "docker" / "key").symlink_to(tmp_path / "secret")
    with pytest.raises(ShippingError, match="key is a link out of the context"):
        context_of(tmp_path / "docker")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("FROM debian:12\n", 1),
        ("ARG BASE=debian:12\nFROM ${BASE}\n", 2),
        (f"FROM debian@{DIGEST} AS build\nFROM scratch\nCOPY --from=alpine:3 /bin/sh /sh\n", 3),
        (f"FROM debian@{DIGEST}\nRUN --mount=type=bind,from=alpine:3,target=/x true\n", 2),
        (f"FROM debian@{DIGEST}\nADD https://example.org/x.tgz /x\n", 2),
        (f"# syntax=docker/dockerfile:1\nFROM debian@{DIGEST}\n", 1),
        ("# nothing\n", 1),
        (f"#!/usr/bin/env build\n# syntax=docker/dockerfile:1\nFROM debian@{DIGEST}\n", 1),
        (f"// syntax=docker/dockerfile:1\nFROM debian@{DIGEST}\n", 1),
        (f"FROM debian@{DIGEST} AS base\nONBUILD COPY --from=alpine:3 /bin/sh /sh\nFROM base\n", 2),
    ],
)
def test_what_others_can_move_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    assert [place.line for place in movable(text, {})] == [line]
    write_tree(tmp_path, {"Dockerfile": text})
    with pytest.raises(ShippingError, match=f"line {line}: "):
        context_of(tmp_path)


@pytest.mark.parametrize("syntax", ["docker/dockerfile:1", "docker/dockerfile"])
def test_an_argument_that_names_another_language_is_refused(tmp_path: Path, syntax: str) -> None:
    write_tree(tmp_path, {"Dockerfile": PLAIN})
    with pytest.raises(ShippingError, match="decides what every other line means"):
        context_of(tmp_path, arguments={"BUILDKIT_SYNTAX": syntax})
    context_of(tmp_path, arguments={"BUILDKIT_SYNTAX": f"docker/dockerfile@{DIGEST}"})


def test_a_file_of_another_language_is_refused_unless_that_is_named_by_digest() -> None:
    assert [place.line for place in movable('{"syntax": "docker/other:1"}', {})] == [1, 1]
    assert list(movable(f"#!/usr/bin/env build\nFROM debian@{DIGEST}\n", {})) == []


@pytest.mark.parametrize(
    "text",
    [
        f"FROM --platform=$BUILDPLATFORM debian@{DIGEST} AS build\nFROM build\nCOPY --from=build /a /b\n",
        f"FROM debian@{DIGEST}\nFROM scratch\nCOPY --from=0 /a /b\n",
        f"ARG BASE=debian:12\nFROM $BASE\nADD --checksum={DIGEST} https://example.org/x /x\n",
        f"FROM debian@{DIGEST}\nRUN <<EOF\nFROM here on\nADD https://example.org/x /x\nEOF\nCOPY a /a\n",
        f"FROM debian@{DIGEST}\nRUN apt-get update && \\\n  # a comment\n\n  FROM=1 true\n",
        f"FROM debian@{DIGEST}\nADD https://example.org/x.git#{'a' * 40} /x\n",
    ],
)
def test_what_nobody_can_move_is_taken(text: str) -> None:
    assert list(movable(text, {"BASE": f"debian@{DIGEST}"})) == []
