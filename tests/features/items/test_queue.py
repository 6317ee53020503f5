"""Operations of the queue of items, in the orders that workers and failures bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from slipway.features.items.pod.queue import (
    QUEUE_TROUBLE,
    Claimed,
    ItemQueue,
    NotFilledError,
    Nothing,
    Rules,
    Unreachable,
)
from slipway.runtime.exits import USAGE, StepError
from tests.support.servers.valkey import PASSWORD, ValkeyServer

DAYS = ["2018-04-01", "2018-04-02", "2018-04-03"]

Open = Callable[..., ItemQueue]


@pytest.fixture
def opened(valkey_server: ValkeyServer) -> Open:
    """Connects a worker to the queue of one run."""

    def connect(run: str = "churn.days", patience: float = 20.0, **rules: object) -> ItemQueue:
        return ItemQueue(valkey_server.connection(), run, Rules(**rules), patience=patience)  # type: ignore[arg-type]

    return connect


def filled(queue: ItemQueue, names: list[str] = DAYS) -> ItemQueue:
    queue.begin("1")
    queue.fill([(name, False) for name in names])
    return queue


def claimed(queue: ItemQueue, token: str) -> Claimed:
    claim = queue.claim(token)
    assert isinstance(claim, Claimed), claim
    return claim


def test_each_item_is_handed_to_one_worker(opened: Open) -> None:
    one, other = filled(opened()), opened()
    assert other.begin("1") == (True, 0)
    assert [claimed(one, "a").item, claimed(other, "b").item, claimed(one, "c").item] == DAYS
    waiting = other.claim("d")
    assert isinstance(waiting, Nothing)
    assert waiting.unfinished == 3
    assert 0 < waiting.wait <= 60
    for token, name in zip("abc", DAYS, strict=True):
        assert one.commit(token, name, "{}")
    assert other.claim("d") == Nothing(0)
    assert one.state() == {"ready": 0, "done": 3, "aside": 0, "leases": 0}


def test_filling_twice_adds_nothing(opened: Open) -> None:
    queue = filled(opened())
    claimed(queue, "a")
    assert queue.fill([(name, False) for name in DAYS]) == 0
    assert queue.fill([(name, False) for name in [*DAYS, "2018-04-04"]]) == 1
    assert queue.state() == {"ready": 3, "done": 0, "aside": 0, "leases": 1}


def test_what_the_store_has_is_not_handed_out(opened: Open) -> None:
    queue = opened()
    queue.begin("1")
    queue.fill([(DAYS[0], True), (DAYS[1], False), (DAYS[2], True)])
    assert claimed(queue, "a").item == DAYS[1]
    assert queue.claim("b").unfinished == 1


def test_a_queue_that_is_not_full_yet_hands_out_nothing(opened: Open) -> None:
    queue = opened()
    queue.begin("1")
    with pytest.raises(NotFilledError):
        queue.claim("a")


def test_a_lost_answer_costs_no_attempt(opened: Open) -> None:
    queue = filled(opened())
    assert claimed(queue, "a") == claimed(queue, "a")
    assert claimed(queue, "b").item == DAYS[1]
    assert queue.commit("a", DAYS[0], "first")
    assert queue.commit("a", DAYS[0], "first")


def test_a_lease_that_ran_out_goes_to_another_and_publishes_nothing(opened: Open) -> None:
    slow, other = filled(opened(lease=0.4), DAYS[:1]), opened(lease=0.4)
    claimed(slow, "slow")
    waiting = other.claim("other")
    assert isinstance(waiting, Nothing)
    end = time.monotonic() + waiting.wait + 0.3
    while not isinstance(claim := other.claim("other"), Claimed):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert claim.attempt == 2
    assert not slow.renew("slow")
    assert not slow.commit("slow", DAYS[0], "of the slow one")
    assert slow.fail("slow", "late") == (False, False)
    assert not slow.release("slow")
    assert other.commit("other", DAYS[0], "of the other")
    assert [row.record for row in other.rows(DAYS)] == ["of the other"]


@pytest.mark.slow
def test_a_lease_that_is_renewed_stays(opened: Open) -> None:
    one, other = filled(opened(lease=0.4), DAYS[:1]), opened(lease=0.4)
    claimed(one, "one")
    for _ in range(8):
        time.sleep(0.1)
        assert one.renew("one")
        assert isinstance(other.claim("other"), Nothing)


def test_an_item_whose_workers_die_is_set_aside(opened: Open) -> None:
    queue = filled(opened(lease=0.2, attempts=2), DAYS[:2])
    queue.fail(claimed(queue, "a").token, "exit code 1: no column AMOUNT")
    claimed(queue, "b")
    claimed(queue, "c")
    end = time.monotonic() + 5
    while not (claim := queue.claim("d")).aside:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert list(claim.aside) == [DAYS[0]]
    [row, _] = queue.rows(DAYS)
    assert (row.state, row.attempts) == ("aside", 2)
    assert row.reason == "its worker died once; before: exit code 1: no column AMOUNT"


def test_an_item_that_fails_is_tried_again_and_then_set_aside(opened: Open) -> None:
    queue = filled(opened(attempts=2), DAYS[:1])
    assert claimed(queue, "a").attempt == 1
    assert queue.fail("a", "first") == (True, False)
    assert claimed(queue, "b").attempt == 2
    assert queue.fail("b", "second") == (True, True)
    assert queue.claim("c") == Nothing(0)
    assert queue.rows(DAYS)[0].reason == "second"


def test_the_next_round_tries_again_what_was_set_aside(opened: Open) -> None:
    queue = filled(opened(attempts=1))
    queue.fail(claimed(queue, "a").token, "wrong")
    assert queue.begin("1") == (True, 0)
    assert queue.state()["aside"] == 1
    assert queue.begin("2") == (True, 1)
    assert claimed(queue, "b").attempt == 1
    assert queue.state() == {"ready": 2, "done": 0, "aside": 0, "leases": 1}


def test_a_released_item_has_lost_no_attempt(opened: Open) -> None:
    queue = filled(opened(attempts=1), DAYS[:1])
    claimed(queue, "a")
    assert queue.release("a")
    assert claimed(queue, "b").attempt == 1


def test_a_worker_that_was_told_to_stop_costs_no_attempt_even_where_it_is_killed(opened: Open) -> None:
    queue = filled(opened(attempts=1, lease=0.2), DAYS[:1])
    claimed(queue, "a")
    assert queue.renew("a", giving_back=True)
    assert queue.renew("a", giving_back=True)
    end = time.monotonic() + 5
    while not isinstance(claim := queue.claim("b"), Claimed):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert claim.attempt == 1


def test_in_order_one_item_at_a_time_is_worked_on(opened: Open) -> None:
    queue = filled(opened(mode="ordered", attempts=1))
    assert claimed(queue, "a").before == ""
    assert isinstance(queue.claim("b"), Nothing)
    queue.commit("a", DAYS[0], "first")
    second = claimed(queue, "b")
    assert (second.item, second.before, second.record) == (DAYS[1], DAYS[0], "first")
    queue.fail("b", "wrong")
    third = claimed(queue, "c")
    assert (third.item, third.before) == (DAYS[2], DAYS[0])
    queue.commit("c", DAYS[2], "third")
    # The third began from the first, and may have to begin from the second now.
    assert queue.begin("2") == (True, 1)
    assert queue.state() == {"ready": 2, "done": 1, "aside": 0, "leases": 0}
    assert claimed(queue, "d").item == DAYS[1]


def test_runs_have_queues_of_their_own(opened: Open) -> None:
    filled(opened(run="one"))
    with pytest.raises(NotFilledError):
        opened(run="other").claim("a")


def test_a_server_that_is_killed_loses_nothing_that_it_has_confirmed(
    opened: Open, valkey_server: ValkeyServer
) -> None:
    queue = filled(opened())
    claimed(queue, "a")
    claimed(queue, "b")
    assert queue.commit_for_good([("a", DAYS[0], "first"), ("nobody", DAYS[1], "")]) == [True, False]
    valkey_server.kill()
    with pytest.raises(Unreachable):
        queue.renew("b")
    valkey_server.start()
    assert queue.renew("b")
    assert queue.state() == {"ready": 1, "done": 1, "aside": 0, "leases": 1}
    assert queue.commit_for_good([("b", DAYS[1], "second")]) == [True]


@pytest.mark.slow
def test_a_server_that_was_away_for_longer_than_the_leases_costs_no_attempt(
    opened: Open, valkey_server: ValkeyServer
) -> None:
    one, other = filled(opened(attempts=1, lease=0.6), DAYS[:1]), opened(attempts=1, lease=0.6)
    claimed(one, "one")
    one.commit_for_good([])
    valkey_server.kill()
    time.sleep(1.0)
    valkey_server.start()
    assert isinstance(other.claim("other"), Nothing)
    assert one.release("one")
    assert claimed(other, "other").attempt == 1


def test_a_server_that_comes_late_is_waited_for_and_one_that_never_comes_is_named(
    opened: Open, valkey_server: ValkeyServer
) -> None:
    valkey_server.kill()
    with pytest.raises(StepError) as caught:
        opened(patience=0.3).begin("1")
    assert caught.value.code == QUEUE_TROUBLE
    assert f"{valkey_server.address} could not be reached for 0.3 s: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("password", "words"),
    [("wrong", "refused: WRONGPASS"), ("", "wants a password, and this worker was given none")],
)
def test_a_wrong_password_is_named_at_once(valkey_server: ValkeyServer, password: str, words: str) -> None:
    queue = ItemQueue(valkey_server.connection(password), "run", Rules(), patience=60)
    started = time.monotonic()
    with pytest.raises(StepError, match=words) as caught:
        queue.begin("1")
    assert caught.value.code == QUEUE_TROUBLE
    assert PASSWORD not in str(caught.value)
    assert time.monotonic() - started < 5


def test_a_server_without_an_append_only_file_is_refused(opened: Open, valkey_server: ValkeyServer) -> None:
    valkey_server.connection().call("CONFIG", "SET", "appendonly", "no")
    with pytest.raises(StepError, match="start it with --appendonly yes") as caught:
        opened().begin("1")
    assert caught.value.code == USAGE


def test_an_item_costs_as_many_commands_in_a_large_queue(opened: Open, valkey_server: ValkeyServer) -> None:
    connection = valkey_server.connection()

    def commands_of_an_item(count: int) -> dict[str, int]:
        queue = filled(opened(f"run.of-{count}"), [f"{number:06}" for number in range(count)])
        connection.call("CONFIG", "RESETSTAT")
        claim = claimed(queue, f"token-{count}")
        assert queue.commit(claim.token, claim.item, "{}")
        lines = connection.call("INFO", "commandstats").decode().splitlines()
        # A script is loaded the first time.
        lines = [
            line
            for line in lines
            if line.startswith("cmdstat_") and not line.startswith(("cmdstat_e", "cmdstat_sc"))
        ]
        fields = [line.removeprefix("cmdstat_").split(":calls=") for line in lines]
        return {name: int(values.split(",")[0]) for name, values in fields}

    few, many = commands_of_an_item(10), commands_of_an_item(5_000)

    assert many == few
    assert {"hget", "zrem"} <= few.keys(), "the commands of scripts are counted"
    whole = {"hgetall", "hkeys", "hvals", "hscan", "zscan", "zcount", "zrank", "scan", "keys", "sort"}
    assert not few.keys() & whole
    connection.close()
