"""What a pool has room for, for what a stack adds to the steps of its pipelines."""

from dataclasses import replace

from slipway.infra.placement.shipping import left, with_room
from slipway.infra.platform import Platform, Pool, Resources
from tests.support.recording import record
from tests.support.stand_in import platform

QUEUE = Resources(cpu=500, memory=1024, ephemeral_storage=512)


def here(nodes: int) -> tuple[Platform, Pool]:
    placed_on = record(platform, {}, preview=True).result
    return placed_on, replace(placed_on.pools["cpu"], max_nodes=nodes)


def test_a_service_on_the_only_node_of_a_pool_takes_its_room() -> None:
    on, pool = here(1)
    alone, beside = left(on, pool), left(on, pool, {"cpu": [QUEUE]})
    assert (alone.cpu - beside.cpu, alone.memory - beside.memory) == (QUEUE.cpu, QUEUE.memory)
    assert left(on, pool, {"other": [QUEUE]}) == alone


def test_where_there_are_more_nodes_another_has_the_room() -> None:
    on, pool = here(2)
    assert left(on, pool, {"cpu": [QUEUE]}) == left(on, pool)


def test_what_has_no_room_beside_a_service_goes_to_a_roomier_pool() -> None:
    on, pool = here(1)
    roomy = replace(pool, name="roomy")
    on = replace(on, pools={"cpu": pool, "roomy": roomy})
    room = left(on, pool)
    assert with_room(on, pool, room) == pool
    assert with_room(on, pool, room, {"cpu": [QUEUE]}) == roomy
