"""Real programs under the module that measures them, with a stand-in for NVIDIA's library that is a real
library."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.rehearse.machine.processes import free_ports
from slipway.runtime.parts import Parts, timed
from slipway.runtime.usage.figures import MOST_POINTS, Course, Gpu, Nvml, Usage
from slipway.runtime.usage.measure import METRICS, serve, text
from tests.support.checkout import ROOT

NVML = r"""
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
typedef struct { unsigned gpu, memory; } Use;
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(index + 1); return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) { strncpy(name, "Tesla T4", length); return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    unsigned long number = (unsigned long)device;
    strncpy(uuid, number < 10 ? "GPU-0" : "MIG-0", length); uuid[4] += number % 10; return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    *count = getenv("PARTITIONED") ? 7 : 0; return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part) {
    *part = (void *)((unsigned long)device + 10); return index == 3 ? 0 : 6;
}
int nvmlDeviceGetUtilizationRates(void *device, Use *use) {
    if (getenv("PARTITIONED")) return 3;
    while (getenv("HANGS")) sleep(1);
    use->gpu = device == (void *)1 ? 90 : 0; use->memory = 1; return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    memory->total = 16ULL << 30; memory->used = 3ULL << 30; memory->free = memory->total - memory->used; return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 70500; return 0; }
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, of which the driver's stand-in is made")
    folder = tmp_path_factory.mktemp("nvml")
    source, library = folder / "nvml.c", folder / "libnvidia-ml.so.1"
    source.write_text(NVML)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def command(file: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    command_line = [
        sys.executable,
        "-m",
        "slipway.runtime.usage.measure",
        "--step",
        "mnist.train",
        "--file",
        str(file),
        *options,
    ]
    return [*command_line, "--", *words]


def environment(**more: str) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY")}
    return {**known, "PYTHONPATH": str(ROOT), "POD_NAME": "mnist-train-0", "PYTHONUNBUFFERED": "1", **more}


def run(file: Path, *words: str, options: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(file, *words, options=options),
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )


def record(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def wait_for(condition: Callable[[], object], seconds: float = 30) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError("it did not come")


def test_the_program_runs_as_it_is_and_what_it_used_is_kept(tmp_path: Path) -> None:
    script = (
        "import sys; print('out'); print('err', file=sys.stderr); sum(range(3_000_000)); bytearray(60_000_000)"
    )
    ended = run(tmp_path / "u" / "0.json", sys.executable, "-c", script)

    assert ended.returncode == 0
    assert ended.stdout.splitlines()[:2] == ["out", "err"]
    assert "Use: CPU" in ended.stdout.splitlines()[-1]
    kept = record(tmp_path / "u" / "0.json")
    assert (kept["step"], kept["pod"], kept["done"], kept["gpus"]) == ("mnist.train", "mnist-train-0", True, [])
    assert kept["cpu_cores"] > 0
    assert kept["memory_peak_mib"] >= 60


NOTICE = "import os, pathlib; pathlib.Path(os.environ['SLIPWAY_NOTICE']).touch()"


def test_no_temporary_file_stays(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    assert run(tmp_path / "0.json", sys.executable, "-c", NOTICE, TMPDIR=str(tmp_path / "tmp")).returncode == 0
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_exit_code_is_the_programs_own_and_its_last_words_stay_the_last(
    tmp_path: Path, script: str, code: int
) -> None:
    ended = run(tmp_path / "0.json", sys.executable, "-c", f"print('last words', flush=True); {script}")

    assert ended.returncode == code
    assert ended.stdout.splitlines() == ["last words"]
    assert record(tmp_path / "0.json")["done"] is False


def test_a_program_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    ended = run(tmp_path / "0.json", "/no/such/program")

    assert ended.returncode == 127
    assert "cannot be started" in ended.stderr


def test_sigterm_reaches_the_program_and_the_next_pod_keeps_what_the_one_before_used(tmp_path: Path) -> None:
    file = tmp_path / "0.json"
    script = "import signal as s, sys, time; s.signal(15, lambda *_: sys.exit(143)); print('up'); time.sleep(60)"
    process = subprocess.Popen(
        command(file, sys.executable, "-c", script), env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=30) == 143
    assert record(file)["done"] is False
    assert run(file, sys.executable, "-c", "pass").returncode == 0
    after = record(file)
    assert after["done"] is True
    assert [record["done"] for record in after["before"]] == [False]
    assert "course" not in after["before"][0]


def test_what_the_time_goes_for_is_kept_and_of_a_killed_program_too(tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom slipway.runtime.parts import timed\n"
        "with timed('inputs'): time.sleep(0.4)\npart = timed('publish'); part.__enter__(); time.sleep(0.4); "
        "os.kill(os.getpid(), 9)"
    )
    run(tmp_path / "0.json", sys.executable, "-c", script)

    kept = record(tmp_path / "0.json")
    assert kept["parts"]["inputs"] >= 0.3
    assert kept["parts"]["publish"] >= 0.3
    assert sum(kept["parts"].values()) == pytest.approx(kept["seconds"], abs=0.3)
    if Path("/proc/uptime").exists():
        assert kept["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert kept["node_booted"] == pytest.approx(
            time.time() - float(Path("/proc/uptime").read_text().split()[0]), abs=60
        )
    run(tmp_path / "1.json", sys.executable, "-c", "pass", SLIPWAY_VIRTUAL_NODE="t4-0")
    kept = record(tmp_path / "1.json")
    assert kept["boot"].endswith("t4-0")
    assert time.time() - kept["node_booted"] < 600


def test_parts_of_containers_before_and_within_others_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "parts"
    file.write_text(
        "+ 10.0 gate\n- 40.0 gate\n+ 105.0 publish\n+ 106.0 inputs\nno line of ours\n- 107.0 inputs\n"
        "- 115.0 publish\n+ 120.0 inputs\n+ 13"
    )
    parts = Parts(file, began=100.0)

    assert parts.until(130.0) == {"gate": 30.0, "publish": 10.0, "inputs": 10.0, "program": 10.0}
    assert parts.until(140.0) == {"gate": 30.0, "publish": 10.0, "inputs": 20.0, "program": 10.0}
    monkeypatch.setenv("SLIPWAY_PARTS", str(tmp_path / "no" / "such" / "folder"))
    with timed("gate"):
        pass


def test_a_program_loads_until_its_gpus_are_busy_with_it(tmp_path: Path) -> None:
    file = tmp_path / "parts"
    parts = Parts(file, began=100.0)
    parts.see_busy(100.1)  # with the test of the GPUs, in a container before
    assert parts.until(110.0, loads=True) == {"loading": 10.0, "program": 0.0}
    assert parts.until(110.0) == {"program": 10.0}, "a program that ended is not said to have loaded all the time"

    file.write_text("+ 111.0 gate\n")
    parts.see_busy(120.0)
    file.write_text("+ 111.0 gate\n- 121.0 gate\n")
    parts.see_busy(121.5)
    assert parts.until(122.0, loads=True) == {"gate": 10.0, "loading": 12.0, "program": 0.0}
    parts.see_busy(151.0)
    parts.see_busy(190.0)
    assert parts.until(200.0) == {"gate": 10.0, "loading": 40.0, "program": 50.0}


def test_a_store_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run(tmp_path / "file" / "0.json", sys.executable, "-c", "print('done')")

    assert ended.returncode == 0
    assert "cannot be kept" in ended.stderr


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("while True: print('a word' * 1000)", 1),
        ("import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: print('a word' * 1000)", 141),
        ("", 0),
    ],
)
def test_a_program_whose_output_nobody_takes_is_told_and_does_not_wait_for_ever(
    tmp_path: Path, program: str, code: int
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        words = command(tmp_path / "usage.json", sys.executable, "-c", program)
        ended = subprocess.run(
            words, env=environment(), stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert ("cannot be passed on" in ended.stderr) is bool(program)


@pytest.mark.slow
def test_a_driver_that_never_answers_keeps_nothing_from_the_program(tmp_path: Path, nvml: Path) -> None:
    said = "for number in range(20000): print(number, 'of many lines')\nprint('30 images/s')"
    options = ("--gpus", "2")
    ended = run(
        tmp_path / "usage.json", sys.executable, "-c", said, options=options, SLIPWAY_NVML=str(nvml), HANGS="1"
    )
    assert ended.returncode == 0
    assert "19999 of many lines" in ended.stdout
    kept = json.loads((tmp_path / "usage.json").read_text())
    assert (kept["done"], kept["rate"]) == (True, 30.0)


def test_the_speed_that_a_program_writes_is_kept(tmp_path: Path) -> None:
    script = r"print('Epoch 1 - 1,234.5 images/s'); print('\r 50% 2,000 images/s\r 99% 2,500 images/s')"
    run(tmp_path / "0.json", sys.executable, "-c", script)

    kept = record(tmp_path / "0.json")
    assert (kept["rate"], kept["rate_unit"]) == (2500.0, "images/s")


def test_the_speed_of_a_training_is_not_that_of_a_short_bar_of_a_library(tmp_path: Path) -> None:
    script = """
import time
def say(text):
    print(text, flush=True)
    time.sleep(0.2)
say("Map: 100%|####| 1281/1281 [00:00<00:00, 9000 it/s]")
for step in range(4):
    say(f"{step}/4 [00:00<00:01, {step + 5}.5 it/s]")
say("Writing model shards: 100%|####| 1/1 [00:00<00:00, 1,281 it/s]")
"""
    run(tmp_path / "0.json", sys.executable, "-c", script)
    assert record(tmp_path / "0.json")["rate"] == 8.5


@pytest.mark.slow
def test_idle_gpus_are_counted_and_said_loudly(tmp_path: Path, nvml: Path) -> None:
    ended = run(
        tmp_path / "0.json",
        *(sys.executable, "-c", "import time; time.sleep(2.5)"),
        options=("--gpus", "2", "--idle-share", "40"),
        SLIPWAY_NVML=str(nvml),
    )

    use, warning = ended.stdout.splitlines()
    assert use.startswith("Use: GPU busy 45 %, idle 50 % of ")
    assert "GPU memory at most 6.0 of 32.0 GiB" in use
    assert warning.startswith("warning: 2 GPUs did next to nothing for 50 % of ")
    kept = record(tmp_path / "0.json")
    assert (kept["gpu_busy"], kept["gpu_idle"]) == (0.45, 0.5)
    assert [gpu["busy"] for gpu in kept["gpus"]] == [0.9, 0.0]
    assert kept["parts"]["loading"] == pytest.approx(1, abs=0.5)
    assert f"loading {kept['parts']['loading']:.0f} s, program " in use
    assert kept["gpus"][0]["name"] == "Tesla T4"


def test_of_a_partitioned_gpu_the_use_is_not_made_up(tmp_path: Path, nvml: Path) -> None:
    ended = run(
        tmp_path / "0.json",
        *(sys.executable, "-c", "pass"),
        options=("--gpus", "1"),
        SLIPWAY_NVML=str(nvml),
        PARTITIONED="1",
    )

    kept = record(tmp_path / "0.json")
    assert (kept["gpu_busy"], kept["gpus"][0]["idle"]) == (None, None)
    assert kept["gpus"][0]["memory_total_mib"] == 16384
    assert "warning" not in ended.stdout


def test_gpus_and_their_parts_have_names_of_their_own(nvml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_NVML", str(nvml))
    assert Nvml().identities() == ["GPU-1", "GPU-2"]

    monkeypatch.setenv("PARTITIONED", "1")
    assert Nvml().identities() == ["MIG-1", "MIG-2"]


def test_an_emulated_gpu_is_said_to_be_one(tmp_path: Path) -> None:
    ended = run(
        tmp_path / "0.json",
        *(sys.executable, "-c", "pass"),
        options=("--gpus", "1"),
        SLIPWAY_VIRTUAL_ACCELERATORS="nvidia-tesla-t4:1",
    )

    assert "GPU emulated (nvidia-tesla-t4:1)" in ended.stdout
    assert record(tmp_path / "0.json")["gpus_emulated"] == "nvidia-tesla-t4:1"


def test_it_answers_at_the_pods_own_address_alone(tmp_path: Path, nvml: Path) -> None:
    (port,) = free_ports(1)
    process = subprocess.Popen(
        command(
            tmp_path / "0.json",
            *(sys.executable, "-c", "import time; print('7 images/s'); time.sleep(60)"),
            options=("--gpus", "2", "--port", str(port)),
        ),
        env=environment(SLIPWAY_NVML=str(nvml), POD_IP="127.0.0.1"),
        stdout=subprocess.PIPE,
    )

    def answer() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                content = answer.read().decode()
        except OSError:
            return ""
        return content if "slipway_step_rate" in content else ""

    try:
        content = wait_for(answer)
    finally:
        process.terminate()
        process.wait(timeout=30)
    assert 'slipway_step_gpu_busy_percent{pipeline="mnist",step="train",gpu="0",model="Tesla T4"} 90' in content
    assert 'slipway_step_rate{pipeline="mnist",step="train",unit="images/s"} 7.0' in content
    assert {line.split()[2] for line in content.splitlines() if line.startswith("# TYPE")} == METRICS.keys()


def test_labels_are_escaped() -> None:
    usage = Usage(step="p.s", pod="", began="", gpus=[Gpu('A "B" \\ C\n')])

    assert 'model="A \\"B\\" \\\\ C\\n"' in text(usage)


@pytest.mark.slow
def test_other_paths_are_not_found() -> None:
    server = serve("127.0.0.1", 0, lambda: "x 1\n")
    try:
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/", timeout=5)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_names_of_other_sites_are_not_answered() -> None:
    server = serve("127.0.0.1", 0, lambda: "x 1\n")
    address = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    try:
        assert urllib.request.urlopen(address, timeout=5).status == 200
        request = urllib.request.Request(address, headers={"Host": "attacker.example"})
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(request, timeout=5)
    finally:
        server.shutdown()
        server.server_close()


def test_a_long_course_keeps_few_points_and_its_mean() -> None:
    course = Course()
    for second in range(10_000):
        course.add([float(second), second % 2])

    assert len(course.points) < MOST_POINTS
    assert course.points[-1][0] > 9_000
    assert {round(value, 1) for _, value in course.points} == {0.5}
