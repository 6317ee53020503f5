"""IAM policy documents: statements, and the JSON that AWS takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

Statement = Mapping[str, Any]
Condition = Mapping[str, Mapping[str, Any]]


def document(*statements: Statement) -> pulumi.Output[str]:
    """A policy of these statements. Source of the language's version: IAM's reference of policy elements."""
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": list(statements)}, sort_keys=True)


def allow(
    actions: Sequence[str], resources: Sequence[pulumi.Input[str]], condition: Condition | None = None
) -> Statement:
    """Lets whoever has the policy do ``actions`` to ``resources``."""
    return _statement("Allow", {"Action": list(actions), "Resource": list(resources)}, condition)


def deny(
    actions: Sequence[str], resources: Sequence[pulumi.Input[str]], condition: Condition | None = None
) -> Statement:
    """Forbids everyone to do ``actions`` to ``resources``, in a resource's policy. It overrides any other."""
    return _statement("Deny", {"Principal": "*", "Action": list(actions), "Resource": list(resources)}, condition)


def trust(
    service: str, condition: Condition | None = None, actions: Sequence[str] = ("sts:AssumeRole",)
) -> Statement:
    """Lets an AWS service take on the role."""
    return _statement("Allow", {"Action": list(actions), "Principal": {"Service": service}}, condition)


def _statement(effect: str, parts: Mapping[str, Any], condition: Condition | None) -> Statement:
    return {"Effect": effect, **parts, **({"Condition": condition} if condition else {})}
