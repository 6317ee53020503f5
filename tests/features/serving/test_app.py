"""What the kind `tensorflow-serving` declares: the server, and the step that publishes for it."""

from __future__ import annotations

import re
import shlex

import pytest

from slipway.features.serving import feature as serving
from slipway.features.serving.feature import CPU_IMAGE, GPU_IMAGE, Served, ServingSettings
from slipway.features.serving.pod import publish
from slipway.infra.pipelines.contract import StepSettings

SERVED = Served(
    model="digits",
    step="train",
    requests="{prepare}/test.npz",
    inputs={"image": "images"},
    truth="labels",
    min_accuracy=0.9,
)


def words(**settings: object) -> list[str]:
    declared = serving.declaration("serving", ServingSettings(pool="cpu", **settings), SERVED)
    return list(declared.arguments)


def step_words(**settings: object) -> list[str]:
    placed = ServingSettings(pool="cpu", **settings)
    reads = {"prepare": "prepare"}
    return list(serving.publishing("serving", placed, SERVED, reads).arguments)


def test_the_server_reads_what_the_step_writes_last() -> None:
    assert "--model_config_file={pipeline}/models/digits/models.config" in words()
    assert step_words()[step_words().index("--versions") + 1] == "{pipeline}/models/digits"
    declared = serving.declaration("serving", ServingSettings(pool="cpu"), SERVED)
    assert declared.after == ["serving-publish"]
    assert not declared.inputs, "a new version comes without a restart"
    assert not declared.writes
    assert declared.probe.path == "/v1/models/digits/metadata"
    assert declared.ports == {"grpc": 8500}


def test_servers_look_as_often_as_they_are_told() -> None:
    assert "--model_config_file_poll_wait_seconds=20" in words(poll=20)


def test_the_image_has_cuda_where_gpus_are_asked_for() -> None:
    def image(gpus: int) -> str | None:
        return serving.declaration("serving", ServingSettings(pool="p", gpus=gpus), SERVED).image

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


@pytest.mark.parametrize("settings", [{}, {"batching": {"largest": 8}}])
def test_the_step_understands_its_arguments(settings: dict[str, object]) -> None:
    places = {"train": "/train", "prepare": "/prepare", "pipeline": "/pipeline", "output": "/output"}
    given = [step_word.format_map(places) for step_word in step_words(**settings)]
    options = publish.parse(given)
    assert str(options.model) == "/train/saved_model", shlex.join(given)
    assert options.inputs == {"image": "images"}
    assert options.min_accuracy == 0.9


def test_the_step_shows_which_version_answers() -> None:
    [number] = serving.publishing("serving", ServingSettings(pool="cpu"), SERVED, {}).results
    assert number.path == publish.REPORT


def test_the_step_runs_beside_the_server_or_where_it_is_told() -> None:
    beside = ServingSettings(pool="gpu", gpus=1)
    assert (beside.publishing.pool, beside.publishing.gpus, beside.publishing.memory) == ("gpu", 0, "2Gi")
    placed_by = StepSettings(pool="cpu")
    assert ServingSettings(pool="gpu", gpus=1, publish=placed_by).publishing is placed_by
