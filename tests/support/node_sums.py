"""A program on several nodes that needs no framework: each step sums numbers over all, and nobody gets ahead.

Rank 0 listens at `MASTER_PORT` without reusing an address that old connections hold, as programs do that know
nothing of generations. Who loses a neighbour fails. Rank 0 writes a checkpoint after each step, and at the end a
value in which every step of every rank is. Run it by `slipway.features.nodes.pod.launcher`, with the
directory of its result, the number of steps, and the seconds that each takes. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path


def main(output: Path, steps: int, seconds: float) -> None:
    """Work through all steps, from the checkpoint on."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    checkpoint = output / "checkpoint.json"
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"done": 0, "value": ""}
    print(f"step {state['done']} of {steps}", flush=True)
    peers = _peers(rank, count)
    while state["done"] < steps:
        time.sleep(seconds)
        done = state["done"]
        total = _sum(peers, rank, (rank + 1) * (done + 7) ** 2 % 1009)
        state = {"done": done + 1, "value": hashlib.sha256(f"{state['value']} {total}".encode()).hexdigest()}
        if rank == 0:
            write(checkpoint, json.dumps(state).encode())
    if rank == 0:
        write(output / "value.json", json.dumps(state).encode())


def write(target: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = target.with_name(f"{target.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)


def _peers(rank: int, count: int) -> list[socket.socket]:
    """At rank 0 the connections of all others, in the order of ranks; elsewhere the one to rank 0."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank:
        end = time.monotonic() + 30
        while True:
            try:
                connection = socket.create_connection((host, port), 5)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        connection.settimeout(None)
        connection.sendall(f"{rank}\n".encode())
        return [connection]
    server = socket.socket()
    server.bind((host, port))
    server.listen()
    connections: dict[int, socket.socket] = {}
    while len(connections) < count - 1:
        connection, _ = server.accept()
        connections[_number(connection)] = connection
    return [connections[other] for other in sorted(connections)]


def _sum(peers: list[socket.socket], rank: int, addend: int) -> int:
    if rank:
        peers[0].sendall(f"{addend}\n".encode())
        return _number(peers[0])
    total = addend + sum(_number(peer) for peer in peers)
    for peer in peers:
        peer.sendall(f"{total}\n".encode())
    return total


def _number(connection: socket.socket) -> int:
    text = b""
    while not text.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece:
            raise ConnectionResetError("a neighbour is gone")
        text += piece
    return int(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
