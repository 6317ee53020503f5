"""A bucket that is there already as the store: what is granted on it, and that nothing else is done to it."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.evaluated.model import Operation
from slipway.evaluated.operations import compare_resources
from slipway.infra.platform import Platform
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import BUCKET, declare, raw
from tests.support.previewing import previewed
from tests.support.recording import Recording
from tests.support.refusals import the_problem

GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
STORE: dict[str, Any] = {"kind": "existing-gcs", "bucket": "team-data", "folder": "vision/slipway"}


def values(**changes: Any) -> dict[str, Any]:
    return raw(lambda given: given.update(store={**STORE, **changes.pop("store", {})}, **changes))


def settings(**changes: Any) -> Settings:
    return load(values(**changes))


def expression(grant: Any) -> str | None:
    condition = grant.inputs.get("condition")
    return str(condition["expression"]) if condition else None


def grants(recording: Recording) -> dict[str, str | None]:
    """The condition of each grant by its role."""
    return {grant.inputs["role"]: expression(grant) for grant in recording.of(GRANT)}


def test_a_whole_stack_has_no_bucket_and_destroy_leaves_that_one() -> None:
    stack = previewed("gcp-dev", {"store": STORE})
    resources = [resource for resource in stack.resources.values() if resource.type.startswith("gcp:storage/")]
    assert {resource.type for resource in resources} == {GRANT}
    assert {resource.properties["bucket"] for resource in resources} == {"team-data"}
    gone = compare_resources(stack, previewed("gcp-dev", {"store": {**STORE, "bucket": "other-data"}}))
    storage = [change for change in gone if change.resource.type.startswith("gcp:storage/")]
    assert {change.operation for change in storage} == {Operation.REPLACE}


def test_pods_read_and_write_their_folder_and_list_names_alone_of_the_rest() -> None:
    recording = declare(settings())
    assert recording.of(BUCKET) == []
    assert grants(recording) == {
        "roles/storage.objectUser": (
            'resource.name.startsWith("projects/_/buckets/team-data/objects/vision/slipway/")'
        ),
        "roles/storage.legacyBucketReader": None,
    }
    # The number is that of the clusters' project, whosever the bucket is.
    (principal,) = {grant.inputs["member"] for grant in recording.of(GRANT)}
    assert principal.startswith("principal://iam.googleapis.com/projects/999999999999/locations/global/")


def test_pods_mount_the_folder_alone() -> None:
    store = declare(settings()).result["dev"].store
    attributes = store.volume.csi.volume_attributes
    assert attributes["bucketName"] == "team-data"
    assert "only-dir=vision/slipway" in attributes["mountOptions"].split(",")
    assert store.reader == {"bucket": "team-data", "folder": "vision/slipway"}


def test_results_are_read_from_the_folder() -> None:
    def then(platforms: Mapping[str, Platform]) -> None:
        platform = platforms["dev"]
        assert platform.store.read
        writer = k8s.core.v1.ConfigMap("writer", opts=pulumi.ResourceOptions(provider=platform.provider))
        pulumi.export("text", platform.store.read("mnist/metrics.json", writer))
        pulumi.export("url", platform.store.url)

    recording = declare(settings(), then=then, store={"mnist/metrics.json": "{}"})
    exports = recording.exports
    assert (exports["text"], exports["url"]) == ("{}", "gs://team-data/vision/slipway")
    (call,) = [call for call in recording.calls if call.token.endswith(":getBucketObjectContent")]
    assert (call.arguments["bucket"], call.arguments["name"]) == ("team-data", "vision/slipway/mnist/metrics.json")


def test_the_whole_bucket_is_asked_for_by_a_slash() -> None:
    recording = declare(settings(store={"folder": "/"}))
    assert grants(recording) == {"roles/storage.objectUser": None}
    assert "only-dir" not in recording.result["dev"].store.volume.csi.volume_attributes["mountOptions"]


def test_a_team_has_a_folder_of_the_folder() -> None:
    recording = declare(settings(teams={"research": {"namespace": "research"}}))
    research = recording.result["dev"].teams["research"].store
    assert "only-dir=vision/slipway/research" in research.volume.csi.volume_attributes["mountOptions"].split(",")
    expressions = [expression(grant) for grant in recording.of(GRANT) if "/ns/research/" in grant.inputs["member"]]
    assert (
        'resource.name.startsWith("projects/_/buckets/team-data/objects/vision/slipway/research/")' in expressions
    )


@pytest.mark.parametrize(
    ("store", "key", "fix"),
    [
        ({"bucket": "gs://team-data/vision"}, "store.bucket", "`team-data`"),
        ({"bucket": "Team Data"}, "store.bucket", "gcloud storage ls"),
        ({"folder": "../other"}, "store.folder", "`/`"),
        ({"folder": "/vision"}, "store.folder", "`/`"),
        ({"folder": 'a")||true||("'}, "store.folder", "`/`"),
        ({"folder": "a,uid=0"}, "store.folder", "`/`"),
        ({"folder": ""}, "store.folder", "`/`"),
        ({"versioning": True}, "store.versioning", ""),
        ({"soft_delete_days": 7}, "store.soft_delete_days", ""),
    ],
)
def test_what_cannot_be_is_refused(store: dict[str, Any], key: str, fix: str) -> None:
    problem = the_problem(values(store=store))
    assert problem.key == f"slipway:{key}"
    assert fix in problem.fix
