"""What `make doctor` says of clusters that are there, by an API server that answers as Kubernetes does."""

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from slipway.command.doctor import cluster
from slipway.infra.api_server import ApiServer
from slipway.infra.clouds.existing import doctor
from slipway.infra.clouds.existing.settings import ExistingCluster, NfsStore, PvcStore, S3CompatibleStore
from slipway.infra.kubernetes.labels import INSTANCE, PART_OF, QUEUE_ANNOTATION
from slipway.infra.review.facts import Observation, State
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.base import StoreSettings
from slipway.infra.schema.request import Request
from tests.support.servers.api_server import Cluster, kubeconfig

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PROVIDER = "urn:pulumi:dev::slipway::pulumi:providers:kubernetes::here"


@dataclass
class Server(Cluster):
    """``forbidden`` are verbs and resources that the user may not have; ``kueue`` whether its API is served.

    Where that ``holds`` Jobs, it suspends them. ``more`` are answers by path.
    """

    version: str = "v1.36.1"
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    kueue: bool = False
    holds: bool = True
    more: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        known = {"/version": {"gitVersion": self.version}, **self.more}
        if path in known:
            return 200, known[path]
        if path == "/apis/kueue.x-k8s.io/v1beta2" and self.kueue:
            queue = {"kind": "ClusterQueue", "name": "clusterqueues", "namespaced": False}
            local = {"kind": "LocalQueue", "name": "localqueues", "namespaced": True}
            return 200, {"kind": "APIResourceList", "resources": [queue, local]}
        if path == "/apis/apps/v1":
            kinds = [{"kind": "DaemonSet", "name": "daemonsets", "namespaced": True}]
            return 200, {"kind": "APIResourceList", "resources": kinds}
        if path == "/apis/apps/v1/daemonsets":
            return 200, {"items": [each for each in self.objects if each["kind"] == "DaemonSet"]}
        if path == "/apis/storage.k8s.io/v1":
            kinds = [
                {"kind": kind, "name": plural, "namespaced": False}
                for kind, plural in (("StorageClass", "storageclasses"), ("CSIDriver", "csidrivers"))
            ]
            return 200, {"kind": "APIResourceList", "resources": kinds}
        return super().answer(path)

    def review(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        asked = body["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["resource"]) not in self.forbidden
        return 201, {**body, "status": {"allowed": allowed, "reason": "RBAC"}}


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    served = Server([])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send(*served.answer(self.path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/apis/batch/v1/namespaces/mine/jobs?dryRun=All":
                self.send(201, {**body, "spec": {**body["spec"], "suspend": served.holds}})
                return
            assert self.path == REVIEWS
            self.send(*served.review(body))

        def send(self, status: int, body: Mapping[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        config = kubeconfig(listening.server_address[1])
        (tmp_path / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
        Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield served
        listening.shutdown()


def stack() -> Stack:
    labels = {**PART_OF, INSTANCE: "slipway.dev"}
    declared = [
        ("kubernetes:core/v1:Namespace", {"name": "mine", "labels": labels}),
        (
            "kubernetes:batch/v1:Job",
            {"name": "train", "namespace": "mine", "labels": labels, "annotations": {QUEUE_ANNOTATION: "q"}},
        ),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", {"name": "egress", "namespace": "mine"}),
    ]
    found = [
        Resource(f"urn:{index}", type_, metadata["name"], {"metadata": metadata}, provider=PROVIDER)
        for index, (type_, metadata) in enumerate(declared)
    ]
    return Stack("dev", {each.urn: each for each in found})


def of_cluster(tmp_path: Path, settings: Any = None) -> dict[State, list[tuple[str, str]]]:
    servers = {"here": ApiServer(str(tmp_path / "config"), "here", (3, 10))}
    (probe,) = cluster.probes(stack(), servers, settings)
    return sorted_out(probe.run)


def of_existing(tmp_path: Path, store: StoreSettings, **keys: Any) -> dict[State, list[tuple[str, str]]]:
    pool = {"selector": {"kubernetes.io/os": "linux"}, "cpu": "2", "memory": "4Gi"}
    made = ExistingCluster.model_validate(
        {"cloud": "existing", "kubeconfig": str(tmp_path / "config"), "pools": {"cpu": pool}, **keys}
    )
    request = Request({"here": made}, store, "mine", "runner", protect=False, pool_names={"here": ["cpu"]})
    (probe,) = doctor.probes(stack(), request)
    return sorted_out(probe.run)


def sorted_out(run: Callable[[], Any]) -> dict[State, list[tuple[str, str]]]:
    found: dict[State, list[tuple[str, str]]] = {state: [] for state in State}
    each: Observation
    for each in run():
        found[each.state].append((f"{each.subject} {each.said}", each.mend))
    return found


def node(name: str, **allocatable: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "50Gi", **allocatable}},
    }


def storage_class(name: str, *, default: bool) -> dict[str, Any]:
    return {
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": {doctor.DEFAULT_CLASS: "true"} if default else {}},
    }


def plugin(namespace: str, name: str) -> dict[str, Any]:
    container = {"image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}
    return {
        "kind": "DaemonSet",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def test_a_cluster_that_has_everything(server: Server, tmp_path: Path) -> None:
    server.objects = [node("one"), storage_class("standard", default=True)]
    found, own = of_cluster(tmp_path), of_existing(tmp_path, PvcStore(kind="pvc"))
    assert found[State.WRONG] == own[State.WRONG] == own[State.UNKNOWN] == []
    # Nobody can say of NetworkPolicies that they are enforced.
    assert ["NetworkPolicies" in said for said, _ in found[State.UNKNOWN]] == [True]
    assert ("storage of `here` is made by the StorageClass `standard`", "") in own[State.FINE]


@pytest.mark.slow
def test_permissions_that_are_lacking_are_named_by_kind_and_namespace(server: Server, tmp_path: Path) -> None:
    server.forbidden = {("create", "jobs"), ("delete", "jobs"), ("patch", "namespaces")}
    (everywhere, cluster_role), (in_namespace, role) = of_cluster(tmp_path)[State.WRONG]
    assert "patch Namespace" in everywhere
    assert cluster_role.startswith("kubectl create clusterrolebinding")
    assert "create, delete Job in namespace `mine`" in in_namespace
    assert role.startswith("kubectl create rolebinding slipway-admin -n mine")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "state"),
    [("v1.28.9", State.WRONG), ("v1.29.0+k3s1", State.FINE), ("v1.36.1", State.FINE), ("v1.99.0", State.UNKNOWN)],
)
def test_the_version_is_held_to_what_is_declared(
    server: Server, tmp_path: Path, version: str, state: State
) -> None:
    server.version = version
    observations = of_cluster(tmp_path).items()
    assert [kind for kind, told in observations if any(version in said for said, _ in told)] == [state]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "mends"),
    [
        ({}, ["pulumi config set --path slipway:clusters.here.creates_namespace false -s dev"]),
        ({**PART_OF, INSTANCE: "slipway.other"}, ["pulumi config set slipway:namespace mine-dev -s dev"]),
        ({**PART_OF, INSTANCE: "slipway.dev"}, []),
        ({**PART_OF, INSTANCE: "acme.slipway.dev"}, []),
    ],
)
def test_a_namespace_of_somebody_else_is_told(
    server: Server, tmp_path: Path, labels: dict[str, str], mends: list[str]
) -> None:
    server.objects = [{"kind": "Namespace", "metadata": {"name": "mine", "labels": labels}}]
    found = [mend for said, mend in of_cluster(tmp_path)[State.WRONG] if 'has a Namespace "mine" already' in said]
    assert found == mends


def test_nodes_storage_and_plugin_against_the_stack_file(server: Server, tmp_path: Path) -> None:
    gpus = {
        "selector": {"kubernetes.io/os": "linux"},
        "cpu": "2",
        "memory": "4Gi",
        "accelerator": "nvidia-tesla-t4",
        "gpus": 1,
    }
    server.objects = [
        node("one", **{"nvidia.com/gpu": "1"}),
        storage_class("slow", default=False),
        plugin("gpu", "nvidia-device-plugin"),
    ]
    found = of_existing(
        tmp_path,
        PvcStore(kind="pvc"),
        pools={"gpu": {**gpus, "memory": "16Gi"}},
        device_plugin={"declare": True},
    )[State.WRONG]
    (memory, see), (storage, default), (twice, undeclare) = found
    assert "contradicts slipway:clusters.here.pools.gpu.memory" in memory
    assert see.endswith("get nodes --show-labels")
    assert "no default StorageClass" in storage
    assert default.endswith(f"annotate storageclass slow {doctor.DEFAULT_CLASS}=true")
    assert "gpu/nvidia-device-plugin, and the one that the stack declares" in twice
    assert undeclare.startswith("pulumi config set --path 'slipway:clusters.here.device_plugin.declare' false")
    # The GPU Operator's own nodes are left to it.
    server.objects = [node("one"), storage_class("slow", default=True), plugin("gpu", doctor.OPERATOR)]
    keys: dict[str, Any] = {"pools": {"gpu": gpus}, "device_plugin": {"declare": True}}
    assert of_existing(tmp_path, PvcStore(kind="pvc"), **keys)[State.WRONG] == []


@pytest.mark.parametrize("there", [True, False])
def test_a_runtime_class_that_is_not_there_is_told_with_the_nodes(
    there: bool, server: Server, tmp_path: Path
) -> None:
    pool = {"selector": {"kubernetes.io/os": "linux"}, "cpu": "2", "memory": "4Gi", "runtime_class": "kata"}
    classes = [{"kind": "RuntimeClass", "metadata": {"name": "kata"}}] if there else []
    server.objects = [node("one"), storage_class("standard", default=True), *classes]
    found = of_existing(tmp_path, PvcStore(kind="pvc"), pools={"cpu": pool})
    said = [(said, mend) for said, mend in found[State.WRONG] if "pools.cpu.runtime_class" in said]
    assert [mend.endswith("get runtimeclass") for _, mend in said] == ([] if there else [True])
    assert any(said.startswith("nodes of `here`") for said, _ in found[State.FINE]) is there


def test_a_bucket_needs_its_driver_and_its_secret(server: Server, tmp_path: Path) -> None:
    server.objects = [node("one")]
    store = S3CompatibleStore(kind="s3_compatible", endpoint="https://s3.example.com", bucket="mine")
    (driver, _), (secret, create) = of_existing(tmp_path, store)[State.WRONG]
    assert "no CSI driver `ru.yandex.s3.csi`" in driver
    assert "the Secret `csi-s3-secret` in namespace `kube-system`" in secret
    assert "create secret generic csi-s3-secret --from-literal=accessKeyID=" in create


def test_selinux_may_keep_pods_from_an_nfs_folder_on_openshift(server: Server, tmp_path: Path) -> None:
    server.objects = [node("one")]
    store = NfsStore(kind="nfs", server="files.example.com", path="/exports/slipway")
    for openshift in (True, False):
        fixes = [fix for _, fix in of_existing(tmp_path, store, openshift=openshift)[State.UNKNOWN]]
        assert any("virt_use_nfs" in fix for fix in fixes) == openshift


@pytest.mark.parametrize(("openshift", "level"), [(True, "s0:c27,c14"), (True, ""), (False, "s0:c27,c14")])
def test_the_label_that_selinux_wants_of_files_is_said_on_openshift(
    openshift: bool, level: str, server: Server, tmp_path: Path
) -> None:
    project = {"kind": "Namespace", "metadata": {"name": "mine", "annotations": {doctor.LEVEL: level}}}
    server.objects = [node("one"), storage_class("files", default=True), *([project] if level else [])]
    told = of_existing(tmp_path, PvcStore(kind="pvc"), openshift=openshift)[State.UNKNOWN]
    labels = [said for said, fix in told if "node/NODE" in fix and "container_file_t" in said and level in said]
    assert len(labels) == int(openshift)


def test_what_may_not_be_read_is_unknown(server: Server, tmp_path: Path) -> None:
    server.refused = ("/api/v1/nodes",)
    found = of_existing(tmp_path, PvcStore(kind="pvc"))
    assert any(said.startswith("nodes of `here` could not be read") for said, _ in found[State.UNKNOWN])
    assert not any(said.startswith("nodes") for said, _ in found[State.FINE])


def test_a_server_that_is_away_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig(9)), encoding="utf-8")
    found, own = of_cluster(tmp_path), of_existing(tmp_path, PvcStore(kind="pvc"))
    ((said, mend),) = found[State.WRONG]
    assert said.startswith("cluster `here` cannot be reached")
    assert mend.endswith("--context here cluster-info")
    assert own[State.WRONG] == own[State.UNKNOWN] == []
    assert found[State.FINE] == []


def test_the_program_that_signs_in_has_to_be_on_path(server: Server, tmp_path: Path) -> None:
    config = yaml.safe_load((tmp_path / "config").read_text(encoding="utf-8"))
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "no-such-login",
        "installHint": "Install it.",
    }
    config["users"] = [{"name": "me", "user": {"exec": program}}]
    (tmp_path / "config").write_text(yaml.safe_dump(config), encoding="utf-8")
    assert of_existing(tmp_path, PvcStore(kind="pvc"))[State.WRONG][0] == (
        f"kubeconfig {tmp_path / 'config'} signs in with `no-such-login`, which is not on PATH: Install it.",
        "command -v no-such-login",
    )


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_job_that_failed_and_was_deleted_by_hand_is_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    jobs = {("here", "mine", "train-1"): True, ("here", "mine", "done-1"): False, ("other", "mine", "x"): True}
    monkeypatch.setattr(cluster, "jobs_of", lambda _: jobs)
    server.objects = [{"kind": "Job", "metadata": {"name": "train-1", "namespace": "mine"}}] if there else []
    found = [mend for said, mend in of_cluster(tmp_path)[State.WRONG] if "Job" in said]
    assert found == ([] if there else ["pulumi up --refresh -s dev"])


@pytest.mark.slow
def test_a_job_that_a_killed_up_left_is_told(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "jobs_of", lambda _: {("here", "mine", "known"): False})
    ours, theirs = ({**PART_OF, INSTANCE: f"acme.slipway.{stack}"} for stack in ("dev", "prod"))
    jobs = [("known", ours), ("train", ours), ("train-old", ours), ("other", theirs), ("theirs", {})]
    items = [{"metadata": {"name": name, "namespace": "mine", "labels": labels}} for name, labels in jobs]
    server.more["/apis/batch/v1/namespaces/mine/jobs"] = {"items": items}
    found = [mend for said, mend in of_cluster(tmp_path)[State.WRONG] if "has the Job" in said]
    assert found == ["pulumi up -s dev", "kubectl delete job train-old -n mine"]
