"""The folder that `make new PIPELINE=…` writes is a pipeline that rehearses, and nothing else is touched."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from slipway.command.new.stack import draft as draft_of_a_stack
from slipway.command.new.stack import most_needed, on_cpus, on_gpus, section
from slipway.command.new.writing import RefusedError, draft, write
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.pipelines.file.reading import Folder, read
from slipway.infra.schema.request import CPU_POOL, GPU_POOL
from tests.command.new.running import new
from tests.support.checkout import ROOT

NAME = "made-by-tests"
"""A pipeline that no copy of this repository has."""

FILES = {"pipeline.yaml", "prepare.py", "train.py", "requirements.in", "requirements.txt"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a new pipeline."""
    target = tmp_path_factory.mktemp("new") / NAME
    target.mkdir()
    files = draft(NAME).files
    assert not isinstance(files, str)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
    return target


def test_it_is_a_pipeline_without_a_mistake(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES
    made = read(Folder(folder, NAME, NAME))
    assert made.problems == ()
    found = section(NAME, None, made)
    assert found.values == {"steps": {"prepare": {"pool": CPU_POOL}, "train": {"pool": CPU_POOL}}}
    assert [step.name for step in made.steps(found.settings)] == ["prepare", "train"]
    assert most_needed(found.settings, gpus=True) is None


def test_a_gpu_goes_to_the_step_that_reads_what_another_one_made(folder: Path) -> None:
    found = on_gpus(section(NAME, None, read(Folder(folder, NAME, NAME))))
    assert found.given == ["train"]
    assert found.values["steps"] == {"prepare": {"pool": CPU_POOL}, "train": {"pool": GPU_POOL, "gpus": 1}}
    assert on_cpus(found).values["steps"]["train"] == {"pool": CPU_POOL, "gpus": 0}


PIPELINE = """
description: Every kind of setting that a new stack has to say something about.
parameters:
  customers: {type: string, description: Where they are listed.}
  rate: {type: number, default: 0.5}
steps:
  train:
    run: [python, train.py, "{customers}", "{rate}", "{output}"]
    resources: {gpus: 2, memory: 24Gi}
    secrets: {WANDB_API_KEY: wandb-key}
"""


def test_what_only_the_user_knows_is_named(tmp_path: Path) -> None:
    tmp_path /= "leavers"
    tmp_path.mkdir()
    (tmp_path / "pipeline.yaml").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    made = read(Folder(tmp_path, "it", "it"))
    assert made.problems == ()
    found = section("it", None, made)
    assert found.guessed == ("customers",)
    assert found.values["steps"] == {"train": {"pool": GPU_POOL, "gpus": 2}}
    asked = most_needed(found.settings, gpus=True)
    assert asked is not None
    assert (asked.gpus, asked.memory) == (2, 24 * 1024)
    stack = draft_of_a_stack(NAME, {"CLOUD": "gcp", "USES": str(tmp_path)}, "")
    said = "\n".join(stack.said)
    assert "Set first, in the file: customers" in said
    secret = f"pulumi config set --secret --path 'slipway:secrets.wandb-key' -s {NAME}"
    assert 0 < said.index(secret) < said.index("make rehearse"), "without it nothing can be rehearsed"
    config = yaml.safe_load(str(stack.files))["config"]
    assert config["slipway:pipelines"] == {
        "leavers": {"uses": str(tmp_path), "customers": "", "steps": {"train": {"pool": GPU_POOL, "gpus": 2}}}
    }
    pool = config["slipway:clusters"]["main"]["pools"][GPU_POOL]
    assert (pool["gpus"], pool["machine_type"]) == (2, "n1-highmem-8")


def test_its_programs_are_short_and_well_written(folder: Path) -> None:
    for name in ("prepare.py", "train.py"):
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        assert len([line for line in lines if line.strip()]) <= 27
    for command in (["check"], ["format", "--check"]):
        subprocess.run(
            [ROOT / ".venv/bin/ruff", *command, "--config", ROOT / "pyproject.toml", folder], check=True
        )


def test_its_packages_are_pinned_with_hashes_and_name_no_index(folder: Path) -> None:
    text = (folder / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "index" not in text
    requirements = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).strip().splitlines()
    assert len(requirements) > 10
    for requirement in requirements:
        assert re.match(r"[a-z0-9-]+==[^ ]+ .*--hash=sha256:", requirement), requirement
    pinned = re.findall(r"^[a-z-]+==.*$", (folder / "requirements.in").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned
    assert all(any(line.startswith(f"{each} ") for line in requirements) for each in pinned)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Churn", "not a Kubernetes name"),
        ("../churn", "not a Kubernetes name"),
        ("c" * 41, "at most 40"),
        ("store", "an output of the stack itself"),
        ("packages", "the packages that images lack"),
        ("mnist", "workloads/mnist is there already"),
    ],
)
def test_a_name_that_a_section_cannot_have_is_refused(name: str, said: str) -> None:
    with pytest.raises(RefusedError) as caught:
        draft(name)
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("PIPELINE", name)
    assert said in problem.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing says what to make"),
        ([f"--pipeline={NAME}", "--stack=mine"], "one after the other"),
        ([f"--pipeline={NAME}", "--cloud=gcp"], f"make new STACK=mine CLOUD=gcp USES={NAME}"),
        (["--cloud=gcp", "--gpu=nvidia-l4"], "make new STACK=mine CLOUD=gcp GPU=nvidia-l4"),
    ],
)
def test_options_that_do_not_go_together_are_one_message(checkout: Path, options: list[str], said: str) -> None:
    done = new(checkout, *options)
    assert done.returncode == 2
    assert "1 problem; nothing was written" in done.stderr
    assert said in done.stderr


def test_a_folder_is_there_whole_or_not_at_all(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = draft(f"{NAME}-half")
    target = checkout / WORKLOADS / f"{NAME}-half"
    there = {*(checkout / "build").glob("*")}
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    with pytest.raises(OSError, match="no space left"):
        write(type(made)(target, made.files, ()), checkout)
    assert not target.exists()
    assert {*(checkout / "build").glob("*")} == there


@pytest.mark.slow
def test_what_is_there_stays_as_it_is(checkout: Path) -> None:
    assert new(checkout, f"--pipeline={NAME}").returncode == 0
    mine = checkout / WORKLOADS / NAME / "train.py"
    mine.write_text("print('mine')\n", encoding="utf-8")
    again = new(checkout, f"--pipeline={NAME}")
    assert again.returncode == 2
    assert f"workloads/{NAME} is there already" in again.stderr
    assert mine.read_text(encoding="utf-8") == "print('mine')\n"


def test_the_page_shows_the_files_that_it_writes() -> None:
    page = (ROOT / "docs" / "your-program.md").read_text(encoding="utf-8")
    named = draft(NAME).files
    assert not isinstance(named, str)
    for name in ("train.py", "prepare.py", "pipeline.yaml"):
        kind = "yaml" if name.endswith(".yaml") else "python"
        assert f"```{kind}\n{named[name].replace(NAME, 'churn')}```" in page
