"""Pods that GKE Autopilot refuses, and pods that it makes more of than their steps ask for."""

from collections.abc import Iterator

from infra.clouds.gcp import autopilot
from infra.clouds.gcp.review.charges import charges
from infra.clouds.gcp.review.pods import DeclaredPod, declared_pods
from infra.platform import Resources
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.prices import hourly
from infra.review.properties import Properties, is_true, mapping, mappings
from infra.review.stack import Stack

SELECTED = (
    "cloud.google.com/compute-class",
    "cloud.google.com/machine-family",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-accelerator-count",
    "cloud.google.com/gke-gpu-driver-version",
    "cloud.google.com/gke-ephemeral-storage-local-ssd",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-placement-group",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/os",
)
"""Labels that a pod may select its nodes by: those of a refusal, "Autopilot only allows labels with keys"
(https://github.com/GoogleCloudPlatform/ai-on-gke/pull/983, 2025-02-17, as far as it is quoted), and those of
Google's pages on GPUs and architectures."""

HOST = ("hostNetwork", "hostPID", "hostIPC")


def _refused(stack: Stack) -> Iterator[Violation]:
    for pod in declared_pods(stack):
        for reason, fix in (*_of_host(pod.spec), *_places(pod), *_size(pod)):
            yield Violation(pod.resource.urn, f"{reason}, and Autopilot refuses the pod", fix)


def _of_host(spec: Properties) -> Iterator[tuple[str, str]]:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-security, undated, read on 2026-11-22."""
    for key in HOST:
        if is_true(spec.get(key)):
            yield f"its pod has `{key}`", f"leave out `{key}`"
    for volume in mappings(spec.get("volumes")):
        if volume.get("hostPath") is not None:
            name = volume.get("name")
            yield f"its volume `{name}` is a folder of the node (`hostPath`)", "mount the store, or an `emptyDir`"
    for container in (*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))):
        if is_true(mapping(container.get("securityContext")).get("privileged")):
            yield f"its container `{container.get('name')}` is privileged", "leave out `privileged`"


def _places(pod: DeclaredPod) -> Iterator[tuple[str, str]]:
    selected = mapping(pod.spec.get("nodeSelector"))
    for key in selected:
        if key not in SELECTED:
            fix = "ask by compute class, machine family, Spot or accelerator"
            yield f"it selects its nodes by `{key}`, which Autopilot gives no meaning", fix
    if pod.requests.gpus and autopilot.ACCELERATOR_LABEL not in selected:
        yield "it asks for GPUs of no kind", f"select nodes by `{autopilot.ACCELERATOR_LABEL}`"
    if not pod.requests.gpus and any(
        each.get("key") == autopilot.GPU_TAINT.key for each in mappings(pod.spec.get("tolerations"))
    ):
        yield "it tolerates the taint of GPU nodes and asks for no GPU", "take a pool without an accelerator"


def _size(pod: DeclaredPod) -> Iterator[tuple[str, str]]:
    most = autopilot.most(pod.way.way) if pod.way else None
    if most is None or pod.way is None:
        return
    for key, unit, words in (
        ("cpu", "m", "CPU"),
        ("memory", "Mi", "memory"),
        ("ephemeral_storage", "Mi", "ephemeral storage"),
        # Without an accelerator in its selector, that is what is said of it.
        *((("gpus", "", "GPUs"),) if most.gpus else ()),
    ):
        asked, there = getattr(pod.requests, key), getattr(most, key)
        if asked > there:
            reason = f"its pod asks for {asked}{unit} of {words}, what a cloud adds to it included"
            yield (
                f"{reason}; in pool `{pod.way.name}` the most is {there}{unit}",
                "ask for less, or take another pool",
            )


def _raised(stack: Stack) -> Iterator[Violation]:
    billed = charges(stack)
    for pod in declared_pods(stack):
        changes = ", ".join(_changes(pod.asked, pod.declared)) if pod.asked else ""
        if not changes:
            continue
        known = [
            rate * each.quantity
            for each in billed
            if each.urn == pod.resource.urn and each.price and (rate := hourly(each.price)) is not None
        ]
        costs = f", for ${sum(known):.3f} an hour" if known else ""
        yield Violation(
            pod.resource.urn,
            f"Autopilot takes no pod of its step's size, and its pod asks for more: {changes}{costs}",
            "ask for as much in the stack file, since it is paid for, or for another ratio of memory to CPU",
        )


def _changes(asked: Resources, declared: Resources) -> Iterator[str]:
    for key, unit, words in (
        ("cpu", "m", "cpu"),
        ("memory", "Mi", "memory"),
        ("ephemeral_storage", "Mi", "ephemeral_storage"),
    ):
        before, after = getattr(asked, key), getattr(declared, key)
        if before < after:
            yield f"{words} {before}{unit} → {after}{unit}"


POLICIES = (
    Policy(
        "autopilot-refuses-pod",
        Severity.ERROR,
        "Pods on GKE Autopilot are such that it takes them.",
        _refused,
        "Take out what Autopilot refuses, or run the cluster with `mode: standard`.",
        harm=Harm.REFUSAL,
    ),
    Policy(
        "autopilot-raises-requests",
        Severity.WARNING,
        "Steps on GKE Autopilot ask for amounts that it takes as they are.",
        _raised,
        "Ask for as much in the stack file.",
    ),
)
