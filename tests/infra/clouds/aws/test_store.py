"""The store on AWS: who may use it, what it is mounted through, and in which order it comes and goes."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.infra.platform import Platform
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    ACCOUNT,
    declare,
    with_store,
)


def s3(**store: Any) -> Settings:
    return with_store(kind="s3", **store)


def efs(**store: Any) -> Settings:
    return with_store(kind="efs", **store)


def test_what_is_no_bucket_or_no_folder_is_refused_together() -> None:
    with pytest.raises(SettingsError) as error:
        with_store(kind="existing-s3", bucket="s3://team-data/x", folder="../*", location="x")
    keys = {problem.key for problem in error.value.problems}
    assert keys >= {"slipway:store.bucket", "slipway:store.folder", "slipway:store.location"}


@pytest.mark.slow
def test_people_are_told_where_the_results_are() -> None:
    def then(platforms: Mapping[str, Platform]) -> None:
        store = platforms["dev"].store
        assert store.browse
        pulumi.export("page", store.browse("mnist/run"))
        # The results arrive in the bucket only a while after the Job that wrote them.
        assert store.read is None
        k8s.core.v1.ConfigMap("one", opts=pulumi.ResourceOptions(provider=platforms["dev"].provider))

    recording = declare(s3(), then=then)
    assert recording.exports["dev-store"] == f"s3://slipway-test-{ACCOUNT}-us-east-1/store"
    assert recording.exports["page"] == (
        "https://us-east-1.console.aws.amazon.com/s3/buckets/"
        f"slipway-test-{ACCOUNT}-us-east-1?prefix=store/mnist/run/"
    )
    assert declare(efs()).exports["dev-store"].startswith("efs://fs-")


def test_where_the_store_will_be_is_known_before_it_is_there() -> None:
    assert declare(s3(), preview=True).exports["dev-store"] == f"s3://slipway-test-{ACCOUNT}-us-east-1/store"
