"""Programs that write where they start and have paths built in, as pods: mounted exactly as the template says."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.pipelines.pods import ProgramMount, Source
from slipway.infra.placed import Command, Step
from slipway.infra.platform import Platform
from slipway.rehearse.cluster.kubelet import expand
from slipway.rehearse.machine import boxes, launch, programs
from slipway.rehearse.machine.boxes import Box, BoxMount
from slipway.rehearse.machine.environments import Software
from slipway.rehearse.machine.programs import Program
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

PROGRAMS = {
    # As GKE's tutorial has them: paths below /data, and files beside where the program starts.
    "train.py": """
import os
import helper
os.makedirs("./training_checkpoints")
os.makedirs("../data", exist_ok=True)
open("./training_checkpoints/ckpt_1", "w").write("1")
open("../data/raw", "w").write("1")
os.makedirs("/data/mnist_saved_model", exist_ok=True)
open("/data/mnist_saved_model/mnist.keras", "w").write(helper.MODEL)
try:
    open(helper.__file__, "a")
except OSError:
    print("code is read-only")
""",
    "helper.py": "MODEL = 'm'\n",
    "predict.py": """
import os
print(open("/data/mnist_saved_model/mnist.keras").read(), os.listdir("/data/mnist_predict"))
""",
}


def steps(on: Platform, code: Path) -> list[Step]:
    def of(name: str, **changes: Any) -> Step:
        command = Command(code, **changes)
        return step(
            on, pipeline="gke", name=name, module=None, arguments=["python3", f"{name}.py"], command=command
        )

    data = ProgramMount("/data", Source("output"), writable=True)
    train = of(
        "train",
        directory="/work/run",
        mounts=(
            data,
            ProgramMount("/work/run", Source("output", "run"), writable=True),
            ProgramMount("/work/data", Source("scratch"), writable=True),
        ),
    )
    predict = of(
        "predict",
        mounts=(
            ProgramMount("/data/mnist_saved_model", Source("train", "mnist_saved_model"), writable=False),
            ProgramMount("/data/mnist_predict", Source("store", "digits"), writable=False),
        ),
    )
    return [replace(predict, inputs={"train": train})]


def run_pod(made: Recording, job: str, folder: Path, store: Path) -> list[str]:
    """Runs the containers of a Job, each in a file system that has its volumes at their mount paths alone."""
    spec = dict(made.one(JOB, job).inputs)["spec"]["template"]["spec"]
    maps = {resource.inputs["metadata"]["name"]: resource.inputs for resource in made.of(CONFIG_MAP)}
    volumes = {volume["name"]: folder / volume["name"] for volume in spec["volumes"]}
    for volume in spec["volumes"]:
        volumes[volume["name"]].mkdir(parents=True)
        if "configMap" in volume:
            data: Mapping[str, str] = maps[volume["configMap"]["name"]]["data"]
            write_tree(
                volumes[volume["name"]], {item["path"]: data[item["key"]] for item in volume["configMap"]["items"]}
            )
        elif "emptyDir" not in volume:
            volumes[volume["name"]] = store
    (folder / "root").mkdir()
    lines: list[str] = []
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        mounts = [
            BoxMount(
                volumes[mount["name"]] / mount.get("subPath", ""), mount["mountPath"], not mount.get("readOnly")
            )
            for mount in container["volumeMounts"]
        ]
        for mount in mounts:
            mount.source.mkdir(exist_ok=True)
        tmp = next(mount.source for mount in mounts if mount.path == "/tmp")
        others = [mount for mount in mounts if mount.path != "/tmp"]
        box = Box(folder / "root", tmp, [Path(sys.prefix), Path(sys.base_prefix)], others, required=True)
        sink = os.open(os.devnull, os.O_WRONLY)
        specification = {
            **{"reaper": sink, "parent": os.getpid(), "nice": 0, "cpus": []},
            **{"binds": None, "writable": [str(tmp)]},
            "box": box.specification(),
        }
        words = [expand(word, {}) for word in (*container["command"], *container["args"])]
        # The folder in which a container starts is there only inside.
        start = ["sh", "-c", 'cd "$0" && exec "$@"', container["workingDir"], sys.executable, *words[1:]]
        ended = subprocess.run(
            [sys.executable, "-I", "-S", launch.__file__, json.dumps(specification), *start],
            pass_fds=[sink],
            cwd="/",
            env={
                **{entry["name"]: entry["value"] for entry in container["env"] if "value" in entry},
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        os.close(sink)
        assert ended.returncode == 0, ended.stdout
        lines += ended.stdout.splitlines()
    return lines


@pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts")
def test_programs_with_paths_built_in_run_unmodified_in_their_pods(tmp_path: Path) -> None:
    code, store = write_tree(tmp_path / "code", PROGRAMS), tmp_path / "store"
    (store / "digits").mkdir(parents=True)
    (store / "digits" / "0.png").write_text("x")

    def program() -> None:
        live = platform()
        workspace = Workspace(live.name, WorkspaceArgs(live, "slipway", "runner", protect=False, groups=1))
        declare(steps(live, code), {live.name: workspace}, ROOT)

    made = record(program, {}, preview=False)
    assert "code is read-only" in run_pod(made, "gke-train", tmp_path / "train", store)
    (manifest,) = store.glob("gke/train/*/manifest.json")
    files = {"mnist_saved_model/mnist.keras", "run/training_checkpoints/ckpt_1"}
    assert json.loads(manifest.read_text())["files"].keys() == files, "what went to scratch space is gone"
    assert "m ['0.png']" in run_pod(made, "gke-predict", tmp_path / "predict", store)


def test_where_no_mounts_can_be_made_steps_that_need_them_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "gke/pipeline.yaml: steps.train.run"
    declared = Program(of="gke.train", key=key, words=["python"], software=Software(), installed=False)
    variants = [replace(declared, built_in=["/data"]) for _ in range(2)]
    plain = replace(declared, of="gke.other")
    monkeypatch.setattr(boxes, "available", lambda: False)
    (problem,) = programs.problems([*variants, plain])
    assert (problem.key, problem.value) == ("gke/pipeline.yaml: steps.train.mounts", "/data")
    assert "unshare" in problem.fix
    monkeypatch.setattr(boxes, "available", lambda: True)
    assert programs.problems(variants) == []
