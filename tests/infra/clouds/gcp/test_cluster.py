"""GKE clusters, their network, and who can reach and destroy what."""

import json
from typing import Any

from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import BUCKET, CLUSTER, NODE_POOL, declare, raw
from tests.support.clouds.stacks import assert_names_fit
from tests.support.recording import Recording


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


def everything_said(recording: Recording) -> str:
    return json.dumps([resource.inputs for resource in recording.resources], default=str)


def test_nothing_is_open_to_the_world() -> None:
    for settings in (changed(), with_second_cluster("us-west4-a")):
        assert "0.0.0.0/0" not in everything_said(declare(settings))


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
