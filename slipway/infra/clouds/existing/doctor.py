"""What clusters that are already there, and this machine's way to them, lack before the first `pulumi up`."""

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from slipway.infra.api_server import ApiServer, KubeconfigError, UnreachableError, UnreadableError, read_kubeconfig
from slipway.infra.clouds.existing import live_cluster
from slipway.infra.clouds.existing.live_cluster import as_argument, connect
from slipway.infra.clouds.existing.settings import (
    ExistingCluster,
    NfsStore,
    PvcStore,
    S3CompatibleStore,
    single_node_classes,
)
from slipway.infra.review.facts import STACK, Observation, Probe, fine, unknown, wrong
from slipway.infra.review.refused_writes import command_of_denials, labels_of_files
from slipway.infra.review.stack import Stack, items, mapping, text
from slipway.infra.schema.problems import Finding, key_of
from slipway.infra.schema.request import Request

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""Source: kubernetes.io/docs/concepts/storage/storage-classes, seen November 2026."""

PLUGIN_IMAGES = ("k8s-device-plugin", "gpu-device-plugin")
"""In the names of images of NVIDIA's device plugin (nvcr.io/nvidia/k8s-device-plugin) and GKE's."""

OPERATOR = "nvidia-device-plugin-daemonset"
"""The GPU Operator's own, of whose nodes the stack's plugin keeps away (github.com/NVIDIA/gpu-operator v26.7.0,
assets/state-device-plugin)."""

PART_OF = ("app.kubernetes.io/part-of", "slipway")

LEVEL = "openshift.io/sa.scc.mcs"
"""The annotation of a namespace with the SELinux level of its pods (docs.redhat.com, OpenShift 4, "About
pre-allocated security context constraints values", read in November 2026)."""


def servers(_stack: Stack, request: Request | None) -> Mapping[str, ApiServer]:
    """The clusters whose kubeconfig can be used."""
    reachable: dict[str, ApiServer] = {}
    for name, cluster in _clusters(request).items():
        try:
            reachable[name] = connect(cluster)
        except KubeconfigError:
            continue
    return reachable


def probes(_stack: Stack, request: Request | None) -> Sequence[Probe]:
    """The kubeconfig of each cluster, then what its nodes and storage say of the stack file."""
    return [
        Probe(f"cluster {name}", partial(_cluster, name, cluster, request))
        for name, cluster in _clusters(request).items()
    ]


def _clusters(request: Request | None) -> Mapping[str, ExistingCluster]:
    return request.clusters_of(ExistingCluster) if request else {}


def _cluster(name: str, cluster: ExistingCluster, request: Request | None) -> Iterator[Observation]:
    config = f"kubeconfig {as_argument(cluster.kubeconfig)}"
    try:
        server = connect(cluster)
    except KubeconfigError as error:
        yield wrong(config, f"cannot be used: {error}", _way_in(cluster))
        yield unknown(
            "the cluster's version, permissions, nodes, storage and device plugin",
            "were not asked for: its kubeconfig cannot be used",
        )
        return
    yield fine(config, f"has the context {server.context}")
    yield from _helper(config, cluster, server.context or "")
    if request is None:
        return
    for subject, check in (
        (f"nodes of `{name}`", _nodes(name, cluster, server)),
        (f"storage of `{name}`", _storage(name, cluster, server, request)),
        (f"SELinux of `{name}`", _selinux(name, cluster, server, request)),
        (f"device plugin of `{name}`", _plugin(name, cluster, server)),
    ):
        try:
            yield from check
        except UnreachableError:
            # Said once, of the cluster as a whole.
            return
        except UnreadableError as error:
            yield unknown(subject, f"could not be read: {error}")


def _way_in(cluster: ExistingCluster) -> str:
    if not Path(cluster.kubeconfig).expanduser().exists():
        copied = f"scp <a node of its control plane>:/etc/kubernetes/admin.conf {as_argument(cluster.kubeconfig)}"
        return "oc login <its API's address>" if cluster.openshift else f"kind create cluster  # or {copied}"
    return f"kubectl --kubeconfig {as_argument(cluster.kubeconfig)} config get-contexts"


def _helper(subject: str, cluster: ExistingCluster, context: str) -> Iterator[Observation]:
    """The program that gets a token for the context's user, where the kubeconfig names one."""
    command, hint = read_kubeconfig(cluster.kubeconfig).logins[context]
    if not command:
        return
    if shutil.which(command):
        yield fine(subject, f"signs in with {command}, which is on PATH")
    else:
        yield wrong(
            subject,
            f"signs in with `{command}`, which is not on PATH{f': {hint}' if hint else ''}",
            f"command -v {shlex.quote(command)}",
        )


def _nodes(name: str, cluster: ExistingCluster, server: ApiServer) -> Iterator[Observation]:
    subject = f"nodes of `{name}`"
    objects = server.all_of("v1", "Node")
    findings, warnings = live_cluster.examine(name, cluster, objects)
    for finding in findings:
        yield _observation(subject, finding, f"{_kubectl(cluster, server)} get nodes --show-labels")
    for warning in warnings:
        yield wrong(subject, warning, f"{_kubectl(cluster, server)} get nodes")
    missing = list(live_cluster.check_runtime_classes(name, cluster, server))
    for finding in missing:
        yield _observation(subject, finding, f"{_kubectl(cluster, server)} get runtimeclass")
    if not findings and not warnings and not missing:
        yield fine(subject, f"are {len(objects)}, and every pool has its own")


def _observation(subject: str, finding: Finding, see: str) -> Observation:
    return wrong(subject, f"contradicts {key_of(finding.path)}: {finding.reason}", see, finding.fix)


def _kubectl(cluster: ExistingCluster, server: ApiServer) -> str:
    return f"kubectl --kubeconfig {as_argument(cluster.kubeconfig)} --context {shlex.quote(server.context or '')}"


def _storage(name: str, cluster: ExistingCluster, server: ApiServer, request: Request) -> Iterator[Observation]:
    store, subject = request.store, f"storage of `{name}`"
    see = f"{_kubectl(cluster, server)} get storageclass"
    refused = list(live_cluster.check_claims(server, request, name))
    yield from (_observation(subject, finding, see) for finding in refused)
    if isinstance(store, S3CompatibleStore):
        yield from _driver(subject, cluster, server, store)
        return
    if not isinstance(store, PvcStore):
        yield unknown(subject, "is outside the cluster, and only its nodes can mount it: the store gate tries it")
        return
    if store.host_path is not None:
        yield unknown(subject, f"is {store.host_path} of a node, which nobody can look into from here")
        return
    classes = {
        text(mapping(class_["metadata"]).get("name")): class_
        for class_ in server.all_of("storage.k8s.io/v1", "StorageClass")
    }
    defaults = [
        key
        for key, class_ in classes.items()
        if mapping(mapping(class_["metadata"]).get("annotations")).get(DEFAULT_CLASS) == "true"
    ]
    chosen = store.storage_class or next(iter(defaults), "")
    names = ", ".join(sorted(classes)) or "none"
    if store.storage_class and store.storage_class not in classes:
        yield wrong(subject, f"has no StorageClass `{store.storage_class}`; there is {names}", see)
    elif not chosen:
        some = next(iter(sorted(classes)), "<name>")
        yield wrong(
            subject,
            f"has no default StorageClass, so that the store's claim waits for ever; there is {names}",
            f"{_kubectl(cluster, server)} annotate storageclass {some} {DEFAULT_CLASS}=true",
        )
    elif store.access_mode == "ReadWriteMany" and (why := single_node_classes().get(chosen)):
        yield wrong(subject, f"`{chosen}` {why}, and the store is ReadWriteMany", see)
    elif not refused:
        yield fine(subject, f"is made by the StorageClass `{chosen}`")


def _selinux(name: str, cluster: ExistingCluster, server: ApiServer, request: Request) -> Iterator[Observation]:
    """What keeps pods on OpenShift from files of the store although their mode allows it."""
    if not cluster.openshift:
        return
    subject = f"SELinux of `{name}`"
    if isinstance(request.store, NfsStore):
        yield unknown(
            subject,
            "lets pods use the NFS folder where the nodes' boolean virt_use_nfs is on, which no API says",
            "oc debug node/NODE -- chroot /host getsebool virt_use_nfs",
        )
    if not isinstance(request.store, PvcStore):
        return
    namespace = server.find("v1", "Namespace", request.namespace)
    metadata = mapping(mapping(namespace).get("metadata"))
    level = text(mapping(metadata.get("annotations")).get(LEVEL)) or f"that `{request.namespace}` will have"
    yield unknown(
        subject,
        f"lets pods use files of the store with {labels_of_files(level)}, and no API says which these have",
        command_of_denials("NODE"),
    )


def _driver(
    subject: str, cluster: ExistingCluster, server: ApiServer, store: S3CompatibleStore
) -> Iterator[Observation]:
    """The CSI driver that mounts the bucket, and the Secret that it reads."""
    kubectl = _kubectl(cluster, server)
    if server.find("storage.k8s.io/v1", "CSIDriver", store.driver) is None:
        yield wrong(
            subject, f"has no CSI driver `{store.driver}`, which mounts the bucket", f"{kubectl} get csidriver"
        )
    else:
        yield fine(subject, f"has the CSI driver `{store.driver}`")
    secret = f"the Secret `{store.secret}` in namespace `{store.secret_namespace}`"
    if server.find("v1", "Secret", store.secret, store.secret_namespace) is None:
        keys = " ".join(f"--from-literal={key}=<…>" for key in ("accessKeyID", "secretAccessKey", "endpoint"))
        yield wrong(
            subject,
            f"lacks {secret}, with the keys of the bucket",
            f"{kubectl} -n {store.secret_namespace} create secret generic {store.secret} {keys}",
        )
    else:
        yield fine(subject, f"has {secret}")


def _plugin(name: str, cluster: ExistingCluster, server: ApiServer) -> Iterator[Observation]:
    """That the stack's plugin is not the second one: both would hand out the same GPUs."""
    subject = f"device plugin of `{name}`"
    if not any(pool.gpus for pool in cluster.pools.values()):
        return
    others = [
        f"{text(metadata.get('namespace'))}/{text(metadata.get('name'))}"
        for daemons in server.all_of("apps/v1", "DaemonSet")
        if _is_plugin(daemons)
        and (metadata := mapping(daemons.get("metadata")))
        and mapping(metadata.get("labels")).get(PART_OF[0]) != PART_OF[1]
    ]
    foreign = [other for other in others if other.rpartition("/")[2] != OPERATOR]
    if cluster.device_plugin.declare and foreign:
        yield wrong(
            subject,
            f"would be there twice: {', '.join(foreign)}, and the one that the stack declares",
            f"pulumi config set --path 'slipway:clusters.{name}.device_plugin.declare' false -s {STACK}",
        )
    elif cluster.device_plugin.declare:
        yield fine(subject, "is the stack's alone")
    elif others:
        yield fine(subject, f"is {', '.join(others)}")


def _is_plugin(daemon_set: Mapping[str, Any]) -> bool:
    spec = mapping(mapping(mapping(daemon_set.get("spec")).get("template")).get("spec"))
    return any(
        any(image in text(mapping(container).get("image")) for image in PLUGIN_IMAGES)
        for container in items(spec.get("containers"))
    )
