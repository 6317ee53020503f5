"""Replaces secrets in a stream of bytes, however the stream is cut into pieces. Standard library only."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable

MASK = b"[secret]"
"""What stands in the place of a secret."""

_SHORTEST_FORM = 6
"""Fewest characters of a line or an encoding of a secret that is looked for: shorter ones occur by chance."""


class Masker:
    """Replaces each of `secrets` by `MASK`, whole or line by line, and its JSON, Python, URL, hexadecimal and
    base64 forms.

    Feed it a stream in pieces of any size. It holds back only what may be the beginning of a secret.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret) if form}
        # The longest first: a secret may be the beginning of another.
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile(b"|".join(re.escape(form) for form in self._forms)) if forms else None
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be shown after `piece`."""
        if self._pattern is None:
            return piece
        text = self._held + piece
        done, shown = 0, []
        # A match in the part that a longer secret may still cover waits for the next piece.
        undecided = self._undecided(text)
        for match in self._pattern.finditer(text):
            if match.end() > undecided:
                undecided = min(undecided, match.start())
                break
            shown += [text[done : match.start()], MASK]
            done = match.end()
        undecided = max(done, undecided)
        self._held = text[undecided:]
        return b"".join([*shown, text[done:undecided]])

    def finish(self) -> bytes:
        """The rest, at the end of the stream. The beginning of a secret at its very end is replaced, too."""
        rest, self._held = self._held, b""
        if self._pattern is None or not rest:
            return rest
        shown = self._pattern.sub(MASK, rest)
        begun = max((_overlap(shown, form) for form in self._forms), default=0)
        return shown[:-begun] + MASK if begun >= _SHORTEST_FORM else shown

    def mask(self, text: str) -> str:
        """`text` with its secrets replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(MASK, text.encode(errors="surrogateescape")).decode(errors="replace")

    def _undecided(self, text: bytes) -> int:
        """Where the longest end of `text` begins that is the beginning of a secret."""
        return len(text) - max(_overlap(text, form) for form in self._forms)


def _overlap(text: bytes, form: bytes) -> int:
    """Length of the longest end of `text` that is a beginning of `form`, but not all of it."""
    end = text[max(0, len(text) - len(form) + 1) :]
    start = end.find(form[:1])
    while start >= 0:
        if form.startswith(end[start:]):
            return len(end) - start
        start = end.find(form[:1], start + 1)
    return 0


def _forms(secret: str) -> set[bytes]:
    plain = secret.encode(errors="surrogateescape")
    encoded = {
        *(line.strip() for line in secret.splitlines()),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        urllib.parse.quote(plain),
        urllib.parse.quote(plain, safe=""),
        urllib.parse.quote_plus(plain),
        plain.hex(),
        plain.hex().upper(),
        *_base64_forms(plain),
    }
    forms = {form.encode(errors="surrogateescape") for form in encoded if len(form) >= _SHORTEST_FORM}
    return {plain.strip(), *forms}


def _base64_forms(plain: bytes) -> set[str]:
    """What base64 makes of `plain` wherever it stands in the encoded bytes, without what its neighbours decide."""
    forms = set()
    for before in range(3):
        # Of the 6 bits of each character, those of `plain` begin and end here.
        begin, end = -(-before * 8 // 6), (before + len(plain)) * 8 // 6
        for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
            forms.add(encode(b"\0" * before + plain)[begin:end].decode())
    return forms
