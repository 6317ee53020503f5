"""What a queue costs: beside a plain loop, with more workers, and with 100,000 items.

What is compared runs at the same time on the same machine, so that whatever else the machine does falls on both.
Items wait and do not compute: four of them at once need no four cores. Run as `python -m benchmarks.queue_cost`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.queue_kill_run import PASSWORD, ValkeyServer
from benchmarks.training import processor
from slipway.workloads.runtime.items.items import Record
from slipway.workloads.runtime.items.queue import Claimed, ItemQueue, Rules
from slipway.workloads.runtime.items.resp import Connection

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """\
import json, os, sys, time
begin = time.time()
item, output = sys.argv[1:]
time.sleep(float(os.environ["SECONDS_PER_ITEM"]))
with open(os.path.join(output, "value.txt"), "w", encoding="utf-8") as file:
    file.write(open(item, encoding="utf-8").read())
with open(os.environ["LOG_OF_ITEMS"], "a", encoding="utf-8") as file:
    file.write(json.dumps([begin, time.time()]) + "\\n")
"""

DIGEST = "0123456789abcdef" * 4

LOOP = """\
import os, subprocess, sys
data, output, program = sys.argv[1:]
for name in sorted(os.listdir(data)):
    place = os.path.join(output, name)
    os.makedirs(place)
    subprocess.run([sys.executable, "-c", program, os.path.join(data, name), place], check=True)
"""


@dataclass(frozen=True)
class Took:
    """Seconds: of the whole command, and from the first item's begin to the last one's end."""

    whole: float
    items: float


class Contender:
    """One way to work on the items of a folder, started now."""

    def __init__(
        self, folder: Path, data: Path, seconds: float, workers: int, server: ValkeyServer | None
    ) -> None:
        folder.mkdir(parents=True)
        self._log = folder / "items"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._begin = time.time()
        self._end = 0.0
        output = folder / "out" / "days"
        for index in range(workers or 1):
            if workers:
                queue = ["--queue", server.address, "--queue-password", "QUEUE_PASSWORD"] if server else []
                command = [
                    "-m", "slipway.workloads.runtime.items.worker", "--step", "days", "--output", str(output),
                    "--items", f"{data}/*.txt", "--workers", str(workers), *queue,
                    "--", sys.executable, "-c", PROGRAM, "{item}", "{output}",
                ]  # fmt: skip
            else:
                command = ["-c", LOOP, str(data), str(output), PROGRAM]
            environment = {
                **os.environ,
                "JOB_COMPLETION_INDEX": str(index),
                "JOB_UID": "one round",
                "QUEUE_PASSWORD": PASSWORD,
                "SECONDS_PER_ITEM": str(seconds),
                "LOG_OF_ITEMS": str(self._log),
            }
            with (folder / f"{index}.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
                )

    def running(self) -> bool:
        """Whether it still is; notes when it ended."""
        if self._end:
            return False
        if any(process.poll() is None for process in self._processes):
            return True
        self._end = time.time()
        return False

    def took(self, items: int) -> Took:
        """How long it took for so many items."""
        assert all(process.returncode == 0 for process in self._processes), self._log.parent
        times = [json.loads(line) for line in self._log.read_text().splitlines()]
        assert len(times) == items, f"{len(times)} items were worked on, {items} were there"
        first, last = min(begin for begin, _ in times), max(end for _, end in times)
        return Took(self._end - self._begin, last - first)


def side_by_side(
    scratch: Path, items: int, seconds: float, contenders: dict[str, tuple[int, bool]]
) -> dict[str, Took]:
    """Run contenders at the same time: how many workers, none for a plain loop, and whether they have a queue."""
    data = scratch / "data"
    data.mkdir(parents=True)
    for number in range(items):
        (data / f"{number:03}.txt").write_text(f"item {number}\n")
    servers = {name: ValkeyServer(scratch / f"{name} server") for name, (_, queue) in contenders.items() if queue}
    try:
        for server in servers.values():
            server.start()
        running = {
            name: Contender(scratch / name, data, seconds, workers, servers.get(name))
            for name, (workers, _) in contenders.items()
        }
        # Each is asked, and notes when it ended.
        while sum(contender.running() for contender in running.values()):
            time.sleep(0.005)
        return {name: contender.took(items) for name, contender in running.items()}
    finally:
        for server in servers.values():
            server.kill()


def against_a_loop(scratch: Path, rounds: int, items: int, seconds: float) -> list[str]:
    """Seconds per item of one worker, with and without a queue, against a plain loop over the same program."""
    kinds = {"plain loop": (0, False), "worker, queue": (1, True), "worker, static": (1, False)}
    results = [side_by_side(scratch / f"loop-{number}", items, seconds, kinds) for number in range(rounds)]
    lines = [
        f"| {items} items of {seconds:g} s, {rounds} rounds | seconds per item | beyond the loop "
        "| whole command |",
        "| --- | --- | --- | --- |",
    ]
    for name in kinds:
        of_item = statistics.median(one[name].items / items for one in results)
        beyond = [one[name].items / one["plain loop"].items - 1 for one in results]
        whole = statistics.median(one[name].whole for one in results)
        spread = f"{statistics.median(beyond):+.1%} ({min(beyond):+.1%} to {max(beyond):+.1%})"
        lines.append(f"| {name} | {of_item:.3f} | {'' if name == 'plain loop' else spread} | {whole:.1f} s |")
    return lines


def with_more_workers(scratch: Path, rounds: int, items: int, seconds: float) -> list[str]:
    """How much faster four workers are than one."""
    kinds = {"1": (1, True), "4": (4, True)}
    results = [side_by_side(scratch / f"four-{number}", items, seconds, kinds) for number in range(rounds)]
    whole = [one["1"].whole / one["4"].whole for one in results]
    working = [one["1"].items / one["4"].items for one in results]
    return [
        f"| {items} items of {seconds:g} s, {rounds} rounds | 1 worker | 4 workers | faster by |",
        "| --- | --- | --- | --- |",
        f"| whole command | {statistics.median(one['1'].whole for one in results):.1f} s "
        f"| {statistics.median(one['4'].whole for one in results):.1f} s "
        f"| {statistics.median(whole):.2f} ({min(whole):.2f} to {max(whole):.2f}) |",
        f"| from the first item's begin to the last one's end "
        f"| {statistics.median(one['1'].items for one in results):.1f} s "
        f"| {statistics.median(one['4'].items for one in results):.1f} s "
        f"| {statistics.median(working):.2f} ({min(working):.2f} to {max(working):.2f}) |",
    ]


def straight_through(scratch: Path, mode: str, items: int) -> list[str]:
    """Milliseconds for claiming, renewing and committing one item, at the beginning and at the end of many.

    A `PING` after each item shows what the machine and one trip to the server take at that moment.
    """
    server = ValkeyServer(scratch / f"{mode} server")
    server.start()
    connection = server.connection()
    try:
        queue = ItemQueue(connection, "many", Rules(mode, 3, 60.0))
        queue.begin("one")
        names = [(f"item-{number:06}", False) for number in range(items)]
        begin = time.perf_counter()
        assert queue.fill(names) == items
        filled = time.perf_counter() - begin
        assert queue.fill(names) == 0
        blocks = [_block(queue, connection, items // 10) for _ in range(10)]
        assert queue.state() == {"ready": 0, "leases": 0, "done": items, "aside": 0}
        memory = int(_info(connection, "memory")["used_memory"]) / items
    finally:
        connection.close()
        server.kill()
    lines = [
        f"| {items:,} items, {mode} | claim, renew, commit | PING | ratio |",
        "| --- | --- | --- | --- |",
    ]
    for name, (work, ping) in {"first tenth": blocks[0], "last tenth": blocks[-1]}.items():
        lines.append(f"| {name} | {1000 * work:.3f} ms | {1000 * ping:.3f} ms | {work / ping:.1f} |")
    ratios = [work / ping for work, ping in blocks]
    lines += [
        "",
        f"Ratio of each tenth: {', '.join(f'{ratio:.1f}' for ratio in ratios)}. Filled in {filled:.1f} s; "
        f"{memory:.0f} bytes of the server's memory for each item.",
    ]
    return lines


def _block(queue: ItemQueue, connection: Connection, count: int) -> tuple[float, float]:
    """Seconds for one of `count` items, and for a PING: medians, as now and then something else has the core."""
    working: list[float] = []
    pinging: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        claimed = queue.claim(secrets.token_hex(8))
        assert isinstance(claimed, Claimed)
        assert queue.renew(claimed.token)
        record = Record(claimed.item, f"1-{claimed.token[:8]}", DIGEST, DIGEST, 1, 1.234)
        assert queue.commit(claimed.token, claimed.item, record.encode())
        middle = time.perf_counter()
        connection.call("PING")
        working.append(middle - begin)
        pinging.append(time.perf_counter() - middle)
    return statistics.median(working), statistics.median(pinging)


def _info(connection: Connection, section: str) -> dict[str, str]:
    lines = connection.call("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print tables; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=20, help="beside the loop; with four workers, twice as many")
    parser.add_argument("--seconds", type=float, default=1.0, help="that one item takes; default: 1")
    parser.add_argument("--many", type=int, default=100_000, help="items for the operations; default: 100000")
    options = parser.parse_args(arguments)
    print(f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, {date.today()}\n")
    with tempfile.TemporaryDirectory(prefix="slipway-cost-") as name:
        scratch = Path(name)
        parts = [
            lambda: against_a_loop(scratch, options.rounds, options.items, options.seconds),
            lambda: with_more_workers(scratch, options.rounds, 2 * options.items, options.seconds),
            lambda: straight_through(scratch, "parallel", options.many),
            lambda: straight_through(scratch, "ordered", options.many),
        ]
        for part in parts:
            print("\n".join(part()), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
