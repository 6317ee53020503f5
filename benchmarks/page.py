"""Many visitors of a page at once: how long they wait, whether anyone is refused, and what the page's memory does.

Each visitor has an address of its own in 127.0.0.0/8, opens the page with its files, and then does what a browser
does: it asks for the status every two seconds, and for a prediction of a drawing, an upload or a held-out image
about every second. What answers is a real page in a process of its own; the model behind it is a stand-in that
answers after a while, as a server would, and needs next to no CPU. One visitor alone, after them, says what of it
is due to the others. Run as `python -m benchmarks.page`; it talks to this machine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import psutil
from PIL import Image, ImageDraw

from benchmarks.training import processor

ROOT = Path(__file__).resolve().parents[1]

STAND_IN = """\
import asyncio, json, sys
STATUS = {"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}]}
DIMS = [{"size": each} for each in ("-1", "28", "28", "1")]
SIGNATURE = {"inputs": {"image": {"dtype": "DT_UINT8", "tensor_shape": {"dim": DIMS}}},
             "outputs": {"o": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "10"}]}}}}
METADATA = {"metadata": {"signature_def": {"signature_def": {"serving_default": SIGNATURE}}}}
ANSWER = {"predictions": [[0.5, 0.5, 0, 0, 0, 0, 0, 0, 0, 0]]}

async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\\r\\n\\r\\n")).decode().lower()
            length = head.partition("content-length: ")[2].partition("\\r\\n")[0]
            await reader.readexactly(int(length or 0))
            path = head.split()[1]
            if path.endswith(":predict"):
                await asyncio.sleep(float(sys.argv[2]))
            found = ANSWER if path.endswith(":predict") else METADATA if path.endswith("/metadata") else STATUS
            body = json.dumps(found).encode()
            writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(body) + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()

asyncio.run(main())
"""

FILES = ("", "page.css", "page.js", "icon.svg")


@dataclass
class Measured:
    """Seconds of each request by its kind, and the answers that were not well by their status."""

    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    wrong: Counter[str] = field(default_factory=Counter[str])

    def note(self, kind: str, seconds: float) -> None:
        """One request."""
        self.seconds.setdefault(kind, []).append(seconds)

    @property
    def count(self) -> int:
        """All requests."""
        return sum(map(len, self.seconds.values()))


def drawing(number: int, kind: str, side: int) -> bytes:
    """An image file with some line in it."""
    chance = random.Random(number)
    image = Image.new("L", (side, side), 255)
    points = [(chance.randrange(side), chance.randrange(side)) for _ in range(5)]
    ImageDraw.Draw(image).line(points, fill=0, width=side // 12)
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


BODIES = [
    (("drawing", drawing(number, "PNG", 280)), ("upload", drawing(number, "JPEG", 1200))) for number in range(20)
]


class Connection:
    """One connection of a browser, kept open; opened again where the page closed it.

    As little as measures the page: a client library would take more of the machine than what is measured.
    """

    def __init__(self, source: str, port: int) -> None:
        self._source, self._port = source, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes) -> int:
        """The status of the answer, all of which was read."""
        for last in (False, True):
            if self._streams is None:
                self._streams = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(self._source, 0)
                )
            reader, writer = self._streams
            writer.write(f"{method} {path} HTTP/1.1\r\nhost: page\r\ncontent-length: {len(body)}\r\n\r\n".encode())
            writer.write(body)
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = re.search(r"content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                return int(head.split()[1])
            except (asyncio.IncompleteReadError, ConnectionError):
                self.close()
                if last:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Ends it."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def visit(number: int, port: int, ends: float, measured: Measured, pause: float) -> None:
    """One visitor until ``ends``, a time of `time.monotonic`."""
    chance = random.Random(number)
    connection = Connection(f"127.1.{number // 250}.{number % 250 + 1}", port)
    bodies = BODIES[number % len(BODIES)]

    async def ask(kind: str, method: str, path: str, body: bytes = b"") -> None:
        begin = time.perf_counter()
        try:
            status = await asyncio.wait_for(connection.ask(method, path, body), 30)
            if status != 200:
                measured.wrong[f"{kind} {status}"] += 1
        except (OSError, EOFError, TimeoutError) as error:
            measured.wrong[f"{kind} {type(error).__name__}"] += 1
        measured.note(kind, time.perf_counter() - begin)

    # People do not come in the same millisecond.
    await asyncio.sleep(chance.uniform(0, pause))
    for name in FILES:
        await ask("page", "GET", f"/{name}")
    looked = 0.0
    while time.monotonic() < ends:
        if time.monotonic() - looked > 2:
            looked = time.monotonic()
            await ask("status", "GET", "/api/status")
        what = chance.randrange(4)
        if what == 3:
            await ask("sample", "POST", f"/api/predict?sample={chance.randrange(10)}")
        else:
            kind, body = bodies[what == 2]
            await ask(kind, "POST", f"/api/predict?source={kind}", body)
        await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)
    connection.close()


async def memory_of(process: psutil.Process, ends: float, samples: list[tuple[float, float]]) -> None:
    """Notes MiB of a process and its open connections every half second."""
    while True:
        samples.append((process.memory_info().rss / 2**20, len(process.net_connections("tcp"))))
        if time.monotonic() > ends:
            return
        await asyncio.sleep(0.5)


async def scene(
    port: int, process: psutil.Process, visitors: int, seconds: float, pause: float
) -> tuple[Measured, list[tuple[float, float]], float]:
    """So many visitors for so long: what they measured, the page's memory, and its share of a core."""
    measured, memory = Measured(), list[tuple[float, float]]()
    before = sum(process.cpu_times()[:2])
    begin = time.monotonic()
    ends = begin + seconds
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(memory_of(process, ends, memory))
        for number in range(visitors):
            tasks.create_task(visit(number, port, ends, measured, pause))
    used = sum(process.cpu_times()[:2]) - before
    return measured, memory, used / (time.monotonic() - begin)


def table(measured: Measured, alone: Measured) -> list[str]:
    """Milliseconds by the kind of request, beside those of one visitor alone."""
    lines = [
        "| request | count | median | 95 % | 99 % | longest | alone, median | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in ("page", "status", "drawing", "upload", "sample"):
        milliseconds = [1000 * one for one in sorted(measured.seconds.get(kind, []))]
        single = [1000 * one for one in alone.seconds.get(kind, [])]
        if not milliseconds or not single:
            continue
        cuts = [
            milliseconds[min(int(len(milliseconds) * share), len(milliseconds) - 1)] for share in (0.5, 0.95, 0.99)
        ]
        median = statistics.median(single)
        words = [f"{one:.1f} ms" for one in (*cuts, milliseconds[-1], median)]
        lines.append(f"| {kind} | {len(milliseconds)} | {' | '.join(words)} | {cuts[0] / median:.1f} |")
    return lines


def start(command: Sequence[str], port: int) -> subprocess.Popen[bytes]:
    """A process that listens on ``port`` by now."""
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, f"{command} ended"
            assert time.monotonic() < deadline, f"{command} does not listen"
            time.sleep(0.05)
        else:
            return process


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns 1 where a visitor was refused anything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--visitors", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two predictions of a visitor")
    parser.add_argument("--serving-seconds", type=float, default=0.005, help="that the stand-in's model takes")
    parser.add_argument("--port", type=int, default=18480, help="and the one above it")
    options = parser.parse_args(arguments)
    if not 0 < options.visitors <= 2000 or not 0 < options.seconds <= 600:
        parser.error("at most 2,000 visitors for at most 600 seconds")
    print(f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, {date.today()}\n")
    with tempfile.TemporaryDirectory(prefix="slipway-page-") as folder:
        samples = Path(folder)
        for digit in range(10):
            (samples / f"{digit}.png").write_bytes(drawing(digit, "PNG", 28))
        (samples / "labels.json").write_text(json.dumps({f"{digit}.png": digit for digit in range(10)}))
        page = [
            "-m",
            "slipway.workloads.apps.page",
            "--serving",
            f"http://127.0.0.1:{options.port}",
            "--model",
            "digits",
        ]
        page += ["--ink", "light", "--port", str(options.port + 1), "--samples", str(samples)]
        processes = [start(["-c", STAND_IN, str(options.port), str(options.serving_seconds)], options.port)]
        try:
            processes.append(start(page, options.port + 1))
            return report(psutil.Process(processes[1].pid), options)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def report(process: psutil.Process, options: argparse.Namespace) -> int:
    """Runs the scenes and prints what was found."""

    def run(visitors: int, seconds: float) -> tuple[Measured, list[tuple[float, float]], float]:
        return asyncio.run(scene(options.port + 1, process, visitors, seconds, options.pause))

    # What is made once is made: threads, connections, tables of the decoders.
    run(options.visitors, 5)
    measured, memory, cores = run(options.visitors, options.seconds)
    alone, _, _ = run(1, min(options.seconds, 15))
    print("\n".join(table(measured, alone)), end="\n\n")
    size = max(len(memory) // 3, 1)
    thirds = [statistics.median(mebibytes for mebibytes, _ in memory[part * size :][:size]) for part in range(3)]
    print(
        f"{options.visitors} visitors, {options.seconds:g} s: {measured.count} requests, "
        f"{measured.count / options.seconds:.0f} a second; the page used {cores:.2f} of a core. "
        f"At most {max(int(count) for _, count in memory)} connections. Memory, median of each third: "
        f"{', '.join(f'{third:.1f}' for third in thirds)} MiB; at most {max(size for size, _ in memory):.1f} MiB. "
        f"Not answered as asked: {sum(measured.wrong.values())} {dict(measured.wrong) or ''}"
    )
    return 1 if measured.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
