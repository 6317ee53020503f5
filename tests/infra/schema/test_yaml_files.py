"""A file is read as the CLI reads it, and whatever is in it, in a moment: as values, or as one clear error."""

import os
import resource
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.schema import yaml_files
from slipway.infra.schema.yaml_files import ConfigError, plain, read_yaml

# What gopkg.in/yaml.v3 3.0.1 makes of step scalar without quotes; printed by a program on it, 2026-11-22.
SCALARS: dict[str, Any] = {
    "yes": "yes",
    "True": True,
    "tRue": "tRue",
    "~": None,
    "Null": None,
    "1e-3": 0.001,
    "1e400": "1e400",
    "+.5": 0.5,
    ".1_5": 0.15,
    "685.230_15e+03": 685230.15,
    "010": 8,
    "0o17": 15,
    "0O17": 15,
    "089": 89.0,
    "0x_ff": 255,
    "-0x10": -16,
    "0XFF": 255,
    "0b1_1": 3,
    "+0b1": 1,
    "0b": "0b",
    "0b_": "0b_",
    "0xg": "0xg",
    "1_000": 1000,
    "1_": 1,
    "_1": "_1",
    "0_": 0,
    "-0": 0,
    ".": ".",
    "1:30": "1:30",
    "18446744073709551615": 18446744073709551615,
    "18446744073709551616": 18446744073709551616.0,
    "-9223372036854775809": -9223372036854775809.0,
    "9" * 5000: "9" * 5000,
    "=": "=",
    "2026-01-03T02:00:00Z": "2026-01-03T02:00:00Z",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=[text[:24] for text in SCALARS])
def test_scalars_are_read_as_the_cli_reads_them(text: str, value: Any) -> None:
    scalar = plain(text)
    assert (type(scalar), scalar) == (type(value), value)


def read(folder: Path, text: str) -> Any:
    file = folder / "Pulumi.dev.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return read_yaml(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("# nothing", {}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: '0b1'", {"a": "0b1"}),
        ("a: !!str 5\nb: !!float 5\nc: !!int '5'", {"a": "5", "b": 5.0, "c": 5}),
        ("a: &a {x: 1}\nb: {x: 2, <<: *a}", {"a": {"x": 1}, "b": {"x": 2}}),
        ("a: {<<: [{x: 1}, {x: 2, y: 3}]}", {"a": {"x": 1, "y": 3}}),
        # An anchor deeper than its alias, with a key that its own merge has, too.
        (
            "d: &d {x: 1}\na: {b: {c: &c {<<: *d, x: 2}}}\ne: {<<: *c}",
            {"d": {"x": 1}, "a": {"b": {"c": {"x": 2}}}, "e": {"x": 2}},
        ),
        ('"<<": 1', {"<<": 1}),
        ("a: &a x\n*a : 1", {"a": "x", "x": 1}),
        ("a: '2026-11-28'\n'2026-11-28': 2026-13-01", {"a": "2026-11-28", "2026-11-28": "2026-13-01"}),
        (
            "a: 2026-11-28T\nb: 2026-11\nc: 2026-11-28 02:00",
            {"a": "2026-11-28T", "b": "2026-11", "c": "2026-11-28 02:00"},
        ),
    ],
)
def test_documents_are_read_as_the_cli_reads_them(tmp_path: Path, text: str, value: Any) -> None:
    assert read(tmp_path, text) == value


def test_an_alias_is_a_copy(tmp_path: Path) -> None:
    content = read(tmp_path, "a: &a {x: [1]}\nb: *a")
    content["a"]["x"].append(2)
    assert content["b"] == {"x": [1]}


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{below}'] * 9)}]\n"
    for below, name in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"m{step + 1}: &m{step + 1} {{<<: [{', '.join([f'*m{step}' if step else '*a'] * 9)}]}}\n" for step in range(15)
)
DEEPER = "a0: &a0 x\n" + "".join(f"a{step + 1}: &a{step + 1} {'[' * 40}*a{step}{']' * 40}\n" for step in range(9))
HOSTILE = {
    "alias bomb": (BOMB, 5, "more than 20,000 values, with what aliases repeat"),
    "bomb of merges": (MERGES, 6, "more than 20,000 values, with what aliases repeat"),
    "bomb of text": (f"a: &a {'x' * 60_000}\nb: [{', '.join(['*a'] * 100)}]", 2, "more than 1,048,576 characters"),
    "deep by aliases": (DEEPER, 3, "more than 50 sections or lists"),
    "self-reference": ("a:\n  b: &x [*x]", 2, "a.b[0]: the anchor 'x' contains itself"),
    "unknown alias": ("a: *x", 1, "a: there is no anchor 'x'"),
    "900 levels": (f"a:\n  b: {'[' * 900}{']' * 900}", 2, "more than 50 sections or lists"),
    "200,000 levels": ("a: " + "[" * 200_000, 1, "more than 50 sections or lists"),
    "nested keys": ("? " * 50_000, 1, "a section or a list stands as a key"),
    "long value": (f"a: {'x' * 70_000}", 1, "a: 70,000 characters; use at most 65,536"),
    "many values": (f"a: [{'1,' * 30_000}]", 1, "more than 20,000 values"),
    "wrong truth value": ("a:\n  b: !!bool maybe", 2, "a.b: the tag '!!bool' does not suit this value"),
    "set": ("config:\n  a:b: !!set {x, y}", 2, "a:b: the tag '!!set' cannot stand here"),
    "object": ("a: !!python/object/apply:os.system [id]", 1, "the tag '!!python/object/apply:os.system' cannot"),
    "null key": ("pools:\n  ~: {}", 2, "pools: the key `~` is not text"),
    "empty key": ("pools:\n  ?\n  : {}", 2, "pools: a key is empty"),
    "number as key": ("rates: {0: 1}", 1, 'rates: the key `0` is not text; write it in quotes: "0"'),
    "list as key": ("a: {[1]: 2}", 1, "a: a section or a list stands as a key"),
    "duplicate": ("a:\n  x: 1\n  x: 2", 3, "a: the key 'x' stands here twice"),
    "two merges": ("a: &a {}\nb:\n  <<: *a\n  <<: *a", 4, "b: the key `<<` stands here twice"),
    "merge of text": ("a:\n  <<: 5", 2, "a: `<<` takes sections alone"),
    "lone surrogate": ('a:\n  b: "\\ud800"', 2, "a.b: U+D800 is half of a surrogate pair"),
    "no such character": ('a: "\\UFFFFFFFF"', None, "not YAML"),
    "tab": ("a:\n\tb: 1", 2, "it is a tab, and YAML indents with spaces alone: put spaces in its place"),
    "tab after a key": ("a:\tb", 1, "it is a tab, and YAML indents with spaces alone: put spaces in its place"),
    "at": ("a: @b", 1, "put the value in quotes"),
    "deeper line": ("a:\n  b: 1\n   c: 2", 3, "or correct the line's indentation"),
    "colon": ("a: b: c", 1, "put a text with `: ` in it in quotes"),
    "text after a brace": (
        "run: {python} x",
        1,
        "put a text that begins with `{`, `[` or a quote whole in quotes",
    ),
    "line between": ("a:\n  b: 1\n c: 2", 3, "indent the line as those beside it are"),
    "infinite": ("a: .inf", 1, "a: only finite numbers are read"),
    "NUL": ("a: 1\nb: \0", 2, "the control character U+0000 may not stand in YAML"),
    "escape sequence": ("a: 1\n\x1b[31m: 1", 2, "the control character U+001B may not stand in YAML"),
    "date": (
        "a:\n  since: 2026-11-28",
        2,
        "a.since: the Pulumi CLI makes a time of 2026-11-28; write it in quotes",
    ),
    "short date in a list": ("a: [x, 2026-1-3]", 1, "a[1]: the Pulumi CLI makes a time of 2026-1-3"),
    "time": ("a: 2026-01-03T02:00:00Z", 1, "a: the Pulumi CLI makes a time of 2026-01-03T02:00:00Z"),
    "time with a blank": ("a: 2026-01-03 02:00:00", 1, "a: the Pulumi CLI makes a time of"),
    "date as key": ("days:\n  2026-11-28: x", 2, "days: the Pulumi CLI makes a time of 2026-11-28"),
    "two documents": ("a: 1\n---\nb: 2", 2, "a second document"),
    "other YAML": ("%YAML 1.2\n---\na: 1", 1, "remove the line `%YAML`"),
}


@pytest.mark.parametrize(("text", "line", "says"), HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_file_is_one_clear_error_at_once(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert time.process_time() - began < 5
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/Pulumi.dev.yaml:{line}: " if line else f"{tmp_path}/Pulumi.dev.yaml: ")
    assert says in message
    assert len(message) < len(str(tmp_path)) + 300
    assert message.isprintable()


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError):
            read(tmp_path, BOMB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.slow
def test_a_file_as_large_as_it_may_be_is_read_in_time(tmp_path: Path) -> None:
    text = "".join(f"k{step}: {{a: 1, b: [1, 2], c: some text}}\n" for step in range(3_300))
    began = time.process_time()
    assert len(read(tmp_path, text)) == 3_300
    assert time.process_time() - began < 10


def test_what_is_no_plain_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name, says in {
        "pipe": "it is a named pipe",
        "folder": "it is a folder",
        "device": "it is a device",
        "nowhere": "No such file",
        "loop": "symbolic links",
        "missing": "No such file",
    }.items():
        with pytest.raises(ConfigError, match=f"{name} cannot be read: .*{says}"):
            read_yaml(tmp_path / name)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as sparse:
        sparse.truncate(8 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match="more than 262,144 bytes"):
        read_yaml(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    assert yaml_files.FILE_BYTES == 262_144


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "latin"
    file.write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin:2: not UTF-8 text"):
        read_yaml(file)
