"""Pods go where kube-scheduler would put them, wait where they would wait, and are refused with its reasons."""

import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.evaluated.scheduling import PodRequest, Toleration, obstacle, obstacles, tolerates
from slipway.infra.platform import Node, Resources, Taint, TaintEffect
from slipway.rehearse.cluster.scheduler import (
    CancelledError,
    PodAffinity,
    Scheduler,
    TooFewNodesError,
    UnschedulableError,
)
from tests.support.rehearsing import wait_until

GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
TOLERATION = Toleration("nvidia.com/gpu", "Equal", "present", "NoSchedule")


def node(
    pool: str,
    cpu: int = 4000,
    memory: int = 8192,
    storage: int = 10_000,
    gpus: int = 0,
    taints: Sequence[Taint] = (),
    count: int = 1,
    cluster: str = "dev",
) -> Node:
    resources = Resources(cpu=cpu, memory=memory, ephemeral_storage=storage, gpus=gpus)
    return Node(cluster, pool, {"pool": pool}, taints, resources, count, "nvidia-tesla-t4" if gpus else None)


def request(
    cpu: int = 1000,
    memory: int = 1024,
    storage: int = 100,
    gpus: int = 0,
    selector: dict[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    cluster: str = "dev",
) -> PodRequest:
    resources = Resources(cpu=cpu, memory=memory, ephemeral_storage=storage, gpus=gpus)
    return PodRequest(cluster, selector or {}, tolerations, resources)


NODES = [node("cpu", count=2), node("train", gpus=1, taints=[GPU_TAINT])]


@pytest.mark.parametrize(
    ("pod", "reasons"),
    [
        (
            request(gpus=1),
            {
                "cpu": "2 Insufficient nvidia.com/gpu (requested 1, allocatable 0)",
                "train": "1 node(s) had untolerated taint {nvidia.com/gpu: present}",
            },
        ),
        (
            request(selector={"pool": "predict"}, tolerations=[TOLERATION]),
            {
                "cpu": "2 node(s) didn't match Pod's node affinity/selector",
                "train": "1 node(s) didn't match Pod's node affinity/selector",
            },
        ),
        (
            request(cpu=4001, memory=8193, storage=10_001, gpus=2, tolerations=[TOLERATION]),
            {
                "cpu": "2 Insufficient cpu (requested 4001m, allocatable 4000m), "
                "2 Insufficient memory (requested 8193Mi, allocatable 8192Mi), "
                "2 Insufficient ephemeral-storage (requested 10001Mi, allocatable 10000Mi), "
                "2 Insufficient nvidia.com/gpu (requested 2, allocatable 0)",
                "train": "1 Insufficient cpu (requested 4001m, allocatable 4000m), "
                "1 Insufficient memory (requested 8193Mi, allocatable 8192Mi), "
                "1 Insufficient ephemeral-storage (requested 10001Mi, allocatable 10000Mi), "
                "1 Insufficient nvidia.com/gpu (requested 2, allocatable 1)",
            },
        ),
        (request(cluster="other"), {"dev/cpu": "in another cluster", "dev/train": "in another cluster"}),
    ],
)
def test_the_reasons_of_an_unschedulable_pod_are_kube_schedulers(pod: PodRequest, reasons: dict[str, str]) -> None:
    assert obstacles(pod, NODES) == reasons
    with pytest.raises(UnschedulableError) as raised:
        scheduler(NODES).place(pod, lambda: False)
    assert all(f"{pool}: {reason}" in str(raised.value) for pool, reason in reasons.items())


@pytest.mark.parametrize(
    ("toleration", "taint", "matches"),
    [
        (TOLERATION, GPU_TAINT, True),
        (Toleration("nvidia.com/gpu", "Exists", "", ""), GPU_TAINT, True),
        (Toleration("", "Exists", "", ""), GPU_TAINT, True),
        (Toleration("nvidia.com/gpu", "Equal", "present", ""), GPU_TAINT, True),
        (Toleration("nvidia.com/gpu", "Equal", "absent", ""), GPU_TAINT, False),
        (Toleration("nvidia.com/gpu", "Equal", "present", "NoExecute"), GPU_TAINT, False),
        (Toleration("other", "Exists", "", ""), GPU_TAINT, False),
    ],
)
def test_a_toleration_matches_by_key_value_and_effect(toleration: Toleration, taint: Taint, matches: bool) -> None:
    assert tolerates(toleration, taint) is matches


@pytest.mark.parametrize(
    ("effect", "keeps_off"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_only_hard_taints_keep_pods_off(effect: TaintEffect, keeps_off: bool) -> None:
    assert (obstacle(request(), node("cpu", taints=[Taint("k", "v", effect)])) is not None) is keeps_off


def scheduler(nodes: Sequence[Node], most: int | None = None) -> Scheduler:
    made = Scheduler(settle=0.05, most=most)
    made.add(nodes)
    return made


def test_a_pod_waits_while_another_holds_the_node_and_then_gets_it() -> None:
    nodes = scheduler([node("train", gpus=1)])
    first = nodes.place(request(gpus=1), lambda: False)
    waited: list[str] = []
    threading.Timer(0.3, nodes.release, [first]).start()
    began = time.monotonic()
    second = nodes.place(request(gpus=1), lambda: False, waited.append)
    assert time.monotonic() - began >= 0.25
    assert second.node_name == "dev-train-0"
    assert waited == ["train: 1 Insufficient nvidia.com/gpu"]


def test_a_pool_grows_to_its_last_node_before_a_pod_waits() -> None:
    nodes = scheduler([node("cpu", cpu=1000, count=2)])
    assert {nodes.place(request(), lambda: False).node_name for _ in range(2)} == {"dev-cpu-0", "dev-cpu-1"}
    with pytest.raises(CancelledError):
        nodes.place(request(), until(0.2))


def test_pods_of_a_group_keep_apart_as_far_as_there_is_room() -> None:
    nodes = scheduler([node("cpu", cpu=2000, count=2)])
    nodes.place(request(), lambda: False)
    days = PodAffinity(group="days")
    placed = [nodes.place(request(), lambda: False, affinity=days).node_name for _ in range(3)]
    assert placed == ["dev-cpu-0", "dev-cpu-1", "dev-cpu-1"]


def apart(name: str, namespace: str = "toys", from_others: bool = True, gang: str = "") -> PodAffinity:
    selectors = [{"matchLabels": {"of": "train"}}] if from_others else []
    return PodAffinity(namespace=namespace, labels={"of": name}, apart=selectors, gang=gang)


@pytest.mark.slow
def test_pods_that_keep_apart_share_no_node_whichever_comes_first() -> None:
    nodes = scheduler([node("cpu", count=2)])
    first, second = (nodes.place(request(), lambda: False, affinity=apart("train")) for _ in range(2))
    assert {first.node_name, second.node_name} == {"dev-cpu-0", "dev-cpu-1"}
    waited: list[str] = []
    for pod in (apart("train"), apart("train", from_others=False), apart("other")):
        with pytest.raises(CancelledError):
            nodes.place(request(), until(0.2), waited.append, affinity=pod)
    assert set(waited) == {"cpu: 2 node(s) didn't match pod anti-affinity rules"}
    for pod in (apart("train", "elsewhere"), apart("other", from_others=False)):
        assert nodes.place(request(), lambda: False, affinity=pod)
    nodes.release(first)
    again = nodes.place(request(), lambda: False, affinity=apart("train"))
    assert again.node_name == first.node_name


def test_why_a_pod_waits_tells_nodes_that_are_full_from_those_that_another_keeps_it_off() -> None:
    nodes = scheduler([node("cpu", cpu=1000, count=3)])
    nodes.place(request(cpu=200), lambda: False, affinity=apart("train"))
    nodes.place(request(), lambda: False)
    nodes.place(request(), lambda: False)
    waited: list[str] = []
    with pytest.raises(CancelledError):
        nodes.place(request(cpu=200), until(0.2), waited.append, affinity=apart("train"))
    assert waited == ["cpu: 1 node(s) didn't match pod anti-affinity rules, 2 Insufficient cpu"]


def test_pods_of_a_team_count_as_one_of_those_that_the_machine_runs() -> None:
    nodes = scheduler([node("cpu", count=8)], most=2)
    gang = apart("train", gang="one")
    for _ in range(4):
        nodes.place(request(), lambda: False, affinity=gang)
    nodes.place(request(), lambda: False)
    for pod in (PodAffinity(), apart("other", from_others=False, gang="two")):
        with pytest.raises(CancelledError):
            nodes.place(request(), until(0.2), affinity=pod)
    assert nodes.place(request(), lambda: False, affinity=gang)


def test_pods_that_need_more_nodes_than_there_are_are_refused() -> None:
    nodes = scheduler([node("cpu", count=2), node("small", cpu=100, count=5)])
    nodes.require(request(), 2, lambda: False)
    with pytest.raises(TooFewNodesError) as error:
        nodes.require(request(), 3, lambda: False)
    assert str(error.value) == (
        "3 pods need a node each, and 2 can take one (cpu: 2; small: 5 Insufficient cpu (requested 1000m, "
        "allocatable 100m))"
    )
    with pytest.raises(CancelledError):
        nodes.require(request(), 3, lambda: True)


def test_a_pod_that_fits_only_without_those_that_stay_is_refused() -> None:
    nodes = scheduler([node("cpu", cpu=1000)])
    nodes.place(request(cpu=600), lambda: False, stays=True)
    with pytest.raises(
        UnschedulableError,
        match=r"cpu: 1 Insufficient cpu \(requested 600m, allocatable 400m\) beside the services that run there",
    ):
        nodes.place(request(cpu=600), lambda: False)
    held = nodes.place(request(cpu=400), lambda: False)
    with pytest.raises(CancelledError):
        nodes.place(request(cpu=400), until(0.2))
    nodes.release(held)
    assert nodes.place(request(cpu=400), lambda: False).node_name == "dev-cpu-0"


def test_pods_that_stay_take_no_turn_of_others() -> None:
    nodes = Scheduler(most=1)
    nodes.add([node("cpu", count=10)])
    for _ in range(3):
        nodes.place(request(), lambda: False, stays=True)
    assert nodes.place(request(), lambda: False).node.pool == "cpu"


def test_a_node_pool_that_is_declared_a_moment_later_is_waited_for() -> None:
    nodes = Scheduler(settle=0.5)
    threading.Timer(0.2, nodes.add, [[node("cpu")]]).start()
    assert nodes.place(request(), lambda: False).node.pool == "cpu"


def until(seconds: float):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


amounts = st.builds(
    Resources,
    cpu=st.integers(0, 8),
    memory=st.integers(0, 8),
    ephemeral_storage=st.integers(0, 8),
    gpus=st.integers(0, 3),
)


@given(st.lists(st.tuples(amounts, st.integers(0, 3)), max_size=4), st.lists(amounts, max_size=8))
def test_no_node_ever_holds_more_than_it_has(pools: list[tuple[Resources, int]], pods: list[Resources]) -> None:
    nodes = Scheduler(settle=0, poll=0)
    nodes.add(
        [Node("dev", str(index), {}, (), allocatable, count) for index, (allocatable, count) in enumerate(pools)]
    )
    held: dict[tuple[str, int], list[Resources]] = {}
    for wanted in pods:
        calls = iter([False, True])
        try:
            placed = nodes.place(PodRequest("dev", {}, (), wanted), lambda calls=calls: next(calls, True))
        except (UnschedulableError, CancelledError):
            continue
        held.setdefault((placed.node.pool, placed.number), []).append(wanted)
    for (pool, number), on_node in held.items():
        room, count = pools[int(pool)]
        assert number < count
        for key in ("cpu", "memory", "ephemeral_storage", "gpus"):
            assert sum(getattr(pod, key) for pod in on_node) <= getattr(room, key)


@given(amounts, amounts)
def test_a_pod_is_refused_exactly_where_an_empty_node_is_too_small(wanted: Resources, room: Resources) -> None:
    fits = all(
        getattr(wanted, key) <= getattr(room, key) for key in ("cpu", "memory", "ephemeral_storage", "gpus")
    )
    made = Node("dev", "pool", {}, (), room, 1)
    assert (obstacle(PodRequest("dev", {}, (), wanted), made) is None) is fits


def test_a_machine_that_is_full_makes_pods_wait_whatever_room_the_nodes_have() -> None:
    scheduler = Scheduler(most=2)
    scheduler.add([node("cpu", count=10)])
    first, _ = (scheduler.place(request(), lambda: False) for _ in range(2))
    told: list[str] = []
    cancelled = threading.Event()

    def pending(reason: str) -> None:
        told.append(reason)
        cancelled.set()

    with pytest.raises(CancelledError):
        scheduler.place(request(), cancelled.is_set, pending)
    assert told == ["there is room on the nodes, but this machine runs 2 pods at a time"]
    scheduler.release(first)
    assert scheduler.place(request(), lambda: False).node.pool == "cpu"


@pytest.mark.parametrize(("other_ends", "says"), [(False, True), (True, False)])
def test_pods_that_hold_the_nodes_of_one_another_are_said_to_be_in_a_deadlock(
    other_ends: bool, says: bool
) -> None:
    """Two trainings of two pods each hold one of two nodes; where one pod needs no other, it ends by itself."""
    nodes, over = Scheduler(settle=0.1, poll=0.02), threading.Event()
    nodes.add([node("train", count=2)])
    one, two = apart("one", gang="Job::one"), apart("two", gang="" if other_ends else "Job::two")
    told: list[str] = []

    def wait(gang: PodAffinity) -> None:
        with pytest.raises(CancelledError):
            nodes.place(request(cpu=3000), over.is_set, told.append, affinity=gang)

    for gang in (one, two):
        nodes.place(request(cpu=3000), over.is_set, affinity=gang)
    threads = [threading.Thread(target=wait, args=[gang]) for gang in ([one] if other_ends else [one, two])]
    for thread in threads:
        thread.start()
    if says:
        wait_until(lambda: any("deadlock" in reason for reason in told))
    else:
        time.sleep(0.5)
    over.set()
    for thread in threads:
        thread.join()
    assert any("deadlock: all pods there (one, two)" in reason for reason in told) == says, told
