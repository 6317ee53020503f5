"""Run a program and measure beside it what it uses of CPU, memory and GPUs.

The program gets its own command line, its output comes out as it is, and its exit code is this one's. What was
measured is kept in the file that `--file` names, which is written again and again so that a pod that is killed
leaves it too, and is answered to Prometheus at `--port` of the pod's own address. Nothing that goes wrong with it
ends the program.

Run as `python3 -m slipway.runtime.usage.measure --step churn.train --gpus 1 --file FILE -- python -m
program`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, cast

from slipway.runtime.exits import (
    BAD_INPUT,
    StepError,
    exit_code,
    parse_before_program,
)
from slipway.runtime.hosts import configured, is_known
from slipway.runtime.parts import VARIABLE, Parts, node_life
from slipway.runtime.steps import notice
from slipway.runtime.steps.program import Forwarding
from slipway.runtime.usage import figures as processes
from slipway.runtime.usage.figures import MIB, Gpu, Nvml, UnavailableError, Usage
from slipway.runtime.usage.limits import (
    GRACE,
    IDLE,
    INTERVAL,
    ITSELF,
    TOLD,
    Guard,
    Idle,
    Limits,
    Reached,
    pause,
)

# Answers Prometheus with the use of a step while it runs.
#
# The text is Prometheus's exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats, November
# 2026).


PATH = "/metrics"

GAUGE, COUNTER = "gauge", "counter"

METRICS = {
    "slipway_step_seconds_total": (COUNTER, "Seconds that the step's pod was measured."),
    "slipway_step_cpu_seconds_total": (COUNTER, "Seconds of CPU that its processes used."),
    "slipway_step_memory_bytes": (GAUGE, "Memory that its processes hold."),
    "slipway_step_rate": (GAUGE, "What the program last wrote of its speed, in the unit of the label."),
    "slipway_step_gpu_busy_percent": (GAUGE, "Percent of the last sample in which a kernel ran on the GPU."),
    "slipway_step_gpu_idle_seconds_total": (COUNTER, "Seconds in which the GPU was idle."),
    "slipway_step_gpu_memory_used_bytes": (GAUGE, "Memory in use on the GPU."),
    "slipway_step_gpu_memory_total_bytes": (GAUGE, "Memory that the GPU has."),
    "slipway_step_gpu_watts": (GAUGE, "Power that the GPU draws."),
}
"""Type and help of each metric by its name."""


def text(usage: Usage) -> str:
    """All metrics of ``usage``."""
    pipeline, _, step = usage.step.partition(".")
    of_step = {"pipeline": pipeline, "step": step}
    values: list[tuple[str, dict[str, str], float]] = [("slipway_step_seconds_total", of_step, usage.seconds)]
    if usage.cpu_seconds is not None:
        values.append(("slipway_step_cpu_seconds_total", of_step, usage.cpu_seconds))
        values.append(("slipway_step_memory_bytes", of_step, usage.memory))
    if usage.rate is not None:
        values.append(("slipway_step_rate", {**of_step, "unit": usage.rate_unit}, usage.rate))
    for index, gpu in enumerate(usage.gpus):
        labels = {**of_step, "gpu": str(index), "model": gpu.name}
        if gpu.busy_now is not None:
            values.append(("slipway_step_gpu_busy_percent", labels, gpu.busy_now))
            values.append(("slipway_step_gpu_idle_seconds_total", labels, gpu.idle_seconds))
        values.append(("slipway_step_gpu_memory_used_bytes", labels, gpu.memory_now))
        values.append(("slipway_step_gpu_memory_total_bytes", labels, gpu.memory_total))
        if gpu.watts_now is not None:
            values.append(("slipway_step_gpu_watts", labels, gpu.watts_now))
    lines: list[str] = []
    for name, (kind, words) in METRICS.items():
        of_name = [(labels, value) for metric, labels, value in values if metric == name]
        if of_name:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{{{_labels(labels)}}} {value!r}" for labels, value in of_name]
    return "\n".join([*lines, ""])


def serve(address: str, port: int, current: Callable[[], str]) -> http.server.ThreadingHTTPServer:
    """Answer at ``port`` of ``address`` alone, in threads of their own. Raises OSError."""
    names = configured()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if not is_known(self.headers.get("Host"), names):
                self.send_error(421)
                return
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            content = current().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """A log of a step has no room for who asked."""

    server = http.server.ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


EMULATED = "SLIPWAY_VIRTUAL_ACCELERATORS"
"""Set where CPUs stand in for GPUs (`slipway.runtime.devices`)."""

ADDRESS = "POD_IP"
"""The pod's own address, at which alone it answers."""

PERIOD = 2.0
"""Seconds between two samples. The driver's own sample of a GPU's use is at most one second."""

FIRST_FILE, MOST_BETWEEN_FILES = 2.0, 30.0
"""Seconds until the file is written first, and at most between two times; in between they double."""

FIRST_LINE, BETWEEN_LINES = 60.0, 300.0
"""Seconds until a line about the use of GPUs stands in the log, and between two."""

_PIECE = 1 << 16
_LAST_WORDS = 2.0
"""Seconds for which the output of a program is still read once it has ended: what it started may hold it open."""

_LONGEST_LINE = 4096
_LINES_READ = 32
"""Lines, of each piece the last, in which a speed is looked for: a program may write more than anybody reads."""

_KEPT = 100
"""Pods before the last one of which figures are kept: what they cost counts."""

_BARS = 64
"""How many names of a speed are told apart. A name is the text before the first number of a line."""

_RATE = re.compile(
    rb"(\d[\d,]*(?:\.\d+)?)\s*"
    rb"((?:images?|imgs?|examples?|samples?|tokens?|records?|rows?|batch(?:es)?|steps?|it)\s*(?:/|per)\s*s(?:ec(?:ond)?)?)\b",
    re.IGNORECASE,
)


class Measurement:
    """Samples one process tree. ``idle_share`` percent of idle time are worth a warning; ``noted`` is the file of
    parts.
    """

    def __init__(self, usage: Usage, file: Path | None, idle_share: int, noted: Path | None = None) -> None:
        self.usage = usage
        self._file = file
        self._idle_share = idle_share
        self._nvml = self._open_driver()
        self.guard: Guard | None = None
        self.idle: Idle | None = None
        self._lock = threading.Lock()
        self._keeping = threading.Lock()
        self._began = self._last = time.monotonic()
        self._parts = Parts(noted, self._began)
        self._next_file, self._between_files = FIRST_FILE, FIRST_FILE
        self._next_line = FIRST_LINE
        self._before = _records_in(file)
        self._cpu_before = 0.0
        self._tail = b""
        self._bars: dict[bytes, float] = {}
        self._longest = 0.0

    def _open_driver(self) -> Nvml | None:
        usage = self.usage
        if not usage.asked_gpus or usage.emulated:
            return None
        try:
            nvml = Nvml()
        except (UnavailableError, AttributeError) as error:
            usage.trouble = str(error)
            return None
        usage.gpus = [Gpu(name) for name in nvml.names]
        return nvml

    def sample(self, root: int) -> None:
        """Look once at the process ``root`` with all that it started, and at the GPUs."""
        # A driver may take its time, or never answer: nobody is to wait for that.
        readings = self._nvml.read() if self._nvml else []
        used = processes.of(root)
        now = time.monotonic()
        with self._lock:
            usage, seconds = self.usage, now - self._last
            self._last = now
            usage.seconds = now - self._began
            usage.samples += 1
            cores = 0.0
            if used is not None:
                # What a process used that nobody waited for is lost with it: the sum may not go back.
                total = max(used.cpu, usage.cpu_seconds or 0.0)
                cores = (total - (usage.cpu_seconds or 0.0)) / seconds if seconds > 0 else 0.0
                usage.cpu_seconds = total
                usage.memory = used.memory
                usage.memory_peak = max(usage.memory_peak, used.memory)
            for gpu, reading in zip(usage.gpus, readings):  # noqa: B905
                gpu.add(seconds, reading.busy, usage.idle_below)
                gpu.watts_now = reading.watts
                gpu.memory_now = reading.memory_used or 0
                gpu.memory_peak = max(gpu.memory_peak, gpu.memory_now)
                gpu.memory_total = reading.memory_total or 0
            busy = [gpu.busy_now for gpu in usage.gpus if gpu.busy_now is not None]
            if busy and max(busy) >= max(usage.idle_below, 1):
                self._parts.see_busy(now)
            if self.idle is not None and busy:
                usage.idle_for = usage.idle_for + seconds if sum(busy) < self.idle.below * len(busy) else 0.0
            point = [usage.seconds, cores, usage.memory / MIB]
            usage.course.add([*point, sum(busy) / len(busy) / 100] if busy else point)

    def report(self) -> None:
        """Write the file and the line in the log where they are due."""
        elapsed = self.usage.seconds
        # What a guard reads of other pods is written as often as it reads.
        if elapsed >= self._next_file and self.guard is None:
            self._between_files = min(2 * self._between_files, MOST_BETWEEN_FILES)
            self._next_file = elapsed + self._between_files
            self.write()
        if self.usage.gpus and elapsed >= self._next_line:
            self._next_line = elapsed + BETWEEN_LINES
            self.say()

    def say(self) -> None:
        """The line, and behind it a warning where GPUs were idle for too long."""
        with self._lock:
            self._add_up()
        print(self.usage.line(), flush=True)
        idle = self.usage.idle
        if idle is not None and 100 * idle > self._idle_share:
            count = len(self.usage.gpus)
            who = "the GPU" if count == 1 else f"{count} GPUs"
            print(
                f"warning: {who} did next to nothing for {100 * idle:.0f} % of {self.usage.seconds:.0f} s, which "
                "are paid all the same: look at how the data reaches it, or ask for less",
                flush=True,
            )

    def write(self) -> None:
        """Keep what is known so far."""
        if self._file is None:
            return
        with self._lock:
            self._add_up()
            content = self.usage.encode(self._before)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}.tmp")
            temporary.write_bytes(content)
            temporary.replace(self._file)
        except OSError as error:
            print(f"warning: what the step uses cannot be kept: {error}", file=sys.stderr, flush=True)
            self._file = None

    def _add_up(self) -> None:
        """Take up what the time went for so far; while the lock is held."""
        usage = self.usage
        # A program that did well may have been too short for a sample of its GPUs: then it is not known.
        loads = not usage.done and any(gpu.known for gpu in usage.gpus)
        usage.parts = self._parts.until(self._began + usage.seconds, loads=loads)

    def keep(self) -> dict[str, Any]:
        """Keep what is known so far, of the month, too, where that is limited; returns it."""
        with self._keeping:
            with self._lock:
                self.usage.seconds = time.monotonic() - self._began
            self.write()
            with self._lock:
                current = json.loads(self.usage.encode(self._before))
            if self.guard is not None:
                try:
                    self.guard.keep(current)
                except OSError as error:
                    print(f"warning: what the month costs cannot be kept: {error}", file=sys.stderr, flush=True)
        return current

    def finish(self, *, well: bool, told: bool = False, reached: Reached | None = None) -> None:
        """Take up what the system says of the program once it has ended, and keep it; `reached` ended it."""
        with self._lock:
            usage = self.usage
            usage.done = well
            usage.ended = TOLD if told else ITSELF
            usage.limit = reached.record() if reached else usage.limit
            usage.seconds = time.monotonic() - self._began
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            usage.cpu_seconds = max(usage.cpu_seconds or 0.0, ended.ru_utime + ended.ru_stime)
            # KiB on Linux, bytes on macOS (getrusage(2)).
            largest = ended.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            usage.memory_peak = max(usage.memory_peak, largest)
        self.keep()

    def listen(self, piece: bytes) -> None:
        """Look for a speed in what the program writes.

        What was named for the longest time counts: a library's bar for loading weights or mapping rows, which is
        over in seconds, is not the speed of the training before or after it.
        """
        *lines, self._tail = (self._tail + piece).replace(b"\r", b"\n").split(b"\n")
        self._tail = self._tail[-_LONGEST_LINE:]
        for line in reversed(lines[-_LINES_READ:]):
            if match := _RATE.search(line[-_LONGEST_LINE:]):
                name, now = re.split(rb"[\d|\[]", line, maxsplit=1)[0].strip(), time.monotonic()
                began = self._bars.setdefault(name, now) if len(self._bars) < _BARS else self._bars.get(name, now)
                if (named_for := now - began) < self._longest:
                    return
                self._longest = named_for
                with self._lock:
                    self.usage.rate = float(match[1].replace(b",", b""))
                    self.usage.rate_unit = match[2].decode().lower().replace(" ", "")
                return

    def text(self) -> str:
        """All metrics, for Prometheus."""
        with self._lock:
            return text(self.usage)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code, 128 + n where signal n ended it."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    pod, began = os.environ.get("POD_NAME", ""), datetime.fromtimestamp(time.time(), timezone.utc)  # noqa: UP017
    node = node_life(pod, began.timestamp())
    usage = Usage(
        step=options.step,
        pod=pod,
        began=began.isoformat(timespec="seconds"),
        asked_gpus=options.gpus,
        idle_below=options.idle_below,
        emulated=os.environ.get(EMULATED, "") if options.gpus else "",
        boot=node.boot,
        node_booted=node.booted,
        pool=options.pool,
    )
    file = options.file and Path(str(options.file).replace("{index}", os.environ.get("JOB_COMPLETION_INDEX", "0")))
    with contextlib.ExitStack() as stack:
        measurement = Measurement(usage, file, options.idle_share, _file_of_parts(stack))
        try:
            _limit(options, file, measurement)
        except StepError as error:
            print(f"error: {options.step}: {error} (exit code {error.code})", file=sys.stderr, flush=True)
            measurement.finish(well=False)
            return error.code
        _answer(options.port, measurement)
        return _run(options, measurement)


def _limit(options: argparse.Namespace, file: Path | None, measurement: Measurement) -> None:
    """Have the limits of the options kept. Raises StepError where one is reached before the program starts."""
    if options.idle_for:
        measurement.idle = Idle(options.idle_below, options.idle_for, stops=options.idle_then == "stop")
    if not options.limits or file is None:
        return
    times = {"every": options.limits_every, "grace": options.grace}
    try:
        read = functools.partial(Limits.read, options.limits)
        guard = Guard(read, file, options.step, options.pool, **times)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StepError(BAD_INPUT, f"the limits of the stack cannot be read: {error!r}") from error
    measurement.guard = guard
    if guard.price is None:
        print(
            f"warning: {options.step} does not count for `slipway:budget`: no price is known of its pool, "
            f"{options.pool}",
            flush=True,
        )
    else:
        measurement.usage.price = guard.price.record()
    if reached := guard.look(measurement.keep()):
        measurement.usage.limit = reached.record()
        why = f"{reached.words}: the program is not started; raise it, and the next update goes on"
        raise StepError(reached.code, why)


def _file_of_parts(stack: contextlib.ExitStack) -> Path | None:
    """The pod's own, which containers before this one know, too; else one that is gone with the `stack`."""
    if VARIABLE not in os.environ:
        try:
            made = stack.enter_context(tempfile.NamedTemporaryFile(prefix="slipway-parts-"))  # noqa: SIM115
        except OSError:
            return None
        os.environ[VARIABLE] = made.name
    return Path(os.environ[VARIABLE])


class Ending:
    """Ends a program before its own end, once, with an exit code that says why."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, grace: float) -> None:
        self.reached: Reached | None = None
        self._process, self._file, self._grace = process, file, grace
        self._lock = threading.Lock()

    @property
    def why(self) -> str:
        """What is said of it, as a part of a sentence."""
        if self.reached is None:
            return ""
        more = "" if self.reached.kind == IDLE else "; raise it, and the next update goes on"
        return f"{self.reached.words}{more}"

    def begin(self, reached: Reached) -> None:
        """Give the program notice, and end it by force after `grace` seconds."""
        with self._lock:
            if self.reached is not None:
                return
            self.reached = reached
        print(f"The program is told to end: {self.why}", flush=True)
        notice.end(self._process, self._file, self._grace, self.why)
        ending = threading.Timer(self._grace, self._process.kill)
        ending.daemon = True
        ending.start()


def _run(options: argparse.Namespace, measurement: Measurement) -> int:
    words, every = options.words, options.limits_every
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    environment = dict(os.environ)
    file = notice.path_in(environment)
    with Forwarding(*numbers) as signals:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
            )
        except OSError as error:
            reason = f"{words[0]} cannot be started: {error.strerror}"
            print(f"error: {reason} (exit code 127)", file=sys.stderr, flush=True)
            return 127
        signals.to(process)
        assert process.stdout is not None
        copying = threading.Thread(target=_copy, args=(process.stdout, measurement), daemon=True)
        copying.start()
        over, ending = threading.Event(), Ending(process, file, options.grace)
        sampling = threading.Thread(target=_sample, args=(process.pid, measurement, over, ending), daemon=True)
        sampling.start()
        if measurement.guard is not None:
            args = (measurement, measurement.guard, every, over, ending)
            threading.Thread(target=_guard, args=args, name="guard", daemon=True).start()
        code = process.wait()
        over.set()
        copying.join(_LAST_WORDS)
        sampling.join(_LAST_WORDS)
        reached = ending.reached if code else None
        measurement.finish(well=code == 0, told=signal.SIGTERM in signals.received, reached=reached)
        if code == 0:
            # Of a program that failed, the log's end is its own: that is what people are shown of the pod.
            with contextlib.suppress(OSError):
                measurement.say()
        elif reached is not None:
            words_ = f"{measurement.usage.step} was ended: {ending.why}; what it saved is kept"
            print(f"error: {words_} (exit code {reached.code})", file=sys.stderr, flush=True)
            return reached.code
    return exit_code(code)


def _sample(root: int, measurement: Measurement, over: threading.Event, ending: Ending) -> None:
    try:
        measurement.sample(root)
        while not over.wait(PERIOD):
            measurement.sample(root)
            measurement.report()
            idle, usage = measurement.idle, measurement.usage
            if idle is not None and (reached := idle.look(usage.idle_for, len(usage.gpus), usage.price)):
                if idle.stops:
                    ending.begin(reached)
                else:
                    print(f"warning: {reached.words}", flush=True)
    except Exception as error:
        print(f"warning: what the step uses is not measured any more: {error!r}", file=sys.stderr, flush=True)


def _guard(measurement: Measurement, guard: Guard, every: float, over: threading.Event, ending: Ending) -> None:
    trouble = ""
    while not over.wait(pause(every)):
        try:
            reached = guard.look(measurement.keep())
        except Exception as error:
            # A limit that is not kept is worth a word, and no reason to lose the work.
            if trouble != (trouble := repr(error)):
                print(f"warning: the budget is not looked at: {trouble}", file=sys.stderr, flush=True)
            continue
        if reached is not None:
            ending.begin(reached)
            return


def _copy(stream: BinaryIO, measurement: Measurement) -> None:
    try:
        while piece := os.read(stream.fileno(), _PIECE):
            view = memoryview(piece)
            while view:
                view = view[os.write(1, view) :]
            measurement.listen(piece)
    except OSError as error:
        print(f"warning: what the program writes cannot be passed on: {error}", file=sys.stderr, flush=True)
        # As without this process, it is told so: else it would wait for ever until somebody reads.
        stream.close()


def _answer(port: int, measurement: Measurement) -> None:
    address = os.environ.get(ADDRESS)
    if not port or not address:
        return
    try:
        serve(address, port, measurement.text)
    except OSError as error:
        print(
            f"warning: nobody can read what the step uses at {address}:{port}: {error}",
            file=sys.stderr,
            flush=True,
        )


def _records_in(file: Path | None) -> list[dict[str, Any]]:
    """What pods before this one left, without their courses: they had its place, and were taken away."""
    try:
        content = json.loads(file.read_text()) if file else None
    except (OSError, ValueError):
        return []
    if not isinstance(content, dict):
        return []
    last = cast("dict[str, Any]", content)
    before = last.pop("before", None)
    last.pop("course", None)
    return [*(cast("list[dict[str, Any]]", before) if isinstance(before, list) else []), last][-_KEPT:]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m slipway.runtime.usage.measure",
        usage="%(prog)s --step NAME [options] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--step", required=True, metavar="NAME", help="whose use it is, as in churn.train")
    add("--file", metavar="FILE", help="where it is kept; {index} stands for the pod's own of several")
    add("--gpus", type=int, default=0, help="GPUs that the step asked for (default: 0)")
    add("--port", type=int, default=0, help="port at which Prometheus is answered (default: none)")
    add("--idle-below", type=int, default=5, help="percent below which a GPU is idle (default: 5)")
    add("--limits", type=Path, metavar="FILE", help="what the stack may spend, with the prices of its pods")
    add("--limits-every", type=float, default=INTERVAL, metavar="SECONDS", help="between two looks at it")
    add("--grace", type=float, default=GRACE, metavar="SECONDS", help="that a program has to end at a limit")
    add("--pool", default="", metavar="NAME", help="the pool that the pod is on")
    add("--idle-for", type=float, default=0.0, metavar="SECONDS", help="idle GPUs are worth a word after so long")
    add("--idle-then", choices=("warn", "stop"), default="warn", help="what follows (default: warn)")
    add("--idle-share", type=int, default=30, help="percent of idle time that is worth a warning (default: 30)")
    return parse_before_program(parser, arguments)


if __name__ == "__main__":
    CODE = main()
    notice.remove()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(CODE)
