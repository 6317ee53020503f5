"""A text as the command of a step: a script that bash reads, in which references are values and no code.

Each reference becomes a variable of the script, which is quoted as its place needs it, so that spaces, quotes and
`$` of a value stay what they are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator

from slipway.infra.pipelines.pods import Word, Words
from slipway.infra.schema.base import refuse

SHELL = "bash"

BEGINNING = (
    "set -Eeuo pipefail; trap 'exit 143' TERM; "
    "trap 'echo \"error: line $LINENO of the script failed with $?\" >&2' ERR; "
)
"""Before the first line of each script, in that line, so that bash counts lines as people do.

With a trap bash waits for the program that it runs, which the runner tells of SIGTERM, and then starts no other.
"""

LONGEST = 100_000
"""Bytes of a script: Linux takes 128 KiB as one argument of a program (``MAX_ARG_STRLEN``, execve(2), seen
November 2026)."""

_REFERENCE = re.compile(r"(?<![${])\{(?P<name>[A-Za-z][\w-]*)\}(?!\})|(?<!\$)\{\{(?P<braces>[A-Za-z][\w-]*)\}\}")
"""``{output}`` is a reference, ``{{output}}`` is the word in braces, and ``${HOME}`` is the shell's."""

_HEREDOC = re.compile(r"<<(?P<tabs>-?)[ \t]*(?P<quote>['\"\\]?)(?P<end>[A-Za-z_]\w*)['\"]?")


def is_script(words: Sequence[str]) -> bool:
    """Whether a command was written as a text."""
    return list(words[:2]) == [SHELL, "-c"] and len(words) > 2 and words[2].startswith(BEGINNING)


def script_of(words: Sequence[str]) -> str:
    """The text of a command that was written as one, but for quotes around references."""
    references = [word[1:-1] for word in words[4:]]
    text = words[2].removeprefix(BEGINNING).replace("{{", "{").replace("}}", "}")
    text = text.partition(f"shift {len(references)}; ")[2] if references else text
    for index, name in enumerate(references, 1):
        text = text.replace(f'"${{slipway_{index}}}"', f"{{{name}}}").replace(
            f"${{slipway_{index}}}", f"{{{name}}}"
        )
    return text


def command_of(text: str) -> list[str]:
    """The command line that runs ``text``. Its references are words of their own behind it.

    Raises PydanticCustomError where a reference stands where bash replaces nothing.
    """
    scan = _Scan(text)
    pieces: list[str] = []
    names: dict[str, int] = {}
    end = 0
    for match in _REFERENCE.finditer(text):
        pieces.append(text[end : match.start()])
        end = match.end()
        if match["braces"]:
            pieces.append(f"{{{match['braces']}}}")
            continue
        index = names.setdefault(match["name"], len(names) + 1)
        pieces.append(_quoted(f"${{slipway_{index}}}", scan.place_at(match.start()), match.group()))
    script = "".join([*pieces, text[end:]])
    assigned = "".join(f"slipway_{index}=${{{index}}}; " for index in names.values())
    beginning = BEGINNING + (f"{assigned}shift {len(names)}; " if names else "")
    literal = (beginning + script).replace("{", "{{").replace("}", "}}")
    return [SHELL, "-c", literal, SHELL, *(f"{{{name}}}" for name in names)]


def _quoted(variable: str, place: str, reference: str) -> str:
    if place == "literal":
        raise refuse(
            f"`{reference}` stands in a here-document whose end is in quotes, in which bash replaces nothing",
            "write its end without quotes, or give the value to a program as an argument",
        )
    if place == "single":
        return f"'\"{variable}\"'"
    return variable if place in {"double", "document", "comment"} else f'"{variable}"'


@dataclass
class _Scan:
    """Reads a script from its beginning as far as it is asked about: what quotes and here-documents stand around.

    What it takes wrongly is split at spaces and not run: bash does not read a variable's value again.
    """

    text: str
    _at: int = 0
    _around: list[str] = field(default_factory=list[str])
    _documents: list[tuple[str, bool, bool]] = field(default_factory=list[tuple[str, bool, bool]])
    _document: tuple[str, bool, bool] | None = None
    _word_begins: bool = True

    def place_at(self, index: int) -> str:
        """``plain``, ``single`` or ``double`` quotes, a ``document``, a ``literal`` one, or a ``comment``."""
        while self._at < index:
            self._advance()
        if self._document:
            return "literal" if self._document[1] else "document"
        place = self._around[-1] if self._around else "plain"
        return place if place in {"single", "double", "comment"} else "plain"

    def _advance(self) -> None:
        if self._document:
            self._read_document_line(self._document)
            return
        letter, rest = self.text[self._at], self.text[self._at :]
        place = self._around[-1] if self._around else "plain"
        length = 1
        if place == "comment":
            if letter == "\n":
                self._around.pop()
                self._begin_document()
        elif place in {"single", "ansi"}:
            length = 2 if place == "ansi" and letter == "\\" else 1
            if letter == "'":
                self._around.pop()
        elif letter == "\\":
            length = 2
        elif letter == '"':
            self._toggle("double", place)
        elif letter == "`":
            self._toggle("backtick", "backtick" if "backtick" in self._around else place)
        elif rest.startswith("$("):
            length = self._open(rest[1:]) + 1
        elif place != "double":
            length = self._advance_unquoted(letter, rest, place)
        self._word_begins = letter in " \t\n;&|()"
        self._at += length

    def _advance_unquoted(self, letter: str, rest: str, place: str) -> int:
        if letter == "'":
            self._around.append("single")
        elif rest.startswith("$'"):
            self._around.append("ansi")
            return 2
        elif letter == "(":
            return self._open(rest)
        elif letter == ")" and place in {"command", "arithmetic"}:
            self._around.pop()
            return 2 if place == "arithmetic" else 1
        elif letter == "#" and self._word_begins:
            self._around.append("comment")
        elif letter == "\n":
            self._begin_document()
        elif rest.startswith("<<<"):
            return 3
        elif place != "arithmetic" and (match := _HEREDOC.match(rest)):
            self._documents.append((match["end"], bool(match["quote"]), bool(match["tabs"])))
            return match.end()
        return 1

    def _open(self, rest: str) -> int:
        arithmetic = rest.startswith("((")
        self._around.append("arithmetic" if arithmetic else "command")
        return 2 if arithmetic else 1

    def _toggle(self, quote: str, place: str) -> None:
        if place != quote:
            self._around.append(quote)
            return
        while self._around.pop() != quote:
            pass

    def _begin_document(self) -> None:
        if self._documents:
            self._document = self._documents.pop(0)

    def _read_document_line(self, document: tuple[str, bool, bool]) -> None:
        """Reads on to the end of the line; what is asked about may stand in it."""
        end, _, tabs = document
        start = self.text.rfind("\n", 0, self._at) + 1
        stop = self.text.find("\n", start)
        line = self.text[start : stop if stop >= 0 else len(self.text)]
        if (line.lstrip("\t") if tabs else line) == end:
            self._at = start + len(line) + 1
            self._document = None
            self._begin_document()
            return
        self._at += 1


def _script(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise refuse("empty", "write the program and its arguments: `[python, train.py]`")
    if "\0" in value or len(value.encode(errors="replace")) > LONGEST:
        reason = f"longer than {LONGEST} bytes" if "\0" not in value else "it has a NUL character"
        raise refuse(reason, "write a script beside the program, and start that: `[bash, train.sh]`")
    return command_of(value)


Run = Annotated[Words, BeforeValidator(_script, json_schema_input_type=str | list[Word])]
"""The command of a step: its words, or a text that bash reads."""
