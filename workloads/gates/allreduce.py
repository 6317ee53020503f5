"""Measure what two nodes of a pool reach when they sum up gradients, and refuse far less than their network has.

Every pod of the step runs this at the same time; they sum a big tensor over all their GPUs, several times, with
the library that a training in this image uses: TensorFlow's collectives over NCCL, or NCCL alone where the image
has no TensorFlow. What is compared is the bus bandwidth, 2 (n - 1) / n x bytes / seconds for n GPUs in all, which
is what has to pass the network of a node in each direction however many there are (NVIDIA/nccl-tests,
doc/PERFORMANCE.md, seen November 2026). Where no GPU is real, the figure is one of this machine's CPUs: it is
shown, and nothing is refused.

`slipway.workloads.runtime.nodes.launcher` runs it: `python -m slipway.workloads.gates.allreduce --count 2
--bandwidth 50`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import select
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from slipway.workloads.gates import nccl
from slipway.workloads.runtime.devices import before_import, virtual_request
from slipway.workloads.runtime.exits import (
    ACCELERATOR_REFUSED,
    OK,
    USAGE,
    StepError,
    exit_code,
    run,
    stop_on_sigterm,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST = 20
"""Percent of the network's figure below which nodes are refused. NCCL over plain connections falls well short of a
fast network's figure, and that is no fault of the nodes: the gate is for what is wrong, and not for tuning."""

PATIENCE = 300.0
"""Seconds in which all pods have to be connected and the first sums have to be there."""

ROUNDS = 7
"""Measurements; the median counts. The first is not among them: NCCL connects in it."""

MEBIBYTE = 2**20

PLUGINS = ("libnccl-net.so", "libnccl-net-ofi.so")
"""Files by which NCCL finds a plugin for a network other than sockets and InfiniBand: its own name for it, and
that of aws/aws-ofi-nccl (seen November 2026)."""


def main(arguments: list[str] | None = None) -> int:
    """Run the measurement; returns the exit code.

    Raises:
        StepError: with ACCELERATOR_REFUSED where GPUs are missing, sums are wrong, or the nodes are far slower
        than their network.
    """
    options = _parse(arguments)
    virtual = virtual_request() is not None
    pods, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if pods < 2:
        launcher = "slipway.workloads.runtime.nodes.launcher"
        raise StepError(USAGE, f"a network is between nodes: run it by {launcher} in two pods")
    plugin = find_plugin()
    if rank == 0:
        print(_introduction(options, pods, plugin, virtual=virtual), flush=True)
    if virtual and options.library == "nccl":
        # What stands in for a GPU is a name, and NCCL sums on GPUs alone.
        print("No GPU is here, and nothing was measured", flush=True)
        return OK
    watch = _Watch(options.patience)
    elements = elements_for(options.bandwidth, options.mebibytes, virtual=virtual)
    if options.library == "nccl":
        sums = nccl.Sums(rank, pods, options.count, elements)
    else:
        sums = _TensorFlow(elements, options, virtual=virtual)
    ranks = sums.ranks
    seconds = _measure(sums.add, watch)
    gbps = bus_bandwidth(4 * elements, seconds, ranks)
    problem = None if virtual else shortfall(gbps, options)
    if rank == 0:
        print(
            f"{ranks} ranks on {pods} nodes: {4 * elements / MEBIBYTE:,.0f} MiB summed in "
            f"{seconds * 1000:,.1f} ms, bus bandwidth {gbps:,.2f} Gbit/s"
            f"{_comparison(gbps, options, virtual=virtual)}",
            flush=True,
        )
    # A pod that ended now could take away what another one still reads of its last sum.
    watch.leave_after(30, ACCELERATOR_REFUSED if problem else OK, f"error: {problem}" if problem else "")
    try:
        sums.finish()
    except Exception as error:  # Others may be gone already, and the figure is there.
        print(f"the other pods left first: {type(error).__name__}", flush=True)
    if problem:
        raise StepError(ACCELERATOR_REFUSED, f"{problem} {hints(options, plugin)}")
    return OK


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """Gbit/s that pass a node's network in each direction when ``ranks`` sum ``size`` bytes in ``seconds``."""
    return 2 * (ranks - 1) / ranks * size / seconds * 8 / 1e9


def shortfall(gbps: float, options: argparse.Namespace) -> str | None:
    """Why nodes are refused that reach ``gbps``; None where they are not, or no figure of theirs is known."""
    least = options.bandwidth * options.least / 100
    if gbps >= least:
        return None
    return (
        f"two nodes sum gradients at {gbps:,.2f} Gbit/s, and their network ({options.network}) has "
        f"{options.bandwidth:,g}: less than {options.least:g} % of it ({least:,g} Gbit/s)."
    )


def hints(options: argparse.Namespace, plugin: str) -> str:
    """What is likely the reason, and what to do."""
    reasons: list[str] = []
    if options.resource and not plugin:
        reasons.append(
            f"NCCL finds no plugin for {options.network} in this image and goes over plain TCP: take an image "
            "that has one (for networks of libfabric the OFI plugin), or a pool without it"
        )
    if options.resource:
        reasons.append(f"the pod has to ask for all {options.resource} of its node")
    reasons += [
        "the nodes are far from one another: one zone, and placement close together",
        "NCCL chose another interface, or a single connection: NCCL_DEBUG=INFO shows both",
        "other pods use the nodes' network at this moment: run again",
    ]
    return "Likely: " + "; ".join(f"({number}) {reason}" for number, reason in enumerate(reasons, 1))


def find_plugin() -> str:
    """The file of a network plugin that NCCL would find; empty where there is none."""
    chosen = os.environ.get("NCCL_NET_PLUGIN", "")
    names = (chosen, f"libnccl-net-{chosen}.so", *PLUGINS) if chosen else PLUGINS
    for name in filter(None, names):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return ""


def _introduction(options: argparse.Namespace, pods: int, plugin: str, *, virtual: bool) -> str:
    figure = f"{options.bandwidth:,g} Gbit/s" if options.bandwidth else "no figure is known"
    by = "the CPU" if virtual else f"NCCL, {f'plugin {plugin}' if plugin else 'no network plugin'}"
    return f"{pods} nodes with {options.count} GPU(s) each; network: {options.network}, {figure}; sums by {by}"


def _comparison(gbps: float, options: argparse.Namespace, *, virtual: bool) -> str:
    if virtual:
        return "; a figure of CPUs that stand in for GPUs, which says nothing of a network"
    if not options.bandwidth:
        return "; of this network no figure is known to compare with"
    return f", {gbps / options.bandwidth:.0%} of the network's"


def elements_for(bandwidth: float, mebibytes: int | None, *, virtual: bool) -> int:
    """Float32 numbers of the tensor: a twentieth of a second's worth of the network, from 64 MiB to 1 GiB.

    So a network that is as fast as it should be gives a time that can be measured, and one that is a hundred times
    slower holds its GPUs for seconds and not for minutes. Little where CPUs stand in.
    """
    if mebibytes is None:
        mebibytes = 16 if virtual else int(min(max(bandwidth * 1e9 / 8 / 20 / MEBIBYTE, 64), 1024))
    return mebibytes * MEBIBYTE // 4


def _measure(add: Callable[[], None], watch: _Watch) -> float:
    """Seconds of one measurement: the median, after one that does not count."""
    add()
    watch.end()
    seconds: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        add()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


class _Watch:
    """Ends the process where the pods cannot connect: a collective that waits for another pod waits for ever.

    The measurement goes on in a child process, and this one watches it. TensorFlow holds the interpreter's lock
    while its servers wait for one another (2.21, seen November 2026): no thread runs beside it, and no handler.
    """

    def __init__(self, patience: float) -> None:
        reading, self._writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            os.close(self._writing)
            _watch(child, reading, patience)
        os.close(reading)
        # The parent is told as well, and ends both.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def end(self) -> None:
        """They are connected."""
        self._tell(None, OK, "")

    def leave_after(self, seconds: float, code: int, words: str) -> None:
        """Ends the process with ``code`` if it is still there by then: its figure is known, others may be gone."""
        self._tell(seconds, code, words)

    def _tell(self, seconds: float | None, code: int, words: str) -> None:
        os.write(self._writing, f"{json.dumps([seconds, code, words])}\n".encode())


def _watch(child: int, reading: int, patience: float) -> NoReturn:
    """Ends as ``child`` does, or for it once its time is over. What it writes to ``reading`` sets another time."""
    stop_on_sigterm("the measurement was not finished", lambda: os.kill(child, signal.SIGKILL))
    code, words = (
        ACCELERATOR_REFUSED,
        f"error: no sum was finished within {patience:g} s: the GPUs of the pods cannot reach one another. "
        "NCCL connects at ports of its own choice, so pods of the step have to reach all of one another's "
        "ports. See the NetworkPolicies of the namespace; NCCL_DEBUG=INFO shows what NCCL tries "
        f"(exit code {ACCELERATOR_REFUSED})",
    )
    end: float | None = time.monotonic() + patience
    while True:
        ready, _, _ = select.select([reading], [], [], None if end is None else max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if words:
                print(words, file=sys.stderr, flush=True)
            os._exit(code)
        told = os.read(reading, 65536)
        if not told:
            break
        seconds, code, words = json.loads(told.splitlines()[-1])
        end = None if seconds is None else time.monotonic() + seconds
    os._exit(exit_code(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


class _TensorFlow:
    """Sums by TensorFlow's collectives: NCCL between GPUs, a ring between CPUs that stand in for them."""

    def __init__(self, elements: int, options: argparse.Namespace, *, virtual: bool) -> None:
        before_import(keras=False, libraries=options.libraries)
        import tensorflow as tf

        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        communication = tf.distribute.experimental.CommunicationImplementation
        # Collectives have to be set up before anything else asks TensorFlow for a device.
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(
                implementation=communication.RING if virtual else communication.NCCL
            )
        )
        self.ranks = int(self._strategy.num_replicas_in_sync)
        self._check_gpus(options.count, virtual=virtual)
        self._add = tf.function(lambda: self._strategy.run(_sum, (elements,)))
        self._goodbye = tf.function(lambda: self._strategy.run(_sum, (1,)))

    def _check_gpus(self, count: int, *, virtual: bool) -> None:
        import tensorflow as tf

        gpus = len(tf.config.list_logical_devices("GPU"))
        if not virtual and gpus != count:
            raise StepError(
                ACCELERATOR_REFUSED,
                f"asked: {count} GPU(s) in each pod, found: {gpus}. Does the device plugin offer nvidia.com/gpu, "
                "and is the image one that ends in -gpu?",
            )

    def add(self) -> None:
        """One measurement. Raises StepError where a sum is wrong."""
        self._check(self._add())

    def finish(self) -> None:
        """Returns once all pods have all their sums."""
        self._check(self._goodbye())

    def _check(self, sums: Any) -> None:
        expected = self.ranks * (self.ranks + 1) / 2
        for mean in self._strategy.experimental_local_results(sums):
            if not math.isclose(float(mean), expected, rel_tol=1e-4):
                raise StepError(
                    ACCELERATOR_REFUSED,
                    f"a sum over {self.ranks} GPUs is wrong: its mean is {float(mean):g} instead of {expected:g}; "
                    "a GPU or a network card is faulty, have the nodes replaced",
                )


def _sum(elements: int) -> Any:
    """Adds up a tensor that has each replica's number in all places, 1 to n; returns the mean of what is there."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    assert context is not None
    values = tf.fill([elements], tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0)
    summed = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
    # Both ends: where a tensor went in pieces, each of them came.
    return (tf.reduce_mean(summed[:1024]) + tf.reduce_mean(summed[-1024:])) / 2


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.gates.allreduce", description=__doc__)
    parser.add_argument("--count", type=int, default=1, help="GPUs of each pod (default: 1)")
    parser.add_argument(
        "--bandwidth", type=float, default=0, help="the network's figure in Gbit/s; 0: not known (default)"
    )
    parser.add_argument("--network", default="network", help="what the network is called: EFA, gVNIC")
    parser.add_argument("--resource", default="", help="the extended resource that a pod asks for to use it")
    parser.add_argument(
        "--least", type=float, default=LEAST, help=f"percent of the figure to refuse below (default: {LEAST})"
    )
    parser.add_argument(
        "--library", choices=("tensorflow", "nccl"), default="tensorflow", help="what sums (default: tensorflow)"
    )
    parser.add_argument("--mebibytes", type=int, help="size of the tensor (default: by the figure)")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        help=f"seconds in which the pods have to connect (default: {PATIENCE:g})",
    )
    parser.add_argument(
        "--libraries", type=Path, help="what slipway.workloads.cuda.install published, for use on GPUs"
    )
    options = parser.parse_args(arguments)
    if options.count < 1 or options.bandwidth < 0 or not 0 <= options.least <= 100:
        parser.error("--count has to be at least 1, --bandwidth not below 0, --least 0 to 100")
    if options.mebibytes is not None and options.mebibytes < 1:
        parser.error("--mebibytes has to be at least 1")
    return options


if __name__ == "__main__":
    run(main)
