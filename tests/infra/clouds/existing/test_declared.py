"""All that is declared on clusters that are there: `declared.txt` has it, as differences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.infra.clouds.existing.test_platforms import NFS, S3, SHARED, declared, gpu, settings
from tests.support import snapshots

FILE = Path(__file__).with_name("declared.txt")

NAMED = gpu(label_nodes=["gpu-1", "gpu-2"])
CASES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "a small stack": (SHARED, {}),
    "another context": (SHARED, {"context": "lab"}),
    "no such file": (SHARED, {"kubeconfig": "/no where", "context": "a b"}),
    "a folder of the node": ({"kind": "pvc", "host_path": "/data", "size": "5Gi"}, {"pools": gpu()}),
    "a class": ({**SHARED, "storage_class": "fast", "size": "20Gi"}, {}),
    "nfs": (NFS, {}),
    "nfs of a group": ({**NFS, "group": 5555}, {}),
    "a bucket": (S3, {}),
    "named nodes": (SHARED, {"pools": NAMED}),
    "nodes with taints": (SHARED, {"pools": gpu(label_nodes=["gpu-1", "gpu-2"], taint_nodes=True)}),
    "shares": (SHARED, {"pools": gpu(gpu_sharing={"clients": 4}), "device_plugin": {"declare": True}}),
    "a network": (SHARED, {"pools": gpu(interconnect={"resource": "rdma/hca", "environment": {"A": "mlx5"}})}),
    "autoscaled": (SHARED, {"pools": gpu(autoscaled=True, nodes=3)}),
    "OpenShift": (SHARED, {"openshift": True, "device_plugin": {"declare": True}}),
    "a namespace": (SHARED, {"openshift": True, "access": "namespace"}),
    "a namespace that is there": (SHARED, {"creates_namespace": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_declared_as_before(case: str, tmp_path: Path) -> None:
    store, cluster = CASES[case]
    base = snapshots.declared(declared(settings(tmp_path))) if case != "a small stack" else {}
    made = snapshots.declared(declared(settings(tmp_path, dict(store), **cluster)))
    lines = snapshots.difference(base, made)
    snapshots.compare(FILE, case, [line.replace(str(tmp_path), "~") for line in lines])
