"""Decides requests by an IAM policy: the part of IAM's logic that the policies of this repository use.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html,
2026-11-23.
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any


def allows(policy: str, action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Whether a statement of ``policy`` allows ``action`` on the ARN ``resource``; ``context`` are condition keys.

    Raises:
        NotImplementedError: for an effect, element or operator that is not known here.
    """
    statements: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return any(_matches(statement, action, resource, context) for statement in statements)


def _matches(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    if statement["Effect"] != "Allow" or statement.keys() - {"Effect", "Action", "Resource", "Condition"}:
        raise NotImplementedError(statement)
    return (
        _any_like(statement["Action"], action)
        and _any_like(statement["Resource"], resource)
        and all(
            _holds(operator, key, expected, context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, expected in keys.items()
        )
    )


def _any_like(patterns: str | list[str], value: str) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))


def _holds(operator: str, key: str, expected: str | list[str], context: Mapping[str, str]) -> bool:
    if operator == "StringEquals":
        return context.get(key) in ([expected] if isinstance(expected, str) else expected)
    if operator == "Null":
        return (key not in context) == (expected == "true")
    raise NotImplementedError(operator)
