"""What the kind `tensorflow-serving` declares: the server, and the step that publishes for it."""

from __future__ import annotations

import re
import shlex

import pytest
from pydantic import ValidationError

from slipway.infra.pipelines.app_kinds import tensorflow_serving
from slipway.infra.pipelines.app_kinds.tensorflow_serving import CPU_IMAGE, GPU_IMAGE, Served, ServingSettings
from slipway.infra.pipelines.contract import StepSettings
from slipway.workloads.apps.tensorflow_serving import publish
from slipway.workloads.apps.tensorflow_serving.model_config import STABLE

SERVED = Served(
    model="digits",
    step="train",
    requests="{prepare}/test.npz",
    inputs={"image": "images"},
    truth="labels",
    min_accuracy=0.9,
)


def words(**settings: object) -> list[str]:
    declared = tensorflow_serving.declaration("serving", ServingSettings(pool="cpu", **settings), SERVED)
    return list(declared.arguments)


def step_words(**settings: object) -> list[str]:
    placed = ServingSettings(pool="cpu", **settings)
    reads = {"prepare": "prepare"}
    return list(tensorflow_serving.publishing("serving", placed, SERVED, reads).arguments)


def test_the_server_reads_what_the_step_writes_last() -> None:
    assert "--model_config_file={pipeline}/models/digits/models.config" in words()
    assert step_words()[step_words().index("--versions") + 1] == "{pipeline}/models/digits"
    declared = tensorflow_serving.declaration("serving", ServingSettings(pool="cpu"), SERVED)
    assert declared.after == ["serving-publish"]
    assert not declared.inputs, "a new version comes without a restart"
    assert not declared.writes
    assert declared.probe.path == f"/v1/models/digits/labels/{STABLE}/metadata"
    assert declared.ports == {"grpc": 8500}


def test_labels_move_after_servers_have_looked() -> None:
    assert "--model_config_file_poll_wait_seconds=20" in words(poll=20)
    settle = step_words(poll=20)
    assert settle[settle.index("--settle") + 1] == "60"


def test_the_image_has_cuda_where_gpus_are_asked_for() -> None:
    def image(gpus: int) -> str | None:
        return tensorflow_serving.declaration("serving", ServingSettings(pool="p", gpus=gpus), SERVED).image

    assert image(0) == CPU_IMAGE
    assert image(1) == GPU_IMAGE
    assert re.fullmatch(r"tensorflow/serving:2\.\d+\.\d+-gpu(@sha256:[0-9a-f]{64})?", GPU_IMAGE)


def test_batching_is_a_file_that_the_step_leaves() -> None:
    assert not [word for word in words() if "batching" in word]
    batching = {"largest": 32, "wait": 500}
    assert "--batching_parameters_file={pipeline}/models/digits/batching-32-500-100.config" in words(
        batching=batching
    )
    assert "--batch-largest=32" in step_words(batching=batching)


def test_as_many_threads_as_cpus() -> None:
    assert "--tensorflow_intra_op_parallelism=1" in words(cpu="250m")
    assert "--tensorflow_intra_op_parallelism=3" in words(cpu="2500m")


@pytest.mark.parametrize(
    "settings",
    [{}, {"serve": "previous"}, {"serve": 3, "canary": "latest", "keep": 2}, {"batching": {"largest": 8}}],
)
def test_the_step_understands_its_arguments(settings: dict[str, object]) -> None:
    places = {"train": "/train", "prepare": "/prepare", "pipeline": "/pipeline", "output": "/output"}
    given = [step_word.format_map(places) for step_word in step_words(**settings)]
    options = publish.parse(given)
    assert str(options.model) == "/train/saved_model", shlex.join(given)
    assert options.inputs == {"image": "images"}
    assert options.serve == str(settings.get("serve", "latest"))
    assert options.canary == settings.get("canary")
    assert options.min_accuracy == 0.9


@pytest.mark.parametrize(
    "settings", [{"serve": "newest"}, {"keep": 0}, {"canary": 1.5}, {"canary": 0}, {"poll": 0}]
)
def test_what_names_no_version_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ServingSettings(pool="cpu", **settings)


@pytest.mark.parametrize("settings", [{"canary": "latest"}, {"serve": 3, "canary": 3}])
def test_a_canary_is_another_version_than_the_one_that_answers(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"`serve` names (latest|3), too") as refused:
        ServingSettings(pool="cpu", **settings)
    assert [error["loc"] for error in refused.value.errors()] == [("canary",)]


def test_the_step_runs_beside_the_server_or_where_it_is_told() -> None:
    beside = ServingSettings(pool="gpu", gpus=1)
    assert (beside.publishing.pool, beside.publishing.gpus, beside.publishing.memory) == ("gpu", 0, "2Gi")
    placed_by = StepSettings(pool="cpu")
    assert ServingSettings(pool="gpu", gpus=1, publish=placed_by).publishing is placed_by
