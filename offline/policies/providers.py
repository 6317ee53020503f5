"""Resources that go wherever the shell that runs `pulumi up` happens to point."""

from collections.abc import Iterator

from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import texts
from infra.review.stack import Stack

DISABLED = "pulumi:disable-default-providers"

KUBERNETES = "kubernetes"
"""Its default provider takes the current context of a kubeconfig. That of a cloud takes its configuration from the
stack file, and is what people mean."""


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
)
