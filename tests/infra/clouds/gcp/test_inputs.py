"""Folders of further buckets that pods on GKE read: the least grants, how pods mount them, what is refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.gcp.catalogue import sidecar
from slipway.infra.clouds.gcp.emulator import Emulator
from slipway.infra.clouds.gcp.platforms import platforms
from slipway.infra.clouds.gcp.review import identities
from slipway.infra.clouds.gcp.store import MOUNT_OPTIONS
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.platform import Data
from slipway.infra.review.stack import JOB, Resource, at, mapping, mappings, strings, text
from slipway.infra.schema.inputs import data_at
from slipway.infra.schema.request import InputAccess, Request
from slipway.infra.settings.loading import load
from tests.support.clouds.gcp import PROJECT, raw
from tests.support.previewing import previewed
from tests.support.recording import Recording, record
from tests.support.refusals import the_problem
from tests.support.reviewing import stack_of

GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
READ, LIST = "roles/storage.objectViewer", "roles/storage.legacyBucketReader"
EXISTING = {"kind": "existing-gcs", "bucket": "team-data", "folder": "vision/slipway"}


def request_of(store: Mapping[str, Any] | None = None) -> Request:
    return load(raw(lambda values: values.update(store=store) if store else None)).request


def declare(*inputs: Data, store: Mapping[str, Any] | None = None) -> Recording:
    request = replace(request_of(store), inputs=[InputAccess(data, ["cpu"], ()) for data in inputs])
    return record(
        lambda: platforms(request), {"gcp:project": PROJECT}, preview=False, emulators=[Emulator(request)]
    )


def on(recording: Recording, bucket: str) -> list[tuple[str, str]]:
    """Roles on a bucket, each with the condition's expression."""
    return sorted(
        (grant.inputs["role"], text(at(grant.inputs, "condition", "expression")))
        for grant in recording.of(GRANT)
        if grant.inputs["bucket"] == bucket
    )


def test_data_is_mounted_read_only_and_asked_for_once() -> None:
    platform = declare(data_at("images", "gs://photos/train")).result["dev"]
    csi = platform.input_volume(data_at("images", "gs://photos/train"), 0).csi
    options = csi.volume_attributes["mountOptions"].split(",")
    assert csi.read_only is True
    assert csi.volume_attributes["bucketName"] == "photos"
    assert {"only-dir=train", "metadata-cache:ttl-secs:-1"} <= set(options)
    assert "metadata-cache:ttl-secs:0" in MOUNT_OPTIONS.split(",")
    # The sidecar of such a pod runs one process more.
    grown = platform.store_with(2)
    assert grown.sidecar.memory > platform.store_with(1).sidecar.memory > platform.store_with(0).sidecar.memory
    assert sidecar(grown.pod_annotations) == grown.sidecar
    assert platform.store_with(0) is platform.store
    whole = platform.input_volume(data_at("all", "gs://photos"), 5000).csi.volume_attributes["mountOptions"]
    assert "only-dir" not in whole
    assert not any("file-cache" in option for option in options)
    assert {"file-cache:max-size-mb:5000", "file-cache:enable-parallel-downloads:true"} <= set(whole.split(","))
    assert grown.pod_annotations["gke-gcsfuse/cpu-limit"] == "0"


@pytest.mark.parametrize(
    ("url", "store", "fix"),
    [
        ("s3://photos/train", None, "{store}/<folder>"),
        ("gs://photos", {"kind": "filestore", "location": "us-central1-a", "size": "1Ti"}, "{store}/<folder>"),
        ("gs://team-data/vision/slipway/raw", EXISTING, '"{store}/raw"'),
        ("gs://team-data/vision/slipway", EXISTING, "{store}/<folder>"),
        ("gs://team-data/vision", EXISTING, "beside"),
        ("gs://team-data", EXISTING, "beside"),
        ("gs://team-data/raw", {**EXISTING, "folder": "/"}, '"{store}/raw"'),
        ("gs://ours/raw", {"kind": "gcs", "location": "us-central1", "bucket": "ours"}, '"{store}/raw"'),
    ],
)
def test_what_pods_cannot_mount_is_refused(url: str, store: dict[str, Any] | None, fix: str) -> None:
    problem = CLOUDS["gcp"].input_problem(data_at("images", url), "dev", request_of(store))
    assert problem is not None
    assert fix in problem[1]


@pytest.mark.parametrize("url", ["gs://photos", "gs://team-data/vision/slipway2", "gs://team-data/other"])
def test_other_buckets_and_folders_can_be_mounted(url: str) -> None:
    assert CLOUDS["gcp"].input_problem(data_at("images", url), "dev", request_of(EXISTING)) is None


def test_a_review_says_which_folders_pods_read_and_whose_names_they_see() -> None:
    recording = declare(
        data_at("images", "gs://photos/train"), data_at("raw", "gs://team-data/raw"), store=EXISTING
    )
    resources = [Resource(f"urn:{grant.name}", GRANT, grant.name, grant.inputs) for grant in recording.of(GRANT)]
    (pods,) = identities(stack_of(*resources))
    assert "read all objects of gs://photos/train" in pods.may
    assert "list the names of all objects of gs://photos" in pods.may
    assert "read all objects of gs://team-data/raw" in pods.may
    assert "read and write the bucket's objects" in pods.may


PIPELINE = """\
description: Looks at photos.
inputs: {images: {}, labels: {}, more: {}}
steps:
  look: {run: [python, look.py, "{labels}"]}
  train: {run: [python, look.py, "{images}", "{labels}", "{more}"]}
"""


def with_pipeline(folder: Path, **steps: Any) -> dict[str, Any]:
    """Settings of a pipeline whose step `train` reads two buckets and a folder of the store, and `look` one."""
    (folder / "vision").mkdir(exist_ok=True)
    (folder / "vision" / "pipeline.yaml").write_text(PIPELINE)
    (folder / "vision" / "look.py").touch()
    inputs = {"images": "gs://photos/train", "labels": "gs://photos/labels", "more": "{store}/more"}
    placed = {"look": {"pool": "cpu"}, "train": {"pool": "cpu", **steps}}
    return {"uses": str(folder / "vision"), "inputs": inputs, "steps": placed}


def test_the_sidecar_of_a_pod_grows_with_the_buckets_that_it_mounts(tmp_path: Path) -> None:
    stack = previewed("gcp-dev", {"pipelines": {"vision": with_pipeline(tmp_path)}})
    templates = {
        text(at(job.properties, "metadata", "labels", "app.kubernetes.io/component")): mapping(
            at(job.properties, "spec", "template")
        )
        for job in stack.of_type(JOB)
        if at(job.properties, "metadata", "labels", "app.kubernetes.io/name") == "vision"
    }
    memory = {name: sidecar(strings(at(pod, "metadata", "annotations"))).memory for name, pod in templates.items()}
    assert memory == {"look": 768, "train": 1024}
    volumes = mappings(at(templates["train"], "spec", "volumes"))
    buckets = [volume for volume in volumes if at(volume, "csi", "volumeAttributes", "bucketName") == "photos"]
    assert len(buckets) == 2
    assert all(at(volume, "csi", "readOnly") is True for volume in buckets)
    granted = [text(grant.properties["role"]) for grant in stack.of_type(GRANT) if grant.name.startswith("input")]
    assert sorted(granted) == [LIST, READ, READ]


def test_a_node_needs_room_for_what_mounts_the_buckets(tmp_path: Path) -> None:
    def asking(memory: int) -> dict[str, Any]:
        section = with_pipeline(tmp_path, memory=f"{memory}Mi")
        return raw(lambda values: values.update(pipelines={"vision": section}))

    node = load(raw()).clusters["dev"].pools["cpu"].node()
    assert node is not None
    load(asking(node.memory - 512 - 2 * 256))
    problem = the_problem(asking(node.memory - 512 - 2 * 256 + 1))
    assert problem.key == "slipway:pipelines.vision.steps.train.memory"
