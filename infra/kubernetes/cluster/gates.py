"""Gates: short Jobs that find out, before a step costs anything, whether what it relies on works."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from slipway.infra.kubernetes.cluster.api_access import KUBERNETES_API, SERVICE_ACCOUNT
from slipway.infra.kubernetes.cluster.device_plugin import fingerprint, gpu_pools
from slipway.infra.pipelines.contract import literal
from slipway.infra.placed import (
    DEVICES_GATE,
    GATES_FOLDER,
    GPU_TEST,
    NETWORK_GATE,
    STORE_GATE,
    App,
    DeviceTest,
    Places,
    Step,
)
from slipway.infra.platform import GPU_RESOURCE, Interconnect, Platform, Pool, Resources

STORE_PROPAGATION = 600
"""Seconds that the store gate goes on trying. An identity binding takes "typically 2 minutes, potentially 7
minutes or longer" to reach every server (cloud.google.com/iam/docs/access-change-propagation, November 2026)."""

STORE_TIME_LIMIT = 1800
"""Seconds for the store gate, the start of a CPU node included."""

DEVICES_PATIENCE = 1200
"""Seconds that the devices gate waits for nodes that are there to boot, install their driver and run the device
plugin."""

DEVICES_TIME_LIMIT = DEVICES_PATIENCE + 600
"""Seconds for the devices gate, the start of a CPU node included."""

HOST_MEMORY = 4096
"""MiB that TensorFlow needs beside the first GPU, and `HOST_MEMORY_PER_GPU` for each."""

HOST_MEMORY_PER_GPU = 1024

SCRATCH = 3072
"""MiB of scratch space for a network gate, which copies what its image lacks to the node's disk."""

SHARED_MEMORY = 1024
"""MiB by which NCCL moves the sums of a network gate between the GPUs of a node."""

NETWORK_NODES = 2
"""Nodes of a network gate: enough to see what one of them sends and receives, however many the step has."""


@dataclass
class Gates:
    """The gates of a stack. Each is there once, however many steps it guards.

    A store gate runs per cluster, on a CPU node, before anything else there. So does a devices gate, which waits
    until the GPUs of all nodes that are there can be given to pods; only what asks for GPUs waits for it. GPUs
    themselves are tested in the pods that compute on them, each time on the node that they got: no other node
    starts for that. A network gate runs where a step has several nodes: two of them sum what a training sums, and
    are refused where they are far slower than the pool's network. It stays a Job, since it tests how a pool is set
    up, once for all steps and attempts; a group would measure at each start. Gates are no inputs of the step: a
    gate that runs again does not make finished work run again.
    """

    store_image: str
    _made: dict[tuple[str, ...], Step] = field(default_factory=dict[tuple[str, ...], Step])

    def guard(self, step: Step, *, tensorflow: bool = True) -> Step:
        """``step`` with the gates that it has to wait for, and the test of its GPUs.

        Where its image may have no ``tensorflow``, these are tested by their driver alone.
        """
        gates = [self._store_gate(step.platform)] if step.uses_store else []
        if step.resources.gpus:
            gates += [self._devices_gate(step.platform)] if step.platform.reads_nodes else []
            if step.nodes is not None:
                gates.append(self._network_gate(step, gates, tensorflow=tensorflow))
        return replace(step, after=(*step.after, *gates), test=_test_of(step, tensorflow=tensorflow))

    def guard_places(self, step: Step, places: Places, *, tensorflow: bool = True) -> Step:
        """``step``, which runs at ``places``, with the gates of the clusters of all of them; its GPUs are tested.

        There is no network gate: it would ask for nodes of each pool before the first place is tried.
        """
        platforms = {place.platform.name: place.platform for place in places.steps}.values()
        gates = [self._store_gate(platform) for platform in platforms]
        if any(place.resources.gpus for place in places.steps):
            gates += [self._devices_gate(platform) for platform in platforms if platform.reads_nodes]
        after = (*step.after, *gates)
        tested = [
            replace(place, after=after, test=_test_of(place, tensorflow=tensorflow)) for place in places.steps
        ]
        return replace(step, after=after, test=tested[0].test, places=replace(places, steps=tested))

    def before(self, app: App, *, tensorflow: bool = False) -> App:
        """``app`` with the gates that it has to wait for, and the test of its GPUs.

        These are tested where its image has a Python that can; by TensorFlow where it has that.
        """
        gates = [self._store_gate(app.platform)] if app.uses_store else []
        if not app.resources.gpus:
            return replace(app, after=(*app.after, *gates))
        gates += [self._devices_gate(app.platform)] if app.platform.reads_nodes else []
        tested = tensorflow or _runs_python(app)
        test = _device_test(app.pool, app.resources, app.supplements, tensorflow=tensorflow) if tested else None
        return replace(app, after=(*app.after, *gates), test=test)

    def _store_gate(self, platform: Platform) -> Step:
        key = ("store", platform.name)
        if key not in self._made:
            self._made[key] = Step(
                pipeline=STORE_GATE,
                name=platform.name,
                module="slipway.workloads.gates.store",
                arguments=["--store", "{store}", "--prefix", GATES_FOLDER, "--timeout", str(STORE_PROPAGATION)],
                image=self.store_image,
                platform=platform,
                pool=platform.cheapest_pool,
                resources=Resources(cpu=100, memory=256, ephemeral_storage=256),
                time_limit=STORE_TIME_LIMIT,
            )
        return self._made[key]

    def _devices_gate(self, platform: Platform) -> Step:
        key = ("devices", platform.name)
        if key not in self._made:
            pools = gpu_pools(platform)
            self._made[key] = Step(
                pipeline=DEVICES_GATE,
                name=platform.name,
                module="slipway.workloads.gates.devices",
                arguments=[
                    *("--api", KUBERNETES_API, "--service-account", SERVICE_ACCOUNT),
                    *("--resource", GPU_RESOURCE, "--timeout", str(DEVICES_PATIENCE)),
                    *(argument for pool in pools for argument in ("--pool", *_expectation(pool))),
                ],
                image=self.store_image,
                platform=platform,
                pool=platform.cheapest_pool,
                resources=Resources(cpu=100, memory=256, ephemeral_storage=256),
                time_limit=DEVICES_TIME_LIMIT,
                uses_store=False,
                reads_nodes=True,
                fingerprint=" ".join([*(pool.fingerprint for pool in pools), fingerprint(platform)]),
            )
        return self._made[key]

    def _network_gate(self, step: Step, gates: Sequence[Step], *, tensorflow: bool) -> Step:
        """It waits for all that ``step`` waits for, ``gates`` included: its nodes start when the step is due."""
        pool = step.pool
        key = ("network", pool.name, step.image)
        if key not in self._made:
            assert step.nodes is not None
            supplements = {name: source for name, source in step.inputs.items() if source.supplements}
            others = sum(1 for made in self._made if made[:2] == key[:2])
            network = pool.interconnect or Interconnect("network", 0)
            node = _whole_node(pool)
            gate = Step(
                pipeline=NETWORK_GATE,
                name=f"{pool.name}-{others + 1}" if others else pool.name,
                module="slipway.workloads.gates.allreduce",
                interpreter="python" if tensorflow else "python3",
                arguments=[
                    *("--count", str(pool.allocatable.gpus)),
                    *("--library", "tensorflow" if tensorflow else "nccl"),
                    *("--network", network.name, "--bandwidth", f"{network.bandwidth:g}"),
                    *(("--resource", network.resource) if network.resource else ()),
                    *reading(supplements),
                ],
                image=step.image,
                platform=step.platform,
                pool=pool,
                # What sends for the GPUs runs on CPUs, and the nodes have nothing else to do.
                resources=replace(node, cpu=max(node.cpu, step.resources.cpu)),
                # The gate is the first that waits for the nodes, so it has the step's patience.
                time_limit=step.time_limit,
                inputs=supplements,
                after=(*step.inputs.values(), *step.after, *gates),
                uses_store=step.uses_store,
                nodes=replace(step.nodes, count=NETWORK_NODES, roles={}),
                fingerprint=" ".join([pool.fingerprint, _describe(network)]),
                shm=SHARED_MEMORY,
            )
            self._made[key] = replace(gate, test=_test_of(gate, tensorflow=tensorflow))
        return self._made[key]


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
    by = "tensorflow" if tensorflow else "driver"
    devices = ["--model", pool.accelerator or "", "--count", str(resources.gpus)]
    return DeviceTest(["--by", by, *devices, *reading(supplements)], "python" if tensorflow else "python3")


def _whole_node(pool: Pool) -> Resources:
    """What a gate asks for that uses all GPUs of one node of ``pool``."""
    gpus = 1 if pool.shared_gpus else pool.allocatable.gpus
    return Resources(
        cpu=min(1000, pool.allocatable.cpu),
        memory=min(HOST_MEMORY + HOST_MEMORY_PER_GPU * gpus, pool.allocatable.memory),
        ephemeral_storage=min(SCRATCH, pool.allocatable.ephemeral_storage),
        gpus=gpus,
    )


def _runs_python(app: App) -> bool:
    """Whether its image is sure to have a Python: it runs a module, or a command that begins with one."""
    declared = app.declared
    return bool(declared.module) or declared.arguments[:1] in (["python"], ["python3"])


def _describe(network: Interconnect) -> str:
    """Changes when what pods use of the network does."""
    return json.dumps([network.name, network.resource, network.count, dict(network.environment)], sort_keys=True)


def _expectation(pool: Pool) -> tuple[str, str, str, str]:
    """The arguments of the devices gate for a pool: name, GPUs per node, nodes that have to be there, and
    labels."""
    labels = ",".join(f"{key}={value}" for key, value in pool.selector.items())
    return pool.name, str(pool.allocatable.gpus), str(pool.min_nodes), labels


def reading(supplements: Iterable[str]) -> list[str]:
    """The arguments that tell a step where its supplements are, which are inputs by these names."""
    return [f"--{name}={{{name}}}" for name in supplements]
