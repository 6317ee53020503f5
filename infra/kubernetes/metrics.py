"""Which metrics the pods of a cluster have, and who may read them.

They have none where a stack file has no `slipway:metrics`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi_kubernetes as k8s

from infra.kubernetes.run import Usage
from infra.platform import Collector, Platform

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label of every namespace with its name (kubernetes.io/docs/reference/labels-annotations-taints, seen
November 2026)."""

OPERATOR_API = "monitoring.coreos.com/v1"
"""The API of the Prometheus operator's PodMonitor (github.com/prometheus-operator/prometheus-operator,
v0.93.1)."""


@dataclass(frozen=True)
class Measured:
    """``collector`` reads metrics every ``interval`` seconds; None: nobody does. ``usage`` None: Jobs are not
    measured.
    """

    collector: Collector | None
    interval: int
    usage: Usage | None = None


def collector_of(
    platform: Platform, namespace: str, pod_labels: Mapping[str, str], labels: Mapping[str, str]
) -> Collector:
    """What reads metrics on ``platform``: the cloud's own, or a Prometheus in ``namespace`` with ``pod_labels``,
    which looks at PodMonitors with ``labels``.
    """
    if platform.collector is not None:
        return platform.collector
    return Collector(OPERATOR_API, namespace, pod_labels, labels)


def scrapers(measured: Measured | None) -> list[k8s.networking.v1.NetworkPolicyPeerArgs]:
    """The pods that may read metrics: peers of an ingress rule. Empty where nobody reads any, and then no rule may
    be made of it: one without peers lets everybody in.
    """
    if measured is None or measured.collector is None:
        return []
    collector = measured.collector
    return [
        k8s.networking.v1.NetworkPolicyPeerArgs(
            namespace_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={NAMESPACE_NAME: collector.namespace}),
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=dict(collector.pod_labels)),
        )
    ]
