"""A pod's processes get what the pod declares, are held to it, and leave nothing behind."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.platform import Node, Resources
from slipway.infra.review.stack import Resource
from slipway.rehearse.cluster.cluster_objects import Namespace, Objects, RefusedError
from slipway.rehearse.cluster.kubelet import Kubelet, Pod, PodResult, expand, localize
from slipway.rehearse.cluster.pods import UnsupportedError, pod_spec
from slipway.rehearse.cluster.scheduler import Placement
from slipway.rehearse.machine import boxes, launch
from slipway.rehearse.machine.launch import LANDLOCK, landlock
from slipway.rehearse.machine.listening import Loopback
from slipway.rehearse.machine.processes import Reaper, Stop
from tests.support.rehearsing import all_end, wait_until
from tests.support.tree import write_tree

NODE = Node("dev", "train", {}, (), Resources(4000, 8192), 1, "nvidia-tesla-t4")
PROVIDER = "urn:pulumi:s::p::pulumi:providers:kubernetes::dev"


def config_map(name: str, **inputs: Any) -> Resource:
    inputs = {"metadata": {"name": name, "namespace": "ns"}, **inputs}
    urn = f"urn:pulumi:s::p::kubernetes:core/v1:ConfigMap::{name}"
    return Resource(urn, "kubernetes:core/v1:ConfigMap", name, {}, inputs=inputs, provider=PROVIDER)


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    made = Reaper()
    yield made
    made.close()


class Machine:
    """Runs pods in a folder and keeps what they print."""

    def __init__(self, folder: Path, reaper: Reaper) -> None:
        self.store = folder / "store"
        self.store.mkdir()
        self.pods = folder / "pods"
        self.reaper = reaper
        self.objects = Objects()
        self.lines: list[str] = []
        self.stop = Stop()

    def run(self, script: str, *args: str, pod: Mapping[str, Any] | None = None, **container: Any) -> PodResult:
        main = {"name": "main", "command": ["python", "-c", script], "args": list(args), **container}
        template = {
            "metadata": {"labels": {"app": "toy"}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [main],
                **(pod or {}),
            },
        }
        placed = Pod(
            "toy-x7k2p",
            Namespace(self.objects, "dev", "ns"),
            pod_spec(template),
            Placement(NODE, 0, Resources(0, 0)),
            self.stop,
            lambda line: self.lines.append(line.decode().rstrip()),
        )
        return Kubelet(self.reaper, self.pods, self.store, DRIVERS).run(placed)


@pytest.fixture
def machine(tmp_path: Path, reaper: Reaper) -> Machine:
    return Machine(tmp_path, reaper)


def volume(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, **source}


def mount(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **more}


DRIVERS = {"buckets.example.com"}
STORE = volume("store", csi={"driver": "buckets.example.com"})


SEGFAULT = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.mark.parametrize(
    ("script", "code"), [("", 0), ("raise SystemExit(1)", 1), ("raise SystemExit(137)", 137), (SEGFAULT, 139)]
)
def test_exit_codes_and_signals_are_as_a_shell_has_them(machine: Machine, script: str, code: int) -> None:
    result = machine.run(f"print('last words', flush=True); {script}")
    assert (result.exit_code, result.succeeded) == (code, code == 0)
    assert result.message == "last words\n"


def test_a_command_that_is_not_there_cannot_start(machine: Machine) -> None:
    result = machine.run("", command=["/bin/nothing-like-this"])
    assert result.exit_code == 128
    assert "No such file" in result.message


def test_a_container_gets_the_environment_of_its_pod_and_not_the_users(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_USER", "leaked")
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    entries = [
        {"name": "FIRST", "value": "1"},
        {"name": "SECOND", "value": "$(FIRST)+$(LATER)+$$(FIRST)"},
        {"name": "LATER", "value": "3"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
    ]
    script = "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:]]))"
    machine.run(script, "$(SECOND)", "$(MISSING)", env=entries)
    environment, arguments = json.loads(machine.lines[0])
    assert arguments == ["1+$(LATER)+$(FIRST)", "$(MISSING)"]
    assert (environment["POD"], environment["NODE"], environment["LABEL"]) == ("toy-x7k2p", "dev-train-0", "toy")
    assert not environment.keys() & {"A_SECRET_OF_THE_USER", "PYTHONPATH", "PYTEST_CURRENT_TEST"}
    assert environment["HOME"] != os.environ.get("HOME")


def test_python_is_the_interpreter_of_the_rehearsal(machine: Machine) -> None:
    machine.run("import sys; print(sys.executable)")
    machine.run("", command=["sh", "-c", "python -c 'import sys; print(sys.prefix)'"])
    assert machine.lines == [sys.executable, sys.prefix]


def test_files_of_a_config_map_have_their_paths(machine: Machine) -> None:
    machine.objects.add(config_map("code", data={"pkg.mod.py": "VALUE = 41"}, binaryData={"raw": "AAE="}))
    source = {
        "name": "code",
        "items": [{"key": "pkg.mod.py", "path": "pkg/mod.py"}, {"key": "raw", "path": "raw"}],
    }
    result = machine.run(
        "import pkg.mod, os, sys\n"
        "print(pkg.mod.VALUE, open(sys.argv[1], 'rb').read(), os.getcwd().endswith('code'))",
        "/bundle/raw",
        pod={"volumes": [volume("code", configMap=source)]},
        volumeMounts=[mount("code", "/bundle", readOnly=True)],
        workingDir="/bundle",
    )
    assert result.succeeded, machine.lines
    assert machine.lines == [r"41 b'\x00\x01' True"]


def test_what_is_mounted_read_only_has_no_write_permission(machine: Machine) -> None:
    machine.objects.add(config_map("code", data={"file": "x"}))
    machine.run(
        "import os, sys; print(*(oct(os.stat(path).st_mode & 0o222) for path in sys.argv[1:]))",
        *("/bundle", "/bundle/file", "/tmp", "/store"),
        pod={"volumes": [volume("code", configMap={"name": "code"}), volume("tmp", emptyDir={}), STORE]},
        volumeMounts=[
            mount("code", "/bundle", readOnly=True),
            mount("tmp", "/tmp"),
            mount("store", "/store", readOnly=True),
        ],
    )
    *protected, temporary, store = (int(mode, 8) for mode in machine.lines[0].split())
    assert protected == [0, 0]
    assert temporary & stat.S_IWUSR
    assert store & stat.S_IWUSR, "the shared store must stay writable for the other pods"


def test_init_containers_come_first_and_share_volumes(machine: Machine) -> None:
    init = {
        "name": "install",
        "command": ["python", "-c", "import sys; open(sys.argv[1], 'w').write('VALUE = 7')", "/packages/found.py"],
        "volumeMounts": [mount("packages", "/packages")],
    }
    result = machine.run(
        "import found; print(found.VALUE)",
        pod={"initContainers": [init], "volumes": [volume("packages", emptyDir={})]},
        volumeMounts=[mount("packages", "/packages", readOnly=True)],
        env=[{"name": "PYTHONPATH", "value": "/packages"}],
    )
    assert result.succeeded, machine.lines
    assert machine.lines == ["7"]


def test_a_failed_init_container_fails_the_pod(machine: Machine) -> None:
    init = {"name": "install", "command": ["python", "-c", "raise SystemExit(7)"]}
    result = machine.run("print('never')", pod={"initContainers": [init]})
    assert (result.container, result.exit_code, machine.lines) == ("install", 7, [])


def test_scratch_space_is_fresh_and_the_store_is_not(machine: Machine) -> None:
    script = (
        "import os, sys; [print(os.listdir(path), open(path + '/left', 'w').close()) for path in sys.argv[1:]]"
    )
    given: dict[str, Any] = {
        "pod": {"volumes": [volume("tmp", emptyDir={}), STORE]},
        "volumeMounts": [mount("tmp", "/tmp"), mount("store", "/store")],
    }
    machine.run(script, "/tmp", "/store", **given)
    machine.run(script, "/tmp", "/store", **given)
    assert machine.lines == ["[] None", "[] None", "[] None", "['left'] None"]
    assert not list(machine.pods.iterdir())


def test_memory_beyond_the_limit_is_killed(machine: Machine) -> None:
    result = machine.run(
        "import time; data = b'x' * (300 << 20); time.sleep(30)",
        resources={"requests": {"memory": "128Mi"}, "limits": {"memory": "128Mi"}},
    )
    assert (result.exit_code, result.reason) == (137, "OOMKilled")
    assert result.peak_memory > 128


def test_memory_of_children_counts(machine: Machine) -> None:
    child = "import time; d = b'x' * (300 << 20); time.sleep(30)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert machine.run(parent, resources={"limits": {"memory": "128Mi"}}).reason == "OOMKilled"


def test_accelerators_are_named_only_to_containers_that_ask(machine: Machine) -> None:
    script = "import os; print(os.environ.get('SLIPWAY_VIRTUAL_ACCELERATORS'))"
    machine.run(script)
    machine.run(script, resources={"limits": {"nvidia.com/gpu": "2"}})
    assert machine.lines == ["None", "nvidia-tesla-t4:2"]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot bind processes to cores")
def test_a_cpu_limit_binds_to_that_many_cores(machine: Machine) -> None:
    machine.run("import os; print(len(os.sched_getaffinity(0)))", resources={"limits": {"cpu": "500m"}})
    assert machine.lines == ["1"]


def stop_when_printing(machine: Machine, kind: str, grace: float) -> None:
    def wait() -> None:
        wait_until(lambda: machine.lines)
        machine.stop.request(kind, grace)

    threading.Thread(target=wait).start()


def test_a_stopped_process_can_end_by_itself(machine: Machine) -> None:
    stop_when_printing(machine, "evicted", 20)
    result = machine.run(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    assert (result.exit_code, result.disrupted) == (143, True)


@pytest.mark.slow
def test_a_process_that_does_not_handle_sigterm_uses_up_its_grace(machine: Machine) -> None:
    """As process 1 of a container, for which Linux has no default action."""
    stop_when_printing(machine, "deadline", 0.5)
    began = time.monotonic()
    result = machine.run("import time; print('ready', flush=True); time.sleep(60)")
    assert (result.exit_code, result.disrupted) == (137, False)
    assert time.monotonic() - began >= 0.5


def test_what_a_container_leaves_running_ends_with_it(machine: Machine) -> None:
    child = "import time; time.sleep(60)"
    script = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {child!r}]).pid)"
    machine.run(script)
    with contextlib.suppress(psutil.NoSuchProcess):
        assert all_end([psutil.Process(int(machine.lines[0]))])


@pytest.mark.parametrize(
    ("volumes", "says"),
    [
        ([volume("v", configMap={"name": "gone"})], 'volume "v": configmap "gone" not found'),
        (
            [volume("v", configMap={"name": "code", "items": [{"key": "k", "path": "p"}]})],
            "non-existent config key: k",
        ),
        ([volume("v", persistentVolumeClaim={"claimName": "gone"})], 'persistentvolumeclaim "gone" not found'),
        ([], 'Not found: "v"'),
    ],
)
def test_a_volume_whose_source_is_missing_keeps_the_pod_from_starting(
    machine: Machine, volumes: list[dict[str, Any]], says: str
) -> None:
    machine.objects.add(config_map("code", data={"other": "x"}))
    with pytest.raises(RefusedError, match=says):
        machine.run("print('never')", pod={"volumes": volumes}, volumeMounts=[mount("v", "/v")])
    assert machine.lines == []


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        # kubernetes/third_party/forked/golang/expansion/expand_test.go has these and more.
        ("$(A)", "a"),
        ("___$(B)___", "___b___"),
        ("$(A)$(B)", "ab"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$a"),
        ("$$$$(A)", "$$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(A", "$(A"),
        ("$A ${A}", "$A ${A}"),
        ("foo$", "foo$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$(A)$(", "a$("),
        ("$(EMPTY)!", "!"),
    ],
)
def test_references_to_variables_are_replaced(text: str, expanded: str) -> None:
    assert expand(text, {"A": "a", "B": "b", "EMPTY": ""}) == expanded


@given(st.text())
def test_escaped_references_stay(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "a"}) == text


@given(st.text(), st.text(alphabet="$()AB"))
def test_references_in_a_variables_value_stay(value: str, around: str) -> None:
    assert expand("$(A)", {"A": value, "B": around}) == value


MOUNTS = {"/store": Path("/here/store"), "/store/inner": Path("/here/inner"), "/tmp": Path("/here/tmp")}


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("/store", "/here/store"),
        ("/store/a/b.txt", "/here/store/a/b.txt"),
        ("/store/inner/b", "/here/inner/b"),
        ("--output=/store/x", "--output=/here/store/x"),
        ("/bin:/store:/tmp/x", "/bin:/here/store:/here/tmp/x"),
        ("/storehouse /store-2 /store.d", "/storehouse /store-2 /store.d"),
        ("gs://bucket/store", "gs://bucket/store"),
        ("/var/tmp", "/var/tmp"),
        ("store", "store"),
        ("cat '/tmp/a' \"/store\"", "cat '/here/tmp/a' \"/here/store\""),
    ],
)
def test_paths_below_mounts_are_replaced(text: str, local: str) -> None:
    assert localize(text, MOUNTS) == local


def test_a_replaced_path_is_not_replaced_again() -> None:
    assert (
        localize("/store/x", {"/store": Path("/tmp/run/store"), "/tmp": Path("/elsewhere")}) == "/tmp/run/store/x"
    )


READ_ONLY = {"securityContext": {"readOnlyRootFilesystem": True}}

BOXED = pytest.param(
    True, id="box", marks=pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts")
)
HELD = pytest.param(
    False, id="landlock", marks=pytest.mark.skipif(landlock() < LANDLOCK, reason="this machine has no Landlock")
)


@pytest.fixture(params=[BOXED, HELD])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """What keeps containers to their volumes: whether it is a file system of their own, or else Landlock."""
    monkeypatch.setattr(boxes, "available", lambda: request.param)
    return bool(request.param)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("where", ["code", "elsewhere", "read-only"])
def test_a_container_with_a_read_only_image_writes_to_its_volumes_alone(
    machine: Machine, tmp_path: Path, where: str
) -> None:
    machine.objects.add(config_map("code", data={"train.py": "1"}))
    (machine.store / "models").mkdir()
    pod = {"volumes": [volume("code", configMap={"name": "code"}), STORE, volume("shared", csi=STORE["csi"])]}
    mounts = [mount("code", "/code", readOnly=True), mount("store", "/store", readOnly=where == "read-only")]
    elsewhere = f"/var/tmp/{tmp_path.name}-new"
    target = {"code": "/code/new", "elsewhere": elsewhere, "read-only": "/store/models/new"}[where]
    script = "import sys; open(sys.argv[1], 'w')"
    result = machine.run(script, target, pod=pod, volumeMounts=mounts, **READ_ONLY)
    assert not result.succeeded
    assert "note: as in a cluster, this container may write to" in result.message
    assert "new is in none of them" in result.message
    assert not [*tmp_path.rglob("new"), *Path("/var/tmp").glob(f"{tmp_path.name}*")]


def test_a_volume_of_another_bucket_does_not_show_the_store(machine: Machine) -> None:
    other = {**STORE["csi"], "volumeAttributes": {"bucketName": "team-data"}}
    with pytest.raises(UnsupportedError, match="input-photos"):
        machine.run("", pod={"volumes": [STORE, volume("input-photos", csi=other)]})


def test_data_in_the_store_are_only_read(machine: Machine, held: bool) -> None:
    (machine.store / "photos").mkdir()
    (machine.store / "photos" / "a").write_text("1")
    mounts = [
        mount("store", "/store"),
        mount("store", "/folders/cats", subPath="photos", readOnly=True),
        mount("store", "/folders/more", subPath="photos", readOnly=True),
    ]
    script = "import sys; print(open(sys.argv[1] + '/a').read()); open(sys.argv[2] + '/new', 'w')"
    pod = {"volumes": [STORE]}

    def run(place: str) -> PodResult:
        return machine.run(script, "/folders/cats", place, pod=pod, volumeMounts=mounts, **READ_ONLY)

    assert run("/store").succeeded
    if held:
        assert not any(run(place).succeeded for place in ("/folders/cats", "/folders/more", "/store/photos"))
    assert [path.name for path in (machine.store / "photos").iterdir()] == ["a"]


def test_what_a_container_may_write_to_it_writes_to(machine: Machine, held: bool) -> None:
    pod = {"volumes": [volume("tmp", emptyDir={}), STORE]}
    mounts = [mount("tmp", "/tmp"), mount("store", "/store")]
    script = (
        "import os, pathlib, sys, tempfile, multiprocessing; tempfile.mkdtemp(); multiprocessing.Lock();"
        "made = pathlib.Path(sys.argv[1], 'models'); made.mkdir(); (made / 'new').write_text('1');"
        "os.replace(made / 'new', made.parent / 'moved'); open('/dev/null', 'w').write('1');"
        "pathlib.Path.home().joinpath('.cache').mkdir(); print(os.environ.get('PIP_USER'))"
    )
    result = machine.run(script, "/store", pod=pod, volumeMounts=mounts, **READ_ONLY)
    assert result.succeeded, result.message
    assert result.message == ("None\n" if held else "1\n")
    assert (machine.store / "moved").read_text() == "1"


@pytest.mark.usefixtures("held")
def test_what_a_word_names_can_be_replaced_and_deleted(machine: Machine) -> None:
    write_tree(machine.store, {"run/state.json": "1", "run/step/weights": "1"})
    script = (
        "import os, pathlib, shutil, sys; state, step = map(pathlib.Path, sys.argv[1:]);"
        "new = state.with_name('new'); new.write_text('2'); new.replace(state); shutil.rmtree(step)"
    )
    pod, mounts = {"volumes": [STORE]}, [mount("store", "/store")]
    result = machine.run(
        script, "/store/run/state.json", "/store/run/step", pod=pod, volumeMounts=mounts, **READ_ONLY
    )
    assert result.succeeded, result.message
    assert [path.name for path in (machine.store / "run").iterdir()] == ["state.json"]


@pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts")
@pytest.mark.parametrize(("size", "mebibytes"), [("", 64), ("200Mi", 200)])
def test_shared_memory_is_as_large_as_in_a_cluster(machine: Machine, size: str, mebibytes: int) -> None:
    volumes = [volume("shared-memory", emptyDir={"medium": "Memory", "sizeLimit": size})] if size else []
    script = (
        "import os; status = os.statvfs('/dev/shm'); print(status.f_blocks * status.f_frsize >> 20, "
        "os.listdir('/dev/shm')); open('/dev/shm/new', 'w').write('1')"
    )
    mounts = [mount("shared-memory", "/dev/shm")] if size else []
    result = machine.run(script, pod={"volumes": volumes}, volumeMounts=mounts, **READ_ONLY)
    assert result.message.startswith(f"{mebibytes} []\n"), result.message


def further_mounts(machine: Machine, *mounts: dict[str, Any], script: str) -> PodResult:
    """A container whose program has the paths of ``mounts``, of the store and of scratch space, built in."""
    pod = {"volumes": [volume("tmp", emptyDir={}), STORE]}
    first = [mount("tmp", "/tmp"), mount("store", "/store")]
    return machine.run(script, pod=pod, volumeMounts=[*first, *mounts], **READ_ONLY)


@pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts")
def test_a_program_finds_folders_at_the_paths_that_it_has_built_in(machine: Machine) -> None:
    (machine.store / "uploads").mkdir()
    (machine.store / "uploads" / "a").write_text("1")
    script = (
        "import os, pathlib\n"
        "print(os.listdir('/data'), os.listdir('/opt/ml/model'), os.environ['TMPDIR'] == os.environ['HOME'])\n"
        "pathlib.Path('/opt/ml/model/m').write_text('1'); pathlib.Path('/opt/scratch/s').write_text('1')\n"
        "pathlib.Path('/tmp/t').write_text('1')\n"
        "print(sorted({*os.listdir(os.environ['TMPDIR'])} & {'t', 'of', 's'}), os.path.exists('/opt/ml/other'))\n"
        "for path in ('/data/new', '/opt/ml/new', '/usr/new', '/root/new', '/var/tmp/new'):\n"
        "    try:\n"
        "        open(path, 'w')\n"
        "    except OSError as error:\n"
        "        assert error.errno in (13, 30), error\n"
        "    else:\n"
        "        print('wrote', path)\n"
    )
    mounts = [
        mount("store", "/data", subPath="uploads", readOnly=True),
        mount("store", "/opt/ml/model", subPath="out/model"),
        mount("tmp", "/opt/scratch", subPath="of"),
    ]
    outside = Path("/tmp/t")
    before = outside.exists()
    assert further_mounts(machine, *mounts, script=script).succeeded, machine.lines
    assert machine.lines == ["['a'] [] True", "['of', 't'] False"]
    assert (machine.store / "out" / "model" / "m").read_text() == "1"
    assert outside.exists() == before, "/tmp is the pod's own, and gone with it"
    assert not Path("/opt/ml/model/m").exists()


def test_where_no_mounts_can_be_made_a_program_that_needs_them_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "available", lambda: False)
    with pytest.raises(RefusedError, match=r"/data .*unshare"):
        further_mounts(machine, mount("store", "/data"), script="")


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp")
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "only ::"])
def test_what_listens_on_all_addresses_listens_on_loopback(machine: Machine, address: str) -> None:
    script = (
        "import socket, sys, threading\n"
        "word = sys.argv[1]\n"
        "one = socket.socket(socket.AF_INET6 if ':' in word else socket.AF_INET)\n"
        "if ':' in word: one.setsockopt(41, 26, int(word.startswith('only')))\n"
        # TensorFlow's servers begin to listen in a thread of their own.
        "thread = threading.Thread(target=one.bind, args=((word.split()[-1], 0),))\n"
        "thread.start(); thread.join(); one.listen()\n"
        "host, port = one.getsockname()[:2]\n"
        "socket.create_connection((host, port)).close()\n"
        "print(host)\n"
        "udp = socket.socket(type=socket.SOCK_DGRAM); udp.bind(('', 0)); print(udp.getsockname()[0])\n"
    )
    result = machine.run(script, address)
    assert result.succeeded, result.message
    expected = {"0.0.0.0": "127.0.0.1", "::": "::ffff:127.0.0.1", "only ::": "::1"}[address]
    assert machine.lines == [expected, "0.0.0.0"]


def test_where_nothing_keeps_a_process_to_loopback_it_is_told(tmp_path: Path, reaper: Reaper) -> None:
    told: list[bool] = []
    # No such system call for a program of another kind of processor.
    launcher = "import platform, runpy, sys; platform.machine = lambda: 'other'; sys.argv = sys.argv[1:];"
    loopback = Loopback(lambda: told.append(True))
    path = str(Path(launch.__file__))
    sink, binds = os.open(os.devnull, os.O_WRONLY), loopback.descriptor
    specification = {"reaper": sink, "nice": 0, "cpus": "", "writable": None, "binds": binds, "box": None}
    specification["parent"] = os.getpid()
    words = [sys.executable, "-c", launcher + "runpy.run_path(sys.argv[0], run_name='__main__')", path]
    process = subprocess.Popen(
        [*words, json.dumps(specification), "true"],
        pass_fds=[sink, binds],
        cwd=tmp_path,
    )
    loopback.begin()
    assert process.wait() == 0
    loopback.end()
    assert told == [True]
