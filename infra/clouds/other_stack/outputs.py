"""The outputs of other stacks, read by the engine that runs the program."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import pulumi

from infra.platform_output import UnreadableStackError

READ_STACK_OUTPUTS = "pulumi:pulumi:readStackOutputs"
"""The engine's own function behind stack references (pkg/resource/deploy/builtins.go, Pulumi 3.260).

A reference to a stack that is not there ends the program; this function fails, so that the problem can be told
together with all others.
"""

KUBECONFIG = "kubeconfig"
"""The secret output with the kubeconfigs of a stack's clusters, by cluster."""

_references: ContextVar[Mapping[str, pulumi.StackReference]] = ContextVar(
    "references", default=MappingProxyType({})
)
"""Those of the program that is running: a program may have one reference to a stack."""


def full_name(stack: str) -> str:
    """The stack's name with organization and project: of this stack, where it stands alone."""
    if "/" in stack:
        return stack
    return f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack}"


def reference(stack: str) -> pulumi.StackReference:
    """The program's one reference to a stack."""
    name, known = full_name(stack), _references.get()
    if name not in known:
        known = {**known, name: pulumi.StackReference(name)}
        _references.set(known)
    return known[name]


def outputs_of(stack: str) -> Mapping[str, Any]:
    """The outputs of ``stack`` that are not secret, as an `infra.platform_output.Resolve`.

    The settings are checked against them before anything is declared, so the program waits for them here.
    Raises UnreadableStackError where the backend has no such stack, or does not let the user read it.
    """
    name = full_name(stack)
    try:
        found = pulumi.runtime.invoke(READ_STACK_OUTPUTS, {"name": name}).value
    except Exception as error:
        # The SDK's text repeats the function's name before the engine's own words.
        reason = str(error).rpartition("returned an error: ")[2]
        raise UnreadableStackError(
            f"the outputs of `{name}` cannot be read: {reason}",
            "correct the name (`pulumi stack ls --all` lists what you may read), or bring that stack up first",
        ) from error
    secret = set(found.get("secretOutputNames") or ())
    return {key: value for key, value in found["outputs"].items() if key not in secret}


def kubeconfig(stack: str, cluster: str) -> pulumi.Output[str]:
    """The kubeconfig of a cluster of ``stack``, as a secret."""
    found = reference(stack).require_output(KUBECONFIG)
    return pulumi.Output.secret(found.apply(lambda by_cluster: str(by_cluster[cluster])))
