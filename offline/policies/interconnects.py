"""Jobs whose pods train together on nodes that could have a faster network between them."""

from collections.abc import Iterator

from infra.kubernetes.labels import NAME
from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import mapping
from infra.review.stack import JOB, Stack
from infra.step import GATES
from offline.policies.workloads import gpus_of, workloads


def _slower(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack, JOB):
        labels = mapping(mapping(workload.template.get("metadata")).get("labels"))
        # Pods with a subdomain have names by which they find one another.
        together = workload.pods > 1 and bool(workload.spec.get("subdomain"))
        if not together or not gpus_of(workload) or labels.get(NAME) in GATES:
            continue
        pools = workload.suitable_pools(stack)
        if pools and all(pool.faster for pool in pools):
            first = pools[0]
            yield Violation(
                workload.resource.urn,
                f"its {workload.pods} pods sum up gradients over the network between nodes, and nodes of "
                f"pool `{first.name}`{f' ({first.machine})' if first.machine else ''} could have a faster one",
                f"write `{first.faster}` in the pool, with the one zone that all its nodes are in",
            )


POLICIES = (
    Policy(
        "slow-network-between-nodes",
        Severity.WARNING,
        "A Job on the GPUs of several nodes has the fastest network that their machine type can have.",
        _slower,
        "Switch the pool's fast network on.",
    ),
)
