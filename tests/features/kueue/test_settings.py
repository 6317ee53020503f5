"""What a stack file may not say of Kueue, and what a team's stack takes from the platform's."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.features.kueue.feature import section_of
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.infra.settings.test_references import PLATFORM, TEAM
from tests.support.refusals import STEPS, TRAIN, Refusal, elsewhere, problems, the_problem, wrong
from tests.support.stack_values import EXISTING, GCP, GONE, changed

TEAMS = {"vision": {"namespace": "vision"}}
H100 = {
    "machine_type": "a3-highgpu-1g",
    "accelerator": "nvidia-h100-80gb",
    "flex_start": True,
    "nodes": {"total_max": 1},
}

CASES: list[Any] = [
    wrong(f"{STEPS}.train.priority", "high", "`slipway:kueue: {}`"),
    elsewhere({"kueue": {"install": False, "ready_within": "1h"}}, "kueue.ready_within"),
    elsewhere({"kueue": {"namespace": "Kueue_System"}}, "kueue.namespace"),
    elsewhere({"kueue": {"local_queue": "mine"}}, "kueue.local_queue", "`install: false`"),
    elsewhere({"kueue": {"install": False, "local_queue": "mine", "preemption": "shares"}}, "kueue.preemption"),
    elsewhere(
        {"kueue": {"install": False, "local_queue": "mine"}, f"{STEPS}.train.priority": "low"},
        f"{STEPS}.train.priority",
    ),
    elsewhere({"kueue": {"shares": {"slipway": 2}}}, "kueue.shares", "`teams`"),
    elsewhere(
        {"kueue": {"shares": {"visoin": 2}}, "teams": TEAMS}, "kueue.shares.visoin", "`slipway`", "`vision`"
    ),
    elsewhere({"kueue": {"shares": {"vision": -1}}, "teams": TEAMS}, "kueue.shares.vision", "from 0 to 1000"),
    elsewhere({"kueue": {"shares": {"vision": 0, "slipway": 0}}, "teams": TEAMS}, "kueue.shares"),
    elsewhere({"kueue": {"namespace": "slipway"}}, "kueue.namespace", "`kueue-system`"),
    elsewhere({"kueue": {"namespaces": ["kube-system"]}}, "kueue.namespaces[0]"),
    elsewhere({"kueue": {"namespaces": ["x", "kueue-system"]}}, "kueue.namespaces[1]"),
    elsewhere({"kueue": {"preemption": "always"}}, "kueue.preemption"),
    elsewhere({"kueue": {"wait": "0m"}}, "kueue.wait"),
    elsewhere({"kueue": {"wait": "soon"}}, "kueue.wait"),
    elsewhere(
        {TRAIN: {**H100, "queued_provisioning": True}}, f"{TRAIN}.queued_provisioning", "`slipway:kueue: {}`"
    ),
    elsewhere(
        {TRAIN: {**H100, "flex_start": False, "spot": True, "queued_provisioning": True}, "kueue": {}},
        f"{TRAIN}.queued_provisioning",
        "`flex_start: true`",
    ),
]


@pytest.mark.parametrize("refusal", CASES)
def test_it_is_refused(refusal: Refusal) -> None:
    refusal.check(GCP)


def pools(cpu: Mapping[str, Any], train: Mapping[str, Any]) -> dict[str, Any]:
    """A stack file with Kueue and two pools on a cluster that is there already."""
    size = {"cpu": "4", "memory": "8Gi"}
    size_of_pools: dict[str, Any] = {"cpu": {**size, **cpu}, "train": {**size, **train}}
    store = {"kind": "nfs", "server": "10.0.0.5", "path": "/slipway"}
    changes = {"clusters.here.pools": size_of_pools, "store": store, "kueue": {}, f"{STEPS}.train.pool": "train"}
    return changed(EXISTING, changes)


T4 = {"accelerator": "nvidia-tesla-t4", "gpus": 1}
CPU_KEY, TRAIN_KEY = {"selector": {"role": "cpu"}}, {"selector": {"team": "train"}}


@pytest.mark.parametrize(
    ("cpu", "train", "key"),
    [
        (CPU_KEY, TRAIN_KEY, "cpu.selector"),
        ({"selector": {"role": "all", "x": "1"}}, {"selector": {"role": "all", "y": "1"}}, "cpu.selector"),
        ({"selector": {"role": "all"}}, {"selector": {"role": "all", "fast": "yes"}}, "cpu.selector"),
    ],
)
def test_pools_between_which_kueue_cannot_choose_are_refused(
    cpu: Mapping[str, Any], train: Mapping[str, Any], key: str
) -> None:
    problem = the_problem(pools(cpu, train))
    assert problem.key == f"slipway:clusters.here.pools.{key}"
    assert all(name in problem.reason for name in ("`cpu`", "`train`"))


@pytest.mark.parametrize(
    ("cpu", "train", "changes"),
    [
        ({"selector": {"role": "cpu"}}, {"selector": {"role": "train"}}, {}),
        ({"selector": {"role": "cpu", "a": "1"}}, {"selector": {"role": "train", "b": "1"}}, {}),
        (CPU_KEY, TRAIN_KEY, {"kueue": GONE}),
        (CPU_KEY, TRAIN_KEY, {"kueue": {"install": False, "local_queue": "gpu-users"}}),
        (
            CPU_KEY,
            {**TRAIN_KEY, **T4, "taints": [{"key": "nvidia.com/gpu", "value": "present"}]},
            {f"{STEPS}.train.gpus": 1},
        ),
    ],
)
def test_pools_that_kueue_tells_apart_are_taken(
    cpu: Mapping[str, Any], train: Mapping[str, Any], changes: Mapping[str, Any]
) -> None:
    assert load(changed(pools(cpu, train), changes))


@pytest.mark.parametrize(
    "kueue",
    [
        {},
        {"wait": "3d", "preemption": "lower-priority"},
        {"install": False},
        {"install": False, "local_queue": "gpu-users"},
        {"namespaces": ["other"]},
    ],
)
def test_it_is_taken(kueue: Mapping[str, Any]) -> None:
    section = section_of(load(changed(GCP, {"kueue": kueue})))
    assert section is not None


def test_queued_provisioning_is_taken_with_kueue() -> None:
    assert load(changed(GCP, {TRAIN: {**H100, "queued_provisioning": True}, "kueue": {}}))


def loaded(changes: Mapping[str, Any], queue: Mapping[str, Any] | None) -> Settings:
    """The settings of a team whose platform has this ``queue`` for it, or none."""
    output = changed(PLATFORM, {"clusters.lab.teams.fraud.queue": queue or GONE})

    def resolve(_: str) -> Mapping[str, Any]:
        return {"platform": output}

    return load(changed(TEAM, changes), resolve)


QUEUE = {"cluster_queue": "fraud", "priorities": {"low": "a-low", "normal": "a-normal", "high": "a-high"}}


def test_a_team_says_how_urgent_its_steps_are_and_how_long_it_waits() -> None:
    settings = loaded({"pipelines.mnist.steps.train.priority": "high", "kueue": {"wait": "2h"}}, QUEUE)
    section = section_of(settings)
    assert section is not None
    assert section.wait == "2h"


@pytest.mark.parametrize(
    ("changes", "queue", "key", "names"),
    [
        ({"kueue": {"preemption": "shares"}}, QUEUE, "kueue.preemption", ["`platform-dev`"]),
        ({"kueue": {}}, None, "kueue", ["`slipway:kueue`"]),
        (
            {"pipelines.mnist.steps.train.priority": "high"},
            None,
            "pipelines.mnist.steps.train.priority",
            ["`platform-dev`", "`slipway:kueue`"],
        ),
    ],
)
def test_the_rest_is_the_platforms(
    changes: Mapping[str, Any], queue: Mapping[str, Any] | None, key: str, names: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(changes, queue)
    (problem,) = caught.value.problems
    assert problem.key == f"slipway:{key}"
    assert [name for name in names if name not in problem.reason] == []


def days(nodes: int, **step: Any) -> dict[str, Any]:
    pool = {"selector": {"a": "b"}, "cpu": "4", "memory": "16Gi", "ephemeral_storage": "40Gi", "nodes": nodes}
    others = {name: {"pool": "cpu"} for name in ("prepare", "evaluate")}
    step = {"pool": "cpu", "mode": "parallel", "assignment": "static", **step}
    return {
        "clusters": {"here": {"cloud": "existing", "pools": {"cpu": pool}}},
        "store": {"kind": "nfs", "server": "10.0.0.5", "path": "/slipway"},
        "pipelines": {"fraud": {"services": {"queue": {"pool": "cpu"}}, "steps": {**others, "days": step}}},
    }


@pytest.mark.parametrize(
    ("nodes", "step", "install", "key", "reason"),
    [
        (2, {"cpu": "2500m", "workers": 3}, False, "workers", "room for 2 of its pods at once (2 nodes)"),
        (
            2,
            {"cpu": "2500m", "workers": 4},
            False,
            "workers",
            "4 pods ask for 10000m of CPU, and all of pool `cpu` is 8000m (2 nodes with 4000m)",
        ),
        (
            1,
            {"cpu": "3900m", "workers": 1},
            True,
            "cpu",
            "all of pool `cpu` is 3800m (1 node with 4000m, less 200m for Kueue itself)",
        ),
    ],
)
def test_pods_that_never_run_at_once_are_refused_with_the_figures(
    nodes: int, step: dict[str, Any], install: bool, key: str, reason: str
) -> None:
    values = days(nodes, **step)
    assert load(values)
    problem = the_problem({**values, "kueue": {"install": install}})
    assert problem.key == f"slipway:pipelines.fraud.steps.days.{key}"
    assert reason in problem.reason


def test_a_service_takes_its_part_of_the_pool() -> None:
    values = changed(EXISTING, {"clusters.here.pools.cpu.ephemeral_storage": "40Gi"})
    steps: dict[str, dict[str, Any]] = {name: {"pool": "cpu"} for name in ("prepare", "days", "evaluate")}
    steps["days"] |= {"cpu": "3740m", "workers": 1}
    values["pipelines"] = {"fraud": {"services": {"queue": {"pool": "cpu"}}, "steps": steps}}
    values["kueue"] = {"install": False}

    assert load(values)
    steps["days"]["cpu"] = "3760m"
    assert "less 250m for the service `queue`" in the_problem(values).reason


def test_apps_of_many_pods_are_named_once_in_what_is_left() -> None:
    values = days(1, cpu="3900m", workers=1)
    values["pipelines"] = {
        **values["pipelines"],
        "mnist": {"steps": {name: {"pool": "cpu"} for name in ("prepare", "train", "predict")}},
    }
    values["pipelines"]["mnist"]["apps"] = {"tensorboard": {"pool": "cpu", "autoscale": {"most": 90}}}
    refusals = problems({**values, "kueue": {"install": False}})
    [reason] = [problem.reason for problem in refusals if problem.key.endswith("steps.days.cpu")]
    assert (
        "all of pool `cpu` is 0m (1 node with 4000m, less 22500m for 90 pods of the app `tensorboard`)" in reason
    )
    assert all("ask for" not in problem.fix for problem in refusals)
