"""Stands in for Google Cloud where the program is evaluated without it: outputs, function results and nodes.

Everything it makes up is well-formed and clearly fake. Nodes are worked out from what a node pool was declared
with, not from the settings it came from, so that a mistake on the way is seen by whoever places pods on them.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from infra.emulation import CA_CERTIFICATE
from infra.gcp.catalogue import allocatable
from infra.gcp.locations import REGION_ZONES, is_zone, region_of
from infra.gcp.platforms import POOL_LABEL
from infra.gcp.project import clusters
from infra.gcp.settings import GcpPool, GpuSharing
from infra.gcp.store import DRIVER
from infra.platform import Emulator, Node, Resources, StoreFiles, Taint
from infra.settings.model import Settings
from infra.settings.quantity import cpu_millicores, mebibytes
from infra.taints import EFFECTS

PROJECT_NUMBER = 999_999_999_999
FALLBACK_PROJECT = "emulated-project"

SIDECAR_PREFIX = "gke-gcsfuse"
SIDECAR_DEFAULTS = {"cpu-request": "250m", "memory-request": "256Mi", "ephemeral-storage-request": "5Gi"}
"""Of the Cloud Storage FUSE sidecar, where annotations say nothing else
(cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar, seen November 2026)."""

NODE_POOL = "gcp:container/nodePool:NodePool"

Inputs = Mapping[str, Any]


class GcpEmulator(Emulator):
    """Stands in for Google Cloud, for the resources that this package declares."""

    configuration: Mapping[str, str] = MappingProxyType({"gcp:project": FALLBACK_PROJECT})
    store_drivers: ClassVar[frozenset[str]] = frozenset({DRIVER})

    def __init__(self, settings: Settings) -> None:
        ours = clusters(settings)
        self._pools = {f"{name}-{pool}": (name, pool) for name in ours for pool in ours[name].pools}

    def outputs(self, token: str, name: str, inputs: Inputs) -> Mapping[str, Any] | None:
        """The computed outputs of a resource; None for a type that this package does not declare."""
        known = _OUTPUTS.get(token)
        return known(name, inputs) if known else None

    def call(self, token: str, args: Inputs, store: StoreFiles) -> Mapping[str, Any] | None:
        """The result of a provider function; raises FileNotFoundError for an object that is not in ``store``."""
        if token == "gcp:storage/getBucketObjectContent:getBucketObjectContent":
            content = store.read_text(args["name"])
            return {
                "id": f"{args['bucket']}-{args['name']}",
                "bucket": args["bucket"],
                "name": args["name"],
                "content": content,
                "contentBase64": base64.b64encode(content.encode()).decode(),
            }
        return None

    def injected(self, annotations: Mapping[str, str]) -> Resources:
        """The requests of Cloud Storage FUSE's sidecar, which a pod's annotations ask for.

        It starts before the init containers and stays, so it adds to the largest of them, too.
        """
        if annotations.get(f"{SIDECAR_PREFIX}/volumes") != "true":
            return Resources(cpu=0, memory=0)
        asked = {
            key: annotations.get(f"{SIDECAR_PREFIX}/{key}", default) for key, default in SIDECAR_DEFAULTS.items()
        }
        return Resources(
            cpu=cpu_millicores(asked["cpu-request"]),
            memory=mebibytes(asked["memory-request"]),
            ephemeral_storage=mebibytes(asked["ephemeral-storage-request"]),
        )

    def nodes(self, token: str, name: str, inputs: Inputs) -> Sequence[Node]:
        """The nodes of a node pool at its largest."""
        if token != NODE_POOL:
            return []
        cluster, pool = self._pools[name]
        config: Inputs = inputs["nodeConfig"]
        accelerator = _accelerator(config)
        return [
            Node(
                cluster=cluster,
                pool=pool,
                labels=_labels(inputs),
                taints=[
                    Taint(taint["key"], taint["value"], EFFECTS[taint["effect"]])
                    for taint in _list(config, "taints")
                ],
                allocatable=allocatable(_as_settings(inputs)),
                count=_most_nodes(inputs),
                accelerator=accelerator["type"] if accelerator else None,
            )
        ]

    def standing_nodes(self) -> Sequence[Node]:
        """None: nothing is there before the program runs."""
        return []


def _accelerator(config: Inputs) -> Inputs | None:
    found = _list(config, "guestAccelerators")
    return found[0] if found else None


def _as_settings(inputs: Inputs) -> GcpPool:
    """What decides the allocatable resources of a node, read back from its declaration."""
    config: Inputs = inputs["nodeConfig"]
    accelerator = _accelerator(config) or {}
    sharing = accelerator.get("gpuSharingConfig")
    return GcpPool(
        machine_type=config["machineType"],
        accelerator=accelerator.get("type"),
        gpus=_whole(accelerator.get("count")),
        gpu_partition=accelerator.get("gpuPartitionSize"),
        gpu_sharing=(
            GpuSharing(strategy=sharing["gpuSharingStrategy"], clients=int(sharing["maxSharedClientsPerGpu"]))
            if sharing
            else None
        ),
        disk_size_gb=int(config["diskSizeGb"]),
        local_ssd_count=_ssds(config, "ephemeralStorageLocalSsdConfig"),
        local_ssd_block_count=_ssds(config, "localNvmeSsdBlockConfig"),
        image_type=config["imageType"],
        max_pods_per_node=int(inputs["maxPodsPerNode"]),
    )


def _most_nodes(inputs: Inputs) -> int:
    zones = len(inputs.get("nodeLocations") or []) or (1 if is_zone(inputs["location"]) else REGION_ZONES)
    scaled = inputs.get("autoscaling")
    if not scaled:
        return int(inputs["nodeCount"]) * zones
    if scaled.get("totalMaxNodeCount") is not None:
        return int(scaled["totalMaxNodeCount"])
    return int(scaled["maxNodeCount"]) * zones


def _labels(inputs: Inputs) -> dict[str, str]:
    """The pool's own labels, and those that GKE and the kubelet put on every node.

    Source: https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels, 2026-11-20.
    """
    config = inputs["nodeConfig"]
    own: Mapping[str, str] = config.get("labels") or {}
    labels = {
        **own,
        POOL_LABEL: inputs["name"],
        "cloud.google.com/gke-boot-disk": config["diskType"],
        "cloud.google.com/machine-family": config["machineType"].partition("-")[0],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": config["machineType"],
        "topology.kubernetes.io/region": region_of(inputs["location"]),
    }
    zones = inputs.get("nodeLocations") or [inputs["location"]]
    if len(zones) == 1 and is_zone(zones[0]):
        labels["topology.kubernetes.io/zone"] = zones[0]
    if config.get("spot"):
        labels["cloud.google.com/gke-spot"] = "true"
    if config.get("preemptible"):
        labels["cloud.google.com/gke-preemptible"] = "true"
    if config.get("flexStart"):
        labels["cloud.google.com/gke-flex-start"] = "true"
    return {**labels, **_gpu_labels(config)}


def _gpu_labels(config: Inputs) -> dict[str, str]:
    accelerator = _accelerator(config)
    if accelerator is None:
        return {}
    labels = {"cloud.google.com/gke-accelerator": str(accelerator["type"])}
    if accelerator.get("gpuPartitionSize"):
        labels["cloud.google.com/gke-gpu-partition-size"] = str(accelerator["gpuPartitionSize"])
    if sharing := accelerator.get("gpuSharingConfig"):
        labels["cloud.google.com/gke-gpu-sharing-strategy"] = (
            str(sharing["gpuSharingStrategy"]).lower().replace("_", "-")
        )
        labels["cloud.google.com/gke-max-shared-clients-per-gpu"] = str(int(sharing["maxSharedClientsPerGpu"]))
    return labels


def _list(config: Inputs, key: str) -> Sequence[Inputs]:
    return config.get(key) or []


def _ssds(config: Inputs, key: str) -> int:
    found: Inputs | None = config.get(key)
    return int(found["localSsdCount"]) if found else 0


def _whole(number: Any) -> int | None:
    """Numbers arrive as floats: protobuf knows no others."""
    return None if number is None else int(number)


def _project_of(inputs: Inputs) -> str:
    return str(inputs.get("project") or FALLBACK_PROJECT)


def _compute(kind: str) -> Callable[[str, Inputs], Mapping[str, Any]]:
    def outputs(_: str, inputs: Inputs) -> Mapping[str, Any]:
        place = f"regions/{inputs['region']}" if inputs.get("region") else "global"
        path = f"projects/{_project_of(inputs)}/{place}/{kind}/{inputs['name']}"
        return {"id": path, "selfLink": f"https://www.googleapis.com/compute/v1/{path}"}

    return outputs


def _cluster(_: str, inputs: Inputs) -> Mapping[str, Any]:
    path = f"projects/{_project_of(inputs)}/locations/{inputs['location']}/clusters/{inputs['name']}"
    endpoints = inputs["controlPlaneEndpointsConfig"]
    host = f"gke-{inputs['name']}-{PROJECT_NUMBER}.{region_of(inputs['location'])}.gke.goog.invalid"
    return {
        "id": path,
        "selfLink": f"https://container.googleapis.com/v1/{path}",
        # TEST-NET-3 (RFC 5737): an address that nobody has.
        "endpoint": "203.0.113.1",
        "controlPlaneEndpointsConfig": {
            **endpoints,
            "dnsEndpointConfig": {**endpoints["dnsEndpointConfig"], "endpoint": host},
        },
        "masterAuth": {
            "clientCertificate": "",
            "clientCertificateConfig": {"issueClientCertificate": False},
            "clientKey": "",
            "clusterCaCertificate": CA_CERTIFICATE,
        },
        "masterVersion": "1.0.0-emulated",
    }


def _node_pool(_: str, inputs: Inputs) -> Mapping[str, Any]:
    return {"id": f"{inputs['cluster']}/nodePools/{inputs['name']}", "version": "1.0.0-emulated"}


def _service_account(_: str, inputs: Inputs) -> Mapping[str, Any]:
    project = _project_of(inputs)
    email = f"{inputs['accountId']}@{project}.iam.gserviceaccount.com"
    path = f"projects/{project}/serviceAccounts/{email}"
    return {
        "id": path,
        "name": path,
        "email": email,
        "member": f"serviceAccount:{email}",
        "uniqueId": "000000000000000000000",
    }


def _bucket(_: str, inputs: Inputs) -> Mapping[str, Any]:
    name = inputs["name"]
    return {
        "id": name,
        "url": f"gs://{name}",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
        "projectNumber": PROJECT_NUMBER,
    }


def _service(_: str, inputs: Inputs) -> Mapping[str, Any]:
    return {"id": f"{_project_of(inputs)}/{inputs['service']}"}


def _grant(name: str, inputs: Inputs) -> Mapping[str, Any]:
    return {"id": f"{name}/{inputs['role']}", "etag": "emulated"}


_OUTPUTS: Mapping[str, Callable[[str, Inputs], Mapping[str, Any]]] = {
    "gcp:projects/service:Service": _service,
    "gcp:compute/network:Network": _compute("networks"),
    "gcp:compute/subnetwork:Subnetwork": _compute("subnetworks"),
    "gcp:compute/router:Router": _compute("routers"),
    "gcp:compute/routerNat:RouterNat": _compute("routerNats"),
    "gcp:serviceaccount/account:Account": _service_account,
    "gcp:serviceaccount/iAMMember:IAMMember": _grant,
    "gcp:projects/iAMMember:IAMMember": _grant,
    "gcp:storage/bucket:Bucket": _bucket,
    "gcp:storage/bucketIAMMember:BucketIAMMember": _grant,
    "gcp:container/cluster:Cluster": _cluster,
    NODE_POOL: _node_pool,
}
