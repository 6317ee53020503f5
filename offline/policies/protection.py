"""Protection of data from deletion, and of clusters from objects without a provider."""

import re
from collections.abc import Iterator

from infra.review.facts import Holding
from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import texts
from infra.review.stack import PROTECT, Resource, Stack

DISABLED = "pulumi:disable-default-providers"

KUBERNETES = "kubernetes"
"""The default provider of this package uses the current context of a kubeconfig. That of a cloud uses the
configuration in the stack file, which is intended."""

OF_OTHERS = re.compile(
    r":(?:Bucket|BucketV2|Cluster|Database|DatabaseInstance|Dataset|Disk|[A-Za-z]*FileSystem|PersistentVolumeClaim|"
    r"Repository|Table|Volume|(?:filestore|rds)/instance:Instance)$"
)
"""Types that hold data in clouds without a review here."""


def holding(resource: Resource, stack: Stack) -> Holding | None:
    """The data that is lost with a resource of ``stack``; None if it holds none or is not managed."""
    if not resource.custom or resource.read or resource.package == "pulumi":
        return None
    if found := stack.holdings.get(resource.urn):
        return found
    return Holding("it and everything in it") if OF_OTHERS.search(resource.type) else None


def _unprotected(stack: Stack) -> Iterator[Violation]:
    if not stack.production:
        return
    if stack.switched_off:
        yield Violation(
            PROTECT,
            f"the stack {stack.name} is for production, and `pulumi destroy` would delete it, data included",
            f"set `{PROTECT}: true`",
        )
        return
    for resource in stack.resources.values():
        held = holding(resource, stack)
        if held and not (held.kept or held.meant or resource.protect):
            yield Violation(
                resource.urn,
                "it holds data of a stack for production, and nothing keeps Pulumi from deleting or replacing it",
                "set the resource option protect",
            )


def _default(stack: Stack) -> Iterator[Violation]:
    without = {KUBERNETES, *texts(stack.configuration.get(DISABLED))}
    for resource in stack.resources.values():
        if not resource.custom or resource.provider or resource.package == "pulumi":
            continue
        if resource.package in without or "*" in without:
            yield Violation(
                resource.urn,
                f"it names no provider, so it goes to the default one of {resource.package}, which is that of "
                "whoever runs `pulumi up`",
                "name the provider in its options, or that of a component around it",
            )


POLICIES = (
    Policy(
        "default-provider",
        Severity.ERROR,
        "Every Kubernetes object names its provider, and so its cluster.",
        _default,
        "Give the resource the option provider.",
    ),
    Policy(
        "production-unprotected",
        Severity.ERROR,
        "A stack whose name has `prod` in it protects what holds data.",
        _unprotected,
        f"Set `{PROTECT}: true`, and the resource option protect on resources of your own.",
    ),
)
