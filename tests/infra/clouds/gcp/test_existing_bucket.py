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
from tests.support.clouds.gcp import declare, raw
from tests.support.previewing import previewed
from tests.support.refusals import the_problem

GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
STORE: dict[str, Any] = {"kind": "existing-gcs", "bucket": "team-data", "folder": "vision/slipway"}


def values(**changes: Any) -> dict[str, Any]:
    return raw(lambda given: given.update(store={**STORE, **changes.pop("store", {})}, **changes))


def settings(**changes: Any) -> Settings:
    return load(values(**changes))


def test_a_whole_stack_has_no_bucket_and_destroy_leaves_that_one() -> None:
    stack = previewed("gcp-dev", {"store": STORE})
    resources = [resource for resource in stack.resources.values() if resource.type.startswith("gcp:storage/")]
    assert {resource.type for resource in resources} == {GRANT}
    assert {resource.properties["bucket"] for resource in resources} == {"team-data"}
    gone = compare_resources(stack, previewed("gcp-dev", {"store": {**STORE, "bucket": "other-data"}}))
    storage = [change for change in gone if change.resource.type.startswith("gcp:storage/")]
    assert {change.operation for change in storage} == {Operation.REPLACE}


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
