"""The outputs of other stacks, read by the engine that runs the program."""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi.runtime.sync_await import _sync_await  # pyright: ignore[reportPrivateUsage]

from infra.platform_output import UnreadableStackError

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
    try:
        found = _sync_await(_read(reference(stack)))
    except Exception as error:
        raise UnreadableStackError(
            f"its outputs cannot be read: {error}",
            "check the name with `pulumi stack ls --all`, and that you may read that stack",
        ) from error
    return found


async def _read(of: pulumi.StackReference) -> dict[str, Any]:
    names = list(await of.outputs.future() or {})
    secret = set(await of.secret_output_names.future() or ())
    return {name: (await of.get_output_details(name)).value for name in names if name not in secret}


def kubeconfig(stack: str, cluster: str) -> pulumi.Output[str]:
    """The kubeconfig of a cluster of ``stack``, as a secret."""
    found = reference(stack).require_output(KUBECONFIG)
    return pulumi.Output.secret(found.apply(lambda by_cluster: str(by_cluster[cluster])))
