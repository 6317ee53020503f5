"""Small stacks in which one thing is wrong, or nothing is."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slipway.infra.platform import Resources, Taint
from slipway.infra.review.stack import KUBERNETES_PROVIDER, NodePool, Resource, Stack

CLUSTER = "dev"
PROVIDER = f"urn:pulumi:test::slipway::{KUBERNETES_PROVIDER}::{CLUSTER}"
DIGEST = "@sha256:" + "0" * 64
GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
GPU = {"nvidia.com/gpu": "1"}

JOB = "kubernetes:batch/v1:Job"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
SERVICE = "kubernetes:core/v1:Service"
NETWORK_POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"


def resource(type_: str, name: str, properties: Mapping[str, Any], **options: Any) -> Resource:
    """A resource; a Kubernetes object is on the one cluster."""
    if type_.startswith("kubernetes:"):
        options = {"provider": PROVIDER, **options}
    return Resource(f"urn:pulumi:test::slipway::{type_}::{name}", type_, name, properties, **options)


def asking(limits: Mapping[str, Any] | None = None, **requests: Any) -> dict[str, Any]:
    """The resources of a container, with a limit of memory beside the ``limits``."""
    return {"limits": {"memory": "1Gi", **(limits or {})}, "requests": requests}


def container(**changes: Any) -> dict[str, Any]:
    """A container with nothing wrong; a change to None takes a key out."""
    made = {
        "name": "main",
        "image": f"example.com/image{DIGEST}",
        "command": ["python", "-m", "train"],
        "resources": asking(cpu="500m", memory="1Gi"),
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    return _changed(made, changes)


def pod(*containers: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The spec of a pod with nothing wrong."""
    made = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True},
        "containers": list(containers) or [container()],
    }
    return _changed(made, changes)


def gpu_pod(*containers: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The same with a GPU, for the pool of T4s."""
    made = containers or (container(resources=asking(GPU, cpu="500m", memory="1Gi")),)
    return pod(*made, **{"tolerations": [TOLERATION], "nodeSelector": {"pool": "t4"}, **changes})


def job(spec: Mapping[str, Any], name: str = "train", **changes: Any) -> Resource:
    """A Job with this pod and nothing wrong."""
    made = {"backoffLimit": 3, "activeDeadlineSeconds": 600, "template": {"metadata": {}, "spec": spec}}
    return resource(JOB, name, {"metadata": {"namespace": "slipway"}, "spec": _changed(made, changes)})


def unawaited(job_: Resource) -> Resource:
    """The Job, for which Pulumi does not wait."""
    metadata = {**job_.properties["metadata"], "annotations": {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}}
    return replace(job_, properties={**job_.properties, "metadata": metadata})


def workload(type_: str, spec: Mapping[str, Any], name: str = "it") -> Resource:
    """A Deployment or the like with this pod."""
    return resource(type_, name, {"metadata": {"namespace": "slipway"}, "spec": {"template": {"spec": spec}}})


QUEUE, PORT = "fraud-queue", 6379
OF_QUEUE, OF_DAYS = {"slipway/service": "queue"}, {"app.kubernetes.io/component": "days"}


def serving(
    main: Mapping[str, Any] | None = None, *, keeps: bool = False, size: str = "1Gi", **changes: Any
) -> Resource:
    """A StatefulSet of one pod with its volume, which goes with it unless it ``keeps`` that, and nothing wrong."""
    probe = {"tcpSocket": {"port": PORT}}
    spec = {
        "replicas": 1,
        "serviceName": QUEUE,
        "selector": {"matchLabels": OF_QUEUE},
        "template": {
            "metadata": {"labels": OF_QUEUE},
            "spec": pod(main or container(readinessProbe=probe), restartPolicy="Always", **changes),
        },
        "volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}
        ],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain" if keeps else "Delete"},
    }
    metadata = {"name": f"{QUEUE}-1a2b3c", "namespace": "slipway"}
    return resource(STATEFUL_SET, QUEUE, {"metadata": metadata, "spec": spec})


def entrance(**spec: Any) -> Resource:
    """The Service that leads to `serving`."""
    made = {"selector": OF_QUEUE, "ports": [{"port": PORT}], **spec}
    return resource(SERVICE, QUEUE, {"metadata": {"name": QUEUE, "namespace": "slipway"}, "spec": made})


def let_in(*peers: Mapping[str, Any], port: int = PORT, name: str = "in", **rule: Any) -> Resource:
    """A NetworkPolicy that lets the pods of `worker` connect to those of `serving`."""
    made = {"from": list(peers) or [{"podSelector": {"matchLabels": OF_DAYS}}], "ports": [{"port": port}], **rule}
    spec = {"podSelector": {"matchLabels": OF_QUEUE}, "policyTypes": ["Ingress"], "ingress": [_changed(made, {})]}
    return resource(NETWORK_POLICY, name, {"metadata": {"namespace": "slipway"}, "spec": spec})


def shut(side: str, **rules: Any) -> Resource:
    """A NetworkPolicy for all pods of the namespace that lets nothing through on that side, but for ``rules``."""
    spec = {"podSelector": {}, "policyTypes": [side], **rules}
    return resource(NETWORK_POLICY, f"no-{side}", {"metadata": {"namespace": "slipway"}, "spec": spec})


def worker(*arguments: str, pods: int = 1, name: str = "fraud-days", **changes: Any) -> Resource:
    """A Job whose pods work on the items of `serving`."""
    words = arguments or ("--queue", f"{QUEUE}:{PORT}")
    made = {"metadata": {"labels": OF_DAYS}, "spec": pod(container(args=list(words)), **changes)}
    return job({}, name, template=made, parallelism=pods, completions=pods)


def pool(name: str, gpus: int = 0, **changes: Any) -> NodePool:
    """A declared pool that can go down to no node; one with GPUs is tainted, and of T4s."""
    values: dict[str, Any] = {
        "urn": f"urn:pulumi:test::slipway::test:index:NodePool::{name}",
        "cluster": CLUSTER,
        "name": name,
        "labels": {"pool": name},
        "taints": [GPU_TAINT] if gpus else [],
        "allocatable": Resources(cpu=4000, memory=8192, ephemeral_storage=50_000, gpus=gpus),
        "min_nodes": 0,
        "max_nodes": 1,
        "accelerator": "nvidia-tesla-t4" if gpus else None,
        "gpus": gpus,
    }
    return NodePool(**{**values, **changes})


POOLS = (pool("cpu"), pool("t4", gpus=1))


def stack(
    *resources: Resource,
    pools: Sequence[NodePool] = POOLS,
    name: str = "test",
    configuration: Mapping[str, Any] | None = None,
) -> Stack:
    """A stack of these resources on these pools."""
    return Stack(
        name, {each.urn: each for each in resources}, configuration=configuration or {}, pools=list(pools)
    )


def _changed(made: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy({**made, **changes})
    return {key: value for key, value in merged.items() if value is not None}
