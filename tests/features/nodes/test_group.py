"""What the group of pods does, by its rules alone: every moment of it can be had here."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.features.nodes.pod.group import (
    KILLED_AGAIN,
    MOST_KILLS,
    MOST_KILLS_OF_ALL,
    SETTLE,
    SILENCE,
    Address,
    Group,
    Memory,
)
from slipway.features.nodes.pod.work import parse_roles, variables

NODES = [Address(f"train-{rank}.train", 2222) for rank in range(3)]
MEET = Address("train-0.train", 2221)


class Pods:
    """A group, what it says, and a clock."""

    def __init__(self, *, decides: tuple[bool, ...] = (True, True, True)) -> None:
        self.now = 100.0
        self.group = Group(NODES, MEET, decides, 600.0, self.now)
        self.progress = "nothing"

    def join(self, rank: int, memory: Memory | None = None) -> None:
        self.group.join(rank, memory or Memory(), self.now)

    def ready(self, *ranks: int, generation: int | None = None) -> None:
        for rank in ranks:
            of = self.group.generation if generation is None else generation
            self.say(rank, type="ready", generation=of, port=2222, progress=self.progress)

    def ready_at(self, rank: int, address: str, rank_0: str) -> None:
        known = {"port": 2222, "progress": "", "own": address, "rank_0": rank_0}
        self.say(rank, type="ready", generation=self.group.generation, **known)

    def say(self, rank: int, **message: Any) -> None:
        self.group.hear(rank, message, self.now)

    def end(self, rank: int, how: str = "well", **more: Any) -> None:
        told = {"code": 1, "words": "", "consequent": False, **more}
        self.say(rank, type="ended", generation=self.group.generation, how=how, **told)

    def lose(self, rank: int) -> None:
        self.group.leave(rank, "its connection was closed", self.now)

    def wait(self, seconds: float, *heard: int) -> None:
        """Let time pass in which these ranks give signs of life."""
        for _ in range(int(seconds * 10)):
            self.now += 0.1
            for rank in heard:
                self.say(rank, type="beat")
            self.group.tick(self.now)

    def heard(self, rank: int) -> list[Any]:
        """What this rank was told since the last time."""
        messages = [message for to, message in self.group.outbox if to == rank]
        self.group.outbox = [message for message in self.group.outbox if message[0] != rank]
        return messages

    def told(self, rank: int) -> list[str]:
        return [message["type"] for message in self.heard(rank) if message["type"] != "say"]

    def start(self) -> None:
        for rank in range(3):
            self.join(rank)
        self.ready(0, 1, 2)
        assert all(self.told(rank) == ["start"] for rank in range(3))

    def start_again(self, lost: int) -> None:
        """Everybody stops, the one that was lost comes back, and all start."""
        others = [rank for rank in range(3) if rank != lost]
        self.ready(*others)
        self.join(lost)
        self.ready(lost, generation=0)
        self.group.outbox.clear()


def test_nothing_starts_before_all_are_there_and_ready() -> None:
    pods = Pods()
    for rank in range(3):
        pods.join(rank)
    pods.ready(0, 1)
    assert pods.told(0) == []

    pods.ready(2)
    [start] = [message for message in pods.heard(2) if message["type"] == "start"]
    assert start["text"] == "Generation 1: all 3 pods are here, all programs start"


def test_a_lost_pod_stops_all_and_its_return_starts_all() -> None:
    pods = Pods()
    pods.start()
    pods.lose(1)
    assert pods.told(0) == ["stop"]
    pods.ready(0, 2)
    assert pods.told(0) == []

    pods.join(1)
    pods.ready(1, generation=0)
    [start] = [message for message in pods.heard(0) if message["type"] == "start"]
    assert (start["generation"], start["text"]) == (2, "Generation 2: pod 1 was lost, all programs start again")


def test_nobody_starts_beside_a_program_that_has_not_stopped() -> None:
    pods = Pods()
    pods.start()
    pods.lose(1)
    pods.join(1)
    pods.ready(1, generation=0)
    pods.ready(0)
    assert "start" not in pods.told(1)
    pods.ready(2)
    assert pods.told(1) == ["start"]


def test_a_late_word_of_before_the_start_is_not_taken_for_one_after_it() -> None:
    pods = Pods()
    pods.start()
    pods.ready(1, generation=0)
    pods.end(0)
    pods.end(2)
    assert pods.told(0) == []
    pods.end(1)
    assert pods.told(0) == ["publish"]


def test_an_error_of_its_own_is_final_once_nobody_was_lost() -> None:
    pods = Pods()
    pods.start()
    pods.end(1, "failed", code=3, words="ValueError: bad data")
    pods.wait(SETTLE - 1, 0, 1, 2)
    assert pods.group.verdict is None

    pods.wait(1.2, 0, 1, 2)
    assert pods.group.verdict is not None
    assert pods.group.verdict["rank"] == 1
    assert pods.group.verdict["text"] == (
        "the program of pod 1 (train-1.train) failed with exit code 3: ValueError: bad data"
    )


def test_the_cause_is_the_one_that_did_not_only_lose_a_neighbour() -> None:
    pods = Pods()
    pods.start()
    pods.end(0, "failed", code=1, words="ConnectionResetError", consequent=True)
    pods.wait(1.0, 0, 1, 2)
    pods.end(1, "failed", code=3, words="ValueError: bad data")
    pods.wait(SETTLE, 0, 1, 2)
    assert pods.group.verdict is not None
    assert pods.group.verdict["rank"] == 1


def test_of_consequences_alone_the_first_is_the_cause() -> None:
    pods = Pods()
    pods.start()
    pods.end(2, "failed", consequent=True)
    pods.end(0, "failed", consequent=True)
    pods.wait(SETTLE + 0.2, 0, 1, 2)
    assert pods.group.verdict is not None
    assert pods.group.verdict["rank"] == 2


def test_a_failure_beside_a_silent_pod_waits_for_its_loss() -> None:
    """Its node lost its power: the neighbour's error arrives long before the silence is long enough."""
    pods = Pods()
    pods.start()
    pods.end(0, "failed", consequent=True)
    pods.wait(SILENCE - 0.5, 0, 2)
    assert pods.group.verdict is None
    pods.wait(1.0, 0, 2)
    assert pods.group.silent(pods.now) == [1]
    pods.lose(1)
    assert pods.told(0) == ["stop"]
    assert pods.group.verdict is None


def test_a_failure_beside_a_pod_that_is_being_evicted_is_a_consequence() -> None:
    pods = Pods()
    pods.start()
    pods.say(1, type="leaving")
    assert pods.told(2) == []
    pods.end(0, "failed")
    pods.wait(SETTLE + 2, 0, 1, 2)
    assert pods.group.verdict is None
    pods.lose(1)
    assert pods.told(2) == ["stop"]


def test_a_killed_program_starts_all_again() -> None:
    pods = Pods()
    pods.start()
    pods.end(2, "killed", words="SIGKILL")
    assert pods.told(0) == ["stop"]
    pods.ready(0, 1, 2)
    [start] = [message for message in pods.heard(0) if message["type"] == "start"]
    assert start["text"] == "Generation 2: the program of pod 2 was killed by SIGKILL, all programs start again"


@pytest.mark.parametrize("how", ["program", "pod"])
def test_kills_without_anything_new_are_final_after_some(how: str) -> None:
    pods = Pods()
    pods.start()
    for _ in range(MOST_KILLS + 1):
        assert pods.group.verdict is None
        if how == "program":
            pods.end(1, "killed", words="SIGKILL")
            pods.ready(0, 1, 2)
        else:
            pods.lose(1)
            pods.start_again(1)
    assert pods.group.verdict is not None
    assert (pods.group.verdict["rank"], pods.group.verdict["code"]) == (1, KILLED_AGAIN)
    assert "memory" in pods.group.verdict["text"]


def test_kills_of_one_after_the_other_are_final_too() -> None:
    pods = Pods()
    pods.start()
    for kill in range(MOST_KILLS_OF_ALL + 1):
        assert pods.group.verdict is None
        pods.end(kill % 3, "killed", words="SIGKILL")
        pods.ready(0, 1, 2)
    assert pods.group.verdict is not None
    assert "5 times in a row (all pods together 13 times)" in pods.group.verdict["text"]


def test_an_eviction_of_rank_0_is_no_kill_for_its_successor() -> None:
    pods = Pods()
    pods.start()
    pods.say(0, type="leaving")
    assert pods.told(1) == ["leaving"]
    after = Pods()
    after.join(0)
    for rank in (1, 2):
        after.join(rank, Memory(1, [2, 0, 0], "nothing", running=True, leaving=True))
    after.ready(0, 1, 2)
    [start] = [message for message in after.heard(1) if message["type"] == "start"]
    assert start["kills"] == [2, 0, 0]
    assert start["text"] == "Generation 2: pod 0 was lost, all programs start again"


def test_kills_do_not_count_while_something_new_is_written() -> None:
    pods = Pods()
    pods.start()
    for number in range(3 * MOST_KILLS):
        pods.progress = f"checkpoint {number}"
        pods.lose(1)
        pods.start_again(1)
    assert pods.group.verdict is None


def test_evictions_do_not_count_as_kills() -> None:
    pods = Pods()
    pods.start()
    for _ in range(3 * MOST_KILLS):
        pods.say(1, type="leaving")
        pods.lose(1)
        pods.start_again(1)
    assert pods.group.verdict is None


def test_a_new_rank_0_goes_on_with_the_count_of_generations_and_kills() -> None:
    kills = 0
    memory = Memory()
    verdict = None
    for _ in range(MOST_KILLS + 1):
        pods = Pods()
        pods.join(0)
        pods.join(1, memory)
        pods.join(2, memory)
        pods.ready(0, 1, 2)
        verdict = pods.group.verdict
        if verdict is None:
            [start] = [message for message in pods.heard(1) if message["type"] == "start"]
            assert start["generation"] == memory.generation + 1
            assert start["kills"] == [kills, 0, 0]
            memory = Memory(start["generation"], start["kills"], start["progress"], running=True)
            kills += 1
    assert verdict is None
    pods = Pods()
    pods.join(0)
    pods.join(1, memory)
    pods.join(2, memory)
    pods.ready(0, 1, 2)
    assert pods.group.verdict is not None
    assert (pods.group.verdict["rank"], pods.group.verdict["code"]) == (0, KILLED_AGAIN)


def test_who_is_missing_for_too_long_is_named() -> None:
    pods = Pods()
    pods.join(0)
    pods.wait(599, 0)
    assert pods.group.verdict is None
    pods.wait(2, 0)
    assert pods.group.verdict is not None
    assert pods.group.verdict["text"] == (
        "2 of 3 pods: rank 1 at train-1.train:2222, rank 2 at train-2.train:2222, 600 s of 600 s"
    )


def test_waiting_is_said_seldom() -> None:
    pods = Pods()
    pods.join(0)
    pods.wait(500, 0)
    lines = [message["text"] for message in pods.heard(0)]
    assert lines[0].startswith("waiting for 2 of 3 pods: rank 1 at train-1.train:2222, rank 2")
    assert 5 <= len(lines) <= 12


def test_parameter_servers_and_evaluators_are_told_to_end() -> None:
    pods = Pods(decides=(False, True, True))
    pods.start()
    pods.end(1)
    pods.end(2)
    assert pods.told(0) == ["finish"]
    pods.ready(0)
    assert pods.told(0) == ["publish"]


def test_a_pod_that_is_lost_after_its_program_ended_well_stops_nobody() -> None:
    pods = Pods()
    pods.start()
    pods.end(1)
    pods.lose(1)
    assert pods.told(0) == []
    pods.end(0)
    pods.end(2)
    assert pods.told(0) == ["publish"]
    pods.say(0, type="published")
    pods.join(1)
    assert pods.told(1) == ["done"]


def test_a_program_is_told_of_the_others_in_the_words_of_each_framework() -> None:
    roles = parse_roles("chief=1,worker=1,evaluator=1", 3)
    told = variables(1, NODES, roles, gpus=2, generation=4)
    assert told["TF_CONFIG"] == (
        '{"cluster": {"chief": ["train-0.train:2222"], "worker": ["train-1.train:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    assert (told["RANK"], told["WORLD_SIZE"], told["MASTER_ADDR"], told["MASTER_PORT"]) == (
        "1", "3", "train-0.train", "2222",
    )  # fmt: skip
    assert (told["PET_NNODES"], told["PET_NODE_RANK"], told["PET_NPROC_PER_NODE"]) == ("3", "1", "2")
    assert told["JAX_COORDINATOR_ADDRESS"] == "train-0.train:2222"


def test_programs_get_ip_addresses_where_names_may_be_out_of_date() -> None:
    pods = Pods()
    for rank in range(3):
        pods.join(rank)
    pods.ready_at(0, "127.0.0.1", "127.0.0.1")
    pods.ready_at(1, "10.0.0.2", "10.0.0.1")
    pods.ready_at(2, "127.0.0.6", "10.0.0.1")
    [start] = [message for message in pods.heard(1) if message["type"] == "start"]
    assert start["nodes"] == [("10.0.0.1", 2222), ("10.0.0.2", 2222), ("train-2.train", 2222)]


@pytest.mark.parametrize("text", ["boss=3", "worker=2", "worker", "worker=-3"])
def test_roles_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="worker"):
        parse_roles(text, 3)


@pytest.mark.parametrize(
    ("text", "host", "shown"), [("a.b:22", "a.b", "a.b:22"), ("[fd00::1]:22", "fd00::1", "[fd00::1]:22")]
)
def test_addresses_are_read_and_written(text: str, host: str, shown: str) -> None:
    assert Address.parse(text) == Address(host, 22)
    assert str(Address.parse(text)) == shown


@pytest.mark.parametrize("text", ["host", "host:", ":22", "host:0", "host:70000", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Address.parse(text)
