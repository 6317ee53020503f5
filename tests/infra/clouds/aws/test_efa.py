"""EFA on EKS: the device plugin of the nodes that have it, and what pods of several nodes ask for."""

from typing import Any

import pytest

from slipway.infra.charts import charts
from slipway.infra.platform import Pool
from tests.support.clouds.aws import CPU_POOL, NODE_GROUP, RELEASE, declare, with_pool
from tests.support.recording import Recording

P4D = {"instance_type": "p4d.24xlarge", "zones": ["us-east-1a"], "efa": True, "nodes": {"count": 2}}
T4 = {"instance_type": "g4dn.8xlarge", "zones": ["us-east-1a"], "efa": True, "nodes": {"count": 2}}
PLUGIN = "dev-extra-efa"


def pool(recording: Recording) -> Pool:
    pool_ = recording.result["dev"].pools["extra"]
    assert isinstance(pool_, Pool)
    return pool_


@pytest.mark.slow
def test_the_plugin_runs_on_the_nodes_with_efa_and_no_others() -> None:
    recording = declare(with_pool(P4D))
    release, live = recording.one(RELEASE, PLUGIN), pool(recording)
    values = release.inputs["values"]
    assert values["nodeSelector"] == live.selector
    assert [(toleration["key"], toleration["effect"]) for toleration in values["tolerations"]] == [
        ("nvidia.com/gpu", "NoSchedule")
    ]
    assert release.inputs["namespace"] == "kube-system"
    assert recording.one(NODE_GROUP, "dev-extra").urn in recording.waits_for(release)


@pytest.mark.slow
def test_the_chart_is_pinned() -> None:
    chart = charts()["aws-efa-k8s-device-plugin"]
    release = declare(with_pool(P4D)).one(RELEASE, PLUGIN).inputs
    assert (release["chart"], release["version"]) == (chart.name, chart.version)
    assert release["repositoryOpts"] == {"repo": "https://aws.github.io/eks-charts"}


@pytest.mark.slow
def test_without_efa_there_is_no_plugin() -> None:
    assert [entry.name for entry in declare(with_pool({**P4D, "efa": False})).of(RELEASE)] == ["dev-autoscaler"]


@pytest.mark.slow
def test_jobs_wait_for_the_plugin() -> None:
    assert PLUGIN in {resource._name for resource in declare(with_pool(P4D)).result["dev"].ready}


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "count"), [(P4D, 4), (T4, 1)])
def test_a_pod_of_several_nodes_has_all_interfaces(settings: dict[str, Any], count: int) -> None:
    interconnect = pool(declare(with_pool(settings))).interconnect
    assert interconnect is not None
    assert (interconnect.resource, interconnect.count) == ("vpc.amazonaws.com/efa", count)
    assert interconnect.environment["FI_PROVIDER"] == "efa"


def test_without_efa_pods_have_one_card_and_several_connections() -> None:
    interconnect = pool(declare(with_pool({**P4D, "efa": False}))).interconnect
    assert interconnect is not None
    assert (interconnect.resource, interconnect.count) == ("", 0)
    assert interconnect.environment == {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "8"}


@pytest.mark.slow
def test_of_a_cpu_pools_network_nothing_is_known() -> None:
    assert pool(declare(with_pool(CPU_POOL))).interconnect is None
