"""The network gate: what it measures with real collectives, what it refuses, and what it says then."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from slipway.offline.rehearsal.machine.processes import free_ports
from slipway.workloads.gates import nccl
from slipway.workloads.gates.allreduce import _parse, bus_bandwidth, elements_for, find_plugin, hints, shortfall
from slipway.workloads.runtime.devices import VARIABLE
from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, INTERRUPTED, StepError
from tests.workloads.steps import ROOT, environment, only_error, run, start

EFA = ("--network", "EFA", "--resource", "vpc.amazonaws.com/efa", "--bandwidth", "400")


def gate(*arguments: str, virtual: str = "nvidia-tesla-t4:2") -> list[tuple[int, str]]:
    """Exit code and output of the gate's two pods, each with its launcher, as their Job runs them."""
    meeting, *ports = free_ports(3)
    launcher = [sys.executable, "-m", "slipway.workloads.runtime.nodes.launcher", "--meet", f"127.0.0.1:{meeting}"]
    nodes = [word for port in ports for word in ("--node", f"127.0.0.1:{port}")]
    program = [sys.executable, "-m", "slipway.workloads.gates.allreduce", *arguments]
    pods = [
        subprocess.Popen(
            [*launcher, *nodes, "--wait", "120", "--gpus", "2", "--", *program],
            cwd=ROOT,
            env=environment(**{VARIABLE: virtual, "JOB_COMPLETION_INDEX": str(rank), "JOB_UID": "one"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    while all(pod.poll() is None for pod in pods):
        time.sleep(0.05)
    if any(pod.poll() for pod in pods):
        # As the Job's controller does. The others wait for that.
        for pod in pods:
            pod.terminate()
    outputs = [pod.communicate(timeout=240)[0] for pod in pods]
    return [(pod.returncode, output) for pod, output in zip(pods, outputs, strict=True)]


@pytest.mark.slow
def test_two_pods_sum_with_tensorflow_and_a_figure_of_cpus_refuses_nobody() -> None:
    (code, first), (other, second) = gate("--count", "2", "--bandwidth", "3200", "--network", "EFA")
    assert (code, other) == (0, 0), f"{first}\n{second}"
    match = re.search(r"2 ranks on 2 nodes: 16 MiB summed in [\d.,]+ ms, bus bandwidth ([\d.,]+) Gbit/s", first)
    assert match, first
    assert float(match[1].replace(",", "")) > 0
    assert "says nothing of a network" in first
    assert "bus bandwidth" not in second, "one of them says it"


def test_where_a_gpu_is_but_a_name_an_image_without_tensorflow_measures_nothing() -> None:
    output = run(
        "gates.allreduce", "--count", 2, "--library", "nccl", WORLD_SIZE="2", **{VARIABLE: "nvidia-tesla-t4:2"}
    )
    assert "nothing was measured" in output


@pytest.mark.slow
def test_pods_that_have_no_gpu_are_refused() -> None:
    for code, output in gate("--count", "2", virtual=""):
        assert code in (ACCELERATOR_REFUSED, 15), output
    assert "asked: 2 GPU(s) in each pod, found: 0" in output


def first_of_two() -> dict[str, str]:
    """The environment of a pod whose neighbour never comes."""
    here, other = free_ports(2)
    cluster = {"worker": [f"127.0.0.1:{here}", f"127.0.0.1:{other}"]}
    return {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}),
        VARIABLE: "nvidia-tesla-t4:2",
    }


@pytest.mark.slow
def test_pods_that_cannot_connect_end_and_free_their_gpus() -> None:
    # Longer than TensorFlow takes to load: it is its wait for the other pod that has to end.
    output = run("gates.allreduce", *("--count", 2, "--patience", 12), code=ACCELERATOR_REFUSED, **first_of_two())
    error = only_error(output)
    assert "no sum was finished within 12 s" in error
    assert "NetworkPolicies" in error


@pytest.mark.slow
def test_a_pod_that_waits_for_another_ends_when_told() -> None:
    process = start("gates.allreduce", *("--count", 2), **first_of_two())
    assert process.stdout is not None
    assert "2 nodes with 2 GPU(s) each" in process.stdout.readline()
    while not (children := psutil.Process(process.pid).children()):
        time.sleep(0.1)
    (measuring,) = children
    # Once its server listens, it waits.
    while not any(net_connection.status == psutil.CONN_LISTEN for net_connection in measuring.net_connections()):
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, output
    assert "the measurement was not finished" in only_error(output)
    with contextlib.suppress(psutil.NoSuchProcess):
        while measuring.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.1)


def test_an_image_without_nccl_is_refused_with_what_to_install() -> None:
    if nccl.packages():
        pytest.skip("NCCL is installed here")
    error = only_error(run("gates.allreduce", "--library", "nccl", code=ACCELERATOR_REFUSED, WORLD_SIZE="2"))
    assert "libnccl.so.2" in error
    assert "nvidia-nccl-cu12" in error


@pytest.mark.parametrize(
    ("ranks", "size", "seconds", "gbps"),
    # Two ranks send what they have once; many send it almost twice.
    [(2, 10**9, 1.0, 8.0), (16, 10**9, 1.0, 15.0), (16, 4 * 10**9, 0.02, 3000.0)],
)
def test_bus_bandwidth_is_what_passes_a_nodes_network(ranks: int, size: int, seconds: float, gbps: float) -> None:
    assert bus_bandwidth(size, seconds, ranks) == pytest.approx(gbps)


def test_far_less_than_the_networks_figure_is_refused_and_what_tcp_reaches_is_not() -> None:
    options = _parse([*EFA])
    assert shortfall(80, options) is None
    problem = shortfall(79.5, options)
    assert problem is not None
    assert [words for words in ("79.50 Gbit/s", "EFA", "400", "20 %", "80 Gbit/s") if words not in problem] == []
    assert shortfall(0.1, _parse([])) is None, "nobody says how fast it should be"
    assert shortfall(79.5, _parse([*EFA, "--least", "10"])) is None


def test_a_refusal_names_the_plugin_that_the_image_lacks_first() -> None:
    words = hints(_parse([*EFA]), plugin="")
    assert words.index("no plugin for EFA") < words.index("one zone")
    assert "OFI plugin" in words
    assert "plugin" not in hints(_parse([*EFA]), plugin="libnccl-net.so")
    assert "plugin" not in hints(_parse(["--network", "gVNIC", "--bandwidth", "50"]), plugin="")


def test_a_fast_network_is_given_more_to_do_and_none_holds_its_gpus_for_long() -> None:
    sizes = [4 * elements_for(bandwidth, None, virtual=False) for bandwidth in (0, 10, 50, 3200)]
    assert sizes == [64 * 2**20, 64 * 2**20, 298 * 2**20, 2**30]
    assert elements_for(3200, None, virtual=True) * 4 == 16 * 2**20
    # A sum that wants 3,200 Gbit/s and has 10 takes seconds.
    assert sizes[-1] * 8 / 10e9 < 1


def test_a_plugin_is_found_by_the_name_that_nccl_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_plugin() == ""
    # Any library will do: the loader is asked for it by its path.
    library = next(word for word in Path("/proc/self/maps").read_text().split() if re.search(r"/libc\.so", word))
    monkeypatch.setenv("NCCL_NET_PLUGIN", library)
    assert find_plugin() == library


def test_rank_0_tells_the_others_where_nccl_listens() -> None:
    (port,) = free_ports(1)
    secret, heard = os.urandom(nccl.ID_BYTES), list[bytes]()
    # They ask before it listens, too.
    askers = [threading.Thread(target=lambda: heard.append(nccl.ask("127.0.0.1", port))) for _ in range(3)]
    for asker in askers:
        asker.start()
    nccl.tell(secret, port, 3)
    for asker in askers:
        asker.join()
    assert heard == [secret] * 3


@pytest.mark.slow
def test_an_answer_of_another_kind_is_no_meeting_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "CONNECTING", 0.5)
    (port,) = free_ports(1)
    with pytest.raises(StepError, match=f"rank 0 does not answer at 127.0.0.1:{port}"):
        nccl.ask("127.0.0.1", port)
