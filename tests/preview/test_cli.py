"""A change in a clone: what the command line says of it, and what it leaves with.

`tests.engine.test_all_stacks` has what needs all stacks.
"""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slipway.evaluated.model import Preview
from slipway.infra.exits import Exit
from slipway.infra.review.contract import Severity
from slipway.preview.build import exit_code
from slipway.preview.cli import WIDTH
from slipway.preview.markdown import comment
from slipway.preview.terminal import show
from tests.support.clones import LOCAL, committed, configure, edit, git
from tests.support.exports import last_runs
from tests.support.tree import write_tree

DEMO = "stacks/Pulumi.demo.yaml"
ONPREM = "stacks/Pulumi.onprem.yaml"


def slipway(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slipway", *arguments],
        cwd=clone,
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1795000000", **environment},
    )


def preview(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return slipway(clone, "preview", *arguments, **environment)


def document(clone: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = preview(clone, "--format", "json", *arguments)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return {stack["stack"]: stack for stack in json.loads(done.stdout)["stacks"]}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return committed(tmp_path_factory.mktemp("clone") / "slipway")


@pytest.fixture
def clone(clean: Path) -> Path:
    return restored(clean)


def restored(clone: Path) -> Path:
    """The clone without the changes of the test before."""
    git(clone, "checkout", "--quiet", "--", ".")
    git(clone, "clean", "--quiet", "--force", "-d")
    return clone


def touched(stack: dict[str, Any]) -> dict[str, str]:
    return {resource["name"]: resource["operation"] for resource in stack["changes"]["resources"]}


def ran(stack: dict[str, Any], outcome: str = "runs") -> dict[str, str]:
    return {run["name"]: run["pool"] for run in stack["changes"]["runs"] if run["outcome"] == outcome}


@pytest.mark.slow
def test_a_change_lists_all_its_consequences_and_nothing_else(clone: Path, tmp_path: Path) -> None:
    """A taint, a workload file, a pool's size and a bucket's access in one change."""

    def change(config: dict[str, Any]) -> None:
        (pools,) = [cluster["pools"] for cluster in config["slipway:clusters"].values()]
        pools["train"]["taints"] = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
        pools["cpu"]["nodes"]["total_max"] += 2

    configure(clone, change)
    edit(clone, "workloads/mnist/train.py", lambda text: text + "\n# Another digest.\n")
    edit(clone, "slipway/infra/clouds/gcp/store.py", lambda text: text.replace('"enforced"', '"inherited"'))
    times = last_runs(tmp_path / "times.json", mnist_train=12, mnist_predict=10)
    stack = document(clone, "-s", "gcp-dev", "--base", "main", "--times", str(times), code=1)["gcp-dev"]
    changes = {resource["name"]: resource for resource in stack["changes"]["resources"]}

    # In place, with pulumi-gcp 9.35: GKE taints the nodes that are there.
    assert touched(stack) == {
        "store": "update",
        "dev-cpu": "update",
        "dev-train": "update",
        "dev-quota": "update",
        "mnist-train-bundle": "replace",
        "mnist-train": "replace",
        "mnist-predict": "replace",
        "resnet-measure-train": "replace",
    }
    changed = {name: [each["path"] for each in changes[name]["properties"]] for name in changes}
    assert changed["store"] == ["publicAccessPrevention"]
    assert changed["dev-cpu"] == ["autoscaling.totalMaxNodeCount"]
    assert changed["dev-train"] == ["nodeConfig.taints[1]"]
    assert [path for path in changed["mnist-train-bundle"] if "train.py" in path]

    # The new code trains again and so predicts again; the taint alone makes Jobs anew that find their results.
    assert ran(stack) == {"mnist-train": "train", "mnist-predict": "predict"}
    assert ran(stack, "finds its result") == {"resnet-measure-train": "train"}
    because = {run["name"]: run["because"] for run in stack["changes"]["runs"]}
    assert because["mnist-train"].startswith("train.py changed")
    assert "mnist-train" in because["mnist-predict"]
    assert "tolerations" in because["resnet-measure-train"]

    steps = {step["job"]: (step["basis"], step["seconds"]) for step in stack["cost"]["run"]["steps"]}
    assert steps["mnist-train"] == ("measured", 12 * 60)
    assert {basis for basis, _ in steps.values()} == {"found", "measured"}

    # Two more e2-standard-4 with their disks, behind the NAT.
    assert stack["difference"]["idle_hourly"] == 0
    assert 2 * 0.13 < stack["difference"]["most_hourly"] < 2 * 0.16

    (finding,) = stack["findings"]
    assert (finding["policy"], finding["severity"], finding["new"]) == ("gcp-public-bucket", "error", True)


@pytest.mark.slow
def test_each_mistake_in_a_stack_file_is_a_finding(clone: Path) -> None:
    def mistakes(config: dict[str, Any]) -> None:
        clusters, steps = config["slipway:clusters"], config["slipway:pipelines"]["mnist"]["steps"]
        (cluster,) = clusters.values()
        cluster["mode"] = "standrad"
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
    stack = document(clone, "-s", "gcp-dev", code=2)["gcp-dev"]
    assert len(stack["findings"]) == 10, stack["findings"]


@pytest.mark.slow
def test_each_unreadable_stack_file_is_one_error_and_keeps_the_other_previews(clone: Path) -> None:
    nines = ["config:", "  slipway:clusters: &a0 [x, x, x, x, x, x, x, x, x]"]
    nines += [f"  slipway:c{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    bad = {name: clone / f"stacks/Pulumi.{name}.yaml" for name in ("local", "onprem", "openshift")}
    good = clone / "stacks/Pulumi.demo.yaml"
    for file in {*(clone / "stacks").iterdir()} - {good, *bad.values()}:
        file.unlink()
    bad["local"].write_text("\n".join(nines), encoding="utf-8")
    for file in (bad["onprem"], bad["openshift"]):
        file.unlink()
    os.mkfifo(bad["onprem"])
    bad["openshift"].mkdir()
    done = slipway(clone, "check", "--format", "json")
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    stacks = {stack["stack"]: stack for stack in json.loads(done.stdout)["stacks"]}
    told = {name: [failure["message"] for failure in each["failures"]] for name, each in stacks.items()}
    assert {name: len(messages) for name, messages in told.items()} == {**dict.fromkeys(bad, 1), "demo": 0}
    assert stacks["demo"]["resources"] > 0
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
    assert [failure["revision"] for failure in stack["failures"]] == ["base"]
    assert stack["changes"] is None
    assert stack["cost"] is not None


@dataclass(frozen=True)
class Elsewhere:
    """One change, previewed twice by processes of their own.

    ``markdown`` and ``text`` are what they printed, the text to a terminal that knows ASCII alone. ``states`` is
    what git said of the clone before, between and after.
    """

    markdown: str
    text: str
    documents: Sequence[str]
    states: Sequence[Sequence[str]]


@pytest.fixture(scope="module")
def elsewhere(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    def state() -> Sequence[str]:
        asked = (("status", "--porcelain"), ("worktree", "list"), ("stash", "list"), ("log", "--all", "--oneline"))
        return [git(clean, *each) for each in asked]

    configure(restored(clean), lambda config: config.update({"slipway:namespace": "elsewhere"}), LOCAL)
    states, printed, documents = [state()], dict[str, str](), list[str]()
    for format, environment in (("markdown", {}), ("text", {"PYTHONIOENCODING": "ascii"})):
        file = tmp_path_factory.mktemp(format) / "preview.json"
        arguments = ("-s", "local", "--base", "main", "--format", format, "--json", str(file))
        done = preview(clean, *arguments, **environment)
        assert done.returncode == 1, "the claim of the other namespace goes with its data"
        printed[format] = done.stdout
        documents.append(file.read_text(encoding="utf-8"))
        states.append(state())
    return Elsewhere(printed["markdown"], printed["text"], documents, states)


@pytest.mark.slow
def test_the_same_change_gives_the_same_bytes(elsewhere: Elsewhere) -> None:
    one, two = elsewhere.documents
    assert one == two
    assert all("elsewhere" in text for text in (one, elsewhere.markdown, elsewhere.text))
    # In this process, whose sets have another order.
    found = Preview.model_validate_json(one)
    assert comment(found) == elsewhere.markdown
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="ascii", errors="replace") as terminal:
        show(found, Console(file=terminal, highlight=False, width=WIDTH))
        terminal.flush()
        assert written.getvalue().decode("ascii") == elsewhere.text


@pytest.mark.slow
def test_a_change_that_deletes_data_fails(elsewhere: Elsewhere) -> None:
    (stack,) = json.loads(elsewhere.documents[0])["stacks"]
    (lost,) = (finding for finding in stack["findings"] if finding["harm"])
    assert (lost["policy"], lost["severity"]) == ("deletes-data", "error")
    assert lost["name"] == "local-store (PersistentVolumeClaim)"
    assert "deletes the claim and everything in it" in lost["reason"]


@pytest.mark.slow
def test_characters_that_the_terminal_lacks_are_replaced(elsewhere: Elsewhere) -> None:
    assert elsewhere.text.isascii()
    assert not elsewhere.markdown.isascii()


@pytest.mark.slow
def test_the_users_checkout_is_left_as_it_was(elsewhere: Elsewhere) -> None:
    before, *after = elsewhere.states
    assert after == [before, before]


@pytest.mark.slow
def test_the_times_of_another_stack_are_refused(clone: Path, tmp_path: Path) -> None:
    marked = marking_evaluations(clone)
    times = last_runs(tmp_path / "exported.json", mnist_train=12)
    done = preview(clone, "-s", "local", "--times", str(times))
    assert (done.returncode, done.stdout) == (2, "")
    assert "has the times of no Job of local" in " ".join(done.stderr.split())
    assert git(clone, "status", "--porcelain") == marked


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--output", "--json"])
def test_an_unwritable_file_is_one_clear_error(clone: Path, option: str) -> None:
    marked = marking_evaluations(clone)
    done = preview(clone, "-s", "local", option, "stacks")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr
    assert git(clone, "status", "--porcelain") == marked


def marking_evaluations(clone: Path) -> str:
    """Lets each evaluation leave a file in its tree, and returns what git says while there was none."""
    edit(clone, "slipway/engine/evaluation/__main__.py", lambda text: f'open("evaluated", "w").close()\n{text}')
    return git(clone, "status", "--porcelain")


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("slipway/infra/platform.py", "def (", "SyntaxError: invalid syntax (slipway/infra/platform.py:"),
        ("slipway/infra/review/stack.py", "import nothing_of_that_name", "ModuleNotFoundError: No module named"),
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


@dataclass(frozen=True)
class Several:
    """Several changes, each of other stacks, in one preview.

    ``code`` and ``text`` are the command's, and ``checked`` is the code of a check of the stack with the pipeline.
    """

    preview: Preview
    text: str
    code: int
    checked: int

    def only(self, *names: str) -> Preview:
        """The preview of these stacks."""
        stacks = [stack for stack in self.preview.stacks if stack.stack in names]
        assert len(stacks) == len(names)
        return self.preview.model_copy(update={"stacks": stacks})


@pytest.fixture(scope="module")
def several(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Several:
    restored(clean)
    (clean / LOCAL).rename(clean / "stacks/Pulumi.laptop.yaml")

    suppress = {"slipway:policies": {"suppress": {"deletes-data": {"reason": "Copied by hand."}}}}
    configure(clean, lambda config: config.update({"slipway:namespace": "elsewhere", **suppress}), DEMO)

    def give_up(config: dict[str, Any]) -> None:
        del config["slipway:clusters"]["dev"]["pools"]["t4"]

    configure(clean, give_up, "stacks/Pulumi.gcp-platform.yaml")

    declared = (
        "description: Reads a feed.\nsteps:\n  read:\n    run: [python, read.py, '{output}']\n"
        "    secrets: {FEED_TOKEN: feed-token}\n"
    )
    write_tree(clean / "workloads" / "feed", {"pipeline.yaml": declared, "read.py": "import os\n"})
    feed = {"feed": {"steps": {"read": {"pool": "cpu"}}}}
    configure(clean, lambda config: config["slipway:pipelines"].update(feed), ONPREM)

    file = tmp_path_factory.mktemp("several") / "preview.json"
    names = ("local", "laptop", "demo", "gcp-platform", "onprem")
    stacks = [word for name in names for word in ("-s", name)]
    done = preview(clean, *stacks, "--base", "main", "--json", str(file))
    assert file.exists(), done.stderr
    checked = slipway(clean, "check", "-s", "onprem", "--fail-on", "warning")
    found = Preview.model_validate_json(file.read_text(encoding="utf-8"))
    return Several(found, done.stdout, done.returncode, checked.returncode)


@pytest.mark.slow
def test_new_and_removed_stacks_are_marked(several: Several) -> None:
    found = several.only("local", "laptop")
    assert exit_code(found, Severity.ERROR) == Exit.DONE
    stacks = {stack.stack: stack for stack in found.stacks}
    assert stacks["laptop"].new_stack
    assert not stacks["laptop"].removed
    assert stacks["local"].removed
    (removed,) = stacks["local"].findings
    assert (removed.policy, removed.severity, removed.harm) == ("removed-stack", Severity.WARNING, True)
    assert "pulumi destroy -s local" in removed.fix


@pytest.mark.slow
def test_a_change_that_deletes_data_passes_once_its_stack_file_says_why(several: Several) -> None:
    found = several.only("demo")
    (stack,) = found.stacks
    assert exit_code(found, Severity.ERROR) == Exit.DONE
    assert not [finding for finding in stack.findings if finding.harm]
    assert {suppressed.why for suppressed in stack.suppressed} == {"Copied by hand."}


@pytest.mark.slow
def test_a_platform_that_gives_a_pool_up_is_previewed_with_the_team_that_runs_there(several: Several) -> None:
    assert several.code == Exit.REFUSED
    found = several.only("gcp-platform", "gcp-team")
    for stack in found.stacks:
        (finding,) = (finding for finding in stack.findings if finding.policy == "lost-pool")
        assert finding.harm
        assert "mnist-train" in finding.reason
        assert "`gcp-platform` no longer has the pool `t4`" in finding.reason
    (team,) = several.only("gcp-team").stacks
    (failure,) = team.failures
    assert failure.message.endswith("which the change of gcp-platform causes")
    assert several.text.index("lost-pool") < several.text.index("cannot be evaluated"), "harm first"


@pytest.mark.slow
def test_a_secret_that_nobody_has_set_gives_a_warning_and_a_placeholder(several: Several) -> None:
    found = several.only("onprem")
    (stack,) = found.stacks
    assert exit_code(found, Severity.ERROR) == Exit.DONE
    assert not stack.failures
    (unset,) = (finding for finding in stack.findings if finding.policy == "unset-secret")
    assert (unset.name, unset.severity, unset.harm_kind, unset.new) == (
        *("slipway:secrets.feed-token", Severity.WARNING, "refusal"),
        True,
    )
    assert "pulumi config set --secret" in unset.fix
    assert stack.changes is not None
    created = {resource.name for resource in stack.changes.resources if resource.operation == "create"}
    assert "feed-read" in created
    assert any(name.endswith("feed-secrets") for name in created)
    assert several.checked == Exit.FAILED
