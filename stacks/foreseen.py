"""Texts that only an update can tell, as a preview hands them to the program.

Pulumi's own preview makes a whole text unknown where a part of it is. Nobody would then see that a role's policy,
which holds an address that only the cloud knows, allows another action. So a text that is not known yet is handed
on as a mark, which survives in the texts that the program makes of it.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from infra.review.unknown import UNKNOWN, Partial, Unknown

_MARK = re.compile(r"<<unknown:([^<>]*)>>")


def mark(name: str) -> str:
    """What stands for a text that is not known; ``name`` says which."""
    return f"<<unknown:{re.sub('[<>]', '', name)}>>"


def is_marked(value: Any) -> bool:
    """Whether a mark is in ``value`` or in anything below it."""
    if isinstance(value, str):
        return _MARK.search(value) is not None
    if isinstance(value, Mapping):
        return any(is_marked(each) for each in cast("Mapping[Any, Any]", value).values())
    return isinstance(value, list) and any(is_marked(each) for each in cast("list[Any]", value))


def is_whole(value: Any) -> bool:
    """Whether ``value`` is a mark and nothing else."""
    return isinstance(value, str) and _MARK.fullmatch(value) is not None


def told(text: str) -> str | Partial | Unknown:
    """``text`` as a reviewer may have it."""
    if is_whole(text):
        return UNKNOWN
    return Partial(_MARK.sub(r"[\1]", text)) if is_marked(text) else text
