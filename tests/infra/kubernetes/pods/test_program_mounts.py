"""`directory` and `mounts` in pods: the mounts of the store and of scratch space, and when a step runs again."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.run import FOLDERS, STARTER, plan
from slipway.infra.kubernetes.schedules.schedule import PipelineSchedule, PipelineScheduleArgs
from slipway.infra.pipelines.pods import ProgramMount, Source
from slipway.infra.placed import Command, Step
from slipway.infra.platform import Platform
from slipway.runtime.schedule import run as by_the_clock
from tests.support.recording import record
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"

FILES = {
    "workloads/__init__.py": "",
    "churn/train.py": "",
}
MOUNTS = (
    ProgramMount("/data", Source("store", "uploads"), writable=False),
    ProgramMount("/models", Source("train", "model"), writable=False),
    ProgramMount("/out", Source("output"), writable=True),
    ProgramMount("/work/data", Source("scratch"), writable=True),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path, FILES)


def of_command(on: Platform, root: Path, name: str, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "module": None,
        "arguments": ["python", "train.py"],
        "command": Command(root / "churn", **changes),
    }
    return step(on, pipeline="churn", name=name, **values)


def predict(on: Platform, root: Path, **changes: Any) -> Step:
    made = of_command(on, root, "predict", **changes)
    return replace(made, inputs={"train": of_command(on, root, "train")})


def pod(root: Path, **changes: Any) -> dict[str, Any]:
    """The pod of `predict` whose command has these changes."""

    def program() -> None:
        live = platform()
        workspace = Workspace(live.name, WorkspaceArgs(live, "slipway", "runner", protect=False, groups=1))
        declare([predict(live, root, **changes)], {live.name: workspace}, root)

    made = record(program, {}, preview=False)
    return dict(made.one(JOB, "churn-predict").inputs)["spec"]["template"]["spec"]


def test_a_pod_has_the_folders_at_the_paths_of_the_program(root: Path) -> None:
    spec = pod(root, mounts=MOUNTS)
    (container,), (maker,) = spec["containers"], spec["initContainers"]
    run = container["args"][container["args"].index("--output") + 1].removeprefix("/store/")
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/data"]["subPath"] == "uploads"
    assert mounts["/models"]["subPath"].startswith("churn/train/")
    assert mounts["/models"]["subPath"].endswith("/model")
    assert mounts["/out"]["subPath"] == run
    assert mounts["/work/data"]["subPath"] == "scratch"
    read_only = {path for path in ("/data", "/models", "/out", "/work/data") if mounts[path].get("readOnly")}
    assert read_only == {"/data", "/models"}
    volumes = {path: mounts[path]["name"] for path in ("/store", "/data", "/out", "/tmp", "/work/data")}
    assert volumes["/store"] == volumes["/data"] == volumes["/out"]
    assert volumes["/tmp"] == volumes["/work/data"]
    assert maker["command"][-1] == FOLDERS
    assert maker["args"][maker["args"].index("--make") + 1] == f"/store/{run}"
    assert "/store/uploads" in maker["args"], "a folder that is missing is said, not made by the kubelet"


@pytest.mark.parametrize(
    ("directory", "place"),
    [("{output}/run", r"/store/churn/predict/\w+/run"), ("{scratch}", r"\$TMPDIR/scratch"), ("/out", "/out")],
)
def test_a_program_starts_where_its_step_says(root: Path, directory: str, place: str) -> None:
    arguments = pod(root, directory=directory)["containers"][0]["args"]
    folder, *words = arguments[-3:]
    assert words == ["python", "train.py"]
    assert re.fullmatch(place, folder)
    assert STARTER in arguments[-4]


def test_a_step_runs_again_only_where_its_own_places_change(root: Path) -> None:
    def program() -> None:
        on = platform()
        plain = plan(predict(on, root), root)
        others = [
            predict(on, root, mounts=MOUNTS),
            predict(on, root, mounts=MOUNTS[:2]),
            predict(on, root, directory="{output}"),
        ]
        digests = [plan(other, root).digest for other in others]
        assert len({plain.digest, *digests}) == 4
        assert plan(predict(on, root, mounts=MOUNTS[::-1]), root).digest == digests[0]
        assert not [path for path in plain.bundle.contents if "folders" in path or "starting" in path]

    record(program, {}, preview=False)


def test_runs_by_the_clock_have_the_folders_of_their_own_runs(root: Path) -> None:
    def program(mounts: tuple[ProgramMount, ...]) -> None:
        live = platform()
        workspace = Workspace(live.name, WorkspaceArgs(live, "slipway", "runner", protect=False, scheduled=True))
        jobs = list(declare([predict(live, root, mounts=mounts)], {live.name: workspace}, root).values())
        arguments = PipelineScheduleArgs("churn", "0 3 * * *", "Etc/UTC", jobs, workspace, "image", root)
        PipelineSchedule("churn-schedule", arguments)

    made, plain = (record(partial(program, mounts), {}, preview=False) for mounts in (MOUNTS, ()))
    planned = by_the_clock.read(made.one(CONFIG_MAP, "churn-schedule-jobs").inputs)
    owner = {"metadata": {"name": "churn-schedule-1", "uid": "1"}}
    job = next(job for job in planned if job.name.startswith("churn-predict"))
    manifest = by_the_clock.scheduled(job, planned, "20261126-0300", owner)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    folders = {mount["mountPath"]: mount.get("subPath") for mount in container["volumeMounts"]}
    assert folders["/out"].endswith("-20261126-0300")
    assert folders["/models"].endswith("-20261126-0300/model")
    assert folders["/data"] == "uploads"
    # Its policy lets the folders differ by the mark; tried with an API server of Kubernetes 1.34.
    assert "subPath" in json.dumps(made.one(ADMISSION).inputs["spec"]["validations"])
    assert "subPath" not in json.dumps(plain.one(ADMISSION).inputs["spec"]["validations"])
