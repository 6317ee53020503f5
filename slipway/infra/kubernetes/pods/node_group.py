"""A step whose pods are a group, each on a node of its own: how they reach one another."""

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.network_policy import (
    allow_from,
    allow_to,
    lacks,
    network_policy,
    peer,
    select,
)
from slipway.infra.kubernetes.labels import SERVICE, step_labels
from slipway.infra.placed import Step

HOSTNAME = "kubernetes.io/hostname"
"""The label by which every node differs from all others."""


def headless_service(name: str, step: Step, namespace: str, opts: pulumi.ResourceOptions) -> k8s.core.v1.Service:
    """Declares the Service that gives each pod of ``step`` a host name: ``<Job>-<index>.<service>``.

    It is there before the first pod, since Pulumi waits for none behind a Service without an address
    (`shouldWaitForPods` in provider/pkg/await/service.go of pulumi-kubernetes 4, seen November 2026).
    """
    labels = step_labels(step.pipeline, step.name)
    return k8s.core.v1.Service(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=step.group_name, namespace=namespace, labels=labels),
        spec=k8s.core.v1.ServiceSpecArgs(
            cluster_ip="None",
            # The pods meet before any of them is ready for anything.
            publish_not_ready_addresses=True,
            selector=labels,
            ports=[
                k8s.core.v1.ServicePortArgs(name=purpose, port=port, target_port=port, protocol="TCP")
                for purpose, port in step.ports.items()
            ],
        ),
        opts=opts,
    )


def group_policy(
    name: str, step: Step, namespace: str, *, limited: bool, opts: pulumi.ResourceOptions
) -> k8s.networking.v1.NetworkPolicy:
    """Declares that the pods of ``step``, which runs on several nodes, may connect to one another at any port.

    NCCL listens on ports that the system chooses. ``limited`` says that pods may connect only to what a policy
    allows, so that one has to allow this; where they may connect to everything, a policy would take it from them.
    """
    labels = step_labels(step.pipeline, step.name)
    pods = select(labels, lacks(SERVICE))
    return network_policy(
        name,
        k8s.meta.v1.ObjectMetaArgs(name=step.group_name, namespace=namespace, labels=labels),
        pods,
        ["Ingress", "Egress"] if limited else ["Ingress"],
        opts,
        ingress=[allow_from([peer(pods)])],
        egress=[allow_to([peer(pods)])] if limited else None,
    )


def one_a_node(step: Step, labels: Mapping[str, str] | None = None) -> k8s.core.v1.AffinityArgs:
    """Keeps two pods of ``step``, or two with ``labels``, from one node: each would have the network and the disk
    of half a node."""
    return k8s.core.v1.AffinityArgs(
        pod_anti_affinity=k8s.core.v1.PodAntiAffinityArgs(
            required_during_scheduling_ignored_during_execution=[
                k8s.core.v1.PodAffinityTermArgs(
                    topology_key=HOSTNAME,
                    label_selector=k8s.meta.v1.LabelSelectorArgs(
                        match_labels=labels or step_labels(step.pipeline, step.name)
                    ),
                )
            ]
        )
    )


def fast_network(step: Step) -> tuple[dict[str, str], dict[str, str]]:
    """The extended resources and the environment by which pods of ``step`` use the network between its nodes."""
    network = step.pool.interconnect
    if network is None or not step.is_group:
        return {}, {}
    resources = {network.resource: str(network.count)} if network.resource and network.count else {}
    return resources, dict(network.environment)
