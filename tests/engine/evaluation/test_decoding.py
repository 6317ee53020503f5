"""What a worker wrote becomes a stack that reviews and comparisons read."""

from typing import Any

import pytest

from slipway.engine.evaluation.decoding import decode
from slipway.infra.clouds.registry import CLOUDS, reviews
from slipway.infra.platform import Taint
from slipway.infra.review.stack import UNKNOWN, Secret

RESOURCE: dict[str, Any] = {
    "urn": "urn:pulumi:dev::slipway::kubernetes:core/v1:Secret::a",
    "type": "kubernetes:core/v1:Secret",
    "name": "a",
    "properties": {},
    "custom": True,
    "parent": "p",
    "provider": "urn:pulumi:dev::slipway::pulumi:providers:kubernetes::here",
    "dependencies": ["x", "y"],
    "property_dependencies": {"data": ["y"]},
    "protect": True,
    "retain_on_delete": True,
    "delete_before_replace": True,
    "ignore_changes": ["one"],
    "replace_on_changes": ["two"],
    "replace_with": ["z"],
    "aliases": ["old"],
    "read": False,
}

DOCUMENT: dict[str, Any] = {
    "resources": [RESOURCE],
    "outputs": {"kubeconfig": True, "url": False},
    "configuration": {"slipway:protect": False, "a:token": {"$slipway": "secret", "digest": "d"}},
    "standing": [
        {
            "cluster": "here",
            "pool": "gpu",
            "labels": {"a": "b"},
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            "allocatable": {"cpu": 4000, "memory": 16384, "ephemeral_storage": 100, "gpus": 2},
            "count": 3,
            "accelerator": "nvidia-tesla-t4",
        }
    ],
    "remarks": ["careful"],
}


def of(properties: dict[str, Any], type_: str = RESOURCE["type"]) -> dict[str, Any]:
    resource = {**RESOURCE, "type": type_, "properties": properties}
    found = decode("dev", {**DOCUMENT, "resources": [resource]})
    assert found.stack is not None
    (declared,) = found.stack.resources.values()
    return dict(declared.properties)


def test_a_decoded_resource_has_all_encoded_attributes() -> None:
    found = decode("dev", DOCUMENT)
    assert (found.outputs, found.remarks) == ({"kubeconfig": True, "url": False}, ("careful",))
    assert found.stack is not None
    declared = found.stack.resources[RESOURCE["urn"]]
    assert (declared.type, declared.parent, declared.protect, declared.aliases) == (
        "kubernetes:core/v1:Secret",
        "p",
        True,
        ("old",),
    )
    assert declared.retain_on_delete
    assert declared.dependencies == {"x", "y"}
    assert declared.property_dependencies == {"data": {"y"}}
    assert (declared.ignore_changes, declared.replace_on_changes, declared.replace_with) == (
        ("one",),
        ("two",),
        {"z"},
    )
    assert found.stack.cluster_of(declared) == "here"


def test_nested_unknown_values_and_secrets_are_decoded() -> None:
    unknown, secret = {"$slipway": "unknown"}, {"$slipway": "secret", "digest": "d"}
    found = of(
        {"a": [unknown, {"b": secret}], "c": secret, "d": {"$slipway": "mapping", "value": {"$slipway": 1}}}
    )
    assert found == {"a": [UNKNOWN, {"b": Secret("d")}], "c": Secret("d"), "d": {"$slipway": 1}}
    assert found["a"][0] is UNKNOWN
    [named, partly] = of({"a": [{**unknown, "of": "store.id"}, {**secret, "partial": True}]})["a"]
    assert (named, named.source) == (UNKNOWN, "store.id")
    assert partly == Secret("d", partial=True) != Secret("d")
    assert Secret("d") != Secret("e")
    assert f"{found}".count("[secret]") == 2


def test_an_encrypted_value_of_the_configuration_is_a_secret() -> None:
    found = decode("dev", DOCUMENT)
    assert found.stack is not None
    assert found.stack.configuration == {"slipway:protect": False, "a:token": Secret("d")}


def test_existing_nodes_are_decoded_as_a_pool_of_fixed_size() -> None:
    found = decode("dev", DOCUMENT)
    assert found.stack is not None
    (pool,) = found.stack.pools
    assert (pool.urn, pool.cluster, pool.name, pool.min_nodes, pool.max_nodes) == ("", "here", "gpu", 3, 3)
    assert (pool.allocatable.gpus, pool.gpus, pool.accelerator) == (2, 2, "nvidia-tesla-t4")
    assert pool.taints == [Taint("nvidia.com/gpu", "present", "NoSchedule")]
    assert found.stack.pools[-1] == pool


def test_clusters_of_other_stacks_are_decoded_with_their_pools_in_place_of_those_nodes() -> None:
    elsewhere = {
        "clusters": {
            "here": {"stack": "platform", "cluster": "there"},
            "wrong": {"stack": "broken", "cluster": "x"},
            "gone": {"stack": "removed", "cluster": "x"},
        },
        "stacks": {
            "platform": {
                "resources": [],
                "standing": [{**DOCUMENT["standing"][0], "cluster": name} for name in ("there", "other")],
            },
            "broken": None,
        },
    }
    found = decode("dev", {**DOCUMENT, "elsewhere": elsewhere})
    assert found.stack is not None
    (pool,) = found.stack.pools
    assert (pool.cluster, pool.name, pool.stack) == ("here", "gpu", "platform")
    assert found.stack.own_pools == []
    here, wrong, gone = found.elsewhere
    assert here.pools == [pool]
    assert (wrong.pools, wrong.removed) == (None, False)
    assert (gone.pools, gone.removed) == (None, True)


def test_a_failure_is_decoded_with_its_problems() -> None:
    problem = {"key": "k", "value": "v", "reason": "r", "fix": "f"}
    failure = {"kind": "SettingsError", "message": "1 problem", "problems": [problem], "where": ""}
    found = decode("dev", {"failure": failure, "remarks": []})
    assert found.stack is None
    assert found.failure is not None
    assert (found.failure.kind, found.failure.problems) == ("SettingsError", [problem])


def test_kubernetes_and_each_cloud_have_a_review() -> None:
    assert len(reviews()) == len(CLOUDS) + 1
    assert any("kubernetes:batch/v1:Job" in review.replacing() for review in reviews())


@pytest.mark.parametrize(
    ("type_", "same"),
    [
        ("kubernetes:apps/v1:StatefulSet", True),
        ("kubernetes:core/v1:ResourceQuota", True),
        ("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", False),
        ("kubernetes:helm.sh/v3:Release", False),
    ],
)
def test_quantities_are_the_same_by_value_where_the_provider_writes_them_as_the_api_server_does(
    type_: str, same: bool
) -> None:
    def asked(requests: dict[str, str], size: str) -> dict[str, Any]:
        spec = {
            "containers": [{"resources": {"requests": requests}}],
            "volumes": [{"emptyDir": {"sizeLimit": size}}],
        }
        return of({"spec": spec, "data": {"size": "1024Mi"}}, type_)

    earlier = asked({"cpu": "1000m", "memory": "1024Mi"}, "2048Mi")
    assert (earlier == asked({"cpu": "1", "memory": "1Gi"}, "2Gi")) == same
    assert earlier != asked({"cpu": "1", "memory": "2Gi"}, "2Gi")
    assert earlier["data"] == {"size": "1024Mi"}
