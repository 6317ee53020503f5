"""``make pin-inputs`` and what the doctor says of inputs: recorded listings of a bucket, and a store in a pod."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from slipway.infra import pulumi_cli
from slipway.infra.clouds.contract import ListingError, StoredObject
from slipway.infra.clouds.gcp import google_api
from slipway.infra.review.facts import State
from slipway.infra.review.stack import mapping
from slipway.infra.schema.yaml_files import read_yaml
from slipway.offline.engine.stack_config import load_stack
from slipway.tools import pin_inputs
from slipway.tools.command import app
from slipway.tools.doctor import inputs as doctor
from tests.support.clouds.gcp import BASE
from tests.tools.test_transfer import GATE, answer, machine

__all__ = ["machine"]

PIPELINE = """\
description: Looks at photos.
inputs:
  images: {description: Photos to train on.}
  labels: {}
steps:
  train: {run: [python, train.py, "{images}", "{labels}"]}
"""

SECTION = """\
  slipway:pipelines:
    vision:
      uses: %s
      inputs:
        images: gs://photos/train   # those of the spring
        labels: {url: "%s"}
      steps: {train: {pool: cpu}}
"""


class Bucket:
    """What Google lists of every bucket; None: it refuses."""

    def __init__(self) -> None:
        self.objects: dict[str, StoredObject] | None = {
            "train/a.png": StoredObject(10, 1, version="100"),
            "train/b.png": StoredObject(20, 2, version="101"),
            "train2/c.png": StoredObject(30, 3, version="102"),
            "labels/l.csv": StoredObject(40, 4, version="103"),
        }
        self.listed: list[str] = []

    def list(self, _configuration: Any, bucket: str, prefix: str) -> Mapping[str, StoredObject]:
        self.listed.append(f"{bucket}/{prefix}")
        if self.objects is None:
            raise ListingError("403 storage.objects.list", refused=True)
        return {name: entry for name, entry in self.objects.items() if name.startswith(prefix)}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    answers = Bucket()
    monkeypatch.setattr(google_api, "objects", answers.list)
    return answers


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, labels: str = "gs://photos/labels") -> Path:
    """A project with a stack whose pipeline reads two inputs; the stack file."""
    root = folder / "project"
    (root / "vision").mkdir(parents=True)
    (root / "vision" / "pipeline.yaml").write_text(PIPELINE)
    (root / "vision" / "train.py").touch()
    (root / "Pulumi.yaml").write_text("name: slipway\nruntime: python\n")
    file = root / "Pulumi.dev.yaml"
    clusters = "".join(f"  slipway:{key}: {json.dumps(BASE[key])}\n" for key in ("clusters", "store"))
    file.write_text(f"config:\n{clusters}{SECTION % (root / 'vision', labels)}")
    monkeypatch.setattr(pin_inputs, "PROJECT", root)
    return file


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["pin-inputs", "--stack", "dev", *words])


def digests(file: Path) -> dict[str, str | None]:
    inputs = read_yaml(file)["config"]["slipway:pipelines"]["vision"]["inputs"]
    return {name: mapping(data).get("digest") for name, data in inputs.items()}


def examined(file: Path) -> dict[str, State]:
    """What the doctor says of each input; the worst of it."""
    configuration = load_stack("dev", file.parent).values
    said = [observation for probe in doctor.probes("dev", configuration) for observation in probe.run()]
    order = list(State)
    return {
        subject: min((one.state for one in said if one.subject == subject), key=order.index)
        for subject in {one.subject for one in said}
    }


def test_digests_are_written_in_place_and_tell_data_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Bucket
) -> None:
    file = project(tmp_path, monkeypatch)
    before = file.read_text()
    assert examined(file) == {"input vision.images": State.WRONG, "input vision.labels": State.WRONG}
    # To look changes nothing.
    assert run("--check").exit_code == 1
    assert file.read_text() == before

    assert run().exit_code == 0
    pinned = digests(file)
    assert all(len(value or "") == 64 for value in pinned.values())
    assert "# those of the spring" in file.read_text()
    assert len(file.read_text().splitlines()) == len(before.splitlines())
    assert examined(file) == {"input vision.images": State.FINE, "input vision.labels": State.FINE}
    state = file.stat()
    assert [run().exit_code, run("--check").exit_code] == [0, 0]
    assert file.stat().st_mtime_ns == state.st_mtime_ns

    assert bucket.objects is not None
    # A folder whose name only begins like it is another one; a file that was written again is not the same.
    bucket.objects["train2/d.png"] = StoredObject(1, 1, version="1")
    assert run("--check").exit_code == 0
    bucket.objects["train/a.png"] = StoredObject(10, 1, version="200")
    assert examined(file) == {"input vision.images": State.WRONG, "input vision.labels": State.FINE}
    assert run("--check").exit_code == 1
    assert run("--pipeline", "vision").exit_code == 0
    assert digests(file)["images"] != pinned["images"]
    assert digests(file)["labels"] == pinned["labels"]


def test_every_input_that_cannot_be_listed_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Bucket
) -> None:
    file = project(tmp_path, monkeypatch, labels="gs://photos/labels/l.csv")
    before = file.read_text()
    result = run()
    assert result.exit_code == 1
    assert "vision.labels" in result.output
    assert file.read_text() == before

    bucket.objects = {}
    empty = run()
    assert empty.exit_code == 1
    assert "vision.images" in empty.output
    bucket.objects = None
    refused = run()
    assert refused.exit_code == 1
    assert "vision.images" in refused.output
    assert "vision.labels" in refused.output
    assert file.read_text() == before
    assert examined(file)["input vision.images"] == State.WRONG
    assert run("--pipeline", "visoin").exit_code == 1


def test_a_file_that_is_edited_meanwhile_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Bucket
) -> None:
    file = project(tmp_path, monkeypatch)

    def editing(configuration: Any, name: str, prefix: str) -> Mapping[str, StoredObject]:
        file.write_text(file.read_text().replace("gs://photos/train", "gs://photos/train2"))
        return bucket.list(configuration, name, prefix)

    monkeypatch.setattr(google_api, "objects", editing)
    assert run().exit_code == 1
    assert digests(file)["images"] is None


def test_a_folder_of_the_store_is_listed_through_a_pod(
    tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, bucket: Bucket
) -> None:
    file = project(tmp_path, monkeypatch, labels="{store}/labels")
    labels = machine / "store" / "labels"
    labels.mkdir()
    (labels / "l.csv").write_text("1")
    assert run().exit_code == 0
    pinned = digests(file)
    # The doctor makes no pod, and so cannot tell.
    assert examined(file) == {"input vision.images": State.FINE, "input vision.labels": State.UNKNOWN}
    (labels / "m.csv").write_text("2")
    assert run("--check").exit_code == 1
    assert run().exit_code == 0
    assert digests(file)["labels"] != pinned["labels"]
    assert digests(file)["images"] == pinned["images"]
    calls = [json.loads(line) for line in (machine / "calls").read_text().splitlines()]
    made, deleted = ([call for call in calls if verb in call] for verb in ("create", "delete"))
    assert len(made) == len(deleted) == 3

    # Before the first `up`, there is no store.
    answer(monkeypatch, "outputs_of", {})
    answer(monkeypatch, "resources_of", [GATE])
    result = run()
    assert result.exit_code == 1
    assert "pulumi up" in result.output


def test_a_folder_of_a_store_that_is_a_bucket_is_listed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: Bucket
) -> None:
    file = project(tmp_path, monkeypatch, labels="{store}/labels")
    answer(monkeypatch, "outputs_of", {"store": "gs://ours/vision"})
    assert bucket.objects is not None
    bucket.objects["vision/labels/l.csv"] = StoredObject(1, 1, version="7")
    assert run().exit_code == 0
    assert "ours/vision/labels" in bucket.listed
    assert examined(file)["input vision.labels"] == State.FINE


def test_a_stack_without_inputs_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(_stack: str) -> Any:
        raise AssertionError

    monkeypatch.setattr(pulumi_cli, "outputs_of", unasked)
    assert CliRunner().invoke(app, ["pin-inputs", "--stack", "local"]).exit_code == 1
    assert list(doctor.probes("local", load_stack("local", pin_inputs.PROJECT).values)) == []
