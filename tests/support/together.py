"""Several processes of one training, as a launcher starts them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from slipway.rehearse.machine.processes import LOOPBACK, free_ports
from tests.support.steps import start_loaded


def addresses(count: int) -> list[str]:
    return [f"{LOOPBACK}:{port}" for port in free_ports(count)]


def config(among: Sequence[str], rank: int) -> str:
    return json.dumps({"cluster": {"worker": list(among)}, "task": {"type": "worker", "index": rank}})


class Together:
    """Processes of one training, started where TensorFlow is imported already.

    `outputs` are the directories that each has for the store.
    """

    def __init__(self, module: str, outputs: Sequence[Path], *arguments: object, **environment: str) -> None:
        among = addresses(len(outputs))
        self.processes = [
            start_loaded(
                module, "--output", output, *arguments,
                **{"TF_CONFIG": config(among, rank), **environment},
            )
            for rank, output in enumerate(outputs)
        ]  # fmt: skip

    def end(self) -> tuple[list[int], list[str]]:
        """The exit code and the log of each."""
        logs = [process.communicate(timeout=240)[0] for process in self.processes]
        return [process.returncode for process in self.processes], logs

    def wait_for(self, rank: int, words: str) -> None:
        stream = self.processes[rank].stdout
        assert stream is not None
        seen = []
        for line in stream:
            seen.append(line)
            if words in line:
                return
        raise AssertionError(f"{words!r} is not in {''.join(seen)}")
