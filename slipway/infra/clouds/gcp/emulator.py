"""Stands in for Google Cloud where the program is evaluated without it: outputs, function results and nodes.

Everything it makes up is well-formed and clearly fake. Nodes are worked out from what a node pool was declared
with, not from the settings it came from, so that a mistake in between is found when pods are placed on them.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from slipway.infra import emulator
from slipway.infra.clouds.gcp import autopilot, nodes
from slipway.infra.clouds.gcp.catalogue import DRIVER, region_of, sidecar
from slipway.infra.clouds.gcp.nodes import CLUSTER, NODE_POOL
from slipway.infra.clouds.gcp.settings import ExistingGcsStore, GcpCluster
from slipway.infra.emulator import EMULATED_CA_CERTIFICATE, EMULATED_DIGEST, StoreFiles
from slipway.infra.platform import Node, Resources
from slipway.infra.review.stack import is_true
from slipway.infra.schema.request import Request

DOCKER_IMAGE = "gcp:artifactregistry/getDockerImage:getDockerImage"

PROJECT_NUMBER = 999_999_999_999
FALLBACK_PROJECT = "emulated-project"

Inputs = Mapping[str, Any]


class Emulator(emulator.Emulator):
    """Stands in for Google Cloud, for the resources that this package declares."""

    configuration: Mapping[str, str] = MappingProxyType({"gcp:project": FALLBACK_PROJECT})
    store_drivers: ClassVar[frozenset[str]] = frozenset({DRIVER})
    computed_calls: ClassVar[frozenset[str]] = frozenset({DOCKER_IMAGE})

    def __init__(self, request: Request) -> None:
        ours = request.clusters_of(GcpCluster)
        if not ours:
            # The clusters are another stack's, as is the project.
            self.configuration = {}
        self._pools = {f"{name}-{pool}": (name, pool) for name in ours for pool in ours[name].pools}
        self._autopilot = {name: _ways(name, ours[name]) for name in ours if ours[name].autopilot}
        self._namespaces = [(name, request.namespace) for name in ours if not ours[name].owns_namespace]
        # Of a bucket that another stack has, or that was there before, the store is one folder.
        folders = [cluster.store_reader["folder"] for cluster in request.clusters.values() if cluster.store_reader]
        if isinstance(request.store, ExistingGcsStore):
            folders.append(request.store.root)
        self._root = f"{folders[0]}/" if folders and folders[0] else ""

    def outputs(self, token: str, name: str, inputs: Inputs) -> Mapping[str, Any] | None:
        """The computed outputs of a resource; None for a type that this package does not declare."""
        if (known := _OUTPUTS.get(token)) is not None:
            return known(name, inputs)
        if (row := ROWS.get(token)) is None:
            return None
        place = f"regions/{inputs['region']}" if inputs.get("region") else "global"
        words = emulator.Words(inputs, name=f"{name}-0000000")
        words |= {"logical": name, "place": place, "project": _project_of(inputs)}
        return emulator.filled(row, words)

    def call(self, token: str, args: Inputs, store: StoreFiles) -> Mapping[str, Any] | None:
        """The result of a provider function; raises FileNotFoundError for an object that is not in ``store``."""
        if token == "gcp:storage/getBucketObjectContent:getBucketObjectContent":
            content = store.read_text(args["name"].removeprefix(self._root))
            return {
                "id": f"{args['bucket']}-{args['name']}",
                "bucket": args["bucket"],
                "name": args["name"],
                "content": content,
                "contentBase64": base64.b64encode(content.encode()).decode(),
            }
        if token == "gcp:storage/getProjectServiceAccount:getProjectServiceAccount":
            return {"id": _project_of(args), **_agent("gs-project-accounts")}
        if token == DOCKER_IMAGE:
            path = f"projects/{_project_of(args)}/locations/{args['location']}/repositories/{args['repositoryId']}"
            name = f"{path}/dockerImages/{args['imageName'].partition(':')[0]}@{EMULATED_DIGEST}"
            return {"id": name, "name": name, **args, "selfLink": name}
        if token == "gcp:storage/getBucketObjects:getBucketObjects":
            names = store.names(str(args.get("prefix") or "").removeprefix(self._root))
            return {
                "id": f"{args['bucket']}-objects",
                "bucket": args["bucket"],
                "prefix": args.get("prefix"),
                "bucketObjects": [
                    {
                        "name": f"{self._root}{name}",
                        "contentType": "",
                        "mediaLink": "",
                        "selfLink": "",
                        "storageClass": "STANDARD",
                    }
                    for name in names
                ],
            }
        return None

    def injected(self, annotations: Mapping[str, str]) -> Resources:
        """The requests of Cloud Storage FUSE's sidecar, which a pod's annotations ask for.

        It starts before the init containers and stays, so it adds to the largest of them, too.
        """
        return sidecar(annotations)

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """The namespace, in clusters where the stack does not create it."""
        return self._namespaces

    def nodes(self, token: str, name: str, inputs: Inputs) -> Sequence[Node]:
        """The nodes of a node pool at its largest; of a cluster on Autopilot, all that pods may ask for."""
        if token == CLUSTER and is_true(inputs.get("enableAutopilot")):
            return self._autopilot[name]
        if token != NODE_POOL:
            return []
        cluster, pool = self._pools[name]
        return [
            Node(
                cluster=cluster,
                pool=pool,
                labels=nodes.labels_of(inputs),
                taints=nodes.taints(inputs),
                allocatable=nodes.node_resources(inputs),
                count=nodes.most_nodes(inputs),
                accelerator=nodes.accelerator_of(inputs),
            )
        ]


def _ways(cluster: str, settings: GcpCluster) -> list[Node]:
    """Nodes as large as the largest pods that a cluster on Autopilot takes, for each way to ask for them."""
    return [
        Node(
            cluster=cluster,
            pool=name,
            labels=autopilot.labels(pool.way),
            taints=autopilot.taints(pool.way),
            allocatable=largest,
            count=pool.pods_at_once,
            accelerator=pool.accelerator,
        )
        for name, pool in settings.pools.items()
        if (largest := autopilot.most(pool.way)) is not None
    ]


def _project_of(inputs: Inputs) -> str:
    return str(inputs.get("project") or FALLBACK_PROJECT)


def _agent(service: str) -> Mapping[str, Any]:
    """The account as which one of Google's services acts in the project."""
    email = f"service-{PROJECT_NUMBER}@{service}.iam.gserviceaccount.com"
    return {"emailAddress": email, "email": email, "member": f"serviceAccount:{email}"}


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
            "clusterCaCertificate": EMULATED_CA_CERTIFICATE,
        },
        "masterVersion": "1.0.0-emulated",
    }


def _filestore(_: str, inputs: Inputs) -> Mapping[str, Any]:
    path = f"projects/{_project_of(inputs)}/locations/{inputs['location']}/instances/{inputs['name']}"
    # TEST-NET-3 (RFC 5737): an address that nobody has.
    networks = [
        {"reservedIpRange": "203.0.113.8/29", **network, "ipAddresses": ["203.0.113.10"]}
        for network in inputs["networks"]
    ]
    return {"id": path, "networks": networks, "createTime": "2026-01-01T00:00:00Z", "etag": "emulated"}


def _service_identity(_: str, inputs: Inputs) -> Mapping[str, Any]:
    service = inputs["service"]
    # GKE is older than the pattern that agents are named by.
    agent = (
        "container-engine-robot"
        if service == "container.googleapis.com"
        else f"gcp-sa-{service.partition('.')[0]}"
    )
    return {"id": f"projects/{_project_of(inputs)}/services/{service}", **_agent(agent)}


_OUTPUTS: Mapping[str, Callable[[str, Inputs], Mapping[str, Any]]] = {
    "gcp:projects/serviceIdentity:ServiceIdentity": _service_identity,
    "gcp:filestore/instance:Instance": _filestore,
    CLUSTER: _cluster,
}

ROWS = emulator.rows(Path(__file__).parent / "data" / "emulated.toml")
"""The outputs of all other types, which their names and inputs alone decide."""
