"""Changes values of a stack file in their places: comments, order and everything else stay as they are."""

import copy
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from slipway.infra.review.stack import mapping
from slipway.infra.schema.yaml_files import ConfigError, read_yaml
from slipway.offline import files

Keys = tuple[str, ...]
"""The keys that lead to a section, from the top of the file."""

SHORT = "url"
"""The key that a section has where it is written as text in short."""


def change(file: Path, changes: Mapping[Keys, Mapping[str, str]]) -> None:
    """Gives keys of sections other values, which are text; ``changes`` are by section.

    The file is written whole or not at all. Raises ConfigError where a value cannot be changed in its place.
    """
    # A link goes on leading to the file.
    target = file.resolve()
    expected = copy.deepcopy(read_yaml(target))
    text = target.read_bytes().decode("utf-8")
    edits: dict[tuple[int, int], str] = {}
    root = cast("Any", yaml).compose(text, Loader=yaml.SafeLoader)
    for keys, values in changes.items():
        node = _node(root, keys)
        if node is None or not _put(expected, keys, values):
            raise _by_hand(file, changes)
        edits |= _edits(text, node, values)
    for (start, end), replacement in sorted(edits.items(), reverse=True):
        text = text[:start] + replacement + text[end:]
    with files.replacing(target) as temporary:
        temporary.write_bytes(text.encode("utf-8"))
        shutil.copymode(target, temporary)
        try:
            as_meant = read_yaml(temporary) == expected
        except ConfigError:
            as_meant = False
        if not as_meant:
            raise _by_hand(file, changes)


def _put(content: Any, keys: Keys, values: Mapping[str, str]) -> bool:
    """Changes the plain values of a file; False where they lack the section."""
    *above, last = keys
    section: Any = content
    for key in above:
        section = mapping(section).get(key)
    if last not in mapping(section):
        return False
    written: Any = section[last]
    section[last] = {**(written if isinstance(written, dict) else {SHORT: written}), **values}
    return True


def _node(root: Any, keys: Keys) -> yaml.Node | None:
    node = root
    for key in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for name, value in pairs if name.value == key), None)
    return node


def _edits(text: str, node: yaml.Node, values: Mapping[str, str]) -> dict[tuple[int, int], str]:
    """What takes the place of which characters of ``text``."""
    start, end = node.start_mark.index, node.end_mark.index
    if not isinstance(node, yaml.MappingNode):
        # In quotes, since a comma ends plain text between braces.
        quoted = isinstance(node, yaml.ScalarNode) and node.style in ("'", '"')
        written = text[start:end] if quoted else json.dumps(node.value)
        return {(start, end): f"{{{SHORT}: {written}, {_in_one_line(values)}}}"}
    edits: dict[tuple[int, int], str] = {}
    added = dict(values)
    for key, value in node.value:
        if key.value in added:
            edits[value.start_mark.index, value.end_mark.index] = json.dumps(added.pop(key.value))
    last_key, last = node.value[-1]
    if added and node.flow_style:
        edits[last.end_mark.index, last.end_mark.index] = f", {_in_one_line(added)}"
    elif added:
        # Behind the line, with its comment.
        line_end = text.find("\n", last.end_mark.index)
        line_end = len(text) if line_end < 0 else line_end - (text[line_end - 1] == "\r")
        newline = "\r\n" if "\r\n" in text else "\n"
        indentation = newline + " " * last_key.start_mark.column
        edits[line_end, line_end] = "".join(f"{indentation}{_in_one_line({key: added[key]})}" for key in added)
    return edits


def _in_one_line(values: Mapping[str, str]) -> str:
    # In quotes, since text of digits and an `e` is a number.
    return ", ".join(f"{key}: {json.dumps(value)}" for key, value in values.items())


def _by_hand(file: Path, changes: Mapping[Keys, Mapping[str, str]]) -> ConfigError:
    written = [f"{'.'.join(keys[1:])}: {{{_in_one_line(values)}}}" for keys, values in changes.items()]
    reason = "not all of it can be changed in its place, since an anchor, an alias or another file has it"
    return ConfigError("\n".join([f"{file} stays as it is: {reason}. Write by hand:", *written]))
