"""Results are recorded when the queue cannot lose them any more, and only then is anything deleted."""

from __future__ import annotations

import time

from slipway.features.items.pod.assignment import Recorder
from slipway.features.items.pod.queue import Claimed, ItemQueue, Rules
from tests.support.servers.valkey import ValkeyServer


def queue(server: ValkeyServer) -> ItemQueue:
    return ItemQueue(server.connection(), "run", Rules("parallel", 3, 0.2))


def recorder(server: ValkeyServer, happened: list[str]) -> Recorder:
    return Recorder(
        queue(server),
        lambda item, _: happened.append(f"{item} is written"),
        lambda item: happened.append(f"{item} is refused"),
    )


def test_what_follows_a_result_follows_its_record(valkey_server: ValkeyServer) -> None:
    happened: list[str] = []
    one = queue(valkey_server)
    one.begin("round")
    one.fill([("day-1", False)])
    assert isinstance(one.claim("token"), Claimed)
    assert one.commit("token", "day-1", "{}")
    recording = recorder(valkey_server, happened)
    recording.add("token", "day-1", "{}", lambda: happened.append("others are deleted"))
    assert recording.flush(10)
    assert happened == ["day-1 is written", "others are deleted"]


def test_a_result_that_the_queue_lost_has_no_followers(valkey_server: ValkeyServer) -> None:
    happened: list[str] = []
    one = queue(valkey_server)
    one.begin("round")
    one.fill([("day-1", False)])
    assert isinstance(one.claim("slow"), Claimed)
    while not isinstance(one.claim("other"), Claimed):
        time.sleep(0.02)
    recording = recorder(valkey_server, happened)
    recording.add("slow", "day-1", "{}", lambda: happened.append("others are deleted"))
    assert recording.flush(10)
    assert happened == ["day-1 is refused"]
