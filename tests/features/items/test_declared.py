"""Jobs of steps with items: several pods, what they are told, and what does not run them again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.features.items.feature import Items
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.run import plan
from slipway.infra.placed import Step
from slipway.infra.review.stack import Resource
from tests.infra.kubernetes.services import FILES, days, queue
from tests.support.failure_policies import action_for
from tests.support.recording import record
from tests.support.stand_in import platform
from tests.support.tree import write_tree

JOB = "kubernetes:batch/v1:Job"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path, FILES)


@pytest.fixture
def job(root: Path) -> Callable[..., Resource]:
    """Declares the step, with changes, and returns its Job."""

    def declared(queued: bool = True, **changes: Any) -> Resource:
        def program() -> None:
            on = platform()
            workspace = Workspace(on.name, WorkspaceArgs(on, "slipway", "runner", protect=False))
            declare([days(on, root, queue(on) if queued else None, **changes)], {on.name: workspace}, root)

        return record(program, {}, preview=False).one(JOB, "digits-days")

    return declared


def container(job: Resource) -> dict[str, Any]:
    return job.inputs["spec"]["template"]["spec"]["containers"][0]


def flags(job: Resource) -> dict[str, str]:
    words = container(job)["args"]
    custom = words[: words.index("--")]
    return dict(zip(custom[::2], custom[1::2], strict=True))


def test_the_worker_is_told_what_to_do_and_where_the_queue_is(job: Callable[..., Resource]) -> None:
    live = flags(job())
    assert container(job())["command"] == ["python3", "-m", "slipway.features.items.pod.worker"]
    prepared = live["--input"].removeprefix("prepare=")
    assert live["--items"] == f"{prepared}/days/*.csv"
    assert {name: live[f"--{name}"] for name in ("mode", "attempts", "allow-failed", "lease", "workers")} == {
        "mode": "ordered",
        "attempts": "3",
        "allow-failed": "1",
        "lease": "60",
        "workers": "3",
    }
    assert (live["--queue"], live["--queue-password"]) == ("digits-queue:6379", "QUEUE_PASSWORD")
    # What its program prints is masked.
    assert live["--secret"] == "QUEUE_PASSWORD"


def test_without_a_queue_the_same_worker_runs(job: Callable[..., Resource]) -> None:
    live = flags(job(queued=False))
    assert live["--workers"] == "3"
    assert not [name for name in live if name.startswith("--queue")]


@pytest.mark.slow
def test_workers_are_told_what_decides_results_beside_what_they_see(job: Callable[..., Resource]) -> None:
    live = flags(job())["--fingerprint"]
    assert flags(job(queued=False))["--fingerprint"] == live
    assert flags(job(environment={"SEED": "2"}))["--fingerprint"] != live


def test_what_stands_for_another_thing_with_each_item_is_left_to_the_worker(job: Callable[..., Resource]) -> None:
    made = job(environment={"LAST": "{previous}", "DATA": "{prepare}"})
    words = container(made)["args"]
    assert words[words.index("--") + 1 :] == [
        *("python", "train_day.py", "--day", "{item}", "--previous", "{previous}", "{output}")
    ]
    environment = {variable["name"]: variable.get("value") for variable in container(made)["env"]}
    assert environment["LAST"] == "{previous}"
    assert environment["DATA"] == flags(made)["--input"].removeprefix("prepare=")


def test_all_workers_are_pods_of_one_job_on_as_many_nodes_as_there_are(job: Callable[..., Resource]) -> None:
    spec = job().inputs["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    template = spec["template"]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_a_worker_that_is_taken_away_or_killed_costs_the_job_nothing_and_any_other_end_fails_it(
    job: Callable[..., Resource],
) -> None:
    spec = job().inputs["spec"]
    # The Job fails by the first, which Pulumi sees; by the second, no worker waits for the losses of others.
    assert (spec["backoffLimit"], spec["backoffLimitPerIndex"]) == (0, 0)
    rules = spec["podFailurePolicy"]["rules"]
    (main,) = spec["template"]["spec"]["containers"]
    ends = [action_for(rules, {"PodScheduled"}, {main["name"]: code}) for code in (137, 143, 1)]
    assert ends == ["Ignore", "Ignore", "Count"]
    # The kubelet kills a sidecar once the program has failed.
    assert action_for(rules, {"PodScheduled"}, {main["name"]: 5, "gke-gcsfuse-sidecar": 137}) == "Count"


def test_a_worker_knows_which_round_it_is_in(job: Callable[..., Resource]) -> None:
    (uid,) = [variable for variable in container(job())["env"] if variable["name"] == "JOB_UID"]
    path = uid["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['batch.kubernetes.io/controller-uid']"


OTHER = Items("{prepare}/days/*.csv", "ordered", None, 5, 0, 30, pods=3)


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"parts": [replace(OTHER, pods=8)], "connects": {}}, False),
        ({"parts": [OTHER], "connects": {}}, False),
        ({"parts": [replace(OTHER, mode="parallel")], "connects": {}}, True),
        ({"parts": [replace(OTHER, files="{prepare}/*.csv")], "connects": {}}, True),
        ({"parts": []}, True),
    ],
)
def test_how_the_work_is_shared_out_decides_no_result(root: Path, change: dict[str, Any], again: bool) -> None:
    def digest(step: Step) -> str:
        return plan(step, root).digest

    def program() -> None:
        on = platform()
        before = days(on, root, queue(on))
        assert (digest(before) != digest(replace(before, **change))) is again

    record(program, {}, preview=True)


def test_another_number_of_workers_is_another_job_of_the_same_run(job: Callable[..., Resource]) -> None:
    before, after = job(), job(workers=5)
    assert before.inputs["metadata"] == after.inputs["metadata"]
    assert before.inputs["spec"]["completions"] != after.inputs["spec"]["completions"]
