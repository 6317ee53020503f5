"""A stack file that `make new` writes is one that can be rehearsed, and a wish that cannot be is refused whole."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.command.new.stack import PLACES, draft
from slipway.command.new.writing import Draft, RefusedError
from slipway.infra.accelerators import accelerators
from slipway.infra.clouds import registry
from slipway.infra.clouds.aws.catalogue import regions as aws_regions
from slipway.infra.clouds.gcp.catalogue import regions as gcp_regions
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT
from slipway.infra.schema.problems import without_prefix
from slipway.infra.schema.secret_values import MASK
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.command.new.running import new
from tests.infra.pipelines.days import DAYS, SECTION, written
from tests.support.checkout import ROOT, copy_checkout

NAME = "made-by-tests"
"""A stack that no copy of this repository has."""

FILE = f"stacks/Pulumi.{NAME}.yaml"

CPU_ONLY = {"prepare": "cpu", "train": "cpu", "predict": "cpu"}
WITH_GPU = {"prepare": "cpu", "train": "gpu", "predict": "gpu"}


def drafted(cloud: str, name: str = NAME, example: str = "mnist", **options: str) -> Draft:
    return draft(name, {"CLOUD": cloud, **options}, example)


def content(made: Draft) -> dict[str, Any]:
    assert isinstance(made.files, str)
    return yaml.safe_load(made.files)["config"]


def settings(made: Draft) -> Settings:
    return load(without_prefix(content(made)))


def pools(made: Draft) -> Mapping[str, Any]:
    (cluster,) = settings(made).clusters.values()
    return cluster.pools


def places(made: Draft) -> dict[str, str]:
    ((_, section),) = content(made)["slipway:pipelines"].items()
    steps = section["steps"]
    return {name: step["pool"] for name, step in steps.items()}


def refused(name: str = NAME, example: str = "mnist", **options: str) -> dict[str, str]:
    """Reason and fix by the option they are about."""
    with pytest.raises(RefusedError) as caught:
        draft(name, options, example)
    return {problem.key: f"{problem.reason}\n{problem.fix}" for problem in caught.value.problems}


@pytest.mark.parametrize("cloud", PLACES)
def test_a_stack_with_a_gpu_has_its_steps_on_its_pools(cloud: str) -> None:
    made = drafted(cloud, GPU="nvidia-l4")
    assert pools(made)["gpu"].gpu_type == "nvidia-l4"
    assert places(made) == WITH_GPU


def test_stacks_on_one_cluster_have_namespaces_of_their_own() -> None:
    made = [settings(drafted("existing", name)).namespace for name in ("eu_1.B", "b" * 100)]
    assert made[0] == "slipway-eu-1-b"
    assert len(made[1]) == KUBERNETES_NAME_LIMIT


@pytest.mark.parametrize("cloud", PLACES)
def test_a_stack_for_production_keeps_its_data(cloud: str) -> None:
    assert settings(drafted(cloud, "eu-prod")).protect
    assert not settings(drafted(cloud, "non-prod")).protect


@pytest.mark.parametrize(("cloud", "expected"), [("gcp", "gpu"), ("aws", "gpu"), ("existing", "cpu")])
def test_without_a_wish_the_cloud_chooses(cloud: str, expected: str, tmp_path: Path) -> None:
    """Of a pipeline whose steps ask for GPUs, and of one whose steps do not."""
    steps = {**DAYS["steps"], "report": {**DAYS["steps"]["report"], "resources": {"gpus": 1}}}
    made = drafted(cloud, USES=str(written(tmp_path / "days", {**DAYS, "steps": steps})))
    assert places(made) == {"prepare": "cpu", "days": "cpu", "report": expected}
    placed = settings(made).pipelines["days"].steps.report
    assert placed.asked_gpus == (expected == "gpu")
    assert ("gpu" in pools(made)) is (expected == "gpu")
    assert places(drafted(cloud)) == CPU_ONLY
    assert "gpu" not in pools(drafted(cloud))


@pytest.mark.parametrize("cloud", PLACES)
@pytest.mark.parametrize("options", [{}, {"GPU": "nvidia-l4"}])
def test_services_run_on_the_pool_without_gpus(tmp_path: Path, cloud: str, options: dict[str, str]) -> None:
    made = drafted(cloud, example="", USES=str(written(tmp_path / "days")), **options)
    assert content(made)["slipway:pipelines"]["days"]["services"] == SECTION["services"]
    assert settings(made).request.has_services
    assert "queue on pool cpu" in made.said[0]


def test_the_node_that_is_suggested_has_room_for_each_step_beside_the_services(tmp_path: Path) -> None:
    """Of a queue with 1 GiB, a cache with 512 MiB and steps that ask for 4 GiB, one at a time."""
    made = drafted("existing", example="", USES=str(written(tmp_path / "days")))
    assert (pools(made)["cpu"].cpu, pools(made)["cpu"].memory) == ("3", "6Gi")


@pytest.mark.slow
def test_the_stacks_preview_without_findings_that_the_shipped_ones_do_not_have(tmp_path: Path) -> None:
    copy = copy_checkout(tmp_path / "slipway")
    names = {cloud: f"{NAME}-{cloud}" for cloud in PLACES}
    for cloud, name in names.items():
        made = drafted(cloud, name, GPU="nvidia-l4")
        (copy / made.target.relative_to(ROOT)).write_text(str(made.files), encoding="utf-8")
    stacks = [word for name in [*names.values(), "gcp-dev"] for word in ("--stack", name)]
    command = [ROOT / ".venv/bin/python", "-m", "slipway", "preview", "--format", "json", *stacks]
    done = subprocess.run(command, cwd=copy, check=True, capture_output=True, text=True)
    found = {stack["stack"]: stack["findings"] for stack in json.loads(done.stdout)["stacks"]}
    rules = {name: sorted({finding["policy"] for finding in each}) for name, each in found.items()}
    assert {name: rules[name] for name in names.values()} == dict.fromkeys(names.values(), rules["gcp-dev"])


@pytest.mark.slow
@pytest.mark.parametrize(("cloud", "regions"), [("gcp", list(gcp_regions())), ("aws", list(aws_regions()))])
def test_each_gpu_is_placed_where_it_is_sold_and_refused_elsewhere_with_where_it_is(
    cloud: str, regions: list[str]
) -> None:
    """`draft` loads what it has made, so one that comes back is a stack that the settings accept."""
    sold = 0
    for gpu in accelerators():
        try:
            made = drafted(cloud, GPU=gpu)
        except RefusedError as error:
            (problem,) = error.problems
            assert problem.key == "GPU"
            continue
        sold += 1
        assert pools(made)["gpu"].spot
        for region in regions[:: len(accelerators())]:
            try:
                here = drafted(cloud, GPU=gpu, REGION=region)
            except RefusedError as error:
                (problem,) = error.problems
                assert (problem.key, problem.value) == ("GPU", gpu)
                said = problem.fix.partition(": ")[2].partition(";")[0].split(", ")
                assert region not in said
                drafted(cloud, GPU=gpu, REGION=said[-1])
            else:
                assert pools(here)["gpu"].gpu_type == gpu
    assert sold > 8


def test_everything_wrong_is_said_at_once() -> None:
    found = refused("acme/mine", CLOUD="gpc", USES="mnits", REGION="us-central1")
    assert set(found) == {"STACK", "CLOUD", "USES"}
    assert "STACK=mine" in found["STACK"]
    assert "did you mean `gcp`?" in found["CLOUD"]
    assert "did you mean `mnist`?" in found["USES"]
    # Where there is one pipeline, it is that one.
    assert "USES=NAME: " in refused(CLOUD="gpc", example="")["USES"]
    found = refused(CLOUD="gcp", REGION="us-centra1", GPU="nvidia-h100")
    assert "did you mean `us-central1`?" in found["REGION"]
    assert "did you mean `nvidia-h100-80gb`?" in found["GPU"]


@pytest.mark.parametrize(
    ("name", "options", "key", "said"),
    [
        (NAME, {}, "CLOUD", "CLOUD=aws (AWS)"),
        ("-mine", {"CLOUD": "gcp"}, "STACK", "no hyphen in front"),
        ("made by tests", {"CLOUD": "gcp"}, "STACK", "not the name of a Pulumi stack"),
        ("x" * 101, {"CLOUD": "gcp"}, "STACK", "at most 100"),
        ("GCP-Dev", {"CLOUD": "gcp"}, "STACK", "stacks/Pulumi.gcp-dev.yaml is there already"),
        (NAME, {"CLOUD": "gcp", "REGION": "us-central1-a"}, "REGION", "write `us-central1`"),
        (NAME, {"CLOUD": "aws", "REGION": "use1-az1"}, "REGION", "write `us-east-1`"),
        (
            NAME,
            {"CLOUD": "gcp", "REGION": "us-west2", "GPU": "nvidia-l4"},
            "GPU",
            "there: `nvidia-tesla-p4`, `nvidia-tesla-t4` or",
        ),
        (NAME, {"CLOUD": "gcp", "GPU": "nvidia-a10g"}, "GPU", "Google Cloud does not offer it"),
        (NAME, {"CLOUD": "aws", "GPU": "nvidia-tesla-p4"}, "GPU", "no instance type of AWS has it"),
        (NAME, {"CLOUD": "existing", "REGION": "here"}, "REGION", "leave it out"),
        (NAME, {"CLOUD": "existing", "GPU": "nvidia-l5"}, "GPU", "did you mean `nvidia-l4`?"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(name: str, options: dict[str, str], key: str, said: str) -> None:
    found = refused(name, **options)
    assert list(found) == [key]
    assert said in found[key]


def test_gpus_that_are_paid_for_and_not_used_are_told() -> None:
    assert "has 8 GPUs, all paid for, and no step uses more than 1" in "\n".join(
        drafted("aws", GPU="nvidia-tesla-a100").said
    )
    assert "paid for" not in "\n".join(drafted("aws", GPU="nvidia-tesla-t4").said)


def test_a_gpu_in_some_zones_of_a_region_leaves_the_cluster_more_zones() -> None:
    made = content(drafted("gcp", GPU="nvidia-h200-141gb", REGION="us-west1"))["slipway:clusters"]["main"]
    assert made["pools"]["gpu"]["zones"] == ["us-west1-c"]
    assert made["pools"]["gpu"]["consolidation_delay"] == "1m", "idle GPUs are not paid for ten minutes"
    assert sorted(made["zones"]) == ["us-west1-a", "us-west1-b", "us-west1-c"]
    made = content(drafted("aws", GPU="nvidia-h100-80gb", REGION="ap-northeast-1"))["slipway:clusters"]["main"]
    assert made["pools"]["gpu"] | {"nodes": {}} == {
        "instance_type": "p5.4xlarge",
        "zones": ["apne1-az1"],
        "spot": True,
        "instance_store": True,
        "nodes": {},
    }
    assert len(made["zones"]) == 2


def files(checkout: Path) -> dict[str, bytes]:
    """What is there beside bytecode and the environment."""
    return {
        str(path.relative_to(checkout)): path.read_bytes()
        for folder in ("stacks", "workloads", "build")
        for path in (checkout / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_it_is_written_once_and_the_next_command_is_told(checkout: Path) -> None:
    before = files(checkout)
    done = new(checkout, f"--stack={NAME}", "--cloud=gcp")
    assert done.returncode == 0, done.stderr
    assert f"make rehearse STACK={NAME}" in done.stdout
    assert f"pulumi config set gcp:project <your project> -s {NAME}" in done.stdout
    written = files(checkout)
    assert written.keys() - before.keys() == {FILE}
    again = new(checkout, f"--stack={NAME}", "--cloud=aws")
    assert again.returncode == 2
    assert f"{FILE} is there already" in again.stderr
    assert files(checkout) == written


@pytest.mark.slow
def test_nothing_is_written_where_something_is_wrong(checkout: Path) -> None:
    before = files(checkout)
    done = new(checkout, f"--stack={NAME}-too", "--cloud=gcp", "--gpu=nvidia-l5")
    assert done.returncode == 2
    assert "1 problem; nothing was written" in done.stderr
    assert files(checkout) == before


@pytest.mark.parametrize("cloud", PLACES)
def test_a_pool_has_a_node_for_each_pod_that_trains_together(cloud: str) -> None:
    made = drafted(cloud, USES="handwriting")
    assert settings(made).pipelines["handwriting"]
    nodes = content(made)["slipway:clusters"]["main"]["pools"]["cpu"]["nodes"]
    assert 3 in (nodes if isinstance(nodes, dict) else {"": nodes}).values()


def uncommented(made: Draft) -> dict[str, Any]:
    """The file once `schedule` and `apps` of its pipeline are no comments any more."""
    head, key, section = str(made.files).partition("  slipway:pipelines:\n")
    section = re.sub(r"^( +)# (?=schedule: |apps:$| +\S+: \{pool: )", r"\1", section, flags=re.MULTILINE)
    return yaml.safe_load(head + key + section)["config"]


APPS = {
    "mnist": {"serving", "page", "tensorboard", "notebook"},
    "neighbours": {"show"},
}


@pytest.mark.parametrize("cloud", PLACES)
@pytest.mark.parametrize("name", pipeline_names())
def test_what_stands_there_as_a_comment_is_right_without_the_mark(cloud: str, name: str) -> None:
    made = drafted(cloud, USES=name)
    (section,) = settings(made).pipelines.values()
    assert section.schedule is None
    raw = uncommented(made)
    placed = raw["slipway:pipelines"][name]
    loaded = load(without_prefix(raw)).pipelines[name]
    assert loaded.schedule is not None
    apps = set(placed.get("apps", {}))
    assert apps == {
        "mnist": {"serving", "page", "tensorboard", "notebook"},
        "neighbours": {"show"},
    }.get(name, set())
    said = "\n".join(made.said)
    assert all(app in said for app in apps)
    assert ("billed" in said) is bool(apps)


def test_apps_of_a_pipeline_s_own_are_left_out_as_comments(tmp_path: Path) -> None:
    big = {"kind": "program", "run": ["python", "page.py", "{port}"], "port": 8080, "resources": {"cpu": "6"}}
    folder = written(tmp_path / "days", {**DAYS, "apps": {"page": big}})
    (folder / "page.py").write_text("", encoding="utf-8")
    for cloud in PLACES:
        made = drafted(cloud, USES=str(folder))
        assert "apps" not in content(made)["slipway:pipelines"]["days"]
        raw = uncommented(made)
        assert raw["slipway:pipelines"]["days"]["apps"] == {"page": {"pool": "cpu"}}
        assert load(without_prefix(raw))


def test_a_parameter_without_a_description_has_none_made_of_its_name(tmp_path: Path) -> None:
    made = str(drafted("gcp", USES=str(written(tmp_path / "days"))).files)
    assert "# seed: 1\n" in made
    assert "# seed\n" not in made


@pytest.mark.parametrize(("cloud", "extra"), [("gcp", "gcp"), ("aws", "aws"), ("existing", None)])
def test_a_provider_that_is_not_installed_is_told_before_the_next_command_is_refused(
    cloud: str, extra: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    said = "\n".join(drafted(cloud).said)
    assert (f"slipway-ml[{extra}]" in said) is bool(extra)


def test_a_lock_file_that_is_not_there_is_told_with_the_command_that_makes_it(tmp_path: Path) -> None:
    steps = {
        name: {**step, "requirements": "requirements.txt"} if name != "days" else step
        for name, step in DAYS["steps"].items()
    }
    folder = written(tmp_path / "days", {**DAYS, "steps": steps})
    told = [line for line in drafted("gcp", USES=str(folder)).said if "requirements.txt" in line]
    assert len(told) == 1
    assert "uv pip compile" in told[0]
    (folder / "requirements.txt").write_text((folder / "cache.txt").read_text(encoding="utf-8"), encoding="utf-8")
    assert not any("requirements.txt" in line for line in drafted("gcp", USES=str(folder)).said)


@pytest.mark.parametrize("cloud", PLACES)
def test_a_pipeline_with_images_of_its_own_gets_the_registry_that_it_needs(cloud: str) -> None:
    made = drafted(cloud, USES="neighbours")
    registry = content(made)["slipway:registry"]
    assert registry["pool"] == "cpu"
    to_correct = any("slipway:registry.repository" in line for line in made.said)
    assert ("repository" in registry) is to_correct is (cloud == "existing")
    assert "slipway:registry" not in content(drafted(cloud))


def test_a_secret_is_told_with_the_variable_that_is_enough_for_a_rehearsal(tmp_path: Path) -> None:
    steps = {**DAYS["steps"], "prepare": {**DAYS["steps"]["prepare"], "secrets": {"KEY": "wandb-key"}}}
    made = drafted("gcp", USES=str(written(tmp_path / "days", {**DAYS, "steps": steps})))
    said = "\n".join(made.said)
    assert "slipway:secrets.wandb-key" in said
    assert "SLIPWAY_SECRET_WANDB_KEY" in said
    assert load({**without_prefix(content(made)), "secrets": {"wandb-key": MASK}})
