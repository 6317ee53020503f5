"""The MNIST pipeline: from settings to steps that the workloads understand, and outputs that people do."""

import argparse
import importlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.infra.kubernetes.pods.pod import arguments
from slipway.infra.kubernetes.run import plan
from slipway.infra.kubernetes.shipping.sizes import LIMIT
from slipway.infra.pipelines.contract import Nodes, Section
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.placement import shipping
from slipway.infra.platform import Resources, Store
from slipway.infra.schema.problems import Problem
from tests.support import placing
from tests.support.placing import Steps
from tests.support.recording import Recording
from workloads.mnist.pipeline import PIPELINE, Mnist, check_batch

ROOT = Path(__file__).parents[3]

STEPS = {
    "prepare": {"pool": "cpu", "cpu": "2", "memory": "6Gi"},
    "train": {"pool": "gpu", "gpus": 1, "cpu": "500m", "memory": "8Gi", "time_limit": "3h"},
    "predict": {"pool": "gpu", "gpus": 1},
}


def settings(**values: Any) -> Mnist:
    return Mnist.model_validate({"steps": STEPS, **values})


def inspect(given: Mnist, look: Callable[[Steps], Any]) -> Any:
    """What ``look`` finds in the steps of ``given``, inside a program."""
    return placing.inspect("mnist", given, look)


def problems(given: Mnist, root: Path) -> list[Problem]:
    return shipping.problems([DeclaredPipeline("mnist", "mnist", given)], root)


def given_to(step: str, given: Mnist) -> list[str]:
    """The arguments that the step's container gets."""
    return inspect(given, lambda steps: arguments(plan(steps[step], ROOT)))


def parsed(
    step: str, given: Mnist, monkeypatch: pytest.MonkeyPatch, module: str | None = None
) -> argparse.Namespace:
    """What the workload itself makes of them."""
    seen: list[argparse.Namespace] = []

    class Parsed(Exception):  # noqa: N818
        pass

    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> argparse.Namespace:
        seen.append(parse(self, *args, **kwargs))
        raise Parsed

    given_arguments = given_to(step, given)
    main = importlib.import_module(f"workloads.mnist.{module or step}").main
    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        with pytest.raises(Parsed):
            main(given_arguments)
    return seen[0]


def test_train_gets_every_setting_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(epochs=5, batch_size=32, learning_rates={2: 1e-5, 0: 0.01}, min_accuracy=0.85, seed=7)
    options = parsed("train", given, monkeypatch)
    assert (options.epochs, options.batch_size, options.seed, options.min_accuracy) == (5, 32, 7, 0.85)
    rates = dict(pair.split(":") for pair in options.learning_rates.split(","))
    assert {int(epoch): float(rate) for epoch, rate in rates.items()} == {0: 0.01, 2: 1e-5}


def test_one_batch_of_all_gpus_takes_the_place_of_that_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parsed("train", settings(global_batch_size=96), monkeypatch)
    assert options.global_batch_size == 96
    assert parsed("train", settings(), monkeypatch).global_batch_size is None


@pytest.mark.parametrize(
    ("given", "copies"),
    [
        ({"dataset": {"name": "digits"}}, 8),
        ({"dataset": {"name": "digits"}, "augment": 0}, 0),
        ({"dataset": {"name": "mnist"}}, 0),
        ({"dataset": {"name": "idx", "source": "raw/mnist"}, "augment": 3}, 3),
    ],
)
def test_the_few_scans_are_altered_unless_something_else_is_said(
    given: dict[str, Any], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed("train", settings(**given), monkeypatch).augment == copies
    # The arguments of a training without are what they were, or its Job would run again.
    assert ("--augment" in given_to("train", settings(**given))) == bool(copies)


def test_a_training_on_several_nodes_is_one_step_in_as_many_pods() -> None:
    several = {**STEPS, "train": {**STEPS["train"], "nodes": 2, "wait": "5m"}}
    declared = {step.name: step for step in PIPELINE.steps(settings(steps=several))}
    assert declared["train"].nodes == Nodes(2, wait=300)
    assert declared["prepare"].nodes is None
    assert {step.name: step.nodes for step in PIPELINE.steps(settings())}["train"] is None


@pytest.mark.parametrize(
    ("nodes", "gpus", "batch", "words"),
    [
        (2, 2, 64, None),
        (1, 0, 63, None),
        (2, 2, 62, "among 4 GPUs on 2 nodes … write a multiple of 4, such as `64`"),
        (4, 0, 2, "among 4 nodes … write a multiple of 4, such as `4`"),
    ],
)
def test_a_batch_that_the_gpus_cannot_share_is_refused(
    nodes: int, gpus: int, batch: int, words: str | None
) -> None:
    steps = {**STEPS, "train": {**STEPS["train"], "nodes": nodes, "gpus": gpus}}
    findings = list(check_batch(Section(("mnist",), settings(steps=steps, global_batch_size=batch), {})))
    if words is None:
        assert findings == []
    else:
        among, fix = words.split(" … ")
        assert among in findings[0].reason
        assert findings[0].fix == fix


def test_prepare_gets_the_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed("prepare", settings(dataset={"name": "digits"}), monkeypatch).dataset == "digits"
    options = parsed("prepare", settings(dataset={"name": "idx", "source": "raw/mnist"}), monkeypatch)
    assert (options.dataset, str(options.source)) == ("idx", "/store/raw/mnist")


def prepare_images(given: Mnist, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    here = Path.is_dir
    # What is looked for is in a pod, not here.
    monkeypatch.setattr(Path, "is_dir", lambda path: path.parts[1] in {"store", "folders"} or here(path))
    return parsed("prepare", given, monkeypatch, "prepare_images")


def test_a_folder_of_images_in_the_store_is_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(dataset={"name": "images", "source": "store:uploads/digits"}, seed=5)
    options = prepare_images(given, monkeypatch)
    assert (str(options.source), options.seed) == ("/store/uploads/digits", 5)
    assert inspect(given, lambda steps: plan(steps["prepare"], ROOT).folders) == {}
    assert inspect(given, lambda steps: steps["prepare"].requirements) is None, "TensorFlow reads them"


def test_predict_gets_the_model_and_the_held_out_images(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parsed("predict", settings(), monkeypatch)
    trained = given_to("train", settings())
    prepared = given_to("prepare", settings())
    assert str(options.model) == trained[trained.index("--output") + 1]
    assert str(options.images) == prepared[prepared.index("--output") + 1] + "/images"


def test_images_in_the_store_are_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(predict={"images": "store:inbox/{today}"})
    assert str(parsed("predict", given, monkeypatch).images) == "/store/inbox/{today}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder of the repository that git ignores."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as made:
        yield Path(made)


def test_an_image_folder_is_shipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "3.png").write_bytes(b"\x89PNG")
    given = settings(predict={"images": str(folder.relative_to(ROOT))})
    assert str(parsed("predict", given, monkeypatch).images) == "/folders/images"
    shipped = inspect(given, lambda steps: plan(steps["predict"], ROOT).folders["images"].contents)
    assert shipped == {"3.png": b"\x89PNG"}


def test_a_folder_of_images_of_the_repository_is_shipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "3").mkdir()
    (folder / "3" / "a.jpg").write_bytes(b"\xff\xd8\xff")
    given = settings(dataset={"name": "images", "source": str(folder.relative_to(ROOT))})
    shipped = inspect(given, lambda steps: plan(steps["prepare"], ROOT).folders["source"].contents)
    before = inspect(given, lambda steps: plan(steps["train"], ROOT).path)
    (folder / "3" / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    after = inspect(given, lambda steps: plan(steps["train"], ROOT).path)

    assert shipped == {"3/a.jpg": b"\xff\xd8\xff"}
    assert str(prepare_images(given, monkeypatch).source) == "/folders/source"
    assert before != after, "another image trains again"


def test_training_images_that_are_not_read_are_a_problem_before_anything_runs(folder: Path) -> None:
    for name in ("3.png", "4.heic", "5.gif"):
        (folder / name).write_bytes(b"\x89PNG")
    given = settings(dataset={"name": "images", "source": str(folder.relative_to(ROOT))})

    (problem,) = problems(given, ROOT)

    assert problem.key == "slipway:pipelines.mnist.dataset.source"
    assert "4.heic is neither PNG nor JPEG" in problem.reason
    assert "5.gif is neither PNG nor JPEG" in problem.reason


def test_other_images_only_predict_again(folder: Path) -> None:
    (folder / "3.png").write_bytes(b"\x89PNG")
    with_images = settings(predict={"images": str(folder.relative_to(ROOT))})

    def paths(given: Mnist) -> list[str]:
        return inspect(
            given,
            lambda steps: [plan(step, ROOT).path for step in (steps["prepare"], steps["train"], steps["predict"])],
        )

    prepare, train, predict = paths(settings())
    assert paths(with_images)[:2] == [prepare, train]
    assert paths(with_images)[2] != predict


def test_every_step_has_the_pool_image_and_resources_of_its_settings() -> None:
    def look(steps: Steps) -> None:
        assert (steps["prepare"].pool.name, steps["train"].pool.name) == ("cpu", "gpu")
        assert steps["prepare"].resources == Resources(cpu=2000, memory=6144, ephemeral_storage=4096)
        assert steps["train"].resources == Resources(cpu=500, memory=8192, ephemeral_storage=4096, gpus=1)
        assert steps["train"].time_limit == 3 * 3600
        assert not steps["prepare"].image.endswith("-gpu")
        assert steps["train"].image == f"{steps['prepare'].image}-gpu"

    inspect(settings(), look)


def test_the_image_has_the_tensorflow_that_is_pinned_here() -> None:
    pinned = next(
        line.split("==")[1].split()[0]
        for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("tensorflow==")
    )
    assert inspect(settings(), lambda steps: steps["prepare"].image) == f"tensorflow/tensorflow:{pinned}"


def test_another_image_is_used_as_it_is() -> None:
    image = "registry.example/tf@sha256:" + "0" * 64
    steps = {**STEPS, "train": {**STEPS["train"], "image": image}}
    assert inspect(Mnist.model_validate({"steps": steps}), lambda made: made["train"].image) == image


def test_nothing_is_installed_on_a_gpu_node() -> None:
    def look(steps: Steps) -> None:
        assert steps["prepare"].requirements is not None
        assert (ROOT / steps["prepare"].requirements.file).is_file()
        assert steps["train"].requirements is None
        assert steps["predict"].requirements is None

    inspect(settings(), look)


def test_what_this_repository_ships_fits() -> None:
    assert problems(settings(), ROOT) == []


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ("nowhere", "there is no such folder"),
        ("docs", "there is no PNG or JPEG file in it"),
    ],
)
def test_images_that_cannot_be_shipped_are_a_problem(images: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    given = settings(predict={"images": images})
    unshipped = [entry for entry in problems(given, tmp_path) if entry.key.endswith("images")]
    (problem,) = unshipped
    assert problem.key == "slipway:pipelines.mnist.predict.images"
    assert problem.value == images
    assert words in problem.reason
    assert problem.fix


def test_every_step_that_is_too_big_is_a_problem(tmp_path: Path) -> None:
    for name in ("prepare", "train", "predict"):
        path = tmp_path / f"workloads/mnist/{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#" * (LIMIT + 1), encoding="utf-8")
    for name in ("slipway/workloads/runtime/steps/packages.py", "workloads/mnist/requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    entries = problems(settings(), tmp_path)
    assert [entry.key for entry in entries] == [
        f"slipway:pipelines.mnist.steps.{name}" for name in ("prepare", "train", "predict")
    ]
    assert all("1 MiB" in entry.reason or str(LIMIT) in entry.reason for entry in entries)


FILES = {
    "predictions.json": {
        "images": [{"path": "digit-3.png", "digit": 3, "confidence": 0.98, "probabilities": [0.1] * 10}],
        "errors": [],
    },
    "metrics.json": {"test": {"accuracy": 0.97}},
}


def outputs(change: Callable[[Store], Store]) -> Recording:
    return placing.outputs("mnist", settings(), change)


def readable(files: Mapping[str, str | None], paths: list[str] | None = None) -> Callable[[Store], Store]:
    """A store that is read from here; ``files`` has its files by their name. All others are gone."""

    def change(store: Store) -> Store:
        def read(path: pulumi.Input[str], after: pulumi.Resource) -> pulumi.Output[str | None]:
            if paths is not None:
                paths.append(str(path))
            return pulumi.Output.from_input(files.get(str(path).rpartition("/")[2]))

        def browse(path: pulumi.Input[str]) -> pulumi.Output[str]:
            return pulumi.Output.concat("https://web/", path)

        return replace(store, url="gs://bucket", claim=None, read=read, browse=browse)

    return change


def test_results_that_can_be_read_here_are_outputs_themselves() -> None:
    paths: list[str] = []
    shown = outputs(readable({name: json.dumps(content) for name, content in FILES.items()}, paths)).exports[
        "mnist"
    ]
    assert shown["predictions"] == [{"path": "digit-3.png", "digit": 3, "confidence": 0.98}]
    assert shown["accuracy"] == 0.97
    assert shown["training"] == f"tensorboard --logdir {shown['runs']['train']}/logs"
    assert shown["browse"]["train"] == shown["runs"]["train"].replace("gs://bucket", "https://web")
    assert f"{shown['runs']['predict']}/predictions.json" in {f"gs://bucket/{path}" for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize("number", ["NaN", "-Infinity"])
def test_a_result_that_is_no_finite_number_is_named_with_its_step(number: str) -> None:
    texts = {"predictions.json": "[]", "metrics.json": f'{{"test": {{"accuracy": {number}}}}}'}
    said = outputs(readable(texts)).exports["mnist"]["accuracy"]
    assert "result accuracy of step mnist.train is " in said
    assert "metrics.json" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is not in the store"),
        ("", "is damaged"),
        ("[1, 2", "is damaged"),
        pytest.param("[" * 100_000, "is damaged", id="nested"),
        ('{"test": []}', "is damaged"),
        ('{"test": {"accuracy": null}}', "is damaged"),
    ],
)
def test_a_result_that_is_lost_or_damaged_is_said_with_the_way_to_make_it_again(
    text: str | None, said: str
) -> None:
    recording = outputs(
        readable({"predictions.json": json.dumps(FILES["predictions.json"]), "metrics.json": text})
    )
    shown = recording.exports["mnist"]
    train = recording.one("kubernetes:batch/v1:Job", "mnist-train")
    again = f"Make it again: pulumi up --stack test --replace '{train.urn}'"
    assert shown["accuracy"] == f"{shown['runs']['train']}/metrics.json {said}. {again}"
    assert shown["predictions"][0]["digit"] == 3, "the others are shown all the same"


def test_results_in_a_claim_are_shown_by_one_short_command_each() -> None:
    recording = outputs(lambda store: store)
    shown, described = recording.exports["mnist"], recording.exports["show"]
    names = {job.name: job.inputs["metadata"]["name"] for job in recording.of("kubernetes:batch/v1:Job")}
    for name in ("predictions", "accuracy", "training"):
        assert shown[name] == f"make show STACK=test mnist.{name}"
        assert described[f"mnist.{name}"]["kubectl"] == "kubectl --context here --namespace slipway"
        assert described[f"mnist.{name}"]["reader"] == names["store-gate-here"]
    predictions = described["mnist.predictions"]
    assert f"pvc://slipway/store/{predictions['path']}" == f"{shown['runs']['predict']}/predictions.json"
    assert "browse" not in shown
