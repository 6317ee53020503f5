"""Which steps get the CUDA libraries that TensorFlow's GPU image lacks, and where these are fetched."""

from collections.abc import Callable
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from slipway.infra.kubernetes.pods.pod import arguments
from slipway.infra.kubernetes.run import plan
from slipway.infra.pipelines.cuda import LIBRARIES
from slipway.infra.pipelines.discovery import pipeline
from slipway.infra.pipelines.images import GPU_IMAGE, TAGS
from slipway.infra.placed import Step
from tests.support.placing import Steps, inspect

ROOT = Path(__file__).parents[3]
OWN_IMAGE = f"example.org/tensorflow@sha256:{'0' * 64}"


def steps(pool: str, image: str | None, look: Callable[[Steps], Any]) -> Any:
    """What ``look`` finds where train and predict run on ``pool`` in ``image``."""
    accelerated = {"pool": pool, "gpus": int(pool == "gpu"), "image": image}
    given = pipeline("mnist").settings.model_validate(
        {"steps": {"prepare": {"pool": "cpu"}, "train": accelerated, "predict": accelerated}}
    )
    return inspect("mnist", given, look)


def is_tested_with_them(step: Step) -> bool:
    return step.test is not None and f"--{LIBRARIES.name}={{{LIBRARIES.name}}}" in step.test.arguments


def test_gpu_steps_and_their_tests_load_what_a_cpu_node_fetched_once() -> None:
    def look(made: Steps) -> None:
        train, predict = made["train"], made["predict"]
        assert is_tested_with_them(train)
        for user in (train, predict):
            path = plan(user.inputs[LIBRARIES.name], ROOT).path
            words = arguments(plan(user, ROOT))
            assert f"/store/{path}" in words[words.index("--libraries") + 1]
        fetch = train.inputs[LIBRARIES.name]
        assert plan(fetch, ROOT).job_name == plan(predict.inputs[LIBRARIES.name], ROOT).job_name
        assert (fetch.pool.name, fetch.resources.gpus, fetch.image) == ("cpu", 0, GPU_IMAGE)
        # Their pins decide who runs again.
        assert "slipway/runtime/cuda/requirements.txt" in plan(fetch, ROOT).bundle.contents
        assert {*plan(train, ROOT).inputs} == {"prepare", LIBRARIES.name}

    steps("gpu", None, look)


def test_an_image_of_ones_own_and_a_cpu_pool_have_no_use_for_them() -> None:
    def look(made: Steps) -> list[str]:
        return [name for step in (made["train"], made["predict"]) for name in step.inputs]

    assert LIBRARIES.name not in steps("gpu", OWN_IMAGE, look)
    assert LIBRARIES.name not in steps("cpu", None, look)


def test_the_official_image_by_digest_lacks_them_too() -> None:
    def look(made: Steps) -> list[bool]:
        return [
            LIBRARIES.name in step.inputs and is_tested_with_them(step)
            for step in (made["train"], made["predict"])
        ]

    assert steps("gpu", f"{TAGS[1]}@sha256:{'0' * 64}", look) == [True, True]


def test_the_images_have_the_tensorflow_that_is_tested() -> None:
    installed = next(name for name in ("tensorflow-cpu", "tensorflow") if list(distributions(name=name)))
    assert f"tensorflow/tensorflow:{version(installed)}" == TAGS[0]
