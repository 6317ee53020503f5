"""A change in a clone: what the command line says of it, and what it leaves with."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.pipelines.images import DATA, IMAGES
from offline.preview.revisions import stacks_of
from tests.support.checkout import ROOT, copy_checkout
from tools import pin_images

STACK = "stacks/Pulumi.gcp-dev.yaml"
LOCAL = "stacks/Pulumi.local.yaml"


def git(clone: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True).stdout


def preview(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offline.preview", *arguments],
        cwd=clone,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1795000000"},
    )


def document(clone: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = preview(clone, "--format", "json", *arguments)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return {each["stack"]: each for each in json.loads(done.stdout)["stacks"]}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the working tree with one commit on main, once `make pin-images` was run."""
    clone = copy_checkout(tmp_path_factory.mktemp("clone") / "slipway")
    pin_images.write(
        {image: digest or f"sha256:{'0' * 64}" for images in IMAGES.values() for image, digest in images.items()},
        clone / DATA.relative_to(ROOT),
    )
    git(clone, "init", "--quiet", "--initial-branch", "main")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "all")
    return clone


@pytest.fixture
def clone(clean: Path) -> Path:
    """The clone without the changes of the test before."""
    git(clean, "checkout", "--quiet", "--", ".")
    git(clean, "clean", "--quiet", "--force", "-d")
    return clean


def edit(clone: Path, file: str, change: Callable[[str], str]) -> None:
    before = (clone / file).read_text(encoding="utf-8")
    after = change(before)
    assert after != before
    (clone / file).write_text(after, encoding="utf-8")


def configure(clone: Path, change: Callable[[dict[str, Any]], None], file: str = STACK) -> None:
    content = yaml.safe_load((clone / file).read_text(encoding="utf-8"))
    change(content["config"])
    (clone / file).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def touched(stack: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["operation"] for each in stack["changes"]["resources"]}


def ran(stack: dict[str, Any], outcome: str = "runs") -> dict[str, str]:
    return {each["name"]: each["pool"] for each in stack["changes"]["runs"] if each["outcome"] == outcome}


@pytest.mark.slow
def test_nothing_changed(clone: Path) -> None:
    stack = document(clone, "-s", "gcp-dev", "--base", "main")["gcp-dev"]
    assert stack["changes"]["resources"] == stack["changes"]["runs"] == []
    assert stack["changes"]["unchanged"] == stack["resources"] > 50
    assert stack["difference"] == dict.fromkeys(stack["difference"], 0)
    assert stack["findings"] == []


@pytest.mark.slow
def test_a_change_lists_all_its_consequences_and_nothing_else(clone: Path) -> None:
    """A taint, a workload file, a pool's size and a bucket's access in one change."""

    def change(config: dict[str, Any]) -> None:
        (pools,) = [cluster["pools"] for cluster in config["slipway:clusters"].values()]
        pools["train"]["taints"] = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
        pools["cpu"]["nodes"]["total_max"] += 2

    configure(clone, change)
    edit(clone, "workloads/mnist/train.py", lambda text: text + "\n# Another digest.\n")
    edit(clone, "infra/clouds/gcp/bucket.py", lambda text: text.replace('"enforced"', '"inherited"'))
    stack = document(clone, "-s", "gcp-dev", "--base", "main", code=1)["gcp-dev"]
    changes = {each["name"]: each for each in stack["changes"]["resources"]}

    # In place, with pulumi-gcp 9.35: GKE taints the nodes that are there.
    assert touched(stack) == {
        "store": "update",
        "dev-cpu": "update",
        "dev-train": "update",
        "dev-quota": "update",
        "accelerator-gate-train": "replace",
        "mnist-train-bundle": "replace",
        "mnist-train": "replace",
        "mnist-predict": "replace",
        "benchmark-t4-fp32": "replace",
        "benchmark-t4-fp16": "replace",
    }
    changed = {name: [each["path"] for each in changes[name]["properties"]] for name in changes}
    assert changed["store"] == ["publicAccessPrevention"]
    assert changed["dev-cpu"] == ["autoscaling.totalMaxNodeCount"]
    assert changed["dev-train"] == ["nodeConfig.taints[1]"]
    assert [path for path in changed["mnist-train-bundle"] if "train.py" in path]

    # The new code trains again and so predicts again; the taint alone makes Jobs anew that find their results.
    assert ran(stack) == {"accelerator-gate-train": "train", "mnist-train": "train", "mnist-predict": "predict"}
    assert ran(stack, "finds its result") == {"benchmark-t4-fp32": "train", "benchmark-t4-fp16": "train"}
    because = {each["name"]: each["because"] for each in stack["changes"]["runs"]}
    assert "workloads/mnist/train.py" in because["mnist-train"]
    assert "mnist-train" in because["mnist-predict"]
    assert "tolerations" in because["benchmark-t4-fp32"]

    # Two more e2-standard-4 with their disks, behind the NAT.
    assert stack["difference"]["idle_hourly"] == 0
    assert 2 * 0.13 < stack["difference"]["most_hourly"] < 2 * 0.16

    (finding,) = stack["findings"]
    assert (finding["policy"], finding["severity"], finding["new"]) == ("gcp-public-bucket", "error", True)


@pytest.mark.slow
def test_a_change_that_deletes_data_fails_until_its_stack_file_says_why(clone: Path) -> None:
    configure(clone, lambda config: config["slipway:store"].update(location="us-east1"))
    configure(clone, lambda config: config.update({"slipway:namespace": "vision"}), LOCAL)
    arguments = ("-s", "gcp-dev", "-s", "local", "--base", "main")
    stacks = document(clone, *arguments, code=1)
    lost = {
        each["name"]: each["reason"]
        for stack in stacks.values()
        for each in stack["findings"]
        if each["policy"] == "deletes-data" and each["severity"] == "error" and each["harm"]
    }
    assert set(lost) == {"store (Bucket)", "local-store (PersistentVolumeClaim)"}
    assert "deletes the bucket and everything in it" in lost["store (Bucket)"]
    assert "deletes the claim and everything in it" in lost["local-store (PersistentVolumeClaim)"]

    suppress = {"slipway:policies": {"suppress": {"deletes-data": {"reason": "Copied by hand."}}}}
    for file in (STACK, LOCAL):
        configure(clone, lambda config: config.update(suppress), file)
    suppressed = document(clone, *arguments)
    assert not [each for stack in suppressed.values() for each in stack["findings"] if each["harm"]]
    assert [each["why"] for stack in suppressed.values() for each in stack["suppressed"]] == [
        "Copied by hand."
    ] * 2


def last_runs(file: Path, **minutes: int) -> Path:
    """What `pulumi stack export` writes of gcp-dev, with how long its Jobs took."""
    urn = "urn:pulumi:gcp-dev::slipway::slipway:kubernetes:StepJob$kubernetes:batch/v1:Job::{}"
    resources = [
        {
            "urn": urn.format(name.replace("_", "-")),
            "type": "kubernetes:batch/v1:Job",
            "outputs": {
                "status": {
                    "startTime": "2026-11-20T10:00:00Z",
                    "completionTime": f"2026-11-20T10:{took}:00Z",
                }
            },
        }
        for name, took in minutes.items()
    ]
    file.write_text(json.dumps({"version": 3, "deployment": {"resources": resources}}), encoding="utf-8")
    return file


@pytest.mark.slow
def test_rerun_costs_use_the_same_basis_in_all_stacks(clone: Path, tmp_path: Path) -> None:
    edit(clone, "workloads/mnist/train.py", lambda text: text + "\n# Another digest.\n")
    times = last_runs(tmp_path / "exported.json", mnist_train=12, mnist_predict=10)

    def counted(*stacks: str) -> tuple[str, dict[str, dict[str, str]]]:
        options = [option for stack in stacks for option in ("-s", stack)]
        done = preview(clone, *options, "--base", "main", "--times", str(times), "--format", "json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        return found["basis"], {
            stack["stack"]: {step["job"]: step["basis"] for step in stack["cost"]["run"]["steps"]}
            for stack in found["stacks"]
        }

    alone = {"mnist-train": "measured", "mnist-predict": "measured"}
    limits = dict.fromkeys(alone, "limit")
    assert counted("gcp-dev") == ("measured", {"gcp-dev": alone})
    assert counted("gcp-dev", "gcp-prod") == ("limit", {"gcp-dev": limits, "gcp-prod": limits})
    done = preview(clone, "-s", "local", "--times", str(times))
    assert (done.returncode, done.stdout) == (2, "")
    assert "has the times of no Job of local" in " ".join(done.stderr.split())


def before_first_fold(markdown: str) -> list[str]:
    """The lines of a comment that are read without unfolding anything."""
    lines = markdown.splitlines()
    folds = [index for index, line in enumerate(lines) if line == "<details>"]
    return lines[: folds[0]] if folds else lines


@pytest.mark.slow
@pytest.mark.parametrize("format", ["text", "markdown"])
def test_a_changed_comment_in_a_workload_gives_a_short_preview(clone: Path, format: str) -> None:
    edit(clone, "workloads/mnist/train.py", lambda text: f"# A remark.\n{text}")
    done = preview(clone, "--base", "main", "--format", format)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 60
    for name in ("aws-dev", "aws-prod", "gcp-dev", "gcp-prod", "gcp-team", "local", "onprem", "openshift"):
        assert name in done.stdout
    told = [line for line in lines if "workloads/mnist/train.py changed" in line]
    assert len(told) == 2, "once for the stacks whose notebook has the file, and once for all others"
    ended = [line for line in lines if "ends-running-pods" in line]
    assert len(ended) == 1, "what is the same in all stacks is said once"
    assert "mnist-notebook" in ended[0]
    assert "Their cost, at their time limits" in done.stdout
    assert "paid anyway" in done.stdout
    assert "[unknown]" not in done.stdout
    assert "Idle a month" not in done.stdout, "it is as before"


@pytest.mark.slow
def test_a_small_change_fits_on_a_screen_with_data_loss_first(clone: Path, tmp_path: Path) -> None:
    """A moved bucket, a larger pool and a workload: in one stack, one stack, and all of them."""

    def change(config: dict[str, Any]) -> None:
        config["slipway:store"]["location"] = "us-east1"
        config["slipway:clusters"]["dev"]["pools"]["cpu"]["nodes"]["total_max"] = 4

    configure(clone, change)
    edit(clone, "workloads/mnist/train.py", lambda text: f"# A remark.\n{text}")
    file = tmp_path / "preview.md"
    done = preview(clone, "--base", "main", "--format", "markdown", "--output", str(file))
    assert done.returncode == 1, done.stderr
    markdown = file.read_text(encoding="utf-8")
    shown = before_first_fold(markdown)
    assert len(shown) <= 60
    assert len(markdown.splitlines()) <= 110
    first = next(line for line in shown if line.startswith("- "))
    assert "**gcp-dev**: **deletes the bucket" in first
    assert "and everything in it" in first
    rows = [line for line in shown if line.startswith("| **")]
    assert rows[0].startswith("| **gcp-dev** |"), "what most happens to stands first"
    assert "1 to 6 (were 1 to 4)" in rows[0]
    assert len(rows) == 12
    assert markdown.count("`mnist-prepare`") == 1, "a Job is told once"
    commands = [line for line in markdown.splitlines() if "gcloud compute" in line]
    assert len(commands) == len(set(commands))
    text = preview(clone, "--base", "main").stdout.splitlines()
    assert "deletes the bucket" in text[1]
    assert len(text) <= 96


@pytest.mark.slow
@pytest.mark.parametrize("format", ["text", "markdown", "json"])
def test_an_invalid_stack_file_is_reported_first_without_secrets(clone: Path, format: str) -> None:
    token = "github_pat_" + 20 * "a1B2"
    bad = {
        "slipway:namespace": token,
        "slipway:\x1b[31mkey\n::error::[red]": "\x1b]0;title\x07\u202e",
        "slipway:api_token": {"password": "hunter2"},
    }
    configure(clone, lambda config: config.update(bad), LOCAL)
    edit(clone, "workloads/mnist/train.py", lambda text: f"# A remark.\n{text}")
    done = preview(clone, "--base", "main", "--format", format)
    assert done.returncode == 2
    assert token not in done.stdout
    assert "a1B2a1B2" not in done.stdout
    assert "hunter2" not in done.stdout
    assert all(line.replace("\u200b", "").isprintable() for line in done.stdout.split("\n"))
    if format == "json":
        stacks = json.loads(done.stdout)["stacks"]
        assert stacks[0]["stack"] == "local"
        values = {each["key"]: each["value"] for each in stacks[0]["failures"][0]["problems"]}
        assert values["slipway:namespace"] == "[secret]"
        assert len([each for each in stacks if each["changes"]]) == 15
        return
    lines = done.stdout.splitlines()
    told = next(index for index, line in enumerate(lines) if "cannot be evaluated" in line)
    # Before it stands that the change puts secrets where everybody can read them, and stops notebooks.
    assert told < next(index for index, line in enumerate(lines) if line.startswith(("Stack ", "| Stack ")))
    assert told <= 11
    assert "local" in lines[told]
    assert not any(line.startswith("::") for line in lines)
    assert len(lines) <= 60


@pytest.mark.slow
def test_each_mistake_in_a_stack_file_is_a_finding(clone: Path) -> None:
    def mistakes(config: dict[str, Any]) -> None:
        clusters, steps = config["slipway:clusters"], config["slipway:pipelines"]["mnist"]["steps"]
        (cluster,) = clusters.values()
        cluster["release_channel"] = "REGULLAR"
        cluster["pools"]["train"]["accelerator"] = "nvidia-t5"
        cluster["pools"]["train"]["disk_size_gb"] = 5
        cluster["pools"]["cpu"]["machine_type"] = "e2-standard-5"
        steps["train"]["pool"] = "trian"
        steps["train"]["memory"] = "8 gigabytes"
        steps["predict"]["time_limit"] = "soon"
        config["slipway:pipelines"]["mnist"]["min_accuracy"] = 90
        config["slipway:protect"] = "perhaps"
        config["slipway:namespace"] = "Not A Name"

    configure(clone, mistakes)
    stack = document(clone, "-s", "gcp-dev", "--base", "main", code=2)["gcp-dev"]
    assert len(stack["findings"]) == 10, stack["findings"]


@pytest.mark.slow
def test_all_stacks_are_clean(clone: Path) -> None:
    stacks = document(clone, "--check", "--fail-on", "warning")
    assert set(stacks) == set(stacks_of(clone))
    assert {name: each["findings"] for name, each in stacks.items() if each["findings"]} == {}


@pytest.mark.slow
def test_a_stack_that_cannot_be_evaluated_does_not_stop_the_others(clone: Path) -> None:
    edit(clone, LOCAL, lambda text: text + "  slipway:secret: [\n")
    stacks = document(clone, "-s", "local", "-s", "onprem", "--base", "main", code=2)
    assert stacks["local"]["failures"][0]["revision"] == "head"
    assert stacks["local"]["changes"] is None
    assert stacks["onprem"]["failures"] == []
    assert stacks["onprem"]["changes"]["resources"] == []


@pytest.mark.slow
def test_each_unreadable_stack_file_is_one_error_and_keeps_the_other_previews(clone: Path) -> None:
    nines = ["config:", "  slipway:clusters: &a0 [x, x, x, x, x, x, x, x, x]"]
    nines += [f"  slipway:c{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    bad = {name: clone / f"stacks/Pulumi.{name}.yaml" for name in ("local", "onprem", "openshift")}
    bad["local"].write_text("\n".join(nines), encoding="utf-8")
    for file in (bad["onprem"], bad["openshift"]):
        file.unlink()
    os.mkfifo(bad["onprem"])
    bad["openshift"].mkdir()
    done = preview(clone, "--format", "json", "--check")
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    stacks = {each["stack"]: each for each in json.loads(done.stdout)["stacks"]}
    told = {name: [failure["message"] for failure in each["failures"]] for name, each in stacks.items()}
    assert len(told) == 16
    assert {name: len(messages) for name, messages in told.items() if messages} == dict.fromkeys(bad, 1)
    assert "more than 20,000 values" in told["local"][0]
    assert "it is a named pipe" in told["onprem"][0]
    assert "it is a folder" in told["openshift"][0]


@pytest.mark.slow
def test_a_change_that_repairs_a_broken_base_is_accepted(clone: Path) -> None:
    git(clone, "checkout", "--quiet", "-b", "broken")
    good = (clone / LOCAL).read_text(encoding="utf-8")
    try:
        edit(clone, LOCAL, lambda text: text.replace("namespace", "namespac", 1) + "  x: [\n")
        git(clone, "commit", "--quiet", "--all", "--message", "break it")
        (clone / LOCAL).write_text(good, encoding="utf-8")
        stack = document(clone, "-s", "local", "--base", "broken")["local"]
    finally:
        git(clone, "checkout", "--quiet", "--force", "main")
    assert [each["revision"] for each in stack["failures"]] == ["base"]
    assert stack["changes"] is None
    assert stack["cost"] is not None


@pytest.mark.slow
def test_new_and_removed_stacks_are_marked(clone: Path) -> None:
    (clone / LOCAL).rename(clone / "stacks/Pulumi.laptop.yaml")
    stacks = document(clone, "-s", "local", "-s", "laptop", "--base", "main")
    assert stacks["laptop"]["new_stack"]
    assert not stacks["laptop"]["removed"]
    assert stacks["local"]["removed"]
    (removed,) = stacks["local"]["findings"]
    assert (removed["policy"], removed["severity"], removed["harm"]) == ("removed-stack", "warning", True)
    assert "pulumi destroy -s local" in removed["fix"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["text", "markdown"])
def test_the_same_change_gives_the_same_bytes(clone: Path, tmp_path: Path, format: str) -> None:
    configure(clone, lambda config: config.update({"slipway:namespace": "elsewhere"}), LOCAL)
    written: list[tuple[str, str]] = []
    for name in ("one", "two"):
        file = tmp_path / name
        done = preview(clone, "-s", "local", "--base", "main", "--format", format, "--json", str(file))
        assert done.returncode == 1, "the claim of the other namespace goes with its data"
        written.append((done.stdout, file.read_text(encoding="utf-8")))
    assert written[0] == written[1]
    assert all("elsewhere" in text for text in written[0])


def test_a_missing_revision_is_one_clear_error(clone: Path) -> None:
    done = preview(clone, "-s", "local", "--base", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_missing_stack_is_reported_with_the_existing_ones(clone: Path) -> None:
    done = preview(clone, "-s", "gcp-div")
    assert done.returncode == 2
    assert re.search(r"no stack 'gcp-div'.*gcp-dev", re.sub(r"\s+", " ", done.stdout))
    assert ".py" not in done.stdout


@pytest.mark.parametrize(
    "option", ["--output", *(pytest.param(each, marks=pytest.mark.slow) for each in ("--json", "--pictures"))]
)
def test_an_unwritable_file_is_one_clear_error(clone: Path, option: str) -> None:
    done = preview(clone, "-s", "local", option, "stacks" if option != "--pictures" else "README.md")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("infra/platform.py", "def (", "SyntaxError: invalid syntax (infra/platform.py:"),
        ("infra/review/stack.py", "import nothing_of_that_name", "ModuleNotFoundError: No module named"),
    ],
)
def test_a_change_that_breaks_the_preview_itself_is_one_clear_error(
    clone: Path, file: str, line: str, said: str
) -> None:
    edit(clone, file, lambda text: f"{text}\n{line}\n")
    done = preview(clone, "-s", "local")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


@pytest.mark.slow
def test_characters_that_the_terminal_lacks_are_replaced(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    configure(clone, lambda config: config.update({"slipway:namespace": "elsewhere"}), LOCAL)
    done = preview(clone, "-s", "local", "--base", "main")
    assert done.returncode == 1, done.stderr
    assert "elsewhere" in done.stdout


@pytest.mark.slow
def test_the_users_checkout_is_left_as_it_was(clone: Path) -> None:
    configure(clone, lambda config: config.update({"slipway:namespace": "elsewhere"}), LOCAL)
    before = git(clone, "status", "--porcelain"), git(clone, "worktree", "list"), git(clone, "stash", "list")
    preview(clone, "-s", "local", "--base", "main")
    assert (
        git(clone, "status", "--porcelain"),
        git(clone, "worktree", "list"),
        git(clone, "stash", "list"),
    ) == before


@pytest.mark.slow
def test_a_platform_that_gives_a_pool_up_is_previewed_with_the_team_that_runs_there(clone: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        del config["slipway:clusters"]["dev"]["pools"]["t4"]

    configure(clone, change, "stacks/Pulumi.gcp-platform.yaml")
    found = document(clone, "-s", "gcp-platform", "--base", "main", code=2)
    assert set(found) == {"gcp-platform", "gcp-team"}
    for stack in found.values():
        (finding,) = (each for each in stack["findings"] if each["policy"] == "lost-pool")
        assert finding["harm"]
        assert "mnist-train" in finding["reason"]
        assert "`gcp-platform` no longer has the pool `t4`" in finding["reason"]
    (failure,) = found["gcp-team"]["failures"]
    assert failure["message"].endswith("which the change of gcp-platform causes")
    shown = preview(clone, "-s", "gcp-platform", "--base", "main").stdout
    assert shown.index("lost-pool") < shown.index("cannot be evaluated"), "harm first"
