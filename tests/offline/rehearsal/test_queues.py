"""Jobs with a queue's name start when Kueue would admit them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.infra.kubernetes.cluster.kueue import WorkloadPriorityClass
from slipway.infra.kubernetes.labels import PRIORITY_LABEL, QUEUE_LABEL
from slipway.offline.rehearsal.state import Phase
from tests.offline.rehearsal.toy import (
    NAMESPACE,
    NODE,
    TRAINING,
    Toys,
    hosts_of,
    ignore_disruption,
    on_exit_code,
    rehearse,
)
from tests.support.rehearsing import phases, record, resumed_after

API = "kueue.x-k8s.io/v1beta2"

WITHIN = """
import os, pathlib, sys, time
mark = pathlib.Path(sys.argv[1], f"running-{sys.argv[2]}")
mark.touch()
beside = len(list(mark.parent.glob("running-*")))
time.sleep(0.5)
mark.unlink()
print("beside", beside)
assert beside <= int(sys.argv[3])
"""
"""Fails where more of it run at a time than its last argument says."""


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


def queue(toys: Toys, cpu: str, labels: Mapping[str, str] | None = None, **spec: Any) -> list[pulumi.Resource]:
    """A LocalQueue of the toys' namespace with a quota of CPU and much of all else.

    ``labels`` are those of its only flavor.
    """
    quotas = {"cpu": cpu, "memory": "64Gi"}
    flavor = {"name": "cpu", "resources": [{"name": name, "nominalQuota": most} for name, most in quotas.items()]}
    groups = [{"coveredResources": list(quotas), "flavors": [flavor]}]
    objects = [
        custom(toys, "ResourceFlavor", "cpu", {"nodeLabels": labels or {"kubernetes.io/os": "linux"}}),
        custom(toys, "ClusterQueue", "all", {"namespaceSelector": {}, "resourceGroups": groups, **spec}),
        custom(toys, "LocalQueue", "slipway", {"clusterQueue": "all"}, NAMESPACE),
    ]
    for level, value in {"low": 100, "high": 300}.items():
        metadata = k8s.meta.v1.ObjectMetaArgs(name=level)
        objects.append(WorkloadPriorityClass(f"class-{level}", metadata, value, "", toys.options()))
    return objects


def labels(priority: str | None = None, name: str = "slipway") -> dict[str, str]:
    return {QUEUE_LABEL: name, **({PRIORITY_LABEL: priority} if priority else {})}


@pytest.mark.slow
def test_jobs_beyond_the_quota_wait_and_start_when_others_end(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        after = queue(toys, "300m")
        for index in range(3):
            arguments = ("/store", str(index), "2")
            toys.job(f"job-{index}", WITHIN, *arguments, cpu="150m", job_labels=labels(), after=after, deadline=30)

    outcome, printed = rehearse(program, tmp_path)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    (late,) = [job for job in outcome.records if job.queued > 0.2]
    assert "queued in slipway: insufficient unused quota for cpu in flavor cpu, 150m more needed" in late.notes
    assert any(note.startswith("admitted after") and "(cpu: cpu)" in note for note in late.notes), late.notes
    assert late.seconds < late.finished - late.started
    assert "queued in slipway" in (tmp_path / "report.html").read_text()
    assert f"queued {late.queued:.1f} s" in printed


def test_a_job_without_a_queue_starts_at_once(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        toys.job("job", "print('runs')", cpu="500m", after=queue(toys, "100m"))

    assert rehearse(program, tmp_path)[0].exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value", "runs"), [("kubernetes.io/os", "linux", True), ("role", "gpu", False)])
def test_its_pods_select_the_labels_of_their_flavor(tmp_path: Path, name: str, value: str, runs: bool) -> None:
    """As Kueue does it; with the labels of a flavor that is for other nodes they find none."""

    def program() -> None:
        toys = Toys()
        after = queue(toys, "300m", labels={name: value})
        toys.job("job", "print('runs')", job_labels=labels(), after=after)

    outcome, printed = rehearse(program, tmp_path)
    job = record(outcome, "job")
    assert (job.phase is Phase.SUCCEEDED) == runs, printed
    if not runs:
        assert any("flavor cpu" in note and "role=gpu" in note for note in job.notes), job.notes
        assert "didn't match Pod's node affinity/selector" in job.reason


@pytest.mark.slow
def test_its_deadline_begins_with_its_admission(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        after = queue(toys, "100m", queueingStrategy="StrictFIFO")
        for name in ("first", "second"):
            toys.job(name, "import time; time.sleep(1.2)", job_labels=labels(), after=after, deadline=2)

    outcome, printed = rehearse(program, tmp_path)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    assert any(job.queued > 1 for job in outcome.records)


@pytest.mark.slow
def test_all_pods_of_a_job_are_admitted_or_none(tmp_path: Path) -> None:
    """Were they one by one, each Job would hold a node that the other needs."""

    def program() -> None:
        toys = Toys()
        after = queue(toys, "3")
        for name in ("one", "two"):
            toys.job(
                name,
                NODE.replace('"epochs"', f'"{name}"'),
                "/store",
                "0.01",
                *hosts_of(name, 2),
                nodes=2,
                cpu="1500m",
                job_labels=labels(),
                deadline=60,
                after=[*after, toys.hosts(name)],
            )

    outcome, printed = rehearse(program, tmp_path, machines=2)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    (late,) = [job for job in outcome.records if job.queued > 0.05]
    assert "queued in slipway: insufficient unused quota for cpu in flavor cpu, 3 more needed" in late.notes


NEVER: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "pair": (
        {"cpu": "750m", "nodes": 2},
        "Kueue never admits it: it asks for 1500m cpu in all (2 pods), and the quota of queue all is 1",
    ),
    "lost": ({"job_labels": labels(name="other")}, "LocalQueue other doesn't exist in toys"),
    "urgent": ({"job_labels": labels("urgent")}, 'workloadpriorityclasses.kueue.x-k8s.io "urgent" not found'),
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


@pytest.mark.slow
def test_a_job_of_higher_priority_stops_another_which_then_goes_on(tmp_path: Path) -> None:
    def program() -> None:
        toys = Toys()
        after = queue(toys, "100m", preemption={"withinClusterQueue": "LowerPriority"})
        rules = [ignore_disruption(), on_exit_code("Ignore", 143)]
        toys.job("train", TRAINING, "/store", "0.2", job_labels=labels("low"), rules=rules, after=after)
        began = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
        first = toys.job("before", began, "/store/epochs", after=after)
        toys.job("urgent", "print('runs')", job_labels=labels("high"), after=[*after, first])

    outcome, printed = rehearse(program, tmp_path)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    train, urgent = record(outcome, "train"), record(outcome, "urgent")
    assert "stopped for urgent, which has a higher priority; it waits in its queue again" in train.notes
    assert train.attempts == 2
    assert train.epochs == (12, 12)
    assert any("Pending the preemption of train" in note for note in urgent.notes)
    assert urgent.finished < train.finished
    assert resumed_after(tmp_path, "train") > 0


@pytest.mark.parametrize(("version", "kind"), [("v1beta1", "ResourceFlavor"), ("v1beta2", "Workload")])
def test_objects_that_kueue_does_not_serve_are_refused(tmp_path: Path, version: str, kind: str) -> None:
    def program() -> None:
        custom(Toys(), kind, "old", {}, version=f"kueue.x-k8s.io/{version}")

    outcome, output = rehearse(program, tmp_path)
    assert outcome.exit_code == 1
    assert f'no matches for kind "{kind}"' in output
