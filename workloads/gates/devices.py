"""Check that every GPU that a cluster's nodes should have can be given to pods.

Reads the nodes from the Kubernetes API and waits, until a time limit, for the device plugin to make their GPUs
allocatable. A pool that has no node passes, unless it should always have some: its nodes start when a pod needs
them. Run in a pod as `python -m slipway.workloads.gates.devices --pool train 1 0 pool=train`. Standard library
only.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, OK, USAGE, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.kubernetes_api import add_options, api_of

FIRST_PAUSE = 1.0
"""Seconds before the second look at the nodes; each further pause is twice as long."""
LONGEST_PAUSE = 10.0

PROPAGATION = 60.0
"""Seconds after which a right that is refused was never given: it takes a moment to reach every API server."""


@dataclass(frozen=True)
class Pool:
    """What is expected of a pool: `gpus` on each of its nodes, and at least `min_nodes` of them."""

    name: str
    gpus: int
    min_nodes: int
    labels: dict[str, str]


def main(arguments: list[str] | None = None) -> int:
    """Wait for the GPUs; returns the exit code.

    Raises:
        StepError: with ACCELERATOR_REFUSED when a pool still lacks GPUs or nodes at the time limit.
    """
    options = _parse(arguments)
    stop_on_sigterm("the check was not finished")
    if not (options.service_account / "token").is_file():
        raise StepError(USAGE, f"{options.service_account} has no token: this runs in a pod that has one")
    api = api_of(options)
    began = time.monotonic()
    pause = FIRST_PAUSE
    printed: list[str] = []
    while True:
        nodes: list[dict[str, Any]] = []
        waited = time.monotonic() - began
        try:
            nodes = api.items("/api/v1/nodes")
            lacking = [line for pool in options.pools for line in missing(pool, nodes, options.resource)]
        except OSError as error:
            lacking = [f"the nodes could not be read: {error}"]
            if isinstance(error, PermissionError) and waited > PROPAGATION:
                raise StepError(ACCELERATOR_REFUSED, lacking[0]) from error
        if not lacking:
            for pool in options.pools:
                print(_summary(pool, nodes), flush=True)
            return OK
        if lacking != printed:
            print("Waiting: " + "; ".join(lacking), flush=True)
            printed = lacking
        left = options.timeout - waited
        if left <= 0:
            raise StepError(ACCELERATOR_REFUSED, f"after {options.timeout:g} s, {'; '.join(lacking)}")
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE)


def missing(pool: Pool, nodes: list[dict[str, Any]], resource: str) -> list[str]:
    """What `pool` still lacks of its GPUs among `nodes`, and why that may be; empty where nothing is missing.

    Nodes that take no more pods, because they are drained or deleted, are left out.
    """
    members = [node for node in nodes if _belongs(node, pool) and _takes_pods(node)]
    lines: list[str] = []
    if len(members) < pool.min_nodes:
        labels = ",".join(f"{key}={value}" for key, value in pool.labels.items())
        lines.append(
            f"pool {pool.name}: {len(members)} of at least {pool.min_nodes} nodes are there; "
            f"are they still starting, or without the labels {labels}?"
        )
    for node in members:
        allocatable = int(node.get("status", {}).get("allocatable", {}).get(resource, "0"))
        if allocatable < pool.gpus:
            lines.append(
                f"pool {pool.name}: node {node['metadata']['name']} has {allocatable} of {pool.gpus} "
                f"{resource} allocatable; {_reason(node, allocatable, resource)}"
            )
    return lines


def _belongs(node: dict[str, Any], pool: Pool) -> bool:
    labels = node["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in pool.labels.items())


def _takes_pods(node: dict[str, Any]) -> bool:
    return not node.get("spec", {}).get("unschedulable") and "deletionTimestamp" not in node["metadata"]


def _reason(node: dict[str, Any], allocatable: int, resource: str) -> str:
    """The likely reasons why a node offers too few GPUs, from what the node itself says."""
    conditions = {condition["type"]: condition for condition in node.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready")
    if ready is not None and ready.get("status") != "True":
        words = ready.get("message") or ready.get("reason") or "it is still starting"
        return f"it is not Ready: {words} (`kubectl cordon` leaves a node out)"
    capacity = int(node["status"].get("capacity", {}).get(resource, "0"))
    if capacity > allocatable:
        return "the device plugin reports the rest as unhealthy: see its log and the node's for Xid errors"
    if allocatable:
        return "fewer GPUs than the pool's settings say: is it another machine, or are they partitioned or shared?"
    labels = node["metadata"].get("labels", {})
    if any(key.startswith("nvidia.com/gpu.deploy.") for key in labels):
        return "NVIDIA's GPU Operator manages it: look at the operator's pods on it"
    taints = [
        f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"
        for taint in node.get("spec", {}).get("taints", [])
        if taint.get("effect") in {"NoSchedule", "NoExecute"}
    ]
    tolerated = f", which has to tolerate {' and '.join(taints)}" if taints else ""
    return (
        "is NVIDIA's driver installed on it, is its container runtime NVIDIA's, and does it run the device plugin"
        f"{tolerated}?"
    )


def _summary(pool: Pool, nodes: list[dict[str, Any]]) -> str:
    names = [node["metadata"]["name"] for node in nodes if _belongs(node, pool) and _takes_pods(node)]
    if not names:
        return f"Pool {pool.name}: no node yet; each will have {pool.gpus} GPU(s)"
    return f"Pool {pool.name}: {pool.gpus} GPU(s) allocatable on each of {', '.join(names)}"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.gates.devices", description=__doc__)
    add_options(parser)
    parser.add_argument("--resource", default="nvidia.com/gpu", help="what the GPUs are called on nodes")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds until it gives up (default: 900)")
    parser.add_argument(
        "--pool",
        nargs=4,
        action="append",
        required=True,
        metavar=("NAME", "GPUS", "NODES", "LABELS"),
        help="a pool: GPUs on each node, nodes that have to be there, and the labels of its nodes, as a=b,c=d",
    )
    options = parser.parse_args(arguments)
    options.pools = [_pool(*values) for values in options.pool]
    return options


def _pool(name: str, gpus: str, nodes: str, labels: str) -> Pool:
    try:
        pairs = dict(pair.split("=", 1) for pair in labels.split(","))
        return Pool(name, int(gpus), int(nodes), pairs)
    except ValueError as error:
        raise StepError(USAGE, f"--pool {name} {gpus} {nodes} {labels}: {error}") from error


if __name__ == "__main__":
    run(main)
