"""Reads IAM bindings from the resources that declare them, and finds members that stand for everyone."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from infra.review.properties import mapping, mappings, text, texts
from infra.review.stack import Resource

EVERYONE = frozenset({"allUsers", "allAuthenticatedUsers"})
"""Anyone, and anyone with any Google account.

Source: https://cloud.google.com/iam/docs/principals-overview, 2026-11-20.
"""


def bindings(grant: Resource) -> Iterator[tuple[str, Sequence[str]]]:
    """Each role that an IAM resource grants, with its members, as far as they are known."""
    properties = grant.properties
    if "policyData" in properties:
        for each in mappings(_document(properties["policyData"]).get("bindings")):
            yield text(each.get("role")), texts(each.get("members"))
        return
    members = properties.get("member", properties.get("members"))
    yield text(properties.get("role")), texts(members)


def everyone_in(members: Sequence[str]) -> str:
    """Those of the members that stand for anyone, as a text."""
    return ", ".join(each for each in members if each in EVERYONE or _whole_pool(each))


def _whole_pool(member: str) -> bool:
    """Whether it is every identity that a workload identity pool admits, also those from outside Google Cloud."""
    return member.startswith("principalSet://") and member.endswith("/*")


def _document(value: object) -> Any:
    try:
        return mapping(json.loads(text(value) or "{}"))
    except ValueError:
        return {}
