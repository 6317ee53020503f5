"""Who may use the bucket, and what becomes of what is in it."""

import json
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.clouds.gcp.store import TEMPORARY_SUFFIX
from slipway.infra.platform import Platform
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from slipway.runtime import store as workload_store
from tests.support.clouds.gcp import declare, raw
from tests.support.recording import Recording, is_unknown


def changed(**store: Any) -> Settings:
    return load(raw(lambda values: values["store"].update(store)))


def test_temporary_objects_are_those_that_steps_leave_behind() -> None:
    assert workload_store.TEMPORARY_SUFFIX == TEMPORARY_SUFFIX


def read_back(preview: bool, files: dict[str, str] | None = None) -> Recording:
    def then(platforms: dict[str, Platform]) -> None:
        platform = platforms["dev"]
        assert platform.store.read
        assert platform.store.browse
        writer = k8s.core.v1.ConfigMap("writer", opts=pulumi.ResourceOptions(provider=platform.provider))
        pulumi.export("text", platform.store.read("mnist/predictions.json", writer))
        pulumi.export("page", platform.store.browse("mnist/predictions.json"))
        pulumi.export("url", platform.store.url)

    return declare(changed(), preview=preview, then=then, store=files)


def test_a_file_is_read_once_what_writes_it_is_done() -> None:
    recording = read_back(preview=False, files={"mnist/predictions.json": json.dumps([7])})
    assert recording.exports["text"] == "[7]"
    (call,) = [call for call in recording.calls if call.token.endswith(":getBucketObjectContent")]
    before = recording.resources[: call.registered]
    assert "writer" in {resource.name for resource in before}
    assert recording.exports["url"] == "gs://a-project-slipway-test"
    assert recording.exports["page"] == (
        "https://console.cloud.google.com/storage/browser/a-project-slipway-test/mnist/predictions.json"
    )


def test_a_preview_does_not_ask_for_a_file_that_is_not_written_yet() -> None:
    recording = read_back(preview=True)
    assert is_unknown(recording.exports["text"])
    assert recording.exports["url"] == "gs://a-project-slipway-test", "where it will be is known before"
    assert "gcp:storage/getBucketObjectContent:getBucketObjectContent" not in {
        call.token for call in recording.calls
    }


def test_a_file_that_is_gone_fails_nothing() -> None:
    recording = read_back(preview=False, files={"mnist/metrics.json": "{}"})
    assert recording.exports.get("text") is None
    assert "page" in recording.exports, "the program went on to its end"
    assert "gcp:storage/getBucketObjectContent:getBucketObjectContent" not in {
        call.token for call in recording.calls
    }, "the provider fails the whole program where the object is gone"
