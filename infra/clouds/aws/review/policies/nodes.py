"""What the role of EKS nodes may do, which whoever breaks out of a pod can do."""

from collections.abc import Iterator

from infra.clouds.aws.review.policies.grants import node_grants, too_much
from infra.review.policy import Policy, Severity, Violation
from infra.review.stack import Stack


def _role(stack: Stack) -> Iterator[Violation]:
    for group, grant in node_grants(stack):
        if why := too_much(grant):
            yield Violation(
                grant.urn,
                f"{why}; it is for the nodes of {group.name}, and whoever breaks out of a pod has it",
                "leave nodes AmazonEKSWorkerNodePolicy and AmazonEC2ContainerRegistryPullOnly, and give pods "
                "theirs by Pod Identity",
            )


POLICIES = (
    Policy(
        "aws-node-role",
        Severity.ERROR,
        "The role of nodes administers nothing, and has full access to no service.",
        _role,
        "Leave nodes what EKS asks for, and give pods what they need by Pod Identity.",
    ),
)
