"""GKE clusters, their network, and who can reach and destroy what."""

import json
from typing import Any

import pytest

from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import BUCKET, CLUSTER, NODE_POOL, declare, raw
from tests.support.clouds.stacks import assert_names_fit
from tests.support.recording import Recording, is_unknown, secret_inputs


def changed(**cluster: Any) -> Settings:
    return load(raw(lambda values: values["clusters"]["dev"].update(cluster)))


def with_second_cluster(location: str, **keys: Any) -> Settings:
    second = {
        "cloud": "gcp",
        "location": location,
        "network": {
            "nodes_cidr": "10.16.0.0/20",
            "pods_cidr": "10.20.0.0/14",
            "services_cidr": "10.24.0.0/20",
            "control_plane_cidr": "172.16.1.0/28",
        },
        "pools": {"second-cpu": {"machine_type": "e2-standard-4"}},
    }
    return load(raw(lambda values: values["clusters"].update({"second": {**second, **keys}})))


def protected(protect: bool) -> Settings:
    return load(raw(lambda values: values.update(protect=protect)))


def everything_said(recording: Recording) -> str:
    return json.dumps([resource.inputs for resource in recording.resources], default=str)


def test_the_cluster_is_what_the_settings_and_gke_practice_ask_for() -> None:
    inputs = declare(changed()).one(CLUSTER).inputs
    expected = {
        "location": "us-central1",
        "releaseChannel": {"channel": "REGULAR"},
        "resourceLabels": {},
        "removeDefaultNodePool": True,
        "initialNodeCount": 1,
        "datapathProvider": "ADVANCED_DATAPATH",
        "networkingMode": "VPC_NATIVE",
        "workloadIdentityConfig": {"workloadPool": "a-project.svc.id.goog"},
        "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
        "loggingConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
        "monitoringConfig": {
            "enableComponents": ["SYSTEM_COMPONENTS", "DCGM"],
            "managedPrometheus": {"enabled": True},
        },
    }
    assert {key: inputs[key] for key in expected} == expected
    assert inputs["privateClusterConfig"]["enablePrivateNodes"] is True


def test_maintenance_happens_at_weekends() -> None:
    window = declare(changed()).one(CLUSTER).inputs["maintenancePolicy"]["recurringWindow"]
    assert window["recurrence"] == "FREQ=WEEKLY;BYDAY=SA,SU"


def test_the_default_pool_leaves_no_drift_and_needs_no_default_service_account() -> None:
    cluster = declare(changed()).one(CLUSTER)
    assert cluster.inputs["nodeConfig"]["serviceAccount"].startswith("slipway-test-nodes@")
    assert {"initialNodeCount", "nodeConfig"} <= set(cluster.ignore_changes)
    assert cluster.delete_before_replace


def test_by_default_the_api_has_no_address_and_iam_guards_its_host_name() -> None:
    inputs = declare(changed()).one(CLUSTER).inputs
    assert inputs["controlPlaneEndpointsConfig"] == {
        "dnsEndpointConfig": {"allowExternalTraffic": True},
        "ipEndpointsConfig": {"enabled": False},
    }
    assert "masterAuthorizedNetworksConfig" not in inputs


def test_an_address_is_open_only_to_the_networks_named() -> None:
    settings = changed(control_plane={"dns_endpoint": False, "authorized_networks": {"office": "198.51.100.0/24"}})
    inputs = declare(settings).one(CLUSTER).inputs
    assert inputs["controlPlaneEndpointsConfig"] == {
        "dnsEndpointConfig": {"allowExternalTraffic": False},
        "ipEndpointsConfig": {"enabled": True},
    }
    assert inputs["masterAuthorizedNetworksConfig"] == {
        "cidrBlocks": [{"displayName": "office", "cidrBlock": "198.51.100.0/24"}],
        "gcpPublicCidrsAccessEnabled": False,
    }
    assert inputs["privateClusterConfig"]["masterIpv4CidrBlock"] == "172.16.0.0/28"


def test_opening_the_address_later_does_not_replace_the_cluster() -> None:
    """The control plane's block, which cannot change, is only declared with the address."""
    cluster = declare(changed()).one(CLUSTER)
    assert "masterIpv4CidrBlock" not in cluster.inputs["privateClusterConfig"]
    assert "privateClusterConfig.masterIpv4CidrBlock" in cluster.ignore_changes


def test_nothing_is_open_to_the_world() -> None:
    for settings in (changed(), with_second_cluster("us-west4-a")):
        assert "0.0.0.0/0" not in everything_said(declare(settings))


def test_each_cluster_has_its_ranges_and_each_region_one_nat() -> None:
    recording = declare(with_second_cluster("us-west4-a"))
    subnet = recording.one("gcp:compute/subnetwork:Subnetwork", "network-second").inputs
    assert subnet["ipCidrRange"] == "10.16.0.0/20"
    assert subnet["region"] == "us-west4"
    assert {
        secondary_ip_range["rangeName"]: secondary_ip_range["ipCidrRange"]
        for secondary_ip_range in subnet["secondaryIpRanges"]
    } == {
        "pods": "10.20.0.0/14",
        "services": "10.24.0.0/20",
    }
    cluster = recording.one(CLUSTER, "second").inputs
    assert cluster["subnetwork"].endswith("/regions/us-west4/subnetworks/slipway-test-second")
    assert cluster["ipAllocationPolicy"] == {
        "clusterSecondaryRangeName": "pods",
        "servicesSecondaryRangeName": "services",
    }
    nats = {nat.inputs["region"] for nat in recording.of("gcp:compute/routerNat:RouterNat")}
    assert nats == {"us-central1", "us-west4"}
    assert len(recording.of("gcp:compute/network:Network")) == 1


def test_two_clusters_of_a_region_share_its_nat() -> None:
    recording = declare(with_second_cluster("us-central1-a"))
    assert len(recording.of("gcp:compute/routerNat:RouterNat")) == 1


def test_nodes_find_a_way_out_when_they_start() -> None:
    recording = declare(changed())
    nat = recording.one("gcp:compute/routerNat:RouterNat").urn
    assert nat in recording.waits_for(recording.one(CLUSTER))


def test_apis_are_on_before_anything_uses_them_and_stay_on() -> None:
    recording = declare(changed())
    services = recording.of("gcp:projects/service:Service")
    assert {resource.inputs["service"] for resource in services} >= {
        "compute.googleapis.com",
        "container.googleapis.com",
        "storage.googleapis.com",
        "cloudresourcemanager.googleapis.com",
    }
    for service in services:
        assert service.inputs["disableOnDestroy"] is False
        for token in (CLUSTER, BUCKET, "gcp:compute/network:Network", "gcp:serviceaccount/account:Account"):
            for resource in recording.of(token):
                assert service.urn in recording.waits_for(resource)


def test_zones_of_a_zonal_cluster_leave_out_its_own() -> None:
    zonal = declare(changed(location="us-central1-a", zones=["us-central1-a", "us-central1-b"]))
    assert zonal.one(CLUSTER).inputs["nodeLocations"] == ["us-central1-b"]
    assert zonal.one(NODE_POOL, "dev-cpu").inputs["nodeLocations"] == ["us-central1-a", "us-central1-b"]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_a_protected_stack_protects_clusters_pools_and_data(preview: bool) -> None:
    recording = declare(protected(True), preview=preview)
    kept = {resource.type for resource in recording.resources if resource.protect}
    assert kept == {CLUSTER, NODE_POOL, BUCKET}
    for token in kept:
        assert all(resource.protect for resource in recording.of(token))
    assert recording.one(CLUSTER).inputs["deletionProtection"] is True
    assert recording.one(BUCKET).inputs["forceDestroy"] is False


def test_an_unprotected_stack_can_be_destroyed_whole() -> None:
    recording = declare(protected(False))
    assert [
        resource.name for resource in recording.resources if resource.protect or resource.retain_on_delete
    ] == []
    assert recording.one(CLUSTER).inputs["deletionProtection"] is False
    assert recording.one(BUCKET).inputs["forceDestroy"] is True
    kept = [resource.name for resource in recording.resources if resource.inputs.get("deletionPolicy")]
    assert kept == []


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_every_platforms_provider_is_named_after_its_cluster(preview: bool) -> None:
    recording = declare(with_second_cluster("us-west4-a"), preview=preview)
    providers = {resource.name for resource in recording.of("pulumi:providers:kubernetes")}
    assert providers == {"dev", "second"} == set(recording.result)


def kubeconfig_of(settings: Settings) -> dict[str, Any]:
    recording = declare(settings)
    assert "dev-kubeconfig" in recording.secret_exports
    assert "kubeconfig" in secret_inputs(recording.one("pulumi:providers:kubernetes", "dev"))
    return json.loads(recording.exports["dev-kubeconfig"])


def test_the_kubeconfig_is_secret_and_asks_a_plugin_for_tokens() -> None:
    kubeconfig = kubeconfig_of(changed())
    (user,) = kubeconfig["users"]
    assert set(user["user"]) == {"exec"}
    assert user["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert "token" not in {key.lower() for key in user["user"]["exec"]}
    (cluster,) = kubeconfig["clusters"]
    assert set(cluster["cluster"]) == {"server"}, "the DNS endpoint's certificate is a public one"
    assert cluster["cluster"]["server"].startswith("https://gke-")
    assert kubeconfig["current-context"] == "gke_a-project_us-central1_slipway-test-dev"


def test_the_kubeconfig_trusts_the_clusters_own_authority_at_its_address() -> None:
    settings = changed(control_plane={"dns_endpoint": False, "authorized_networks": {"office": "198.51.100.0/24"}})
    (cluster,) = kubeconfig_of(settings)["clusters"]
    assert cluster["cluster"]["server"] == "https://203.0.113.1"
    assert cluster["cluster"]["certificate-authority-data"]


def test_a_first_preview_knows_no_endpoint_and_makes_none_up() -> None:
    recording = declare(changed(), preview=True)
    assert is_unknown(recording.exports["dev-kubeconfig"])


def test_people_are_told_how_to_connect() -> None:
    recording = declare(changed())
    assert recording.exports["dev-connect"] == (
        "gcloud container clusters get-credentials slipway-test-dev"
        " --location us-central1 --project a-project --dns-endpoint"
    )
    assert recording.exports["dev-kubectl"] == "kubectl --context gke_a-project_us-central1_slipway-test-dev"


def test_names_fit_google_clouds_limits_and_stay_apart() -> None:
    stack = "a-stack-whose-name-is-much-longer-than-anything-google-cloud-would-take-for-a-name"
    recordings = [declare(with_second_cluster("us-west4-a"), stack=f"{stack}-{suffix}") for suffix in "ab"]
    limits = {
        CLUSTER: ("name", 40),
        NODE_POOL: ("name", 40),
        BUCKET: ("name", 63),
        "gcp:compute/network:Network": ("name", 63),
        "gcp:compute/subnetwork:Subnetwork": ("name", 63),
        "gcp:compute/router:Router": ("name", 63),
        "gcp:compute/routerNat:RouterNat": ("name", 63),
        "gcp:serviceaccount/account:Account": ("accountId", 30),
    }
    assert_names_fit(recordings, limits, alike={NODE_POOL})


def test_a_stack_name_may_have_characters_that_google_cloud_has_not() -> None:
    recording = declare(changed(), stack="My_Stack.1")
    assert recording.one(CLUSTER).inputs["name"] == "slipway-my-stack-1-dev"
    assert recording.one(BUCKET).inputs["name"] == "a-project-slipway-my-stack-1"
