"""Commands: what of a declaration becomes of them, in the placed steps and in their Jobs."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pydantic import SecretStr

from slipway.infra import places
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.results import Outputs
from slipway.infra.kubernetes.run import TESTER
from slipway.infra.kubernetes.shipping.sizes import MOST_CODE
from slipway.infra.pipelines.contract import Best, Command, StepDeclaration
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.results import File
from slipway.infra.placement.placing import place
from slipway.infra.placement.shipping import problems
from slipway.infra.places import PACKAGE
from slipway.infra.review.stack import Resource
from slipway.rehearse.cluster.kubelet import expand
from tests.infra.pipelines.commands import command, on_gpu, pipeline, prepare, repository, variants
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stand_in import platform

pytestmark = pytest.mark.slow

JOB = "kubernetes:batch/v1:Job"
SECRET = "kubernetes:core/v1:Secret"
IMAGE = f"example/jax@sha256:{'0' * 64}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path)


def declared(root: Path, *pipelines: DeclaredPipeline, secrets: dict[str, str] | None = None) -> Recording:
    """What the program declares of ``pipelines``."""

    def program() -> None:
        here = platform()
        placed = place(pipelines, {"here": here}, Gates("image"), root)
        workspaces = {"here": Workspace("here", WorkspaceArgs(here, "slipway", "runner", protect=False))}
        values = {name: SecretStr(value) for name, value in (secrets or {}).items()}
        declare([step for steps in placed.values() for step in steps], workspaces, root, values)

    return record(program, {}, preview=False)


def jobs(recording: Recording) -> dict[str, Resource]:
    return {resource.name: resource for resource in recording.of(JOB)}


def container(job: Resource) -> dict[str, Any]:
    return job.inputs["spec"]["template"]["spec"]["containers"][0]


def gpu_test(job: Resource) -> list[str]:
    """The command that tests the pod's GPUs before its program."""
    command = container(job)["command"]
    at = command.index(TESTER)
    return command[at - 2 : command.index("--", at)]


def words(job: Resource) -> list[str]:
    """The command line of the user's program."""
    args = container(job)["args"]
    return args[args.index("--") + 1 :]


def flags(job: Resource, flag: str) -> list[str]:
    """The values that the runner is given for ``flag``."""
    args = container(job)["args"]
    mine = args[: args.index("--")]
    return [mine[at + 1] for at, word in enumerate(mine) if word == flag]


def result(job: Resource) -> str:
    return f"/store/{job.inputs['metadata']['annotations']['slipway/run']}"


def shipped(recording: Recording, step: str) -> set[str]:
    maps = {resource.name: resource for resource in recording.of("kubernetes:core/v1:ConfigMap")}
    job = jobs(recording)[step]
    volumes = job.inputs["spec"]["template"]["spec"]["volumes"]
    bundle = next(volume["configMap"] for volume in volumes if volume["name"] == "bundle")
    assert set(maps[f"{step}-bundle"].inputs["data"]) == {item["key"] for item in bundle["items"]}
    return {item["path"] for item in bundle["items"]}


def test_a_command_runs_behind_the_runner_and_gets_nothing_added_to_its_words(root: Path) -> None:
    job = jobs(declared(root, pipeline(prepare())))["churn-prepare"]

    assert container(job)["command"] == ["python3", "-m", "slipway.runtime.steps.command"]
    assert words(job) == ["python", "prepare.py", "--output", result(job)]
    assert flags(job, "--output") == [result(job)]
    assert (flags(job, "--step"), flags(job, "--code")) == (["churn.prepare"], ["/bundle/code"])


def test_a_command_ships_what_it_imports_beside_the_runner_and_the_files_of_its_folder(root: Path) -> None:
    steps = shipped(declared(root, pipeline(prepare(), *variants())), "churn-train-100")
    runner = {path for path in steps if path.startswith(f"{PACKAGE}/")}
    assert {"slipway/__init__.py", "slipway/runtime/steps/command.py"} <= runner
    assert not [path for path in runner - {"slipway/__init__.py"} if not path.startswith("slipway/runtime/")]

    models = {"code/models/__init__.py", "code/models/forest.py"}
    assert steps == {*runner, "code/train.py", *models, "code/schema.json"}


AGAIN: list[tuple[str, set[str]]] = [
    ("churn/features.py", {"churn-prepare", "churn-train-100", "churn-train-300"}),
    ("churn/train.py", {"churn-train-100", "churn-train-300"}),
    ("churn/schema.json", {"churn-prepare", "churn-train-100", "churn-train-300"}),
    ("churn/models/linear.py", set()),
    ("churn/pipeline.yaml", set()),
    ("churn/README.md", set()),
]


@pytest.mark.parametrize(("file", "again"), AGAIN)
def test_a_changed_file_runs_the_commands_again_that_use_it(root: Path, file: str, again: set[str]) -> None:
    def results() -> dict[str, str]:
        all_jobs = jobs(declared(root, pipeline(prepare(), *variants())))
        return {name: result(job) for name, job in all_jobs.items() if name.startswith("churn")}

    before = results()
    with (root / "workloads" / file).open("a", encoding="utf-8") as stream:
        stream.write("\n")

    assert {name for name, place in results().items() if place != before[name]} == again


def test_what_the_runner_is_made_of_runs_no_command_again(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ships() -> tuple[str, set[str]]:
        made = declared(root, pipeline(prepare()))
        job = jobs(made)["churn-prepare"]
        return result(job), {
            config_map.inputs["metadata"]["name"] for config_map in made.of("kubernetes:core/v1:ConfigMap")
        }

    library = tmp_path_factory.mktemp("library")
    shutil.copytree(ROOT / PACKAGE / "runtime", library / PACKAGE / "runtime")
    (library / PACKAGE / "__init__.py").touch()
    monkeypatch.setattr(places, "LIBRARY", library)
    place, bundles = ships()
    with (library / PACKAGE / "runtime/store.py").open("a", encoding="utf-8") as stream:
        stream.write("\n")
    assert ships()[0] == place
    assert ships()[1] != bundles, "the file is shipped"


def test_a_folder_elsewhere_has_the_same_results(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "churn"
    (root / "workloads/churn").rename(elsewhere)
    moved_step = replace(prepare(), command=Command(str(elsewhere)))
    moved = result(jobs(declared(root, pipeline(moved_step)))["churn-prepare"])
    elsewhere.rename(root / "workloads/churn")

    assert moved == result(jobs(declared(root, pipeline(prepare())))["churn-prepare"])


def test_every_variant_becomes_an_argument_where_none_is_the_best(root: Path) -> None:
    report = command("report", "python", "prepare.py", "{train}", inputs={"train": "train"})
    all_jobs = jobs(declared(root, pipeline(prepare(), *variants(), report)))

    places = [result(all_jobs[f"churn-train-{trees}"]) for trees in (100, 300)]
    assert words(all_jobs["churn-report"]) == ["python", "prepare.py", *places]
    assert flags(all_jobs["churn-report"], "--input") == [
        f"train-100={places[0]}",
        f"train-300={places[1]}",
    ]


def test_the_best_is_found_by_the_runner_among_all_variants(root: Path) -> None:
    report = command(
        "report", "python", "prepare.py", "{train}", inputs={"train": "train"}, environment={"MODEL": "{train}/m"}
    )
    job = jobs(declared(root, pipeline(prepare(), *variants(Best("accuracy")), report)))["churn-report"]

    assert words(job) == ["python", "prepare.py", "{best:train}"]
    assert {"name": "MODEL", "value": "{best:train}/m"} in container(job)["env"]
    assert flags(job, "--best") == ["train=max:metrics.json#/test/accuracy:train-100,train-300"]


def test_a_step_after_one_with_variants_waits_for_all_of_them(root: Path) -> None:
    last = command("last", "python", "prepare.py", after=["train"])
    all_jobs = jobs(declared(root, pipeline(prepare(), *variants(), last)))

    waited = {dependency.rpartition("::")[2] for dependency in all_jobs["churn-last"].dependencies}
    assert {"churn-train-100", "churn-train-300"} <= waited
    assert flags(all_jobs["churn-last"], "--input") == []


def test_variants_that_a_pool_has_no_room_for_wait_for_one_another(root: Path) -> None:
    all_jobs = jobs(declared(root, pipeline(prepare(), *map(on_gpu, variants()))))

    def waits(step: str) -> set[str]:
        return {dependency.rpartition("::")[2] for dependency in all_jobs[step].dependencies} & set(all_jobs)

    assert waits("churn-train-300") - waits("churn-train-100") == {"churn-train-100"}
    assert flags(all_jobs["churn-train-300"], "--input") == flags(all_jobs["churn-train-100"], "--input")

    beside = jobs(declared(root, pipeline(prepare(), *variants())))
    assert "churn-train-100" not in {
        dependency.rpartition("::")[2] for dependency in beside["churn-train-300"].dependencies
    }


def test_a_job_says_which_variant_it_is(root: Path) -> None:
    evaluation = declared(root, pipeline(prepare(), *variants(Best("accuracy", "min")))).evaluation

    (step,) = (step for step in evaluation.steps if step.job == "churn-train-300")
    assert step.variant == {
        "of": "train",
        "values": {"trees": 300},
        "best": {"by": "accuracy", "of": "min"},
    }


def test_packages_are_installed_once_for_each_lock_file_and_image_on_a_node_without_gpus(root: Path) -> None:
    lock = "workloads/churn/requirements.txt"
    steps = [replace(step, requirements=lock) for step in (prepare(), *variants())]
    gpu = on_gpu(command("deep", "python", "train.py", requirements=lock))
    gpu = replace(gpu, placed_by=gpu.placed_by.model_copy(update={"image": IMAGE}))
    all_jobs = jobs(declared(root, pipeline(*steps, gpu), pipeline(*steps, name="other")))

    installing = {name: job for name, job in all_jobs.items() if name.startswith("packages-")}
    assert set(installing) == {"packages-churn", "packages-churn-jax"}
    for name, image in (("packages-churn", "tensorflow/tensorflow"), ("packages-churn-jax", IMAGE)):
        pod = installing[name].inputs["spec"]["template"]["spec"]
        assert pod["nodeSelector"] == {"pool": "cpu"}
        assert container(installing[name])["image"].startswith(image)
        assert container(installing[name])["command"] == [
            "python3",
            "-m",
            "slipway.runtime.steps.environment",
        ]
    assert flags(all_jobs["churn-prepare"], "--packages") == [result(installing["packages-churn"])]
    assert flags(all_jobs["other-train-300"], "--packages") == [result(installing["packages-churn"])]
    assert flags(all_jobs["churn-deep"], "--packages") == [result(installing["packages-churn-jax"])]
    assert "initContainers" not in all_jobs["churn-prepare"].inputs["spec"]["template"]["spec"]


def test_cuda_libraries_are_told_to_the_runner_and_not_to_the_program(root: Path) -> None:
    (root / "workloads/churn/models/forest.py").write_text("import keras")
    all_jobs = jobs(declared(root, pipeline(on_gpu(command("deep", "python", "train.py")))))

    assert words(all_jobs["churn-deep"]) == ["python", "train.py"]
    assert flags(all_jobs["churn-deep"], "--libraries") == [result(all_jobs["cuda-libraries"])]


@pytest.mark.parametrize(
    ("where", "text", "expected"),
    [
        ("models/forest.py", "import lightgbm", False),
        ("models/forest.py", "import tensorflow as tf", True),
        ("models/linear.py", "import tensorflow as tf", False),
        ("requirements.txt", "keras==3.12.0 --hash=sha256:00\n", True),
        ("requirements.txt", "lightgbm==4.6.0 --hash=sha256:00\n", False),
        ("settings.json", '{"backend": "jax"}', True),
    ],
)
def test_a_program_without_tensorflow_needs_neither_its_libraries_nor_its_test(
    root: Path, where: str, text: str, expected: bool
) -> None:
    (root / "workloads/churn" / where).write_text(text)
    lock = "workloads/churn/requirements.txt"
    all_jobs = jobs(declared(root, pipeline(on_gpu(command("deep", "python", "train.py", requirements=lock)))))

    assert ("cuda-libraries" in all_jobs) == expected
    assert (flags(all_jobs["churn-deep"], "--libraries") != []) == expected
    assert ("--tensorflow" in gpu_test(all_jobs["churn-deep"])) is bool(expected)


def test_gpus_of_an_image_without_tensorflow_are_tested_by_their_driver(root: Path) -> None:
    gpu = on_gpu(command("deep", "python", "train.py"))
    gpu = replace(gpu, placed_by=gpu.placed_by.model_copy(update={"image": IMAGE}))

    test = gpu_test(jobs(declared(root, pipeline(gpu)))["churn-deep"])

    assert test[:4] == ["python3", "-m", "slipway.runtime.gates.gpus", "--model"]


def test_results_and_secrets_are_told_to_the_runner(root: Path) -> None:
    step = replace(prepare(), results=variants()[0].results, secrets={"WANDB_API_KEY": "wandb-key"})
    recording = declared(root, pipeline(step), secrets={"wandb-key": "planted", "other": "x"})
    job = jobs(recording)["churn-prepare"]

    assert flags(job, "--result") == ["accuracy=metrics.json#/test/accuracy"]
    assert flags(job, "--secret") == ["WANDB_API_KEY"]
    reference = {"secretKeyRef": {"name": "churn-secrets", "key": "wandb-key"}}
    assert {"name": "WANDB_API_KEY", "valueFrom": reference} in container(job)["env"]
    (secret,) = recording.of(SECRET)
    assert str(secret.properties["stringData"]) == "[secret]"
    assert secret.inputs["metadata"]["name"] == "churn-secrets"
    assert secret.urn in job.dependencies


def test_neither_name_nor_value_of_a_secret_decides_a_result(root: Path) -> None:
    def place_of(names: dict[str, str], value: str) -> str:
        step = replace(prepare(), secrets=names)
        return result(
            jobs(declared(root, pipeline(step), secrets=dict.fromkeys(names.values(), value)))["churn-prepare"]
        )

    assert place_of({"A": "a"}, "1") == place_of({"A": "a"}, "2") == place_of({"B": "b"}, "1") == place_of({}, "")


def test_a_parameter_in_the_environment_decides_a_result(root: Path) -> None:
    def place_of(value: str) -> str:
        return result(
            jobs(declared(root, pipeline(replace(prepare(), environment={"A": value}))))["churn-prepare"]
        )

    assert place_of("1") != place_of("2")


Change = Callable[[Path, StepDeclaration], StepDeclaration]


def write(name: str, text: str) -> Change:
    def change(folder: Path, step: StepDeclaration) -> StepDeclaration:
        (folder / name).write_text(text, encoding="utf-8")
        return step

    return change


def link(name: str, target: str) -> Change:
    def change(folder: Path, step: StepDeclaration) -> StepDeclaration:
        (folder / name).symlink_to(target)
        return step

    return change


def run(*line: str, **changes: Any) -> Change:
    return lambda _, step: replace(step, arguments=line, **changes)


@pytest.mark.parametrize(
    ("change", "value", "reason"),
    [
        (run("python", "nothere.py"), "nothere.py", "no such file"),
        (run("python", "-m", "models.nothere"), "models.nothere", "no such module"),
        (run("x", command=Command("workloads/nothere")), "nothere", "no such folder"),
        (
            run("python", "train.py", command=Command("workloads/churn", ["plugins/*.py"])),
            "plugins/*.py",
            "names no file",
        ),
        (run("python", "prepare.py", requirements="workloads/churn/no.txt"), "no.txt", "no such file"),
        (write("prepare.py", "def"), "prepare.py", "Python cannot read it"),
        (write("features.py", "from . import y"), "features.py", "line 1 imports from the file's package"),
        (
            write("features.py", "import datasets.x\nimport models.no"),
            "models.no",
            "features.py imports it in line 2",
        ),
        (write("data.csv", "x" * (MOST_CODE + 1)), "bytes", "at most 8 MiB; the biggest files are data.csv"),
        (run("python", "prepare.py", command=Command("workloads/churn", [".no/*"])), ".no/*", "names no file"),
        (link("data.csv", "/etc/hostname"), "churn", "data.csv is a link out of the folder"),
        (link("data.csv", "models"), "churn", "data.csv is a link to no file"),
        (link("data.csv", "data.csv"), "churn", "data.csv is a link to no file"),
    ],
)
def test_what_a_command_cannot_ship_is_a_problem(root: Path, change: Change, value: str, reason: str) -> None:
    step = change(root / "workloads/churn", prepare())

    (problem,) = problems([pipeline(step)], root)

    assert value in str(problem.value)
    assert reason in problem.reason
    assert problem.fix


@pytest.mark.parametrize(
    "line",
    [("torchrun", "train.py"), ("python", "/opt/app/main.py"), ("python", "{output}/x.py"), ("python", "-c", "1")],
)
def test_other_programs_ship_the_whole_folder_but_for_declarations(root: Path, line: Sequence[str]) -> None:
    step = command("prepare", *line, requirements="workloads/churn/requirements.txt")
    for path in (".git/config", "env/pyvenv.cfg", "env/lib/x.py", "models/__pycache__/x.pyc"):
        (root / "workloads/churn" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "workloads/churn" / path).write_text("", encoding="utf-8")

    code = {path for path in shipped(declared(root, pipeline(step)), "churn-prepare") if path.startswith("code/")}

    python = {"prepare", "train", "features", "models/__init__", "models/forest", "models/linear"}
    assert code == {"code/schema.json", *(f"code/{module}.py" for module in python)}


def test_a_program_of_the_image_has_a_folder_to_start_in(root: Path) -> None:
    (root / "workloads/churn/schema.json").unlink()
    step = command("prepare", "python", "-c", "1")
    for path in (root / "workloads/churn").rglob("*.py"):
        path.unlink()

    recording = declared(root, pipeline(step))

    assert flags(jobs(recording)["churn-prepare"], "--code") == ["/bundle/code"]
    assert any(path.startswith("code/") for path in shipped(recording, "churn-prepare"))


def test_braces_and_dollars_reach_the_program_as_they_are(root: Path) -> None:
    texts = ["{{x}}", "$(HOME)", "echo $$ $HOME", "$$(HOME) $$$", "$"]
    step = command("prepare", "python", "prepare.py", *texts, environment={"A": "{{y}} $(HOME) $$ {output}"})
    job = jobs(declared(root, pipeline(step)))["churn-prepare"]

    def in_container(text: str) -> str:
        return expand(text, {"HOME": "/root"})

    assert [in_container(word) for word in words(job)[2:]] == ["{x}", *texts[1:]]
    (value,) = [variable["value"] for variable in container(job)["env"] if variable["name"] == "A"]
    assert in_container(value) == f"{{y}} $(HOME) $$ {result(job)}"


def test_outputs_show_a_result_of_each_variant(root: Path) -> None:
    def program() -> None:
        here = platform()

        def read(_path: pulumi.Input[str], _after: pulumi.Resource) -> pulumi.Output[str | None]:
            return pulumi.Output.from_input('{"test": {"accuracy": 0.5}}')

        here = replace(here, store=replace(here.store, claim=None, url="gs://store", read=read))
        model = File(name="model", title="Model", path="model.pkl")
        steps = [replace(variant, results=(*variant.results, model)) for variant in variants()]
        placed = place([pipeline(prepare(), *steps)], {"here": here}, Gates("image"), root)["churn"]
        workspaces = {"here": Workspace("here", WorkspaceArgs(here, "slipway", "runner", protect=False))}
        pulumi.export("churn", Outputs(declare(placed, workspaces, root), workspaces).of(placed))

    output = record(program, {}, preview=False).exports["churn"]

    assert output["accuracy"] == {"train-100": 0.5, "train-300": 0.5}
    assert output["model"] == {name: f"{output['runs'][name]}/model.pkl" for name in ("train-100", "train-300")}
