"""Which steps get the CUDA libraries that TensorFlow's GPU image lacks, and where these are fetched."""

from collections.abc import Callable
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from infra.kubernetes.pod import arguments
from infra.kubernetes.run import plan
from infra.pipelines.images import GPU_IMAGE, TAGS
from infra.placed import ACCELERATOR_GATE, Step
from tests.support.placing import Steps, inspect
from workloads.cuda.supplement import SUPPLEMENT
from workloads.mnist.pipeline import Mnist

ROOT = Path(__file__).parents[2]
OWN_IMAGE = f"example.org/tensorflow@sha256:{'0' * 64}"


def steps(pool: str, image: str | None, look: Callable[[Steps], Any]) -> Any:
    """What ``look`` finds where train and predict run on ``pool`` in ``image``."""
    accelerated = {"pool": pool, "gpus": int(pool == "gpu"), "image": image}
    given = Mnist.model_validate(
        {"steps": {"prepare": {"pool": "cpu"}, "train": accelerated, "predict": accelerated}}
    )
    return inspect("mnist", given, look)


def gate_of(step: Step) -> Step:
    return next(each for each in step.after if each.pipeline == ACCELERATOR_GATE)


def test_gpu_steps_and_their_gate_load_them_from_the_store() -> None:
    def look(made: Steps) -> list[tuple[str, list[str]]]:
        users = (made["train"], gate_of(made["train"]), made["predict"])
        return [(plan(user.inputs[SUPPLEMENT.name], ROOT).path, arguments(plan(user, ROOT))) for user in users]

    found = steps("gpu", None, look)
    assert len(found) == 3
    for path, given in found:
        assert f"--libraries=/store/{path}" in given


def test_they_are_fetched_once_on_a_cpu_node_in_the_image_that_lacks_them() -> None:
    def look(made: Steps) -> list[tuple[str, str, int]]:
        both = (made["train"].inputs[SUPPLEMENT.name], made["predict"].inputs[SUPPLEMENT.name])
        return [(plan(each, ROOT).job_name, each.pool.name, each.resources.gpus) for each in both] + [
            (each.image, each.pool.name, 0) for each in both[:1]
        ]

    first, second, image = steps("gpu", None, look)
    assert first == second
    assert first[1:] == ("cpu", 0)
    assert image[0] == GPU_IMAGE


def test_their_pins_travel_with_them_and_decide_who_runs_again() -> None:
    def look(made: Steps) -> tuple[set[str], set[str]]:
        libraries = plan(made["train"].inputs[SUPPLEMENT.name], ROOT)
        return set(libraries.bundle.contents), set(plan(made["train"], ROOT).inputs)

    shipped, inputs = steps("gpu", None, look)
    assert "workloads/cuda/requirements.txt" in shipped
    assert inputs == {"prepare", SUPPLEMENT.name}


def test_an_image_of_ones_own_and_a_cpu_pool_have_no_use_for_them() -> None:
    def look(made: Steps) -> list[str]:
        return [name for step in (made["train"], made["predict"]) for name in step.inputs]

    assert SUPPLEMENT.name not in steps("gpu", OWN_IMAGE, look)
    assert SUPPLEMENT.name not in steps("cpu", None, look)


def test_the_official_image_by_digest_lacks_them_too() -> None:
    def look(made: Steps) -> list[bool]:
        return [
            SUPPLEMENT.name in step.inputs for step in (made["train"], gate_of(made["train"]), made["predict"])
        ]

    assert steps("gpu", f"{TAGS[1]}@sha256:{'0' * 64}", look) == [True, True, True]


def test_the_images_have_the_tensorflow_that_is_tested() -> None:
    installed = next(each for each in ("tensorflow-cpu", "tensorflow") if list(distributions(name=each)))
    assert f"tensorflow/tensorflow:{version(installed)}" == TAGS[0]
