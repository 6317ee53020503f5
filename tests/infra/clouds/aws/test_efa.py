"""EFA on EKS: the device plugin of the nodes that have it, and what pods of several nodes ask for."""

import pytest

from slipway.infra.charts import charts
from slipway.infra.platform import Pool
from tests.support.clouds.aws import RELEASE, declare, with_pool
from tests.support.recording import Recording

P4D = {"instance_type": "p4d.24xlarge", "zones": ["us-east-1a"], "efa": True, "nodes": {"count": 2}}
T4 = {"instance_type": "g4dn.8xlarge", "zones": ["us-east-1a"], "efa": True, "nodes": {"count": 2}}
PLUGIN = "dev-extra-efa"


def pool(recording: Recording) -> Pool:
    pool_ = recording.result["dev"].pools["extra"]
    assert isinstance(pool_, Pool)
    return pool_


@pytest.mark.slow
def test_the_chart_is_pinned() -> None:
    chart = charts()["aws-efa-k8s-device-plugin"]
    release = declare(with_pool(P4D)).one(RELEASE, PLUGIN).inputs
    assert (release["chart"], release["version"]) == (chart.name, chart.version)
    assert release["repositoryOpts"] == {"repo": "https://aws.github.io/eks-charts"}
