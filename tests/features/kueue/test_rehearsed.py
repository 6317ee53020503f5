"""Jobs with a queue's name start unless Kueue would never admit them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.features.kueue.feature import API
from slipway.infra.kubernetes.labels import QUEUE_LABEL
from slipway.rehearse.state import Phase
from tests.rehearse.toy import NAMESPACE, Toys, rehearse
from tests.support.rehearsing import phases, record


def custom(
    toys: Toys, kind: str, name: str, spec: Mapping[str, Any], namespace: str | None = None, version: str = API
) -> pulumi.Resource:
    return toys.declare(
        k8s.apiextensions.CustomResource,
        name,
        api_version=version,
        kind=kind,
        metadata={"namespace": namespace},
        resource_name=f"{kind}-{name}",
        spec=dict(spec),
    )


def queue(toys: Toys, cpu: str) -> list[pulumi.Resource]:
    """A LocalQueue of the toys' namespace with a quota of CPU and much of all else."""
    quotas = {"cpu": cpu, "memory": "64Gi"}
    flavor = {"name": "cpu", "resources": [{"name": name, "nominalQuota": most} for name, most in quotas.items()]}
    groups = [{"coveredResources": list(quotas), "flavors": [flavor]}]
    return [
        custom(toys, "ResourceFlavor", "cpu", {"nodeLabels": {"kubernetes.io/os": "linux"}}),
        custom(toys, "ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": groups}),
        custom(toys, "LocalQueue", "slipway", {"clusterQueue": "all"}, NAMESPACE),
    ]


def labels(name: str = "slipway") -> dict[str, str]:
    return {QUEUE_LABEL: name}


def test_a_job_without_a_queue_and_those_that_have_turns_start_at_once(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        after = queue(toys, "100m")
        toys.job("job", "print('runs')", cpu="500m", after=after)
        for name in ("one", "two"):
            toys.job(name, "print('runs')", cpu="100m", job_labels=labels(), after=after)

    assert rehearse(program, tmp_path)[0].exit_code == 0


NEVER: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "pair": (
        {"cpu": "750m", "nodes": 2},
        "Kueue never admits it: it asks for 1500m cpu in all (2 pods), and the quota of queue all is 1",
    ),
    "lost": ({"job_labels": labels(name="other")}, "LocalQueue other doesn't exist in toys"),
    "gpu": ({"gpus": 1}, "resource nvidia.com/gpu unavailable in ClusterQueue"),
}
"""Jobs that no queue admits, and what is said of each."""


def test_what_is_never_admitted_is_refused_at_once(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        after = queue(toys, "1")
        for name, (inputs, _) in NEVER.items():
            job: dict[str, Any] = {"job_labels": labels(), **inputs}
            toys.job(name, "print('never')", after=[*after, toys.hosts(name)], **job)

    outcome, printed = rehearse(program, tmp_path, machines=2)
    assert phases(outcome) == dict.fromkeys(NEVER, Phase.FAILED), printed
    for name, (_, reason) in NEVER.items():
        assert reason in record(outcome, name).reason


@pytest.mark.parametrize(("version", "kind"), [("v1beta1", "ResourceFlavor"), ("v1beta2", "Workload")])
def test_objects_that_kueue_does_not_serve_are_refused(tmp_path: Path, version: str, kind: str) -> None:
    def program() -> None:
        custom(Toys(), kind, "old", {}, version=f"kueue.x-k8s.io/{version}")

    outcome, output = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert f'no matches for kind "{kind}"' in output
