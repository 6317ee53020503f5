"""What of a folder of code ships: hidden files, programs, and more than one ConfigMap holds."""

import base64
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.shipping.sizes import LIMIT
from slipway.infra.pipelines.contract import Command
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.scripts import command_of
from slipway.infra.placement.placing import place
from slipway.infra.placement.unshipped import unshipped
from slipway.runtime.steps import unpack
from tests.infra.pipelines.commands import FILES, command, pipeline, prepare
from tests.support.recording import Recording, record
from tests.support.stand_in import platform
from tests.support.tree import write_tree

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path, FILES)


def declared(root: Path, *pipelines: DeclaredPipeline) -> Recording:
    """What the program declares of ``pipelines``."""

    def program() -> None:
        here = platform()
        placed = place(pipelines, {"here": here}, Gates("image"), root)
        workspaces = {"here": Workspace("here", WorkspaceArgs(here, "slipway", "runner", protect=False))}
        declare([step for steps in placed.values() for step in steps], workspaces, root)

    return record(program, {}, preview=False)


def pod(recording: Recording, step: str = "prepare") -> dict[str, Any]:
    (job,) = [job for job in recording.of("kubernetes:batch/v1:Job") if job.name == f"churn-{step}"]
    return job.inputs["spec"]["template"]["spec"]


def items(recording: Recording) -> dict[str, int | None]:
    """The mode of each file of the bundle that has one of its own, by path."""
    (bundle,) = [volume["configMap"] for volume in pod(recording)["volumes"] if volume["name"] == "bundle"]
    return {item["path"]: item.get("mode") for item in bundle["items"]}


def test_hidden_files_ship_where_a_pattern_names_them(root: Path) -> None:
    for path in (".project-root", ".conf/a.yaml", ".conf/.b", ".git/config", "models/.x"):
        (root / "workloads/churn" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "workloads/churn" / path).write_text("x", encoding="utf-8")
    named = Command("workloads/churn", [".project-root", ".conf/**", "models/*.py"])
    for line in (["python", "prepare.py"], ["make", "data"]):
        step = command("prepare", *line, command=named)
        hidden = {path for path in items(declared(root, pipeline(step))) if "/." in path}
        assert hidden == {"code/.project-root", "code/.conf/a.yaml"}


def test_code_that_one_config_map_does_not_hold_is_in_several_that_steps_share(root: Path) -> None:
    """They come back whole, with their names and modes, and the runner is where it always is."""
    folder = root / "workloads/churn"
    (folder / "data.bin").write_bytes(bytes(range(256)) * 8192)
    (folder / "run.sh").write_text("#!/bin/sh", encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    steps = [command(name, "./run.sh", name) for name in ("prepare", "again")]
    recording = declared(root, pipeline(*steps))

    maps = {resource.inputs["metadata"]["name"]: resource.inputs for resource in recording.of(CONFIG_MAP)}
    sizes = [
        sum(map(len, {**made.get("data", {}), **made.get("binaryData", {})}.values())) for made in maps.values()
    ]
    assert max(sizes) * 3 / 4 < LIMIT
    pods = [pod(recording, name) for name in ("prepare", "again")]
    parts = [
        [volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"].startswith("part-")]
        for pod in pods
    ]
    assert parts[0] == parts[1]
    assert len(parts[0]) == 3
    places = [root / f"part-{index}" for index in range(3)]
    for name, place_of in zip(parts[0], places, strict=True):
        place_of.write_bytes(base64.b64decode(maps[name]["binaryData"]["part"]))
    unpack.main([*(word for path in places for word in ("--part", str(path))), "--target", str(root / "unpacked")])
    unpacked = {path.relative_to(root / "unpacked").as_posix(): path for path in (root / "unpacked").rglob("*.*")}
    assert unpacked["data.bin"].read_bytes() == (folder / "data.bin").read_bytes()
    assert unpacked["run.sh"].stat().st_mode & 0o111
    assert not unpacked["data.bin"].stat().st_mode & 0o111
    assert "models/forest.py" in unpacked
    (unpacking,) = pods[0]["initContainers"]
    assert "nvidia.com/gpu" not in unpacking["resources"]["requests"]
    (mounted,) = [mount for mount in pods[0]["containers"][0]["volumeMounts"] if mount["name"] == "code"]
    assert mounted["readOnly"] is True
    arguments = pods[0]["containers"][0]["args"]
    assert arguments[arguments.index("--code") + 1].startswith(mounted["mountPath"])


def test_programs_that_a_script_or_the_command_starts_keep_their_mode(root: Path) -> None:
    tool = root / "workloads/churn/tool.sh"
    tool.write_text("#!/bin/sh", encoding="utf-8")
    tool.chmod(0o755)
    for line, mode in ((["./tool.sh"], 0o555), (command_of("./tool.sh"), 0o555), (["python", "prepare.py"], None)):
        assert items(declared(root, pipeline(command("prepare", *line))))["code/tool.sh"] == mode


def test_files_that_no_step_ships_are_known(root: Path) -> None:
    folder = root / "workloads/churn"
    for path in (
        ".env",
        ".conf/a",
        ".git/x",
        ".gitignore",
        "env/pyvenv.cfg",
        "env/x.py",
        "__pycache__/x.pyc",
        ".b",
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("", encoding="utf-8")
    named = Command("workloads/churn", [".b"])
    steps = [prepare(), command("train", "python", "train.py", command=named)]
    (finding,) = unshipped(pipeline(*steps), root)
    assert finding == ("workloads/churn", [".conf/a", ".env", "models/linear.py"])
    assert not list(unshipped(pipeline(command("all", "make", command=Command("workloads/churn/models"))), root))
