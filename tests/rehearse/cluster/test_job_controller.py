"""The Job controller retries, gives up and counts as Kubernetes does."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from slipway.infra.review.stack import Resource
from slipway.rehearse.cluster.cluster_objects import RefusedError
from slipway.rehearse.cluster.job_controller import JobResult, JobSpec, Rule, identity, job_spec, run
from slipway.rehearse.cluster.kubelet import PodResult
from slipway.rehearse.cluster.pods import UnsupportedError
from slipway.rehearse.machine.processes import CancelledError, Stop

IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


LONG = "j" * 61
"""A Job's name that leaves no room for an index of two digits."""


def required(term: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def resource(spec: dict[str, Any] | None = None, **pod: Any) -> Resource:
    container = {"name": "main", "command": ["python", "-c", "pass"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}
    inputs = {"metadata": {"name": "job", "namespace": "ns"}, "spec": {"template": template, **(spec or {})}}
    urn = "urn:pulumi:s::p::kubernetes:batch/v1:Job::job"
    return Resource(urn, "kubernetes:batch/v1:Job", "job", {}, inputs=inputs, provider="urn::providers::dev")


def pod(code: int = 0, *, disrupted: bool = False, container: str = "main") -> PodResult:
    return PodResult(code == 0, container, code, "Error" if code else "Completed", "", disrupted, 0)


def outcome(spec: dict[str, Any], *pods: PodResult) -> JobResult:
    """How a Job ends whose pods end like ``pods``, one after the other; more than these fail the test."""
    left: Iterator[PodResult] = iter(pods)
    return run(job_spec(resource(spec)), Stop(), lambda _number, _index, _stop: next(left), backoff=0)


def rules(*given: dict[str, Any]) -> dict[str, Any]:
    return {"backoffLimit": 0, "podFailurePolicy": {"rules": list(given)}}


def on_codes(action: str, *codes: int, operator: str = "In", **more: str) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes), **more}}


@pytest.mark.parametrize(
    ("spec", "pods", "reason", "attempts"),
    [
        ({}, [pod()], "Complete", 1),
        ({}, [pod(1), pod(1), pod()], "Complete", 3),
        ({"backoffLimit": 0}, [pod(1)], "BackoffLimitExceeded", 1),
        ({"backoffLimit": 2}, [pod(1)] * 3, "BackoffLimitExceeded", 3),
        ({}, [pod(1)] * 7, "BackoffLimitExceeded", 7),
        (rules(IGNORE_DISRUPTION), [pod(143, disrupted=True)] * 5 + [pod()], "Complete", 6),
        (rules(IGNORE_DISRUPTION), [pod(143, disrupted=True), pod(3)], "BackoffLimitExceeded", 2),
        (rules(IGNORE_DISRUPTION), [pod(143)], "BackoffLimitExceeded", 1),
        ({"backoffLimit": 0}, [pod(143, disrupted=True)], "BackoffLimitExceeded", 1),
        ({**rules(on_codes("FailJob", 3)), "backoffLimit": 6}, [pod(1), pod(3)], "PodFailurePolicy", 2),
        (rules(on_codes("Ignore", 3, 4)), [pod(3), pod(4), pod()], "Complete", 3),
        (rules(on_codes("FailJob", 3, operator="NotIn")), [pod(4)], "PodFailurePolicy", 1),
        (rules(on_codes("FailJob", 3, operator="NotIn")), [pod(3)], "BackoffLimitExceeded", 1),
        (rules(on_codes("Ignore", 3, containerName="other")), [pod(3)], "BackoffLimitExceeded", 1),
        # The first rule that matches decides.
        (rules(on_codes("Count", 3), on_codes("Ignore", 3)), [pod(3)], "BackoffLimitExceeded", 1),
        (rules(on_codes("FailJob", 143), IGNORE_DISRUPTION), [pod(143, disrupted=True)], "PodFailurePolicy", 1),
    ],
)
def test_how_pods_end_decides_how_the_job_ends(
    spec: dict[str, Any], pods: list[PodResult], reason: str, attempts: int
) -> None:
    result = outcome(spec, *pods)
    assert (result.reason, result.attempts, result.succeeded) == (reason, attempts, reason == "Complete")


def test_a_failure_that_the_real_engine_does_not_notice_is_said_to_be_one() -> None:
    assert "`pulumi up` does not recognise this failure" in outcome(rules(on_codes("FailJob", 3)), pod(3)).message


@pytest.mark.slow
def test_the_deadline_holds_over_all_pods_and_stops_the_one_that_runs() -> None:
    stopped: list[str] = []

    def start(_number: int, _index: int, stop: Stop) -> PodResult:
        while not stop.requested:
            time.sleep(0.01)
        stopped.append(stop.kind)
        return pod(143)

    result = run(job_spec(resource({"activeDeadlineSeconds": 1})), Stop(), start)
    assert (result.reason, result.attempts, stopped) == ("DeadlineExceeded", 1, ["deadline"])
    assert "it was active longer than its 1 s" in result.message


@pytest.mark.slow
def test_a_pod_that_completes_while_the_deadline_passes_completes_the_job() -> None:
    def start(_number: int, _index: int, stop: Stop) -> PodResult:
        while not stop.requested:
            time.sleep(0.01)
        return pod(0)

    assert run(job_spec(resource({"activeDeadlineSeconds": 1})), Stop(), start).succeeded


@pytest.mark.slow
def test_between_two_pods_it_waits_twice_as_long_each_time() -> None:
    notes: list[str] = []
    began = time.monotonic()
    codes = iter([1, 1, 1, 0])
    run(job_spec(resource()), Stop(), lambda *_: pod(next(codes)), notes.append, backoff=0.1)
    assert [note.rpartition(" in ")[2] for note in notes] == ["0.1 s", "0.2 s", "0.4 s"]
    assert time.monotonic() - began >= 0.7


def pauses(spec: dict[str, Any], lost: int, rounds: int, speed: float) -> list[float]:
    """Seconds of a cluster from the loss of so many pods that work together until all new ones run, each time."""
    workers = {"completions": lost, "parallelism": lost, "completionMode": "Indexed"}
    together = threading.Barrier(lost)
    ends, starts = [0.0] * rounds, [0.0] * (rounds + 1)

    def start(number: int, _index: int, _stop: Stop) -> PodResult:
        starts[number - 1] = max(starts[number - 1], time.monotonic())
        together.wait(30)
        if number > rounds:
            return pod()
        ends[number - 1] = time.monotonic()
        return pod(143, disrupted=True)

    job = job_spec(resource({**workers, **rules(IGNORE_DISRUPTION), **spec}))
    assert run(job, Stop(), start, speed=speed).succeeded
    return [(later - end) * speed for end, later in zip(ends, starts[1:], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "lost", "expected"),
    [
        # Measured: pods lost at once, and the controller of Kubernetes 1.37.2.
        ({}, 1, [10, 20]),
        ({}, 2, [20, 80]),
        ({}, 4, [80, 600]),
        ({"backoffLimitPerIndex": 0}, 8, [10, 20, 40]),
    ],
)
def test_pods_that_are_lost_together_wait_as_long_as_in_a_cluster(
    spec: dict[str, Any], lost: int, expected: list[float]
) -> None:
    speed = sum(expected)
    waited = pauses(spec, lost, len(expected), speed)
    for seconds, wanted in zip(waited, expected, strict=True):
        assert wanted <= seconds < wanted + 0.3 * speed, (waited, expected)


def test_an_interrupt_ends_a_pause() -> None:
    stop = Stop()
    threading.Timer(0.1, stop.request, ["interrupted", 1.0]).start()
    began = time.monotonic()
    result = run(job_spec(resource()), stop, lambda _number, _index, _stop: pod(1), backoff=60)
    assert result.reason == "Interrupted"
    assert time.monotonic() - began < 50


def test_a_suspended_job_is_not_run() -> None:
    result = run(job_spec(resource({"suspend": True})), Stop(), lambda *_: pytest.fail("a pod was started"))
    assert (result.succeeded, result.reason) == (False, "Suspended")


@pytest.mark.parametrize(
    ("spec", "pod_spec", "error", "says"),
    [
        ({"backoffLimit": -1}, {}, RefusedError, "spec.backoffLimit: Invalid value: -1"),
        ({"completions": 2}, {}, UnsupportedError, "completions 2"),
        ({"podFailurePolicy": {"rules": [{"action": "FailIndex"}]}}, {}, UnsupportedError, "FailIndex"),
        ({"maxFailedIndexes": 1}, {}, UnsupportedError, "maxFailedIndexes"),
        ({}, {"restartPolicy": "OnFailure"}, UnsupportedError, "OnFailure"),
        ({}, {"affinity": {"nodeAffinity": {}}}, UnsupportedError, "affinity"),
        ({}, {"affinity": {"podAntiAffinity": {"preferred": []}}}, UnsupportedError, "does not act on preferred"),
        ({}, {"affinity": required({"topologyKey": "zone", "labelSelector": {}})}, UnsupportedError, "over zone"),
        (
            {"completionMode": "Indexed", "completions": 11, "parallelism": 11},
            {},
            RefusedError,
            f"invalid DNS label: {LONG}-10",
        ),
        ({}, {"hostNetwork": True}, UnsupportedError, "hostNetwork"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused_by_name(
    spec: dict[str, Any], pod_spec: dict[str, Any], error: type[Exception], says: str
) -> None:
    job = resource(spec, **pod_spec)
    job.inputs["metadata"]["name"] = LONG
    with pytest.raises(error, match=says):
        job_spec(job)


def test_what_pulumi_updates_in_place_does_not_run_a_job_again() -> None:
    before = identity(resource({"backoffLimit": 0, "activeDeadlineSeconds": 60}))
    assert identity(resource({"backoffLimit": 3, "activeDeadlineSeconds": 90, "suspend": False})) == before
    assert identity(resource({"backoffLimit": 0}, nodeSelector={"pool": "other"})) != before


def test_rules_are_read_whole() -> None:
    spec: JobSpec = job_spec(resource(rules(on_codes("Ignore", 3, containerName="main"), IGNORE_DISRUPTION)))
    assert spec.rules == [
        Rule("Ignore", "main", "In", frozenset({3})),
        Rule("Ignore", None, "", frozenset(), on_disruption=True),
    ]


def test_a_pod_whose_node_goes_before_its_program_begins_is_replaced() -> None:
    stops: list[Stop] = []

    def start(number: int, _index: int, stop: Stop) -> PodResult:
        stops.append(stop)
        if number == 1:
            stop.request("evicted", 0.0)
            raise CancelledError
        return pod()

    ended = run(job_spec(resource(rules(IGNORE_DISRUPTION))), Stop(), start, backoff=0)
    assert (ended.reason, ended.attempts) == ("Complete", 2)
    assert not stops[1].requested
