"""What an hour of a node, and of a pod, costs in an evaluated stack, at list prices in US dollars."""

from slipway.evaluated.workloads import Workload
from slipway.infra.review.facts import Charge
from slipway.infra.review.stack import NodePool, Resource, Stack
from slipway.infra.review.tables import hourly, node_price


def hourly_of(charge: Charge) -> float | None:
    """The price for an hour; None if it is not known."""
    known = hourly(charge.price) if charge.price is not None else None
    return None if known is None else known * charge.quantity


def node_rate(stack: Stack, pool: NodePool | None) -> float | None:
    """What one node of the pool costs for an hour; None where several pools share one resource's charges."""
    if pool is None or not pool.urn or sum(other.urn == pool.urn for other in stack.pools) > 1:
        return None
    return node_price([*stack.charges, *stack.charges_elsewhere], pool.urn)


def pod_rate(stack: Stack, job: Resource) -> float | None:
    """What one pod of the Job costs for an hour, where pods are billed."""
    rates = [hourly_of(charge) for charge in stack.charges if charge.urn == job.urn]
    return None if not rates or None in rates else sum(rate for rate in rates if rate is not None)


def workload_rate(stack: Stack, workload: Workload) -> float | None:
    """What all pods of ``workload`` cost for an hour: a node for each, or themselves where pods are billed."""
    pool = workload.pool(stack)
    billed = pod_rate(stack, workload.resource) if pool and pool.bills_pods else node_rate(stack, pool)
    return None if billed is None else billed * workload.pods
