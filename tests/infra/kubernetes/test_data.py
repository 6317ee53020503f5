"""Data that is there in pods: volumes of buckets and folders of the store, read-only; when a step runs again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi_kubernetes as k8s
import pytest

from slipway.features.items.feature import Items
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.run import FOLDERS, Run, plan
from slipway.infra.pipelines.pods import ProgramMount, Source
from slipway.infra.placed import Command, Step
from slipway.infra.platform import Data, Platform, Resources
from slipway.infra.schema.inputs import data_at
from tests.support.recording import record
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

JOB = "kubernetes:batch/v1:Job"
FILES = {
    "workloads/__init__.py": "",
    "slipway/runtime/__init__.py": "",
    "slipway/runtime/steps/command.py": "",
    "slipway/runtime/steps/folders.py": "",
    "slipway/features/items/pod/worker.py": "",
    "toy/train.py": "",
}
PHOTOS, TABLES = data_at("photos", "gs://team-data/cats", "1" * 64), data_at("tables", "{store}/shared/tables")
DATA = {data.name: data for data in (PHOTOS, TABLES)}
MOUNTS = (
    ProgramMount("/data", Source("photos", "small"), writable=False),
    ProgramMount("/tables", Source("tables", "2026"), writable=False),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path, FILES)


def on() -> Platform:
    def volume(data: Data, kept: int) -> k8s.core.v1.VolumeArgs:
        attributes = {"bucketName": data.bucket, "folder": data.folder, **({"kept": str(kept)} if kept else {})}
        csi = k8s.core.v1.CSIVolumeSourceArgs(driver="buckets.example", volume_attributes=attributes)
        return k8s.core.v1.VolumeArgs(name=data.volume, csi=csi)

    return replace(platform(), input_volume=volume, bucket_cache="kept-by-mounts")


def train(live: Platform, root: Path, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "module": None,
        "arguments": ["python", "train.py", "{photos}/a", "{tables}", "{output}"],
        "command": Command(root / "toy", mounts=changes.pop("mounts", ())),
        "data": DATA,
    }
    return step(live, pipeline="toy", name="train", **{**values, **changes})


def test_a_pod_only_reads_data_of_buckets_and_of_the_store(root: Path) -> None:
    def program() -> None:
        live = on()
        workspace = Workspace(live.name, WorkspaceArgs(live, "slipway", "runner", protect=False))
        declare([train(live, root, mounts=MOUNTS)], {live.name: workspace}, root)

    spec = dict(record(program, {}, preview=False).one(JOB, "toy-train").inputs)["spec"]["template"]["spec"]
    (container,), (maker,) = spec["containers"], spec["initContainers"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    words = container["args"][container["args"].index("--") + 1 :]
    assert words[2:4] == ["/folders/photos/a", "/folders/tables"]
    assert all(mounts[path]["readOnly"] for path in ("/folders/photos", "/folders/tables", "/data", "/tables"))
    photos = volumes[mounts["/folders/photos"]["name"]]
    assert photos["csi"]["volumeAttributes"] == {"bucketName": "team-data", "folder": "cats"}
    assert (mounts["/data"]["name"], mounts["/data"]["subPath"]) == (photos["name"], "small")
    assert mounts["/folders/tables"]["name"] == mounts["/tables"]["name"] == mounts["/store"]["name"]
    assert mounts["/folders/tables"]["subPath"] == "shared/tables"
    assert mounts["/tables"]["subPath"] == "shared/tables/2026"
    assert maker["command"][-1] == FOLDERS
    assert maker["args"] == ["--require", "/store/shared/tables", "--require", "/store/shared/tables/2026"]


def test_a_cache_is_disk_for_copies_and_for_each_bucket(root: Path) -> None:
    resources = Resources(cpu=1000, memory=4096, ephemeral_storage=4096 + 9000)

    def program() -> None:
        live = on()
        workspace = Workspace(live.name, WorkspaceArgs(live, "slipway", "runner", protect=False))
        declare([train(live, root, resources=resources, cache=9000)], {live.name: workspace}, root)

    spec = dict(record(program, {}, preview=False).one(JOB, "toy-train").inputs)["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    limits = {name: volume["emptyDir"]["sizeLimit"] for name, volume in volumes.items() if "emptyDir" in volume}
    assert limits == {"tmp": "4Gi", "cache": "4500Mi", "kept-by-mounts": "4500Mi"}
    kept = int(volumes["input-photos"]["csi"]["volumeAttributes"]["kept"])
    assert kept < 4500, "less than its volume, or the kubelet ends the pod"
    (container,) = spec["containers"]
    flags = container["args"][: container["args"].index("--")]
    assert flags[flags.index("--data") + 1] == "tables=/folders/tables", "buckets are not copied"
    assert flags[flags.index("--cache") + 1] in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert int(flags[flags.index("--cache-mib") + 1]) < 4500
    assert container["resources"]["limits"]["ephemeral-storage"] == "13096Mi"


def test_a_step_runs_again_where_its_data_are_others(root: Path) -> None:
    def program() -> None:
        live = on()
        changed = replace(PHOTOS, digest="2" * 64)
        elsewhere = replace(PHOTOS, folder="dogs")
        granted = replace(PHOTOS, grants=False)

        def run(photos: Data, **changes: Any) -> Run:
            return plan(train(live, root, data={**DATA, "photos": photos}, **changes), root)

        assert len({run(photos).digest for photos in (PHOTOS, changed, elsewhere)}) == 3
        assert run(granted).digest == run(PHOTOS, cache=9000).digest == run(PHOTOS).digest
        words = ["python", "train.py", "{item}", "{output}"]
        items: dict[str, Any] = {"parts": [Items("{photos}/*.png")], "arguments": words}
        assert run(PHOTOS, **items).digest != run(changed, **items).digest
        assert run(PHOTOS, **items).surroundings == run(changed, **items).surroundings
        all_read = {**items, "arguments": [*words, "{photos}"]}
        assert run(PHOTOS, **all_read).surroundings != run(changed, **all_read).surroundings

    record(program, {}, preview=False)
