"""Gates: short Jobs that find out, before a step costs anything, whether what it relies on works."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slipway.infra.pipelines.contract import literal
from slipway.infra.placed import GATES_FOLDER, GPU_TEST, STORE_GATE, App, DeviceTest, Places, Step
from slipway.infra.platform import Platform, Pool, Resources

STORE_PROPAGATION = 600
"""Seconds that the store gate goes on trying. An identity binding takes "typically 2 minutes, potentially 7
minutes or longer" to reach every server (cloud.google.com/iam/docs/access-change-propagation, November 2026)."""

STORE_TIME_LIMIT = 1800
"""Seconds for the store gate, the start of a CPU node included."""


@dataclass
class Gates:
    """The gates of a stack. Each is there once, however many steps it guards.

    A store gate runs per cluster, on a CPU node, before anything else there. GPUs are tested in the pods that
    compute on them, each time on the node that they got: no other node starts for that. Gates are no inputs of the
    step: a gate that runs again does not make finished work run again.
    """

    store_image: str
    _made: dict[str, Step] = field(default_factory=dict[str, Step])

    def guard(self, step: Step, *, tensorflow: bool = True) -> Step:
        """``step`` with the gate that it has to wait for, and the test of its GPUs.

        Where its image may have no ``tensorflow``, these are only counted and named.
        """
        gates = [self._store_gate(step.platform)] if step.uses_store else []
        return replace(step, after=(*step.after, *gates), test=_test_of(step, tensorflow=tensorflow))

    def guard_places(self, step: Step, places: Places, *, tensorflow: bool = True) -> Step:
        """``step``, which runs at ``places``, with the gates of the clusters of all of them; its GPUs are
        tested.
        """
        platforms = {place.platform.name: place.platform for place in places.steps}.values()
        after = (*step.after, *(self._store_gate(platform) for platform in platforms))
        tested = [
            replace(place, after=after, test=_test_of(place, tensorflow=tensorflow)) for place in places.steps
        ]
        return replace(step, after=after, test=tested[0].test, places=replace(places, steps=tested))

    def before(self, app: App, *, tensorflow: bool = False) -> App:
        """``app`` with the gate that it has to wait for, and the test of its GPUs.

        These are tested where its image has a Python that can; by TensorFlow where it has that.
        """
        gates = [self._store_gate(app.platform)] if app.uses_store else []
        tested = bool(app.resources.gpus) and (tensorflow or _runs_python(app))
        test = _device_test(app.pool, app.resources, app.supplements, tensorflow=tensorflow) if tested else None
        return replace(app, after=(*app.after, *gates), test=test)

    def _store_gate(self, platform: Platform) -> Step:
        if platform.name not in self._made:
            self._made[platform.name] = Step(
                pipeline=STORE_GATE,
                name=platform.name,
                module="slipway.runtime.gates.store",
                arguments=["--store", "{store}", "--prefix", GATES_FOLDER, "--timeout", str(STORE_PROPAGATION)],
                image=self.store_image,
                platform=platform,
                pool=platform.cheapest_pool,
                resources=Resources(cpu=100, memory=256, ephemeral_storage=256),
                time_limit=STORE_TIME_LIMIT,
            )
        return self._made[platform.name]


def _test_of(step: Step, *, tensorflow: bool) -> DeviceTest | None:
    """What tests the GPUs that a pod of ``step`` has; None where it has none."""
    if not step.resources.gpus:
        return None
    supplements = [name for name, source in step.inputs.items() if source.supplements]
    test = _device_test(step.pool, step.resources, supplements, tensorflow=tensorflow)
    if not step.uses_store:
        return test
    passed = ["--passed", f"{{store}}/{GATES_FOLDER}/{GPU_TEST}", "--image", literal(step.image)]
    output = ["--output", "{output}"] if step.publishes else []
    return replace(test, arguments=[*test.arguments, *passed, *output])


def _device_test(pool: Pool, resources: Resources, supplements: Iterable[str], *, tensorflow: bool) -> DeviceTest:
    """What tests the GPUs of a pod with ``resources`` on ``pool``."""
    devices = ["--model", pool.accelerator or "", "--count", str(resources.gpus)]
    if not tensorflow:
        return DeviceTest(devices, "python3")
    return DeviceTest(["--tensorflow", *devices, *reading(supplements)])


def _runs_python(app: App) -> bool:
    """Whether its image is sure to have a Python: it runs a module, or a command that begins with one."""
    declared = app.declared
    return bool(declared.module) or declared.arguments[:1] in (["python"], ["python3"])


def reading(supplements: Iterable[str]) -> list[str]:
    """The arguments that tell a step where its supplements are, which are inputs by these names."""
    return [f"--{name}={{{name}}}" for name in supplements]
