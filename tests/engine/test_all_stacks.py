"""All stacks of the repository, evaluated once before and after a change: what is declared, said and drawn.

Their evaluation takes most of the time, so all that needs every stack is in this module.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from slipway.command.verbs.previews import Format
from slipway.engine.evaluation.decoding import EvaluatedStack
from slipway.engine.stack_config import load_stack
from slipway.evaluated.diagram import diagram
from slipway.evaluated.places import is_held
from slipway.evaluated.schedule import JobDuration
from slipway.infra.clouds.registry import reviews
from slipway.infra.exits import Exit
from slipway.infra.kubernetes.labels import NAME, RUN_ANNOTATION
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.placed import CLUSTER_RUN, OWN_NAMES
from slipway.infra.review.contract import Severity
from slipway.infra.review.effects import Replacing
from slipway.infra.review.stack import JOB, Stack
from slipway.preview.build import Options, build, exit_code
from slipway.preview.cli import read_export
from slipway.preview.revisions import Evaluations, check_out, evaluate_trees, stacks_of
from tests.support.checkout import ROOT
from tests.support.clone_previews import TODAY, build_preview, said
from tests.support.clones import LOCAL, committed, configure, edit
from tests.support.exports import last_runs

pytestmark = pytest.mark.slow

TOKEN = "github_pat_" + 20 * "a1B2"
SUPPRESSED = {
    "gpu-pool-always-on",
    "gcp-bucket-in-another-region",
    "longer-than-login",
    "spot-job-on-several-nodes",
    "unguarded-build",
}
DRAWN = ("batch/v1:Job", "batch/v1:CronJob", "apps/v1:Deployment", "apps/v1:StatefulSet")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return committed(tmp_path_factory.mktemp("clone") / "slipway")


def backwards(value: Any) -> Any:
    """``value`` with the keys of every mapping in reverse order."""
    if isinstance(value, dict):
        return {key: backwards(below) for key, below in reversed(cast("dict[str, Any]", value).items())}
    return [backwards(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def commented(clone: Path) -> Evaluations:
    """All stacks before and after a comment in a file of MNIST, with the keys of their files in reverse order."""
    edit(clone, "workloads/mnist/train.py", lambda text: f"# A remark.\n{text}")
    for file in (clone / "stacks").glob("Pulumi.*.yaml"):
        edit(
            clone,
            str(file.relative_to(clone)),
            lambda text: yaml.safe_dump(backwards(yaml.safe_load(text)), sort_keys=False),
        )
    with check_out(clone, "main") as base:
        return evaluate_trees(clone, base.path)


@pytest.fixture(scope="module")
def configured(clone: Path, commented: Evaluations) -> Evaluations:
    """The two stacks whose files change, too: one is moved and grows, the other is wrong and holds secrets."""

    def move(config: dict[str, Any]) -> None:
        config["slipway:store"]["location"] = "us-east1"
        config["slipway:clusters"]["dev"]["pools"]["cpu"]["nodes"]["total_max"] = 4

    bad = {
        "slipway:namespace": TOKEN,
        "slipway:\x1b[31mkey\n::error::[red]": "\x1b]0;title\x07\u202e",
        "slipway:api_token": {"password": "hunter2"},
    }
    assert commented.head.keys() >= {"gcp-dev", "local"}
    configure(clone, move)
    configure(clone, lambda config: config.update(bad), LOCAL)
    with check_out(clone, "main") as base:
        return evaluate_trees(clone, base.path, ["gcp-dev", "local"])


def replaced(evaluations: Evaluations, by: Evaluations, name: str) -> Evaluations:
    """``evaluations`` with one stack as it is in ``by``."""
    return Evaluations(
        {**evaluations.head, name: by.head[name]},
        {**evaluations.base, name: by.base[name]},
    )


def stack_of(each: EvaluatedStack) -> Stack:
    assert each.failure is None, each.failure
    assert each.stack is not None
    return each.stack


def test_every_stack_is_evaluated(commented: Evaluations) -> None:
    assert set(commented.head) == set(stacks_of(ROOT))
    stacks = {name: stack_of(each) for name, each in commented.head.items()}
    for name, stack in stacks.items():
        jobs = stack.of_type(JOB)
        # The platform has clusters for other stacks, and runs nothing.
        assert bool(jobs) is (name != "gcp-platform")
        assert all(isinstance(job.properties["metadata"]["name"], str) for job in jobs)
    buckets = [
        resource.properties.get("name") or resource.properties["bucket"]
        for stack in stacks.values()
        for resource in stack.resources.values()
        if resource.type.endswith(":Bucket")
    ]
    assert len(buckets) == 10
    assert all(isinstance(bucket, str) for bucket in buckets)


def test_every_result_of_a_job_is_in_the_placed_model(commented: Evaluations) -> None:
    for stack in map(stack_of, commented.head.values()):
        results = {
            job.name: job.properties["metadata"]["annotations"][RUN_ANNOTATION]
            for job in stack.of_type(JOB)
            if RUN_ANNOTATION in job.properties["metadata"].get("annotations", {})
        }
        assert {name: step.directory for name, step in stack.steps.items() if step.directory} == results
        assert {step.pool for step in stack.steps.values()} <= {pool.name for pool in stack.pools}


def pod_templates(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every pod template below ``value``: what has labels, and containers in its `spec`."""
    if isinstance(value, Mapping):
        content = cast("Mapping[str, Any]", value)
        if isinstance(content.get("spec"), Mapping) and "containers" in content["spec"]:
            yield content
        for part in content.values():
            yield from pod_templates(part)


def labels_of_pods(stack: Stack) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The spec of each pod that the stack declares, with the name in its label."""
    for resource in stack.resources.values():
        if resource.custom and resource.type.startswith("kubernetes:"):
            for template in pod_templates(resource.properties):
                yield template["spec"], template["metadata"]["labels"][NAME]


def test_pods_with_a_token_are_those_of_the_security_page(commented: Evaluations) -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("| CKV_K8S_38:")]
    told = set(re.findall("`([^`]*)`", row.split(" | ")[1]))
    found = {
        name
        for each in commented.head.values()
        for spec, name in labels_of_pods(stack_of(each))
        # Without the key the token is mounted.
        if spec.get("automountServiceAccountToken") is not False
    }
    # No stack that ships has a pipeline that runs in its cluster.
    assert told - found == {CLUSTER_RUN}
    assert found <= told


def test_no_pod_has_a_name_that_a_pipeline_may_have_too(commented: Evaluations) -> None:
    """Network policies select pods by this label."""
    for name, each in commented.head.items():
        pipelines = load_stack(name, ROOT).values.get("slipway:pipelines", {})
        found = {label for _, label in labels_of_pods(stack_of(each))}
        assert found - set(pipelines) <= {*OWN_NAMES, *SUPPLEMENTS}, name


def test_every_resource_is_known(commented: Evaluations) -> None:
    known = Replacing(reviews())
    stacks = [stack_of(each) for each in commented.head.values()]
    managed = [
        resource
        for stack in stacks
        for resource in stack.resources.values()
        if resource.custom and not resource.read
    ]
    assert {each.type for each in managed if not known.knows(each.type)} == set()


def test_all_stacks_are_clean(commented: Evaluations, clone: Path) -> None:
    options = Options(TODAY, lambda name: load_stack(name, clone).values, policies_only=True)
    preview = build(Evaluations(commented.base, {}), options)
    assert {each.stack: each.findings for each in preview.stacks if each.findings} == {}
    assert exit_code(preview, Severity.WARNING) == Exit.DONE
    assert {each.stack for each in preview.stacks} == set(stacks_of(ROOT))
    assert {each.finding.policy for stack in preview.stacks for each in stack.suppressed} <= SUPPRESSED


def test_the_diagram_of_each_stack_has_its_pools_and_jobs(commented: Evaluations) -> None:
    for each in commented.base.values():
        stack = stack_of(each)
        jobs = [job for kind in DRAWN for job in stack.of_type(f"kubernetes:{kind}")]
        boxes = [box.name for box in [*stack.pools, *(job for job in jobs if not is_held(job))]]
        drawn = re.findall(r'"([\w-]+)<br>', diagram(stack))
        assert sorted(drawn) == sorted(boxes)


def test_a_changed_comment_changes_what_ships_the_file_and_the_order_of_keys_nothing(
    commented: Evaluations, clone: Path
) -> None:
    trained = {"mnist-train-bundle", "mnist-train", "mnist-predict"}
    served = {*trained, "mnist-serving-publish"}
    others = {"aws-batch", "gcp-batch", "gcp-platform", "onprem-batch"}
    preview = build_preview(commented, clone)
    assert {stack.stack for stack in preview.stacks} == set(stacks_of(ROOT))
    for stack in preview.stacks:
        serving = stack.stack in {"aws-serving", "demo", "gcp-serving"}
        expected = served if serving else set[str]() if stack.stack in others else trained
        assert stack.changes is not None
        expected = expected | {change.name for change in stack.changes.resources if change.of}
        assert {change.name for change in stack.changes.resources} == expected, stack.stack
        assert stack.changes.unchanged + len(expected) == stack.resources
        assert {run.name for run in stack.changes.runs} >= expected & {"mnist-train", "mnist-predict"}
        if stack.stack in others:
            assert stack.changes.runs == []
            assert stack.difference is not None
            assert set(stack.difference.model_dump().values()) == {0}
            assert [finding for finding in stack.findings if finding.new] == []


def before_first_fold(markdown: str) -> list[str]:
    """The lines of a comment that are read without unfolding anything."""
    lines = markdown.splitlines()
    folds = [index for index, line in enumerate(lines) if line == "<details>"]
    return lines[: folds[0]] if folds else lines


def test_a_changed_comment_in_a_workload_gives_a_short_preview(commented: Evaluations, clone: Path) -> None:
    preview = build_preview(commented, clone)
    assert exit_code(preview, Severity.ERROR) == Exit.DONE
    for format in (Format.TEXT, Format.MARKDOWN):
        text = said(preview, format)
        lines = text.splitlines()
        assert len(lines) <= 64
        for name in ("aws-dev", "aws-prod", "gcp-dev", "gcp-prod", "gcp-team", "local", "onprem", "openshift"):
            assert name in text
        told = [line for line in lines if "train.py changed" in line]
        assert len(told) == 2, "once for those with a model server, once for all others"
        assert "No findings" in text, "it restarts no app"
        assert "Their cost, at their time limits" in text
        assert "paid anyway" in text
        assert "[unknown]" not in text
        assert "Idle a month" not in text, "it is as before"


def test_a_small_change_fits_on_a_screen_with_data_loss_first(
    commented: Evaluations, configured: Evaluations, clone: Path
) -> None:
    """A moved bucket, a larger pool and a workload: in one stack, one stack, and all of them."""
    preview = build_preview(replaced(commented, configured, "gcp-dev"), clone)
    assert exit_code(preview, Severity.ERROR) == Exit.FAILED
    (moved,) = (stack for stack in preview.stacks if stack.stack == "gcp-dev")
    (lost,) = (finding for finding in moved.findings if finding.policy == "deletes-data")
    assert (lost.name, lost.severity, lost.harm) == ("store (Bucket)", Severity.ERROR, True)
    markdown = said(preview, Format.MARKDOWN)
    shown = before_first_fold(markdown)
    assert len(shown) <= 60
    before, _, after = markdown.partition("\n<details>\n<summary>Architecture of gcp-dev")
    assert len(before.splitlines()) <= 122
    assert after.count("```mermaid") == 1, "the architecture of other stacks is what it was"
    first = next(line for line in shown if line.startswith("- "))
    assert "**gcp-dev**: **deletes the bucket" in first
    assert "and everything in it" in first
    rows = [line for line in shown if line.startswith("| **")]
    assert rows[0].startswith("| **gcp-dev** |"), "what most happens to stands first"
    assert "1 to 6 (were 1 to 4)" in rows[0]
    assert len(rows) == 13
    assert markdown.count("`mnist-prepare`") == 1, "a Job is told once"
    commands = [line for line in markdown.splitlines() if "gcloud compute" in line]
    assert len(commands) == len(set(commands))
    text = said(preview, Format.TEXT).splitlines()
    assert "deletes the bucket" in text[1]
    assert len(text) <= 110


def test_an_invalid_stack_file_is_reported_first_without_secrets(
    commented: Evaluations, configured: Evaluations, clone: Path
) -> None:
    preview = build_preview(replaced(commented, configured, "local"), clone)
    assert exit_code(preview, Severity.ERROR) == Exit.REFUSED
    for format in Format:
        text = said(preview, format)
        assert TOKEN not in text
        assert "a1B2a1B2" not in text
        assert "hunter2" not in text
        assert all(line.replace("\u200b", "").isprintable() for line in text.split("\n"))
        if format is Format.JSON:
            continue
        lines = text.splitlines()
        told = next(index for index, line in enumerate(lines) if "cannot be evaluated" in line)
        # Before it stands that the change puts secrets where everybody can read them, and stops notebooks.
        assert told < next(index for index, line in enumerate(lines) if line.startswith(("Stack ", "| Stack ")))
        assert told <= 11
        assert "local" in lines[told]
        assert not any(line.startswith("::") for line in lines)
        assert len(lines) <= 70
    stacks = json.loads(said(preview, Format.JSON))["stacks"]
    assert stacks[0]["stack"] == "local"
    assert stacks[0]["changes"] is None
    (failure,) = stacks[0]["failures"]
    assert failure["revision"] == "head"
    assert {problem["key"]: problem["value"] for problem in failure["problems"]}["slipway:namespace"] == "[secret]"
    assert len([stack for stack in stacks if stack["changes"]]) == 16


def test_rerun_costs_use_the_same_basis_in_all_stacks(commented: Evaluations, tmp_path: Path) -> None:
    times = read_export(last_runs(tmp_path / "exported.json", mnist_train=12, mnist_predict=10))

    def measured(name: str) -> Mapping[str, JobDuration]:
        return times.get(name, {})

    def counted(*stacks: str) -> tuple[str, dict[str, dict[str, str]]]:
        head, base = ({name: each[name] for name in stacks} for each in (commented.head, commented.base))
        found = build(Evaluations(head, base), Options(TODAY, lambda _: {}, "main", measured=measured))
        return found.basis, {
            stack.stack: {step.job: step.basis for step in stack.cost.run.steps}
            for stack in found.stacks
            if stack.cost is not None and stack.cost.run is not None
        }

    alone = {"mnist-train": "measured", "mnist-predict": "measured"}
    limits = dict.fromkeys(alone, "limit")
    assert counted("gcp-dev") == ("measured", {"gcp-dev": alone})
    assert counted("gcp-dev", "gcp-prod") == ("limit", {"gcp-dev": limits, "gcp-prod": limits})
