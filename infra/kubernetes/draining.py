"""How long a pod that is to go still answers: until all that lead requests to it have learnt that it goes."""

import pulumi_kubernetes as k8s

from infra.app import App

IN_CLUSTER = 5
"""Seconds until every node of a cluster has learnt to send requests elsewhere
(kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle, "Pod termination flow", seen November 2026)."""

OF_LOAD_BALANCER = 40
"""The same for a load balancer outside, which connects to pods by their addresses. What Google advises for its own
(cloud.google.com/knowledge/kb/502-503-errors-on-external-http-s-load-balancer-000006416, seen November 2026)."""


def draining(app: App, *, proxy: bool = False) -> int:
    """Seconds for which a pod of ``app`` goes on; with ``proxy``, one of the proxy that asks people to log in."""
    ingress, entrance = app.declared.placed_by.ingress, app.platform.entrance
    if ingress is None or entrance is None or not entrance.outside:
        return IN_CLUSTER
    asks = ingress.host in entrance.asks
    return IN_CLUSTER if asks == proxy else OF_LOAD_BALANCER


def lifecycle(seconds: int) -> k8s.core.v1.LifecycleArgs:
    """Keeps a container from SIGTERM for so many seconds; the grace period has to be longer (Kubernetes 1.30)."""
    sleep = k8s.core.v1.SleepActionArgs(seconds=seconds)
    return k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(sleep=sleep))
