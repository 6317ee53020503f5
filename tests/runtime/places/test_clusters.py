"""A step with places in several clusters that share nothing but a store, with everything lost that can be lost."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from slipway.runtime.exits import OK
from slipway.runtime.schedule.places.orders import Order
from slipway.runtime.schedule.run import JOB_FAILED
from tests.runtime.places.shared_store import CUT_SECONDS
from tests.runtime.places.test_mover import FINAL, RULES
from tests.runtime.places.world import Actor, World

TWO = {"spot": "", "flex": "eu", "bought": ""}
AWAY = {"spot": "", "flex": "eu", "bought": "eu"}
THREE = {"spot": "", "flex": "eu", "bought": "us"}
LONGEST = 120_000
"""Turns after which a run counts as endless."""


class Crew:
    """The mover and the agents of a step, whose pods are replaced where they are lost. Pods are lost at a request
    with the likelihood ``loses``, and with ``zombies`` one is replaced while it still runs.
    """

    def __init__(self, world: World, loses: float = 0.0, zombies: float = 0.0) -> None:
        self.world, self.loses, self.zombies = world, loses, zombies
        self.codes: dict[str, int] = {}
        self.actors: list[Actor] = []
        self.started, self.ended_at = 0, 0.0
        for cluster in world.store.clusters:
            self.start(cluster)

    def start(self, cluster: str) -> None:
        world, self.started = self.world, self.started + 1
        name = f"{f'agent-{cluster}' if cluster else 'mnist-train'}-{world.mover_uid}x{self.started}"
        if cluster:
            world.agents[name] = f"{cluster}-{world.mover_uid}"
        else:
            world.movers[name] = world.mover_uid
        self.actors.append(Actor(world, name, cluster))

    def of(self, cluster: str) -> list[Actor]:
        return [actor for actor in self.actors if actor.cluster == cluster]

    def is_told(self, cluster: str) -> bool:
        """Whether its actor has to end by itself: it does not know yet that the mover has, or was told so."""
        if "" not in self.codes or self.world.now < self.ended_at + 2 * CUT_SECONDS:
            return True
        order = Order.newest(self.world.store.feeds(cluster, cluster).orders)
        return order is not None and order.code is not None

    def turn(self) -> None:
        """One of them goes on to its next request."""
        world, chance = self.world, self.world.chance
        ready = [actor for actor in self.actors if actor.ready_at <= world.now]
        if not ready:
            world.pass_time(max(1.0, min(actor.ready_at for actor in self.actors) - world.now))
            return
        actor = chance.choice(ready)
        newest = self.of(actor.cluster)[-1]
        actor.lost = actor.lost or chance.random() < (self.loses if actor is newest else 5 * self.loses + 0.01)
        actor.step()
        world.pass_time(0.3 * chance.random())
        if actor.is_over:
            self.replace(actor, was_newest=actor is newest)
        elif chance.random() < self.zombies:
            self.start(actor.cluster)
            if chance.random() < 0.5:
                actor.ready_at = world.now + chance.random() * 600

    def replace(self, actor: Actor, *, was_newest: bool) -> None:
        if actor.error is not None and actor.code is None:
            raise actor.error
        self.actors.remove(actor)
        if actor.code in FINAL and was_newest and self.world.chance.random() >= 10 * self.loses:
            self.codes[actor.cluster] = actor.code
            if not actor.cluster:
                self.ended_at = self.world.now
                # An agent may have to live for a while until it believes an end.
                self.loses = self.zombies = 0.0
                self.world.api_cuts = self.world.store.cuts = self.world.store.refuses = 0.0
            for other in self.of(actor.cluster):
                other.lost = True
                other.step()
                self.actors.remove(other)
        elif not self.of(actor.cluster):
            self.start(actor.cluster)

    def run(self) -> int:
        """The exit code of the mover, once all have ended.

        The agent of a cluster that the mover could not tell would go on until its Job's time limit.
        """
        for _ in range(LONGEST):
            if not any(self.is_told(actor.cluster) for actor in self.actors):
                for actor in self.actors:
                    actor.lost = True
                    actor.step()
                return self.codes[""]
            self.turn()
        raise AssertionError(f"no end: {self.codes}, {self.world.notes}, {self.world.live}, {self.world.pods}")


def test_a_step_goes_to_another_cluster_and_ends_there() -> None:
    world = World(random.Random(1), RULES, clusters=THREE)
    crew = Crew(world)
    world.capacity = {"spot": False, "flex": False, "bought": True}
    assert crew.run() == OK
    assert crew.codes == dict.fromkeys(["", "eu", "us"], OK)
    assert len(world.published) == 1
    assert world.wrong == []
    assert world.is_quiet


def chaos(seed: int) -> None:
    chance = random.Random(seed)
    timed = {"deadline": 9000.0, "work": 900.0} if chance.random() < 0.3 else {}
    dear = {"max_price": chance.choice([0.2, 1.0])} if chance.random() < 0.2 else {}
    late = {"time_limit": 2400.0} if chance.random() < 0.2 else {}
    world = World(
        chance,
        {**RULES, **timed, **dear, **late},
        fails=chance.random() < 0.2,
        pods_each=chance.choice([1, 1, 3]),
        clusters=chance.choice([TWO, AWAY, THREE]),
        # Much of the time the step is elsewhere, and often there are nodes at home then.
        flips={"spot": (1 / 600, 1 / 200), "flex": (1 / 30, 1 / 1500)},
        work=900.0,
        refuses=chance.choice([0.0, 0.02]),
        lag=chance.choice([1.0, 5.0, 20.0]),
        api_cuts=chance.choice([0.0, 0.0, 0.0005]),
    )
    store = world.store
    store.slow = chance.choice([0.0, 5.0, 60.0, 400.0])
    refuses, cuts = chance.choice([0.0, 0.02]), chance.choice([0.0, 0.0005, 0.001])
    loses, zombies = chance.choice([0.0, 0.001, 0.005]), chance.choice([0.0, 0.001, 0.005])
    code = JOB_FAILED
    for _ in range(12):
        store.refuses, store.cuts = refuses, cuts
        code = Crew(world, loses, zombies).run()
        assert world.wrong == []
        assert world.is_quiet
        said: dict[str, Any] = json.loads(world.notes["data"]["ended"])
        assert said["code"] == code
        if code == OK:
            break
        # The cause is mended, and the next `up` begins anew.
        world.fails, world.rules = False, {**RULES, **timed}
        store.slow = min(store.slow, 60.0)
        world.update()
    assert code == OK
    assert len(world.published) == 1
    world.update()
    assert Crew(world).run() == OK
    assert len(world.published) == 1
    assert world.wrong == []


@pytest.mark.parametrize("seed", [0, 1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_no_two_programs_run_and_nothing_is_left(seed: int) -> None:
    chaos(seed)


@pytest.mark.long
def test_no_two_programs_run_over_many_seeds() -> None:
    for seed in range(100, 130):
        chaos(seed)
