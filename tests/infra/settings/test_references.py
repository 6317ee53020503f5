"""Clusters of another stack: what its output says of them is checked like what stands in the file."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.platform_output import UnreadableStackError
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.refusals import the_problem
from tests.support.stack_values import EXISTING, GONE, changed

PLATFORM: Mapping[str, Any] = {
    "version": 1,
    "teams": {"fraud": {"namespace": "fraud", "service_account": "runner"}},
    "clusters": {
        "lab": {
            "cloud": "existing",
            "pools": {
                "cpu": {
                    "selector": {"role": "cpu"},
                    "allocatable": {"cpu": 4000, "memory": 8192, "ephemeral_storage": 30720},
                    "max_nodes": 2,
                },
                "gpu": {
                    "selector": {"role": "gpu"},
                    "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
                    "allocatable": {"cpu": 4000, "memory": 8192, "ephemeral_storage": 30720, "gpus": 1},
                    "max_nodes": 1,
                    "accelerator": "nvidia-tesla-t4",
                },
            },
            "teams": {
                "fraud": {
                    "store": {
                        "url": "pvc://fraud/store",
                        "volume": {"name": "store", "persistentVolumeClaim": {"claimName": "store"}},
                        "sidecar": {"cpu": 250, "memory": 512},
                    }
                }
            },
            "connect": "kubectl cluster-info",
            "kubectl": "kubectl",
            "egress": [],
        }
    },
}

TEAM: Mapping[str, Any] = {
    "namespace": "fraud",
    "clusters": {"dev": {"stack": "platform-dev", "cluster": "lab"}},
    "pipelines": {"mnist": {"steps": {step: {"pool": "cpu"} for step in ("prepare", "train", "predict")}}},
}

STEP = "pipelines.mnist.steps.train"


def loaded(changes: Mapping[str, Any], output: Any = PLATFORM) -> Settings:
    def resolve(stack: str) -> Mapping[str, Any]:
        if stack == "nowhere":
            raise UnreadableStackError("unknown stack `nowhere`", "correct the name")
        return {"store": "pvc://…"} if output is GONE else {"platform": output} if output else {}

    return load(changed(TEAM, changes), resolve)


def refused(changes: Mapping[str, Any], output: Any = PLATFORM) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as caught:
        loaded(changes, output)
    return caught.value.problems


def test_pools_of_another_stack_are_those_that_steps_can_ask_for() -> None:
    settings = loaded({f"{STEP}.pool": "gpu", f"{STEP}.gpus": 1})
    cluster = settings.clusters["dev"]
    assert cluster.clouds == ("other_stack", "existing")
    assert cluster.pools["gpu"].node().gpus == 1
    assert [name for name, pool in cluster.pools.items() if pool.has_gpus] == ["gpu"]
    assert settings.store is None


@pytest.mark.parametrize(
    ("changes", "key", "names"),
    [
        ({"clusters.dev.stack": "nowhere"}, "clusters.dev.stack", []),
        ({"clusters.dev.stack": "a/b"}, "clusters.dev.stack", ["acme/slipway"]),
        ({"clusters.dev.cluster": "lap"}, "clusters.dev.cluster", ["`lab`"]),
        ({"clusters.dev.cluster": GONE}, "clusters.dev.cluster", []),
        ({"clusters.dev.stack": GONE}, "clusters.dev.stack", []),
        ({"clusters.dev.cloud": "gcp"}, "clusters.dev.cloud", ["`platform-dev`"]),
        ({"clusters.dev.pools": {"x": {}}}, "clusters.dev.pools", ["`platform-dev`"]),
        ({"clusters.dev.xyz": 1}, "clusters.dev.xyz", ["`creates_namespace`"]),
        ({"clusters.dev.context": "a"}, "clusters.dev.context", ["`kubeconfig: <path>`"]),
        ({"store": {"kind": "pvc"}}, "store", []),
        ({"namespace": "other"}, "namespace", ["`fraud`", "`runner`", "slipway:teams"]),
        ({"service_account": "root"}, "service_account", ["`runner`"]),
        ({f"{STEP}.pool": "gpus"}, f"{STEP}.pool", ["`platform-dev`", "`gpu`"]),
        ({f"{STEP}.gpus": 1}, f"{STEP}.gpus", ["`cpu`", "`gpu`"]),
        ({f"{STEP}.cpu": 4}, f"{STEP}.cpu", ["the store's mount takes 250m", "3750m"]),
        ({"clusters.own": EXISTING["clusters"]["here"]}, "clusters.own", ["`dev`"]),
        ({"clusters.two": {"stack": "other", "cluster": "lab"}}, "clusters.two.stack", []),
        ({"teams": {"x": {"namespace": "x"}}}, "teams.x", []),
    ],
)
def test_what_a_team_may_not_say(changes: dict[str, Any], key: str, names: list[str]) -> None:
    refusals = refused(changes)
    problem = next(problem for problem in refusals if problem.key == f"slipway:{key}")
    assert [name for name in names if name not in f"{problem.reason}\n{problem.fix}"] == []
    # Two clusters may not have one pool name either, which says the same again.
    assert len(refusals) == 1 or "own" in key or "two" in key


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ({}, []),
        (GONE, ["`platform`", "slipway:teams: {<team>: {namespace: fraud}}"]),
        ({**PLATFORM, "version": 2.0}, ["version 2, and this checkout of Slipway reads version 1"]),
        ({**PLATFORM, "version": 0}, ["version 0"]),
        ({**PLATFORM, "clusters": {"lab": {}}}, ["not as version 1 has it: clusters.lab.cloud"]),
    ],
)
def test_an_output_that_cannot_be_used_is_refused_with_why(output: Any, names: list[str]) -> None:
    (problem,) = refused({}, output)
    assert problem.key == "slipway:clusters.dev.stack"
    assert [name for name in names if name not in f"{problem.reason}\n{problem.fix}"] == []


def test_keys_that_are_not_known_are_passed_over() -> None:
    newer = copy.deepcopy(dict(PLATFORM))
    newer["clusters"]["lab"]["pools"]["cpu"]["colour"] = "blue"
    assert loaded({}, newer).clusters["dev"].pools["cpu"].most_nodes == 2


def test_an_app_that_mounts_a_bucket_as_itself_has_to_be_let_in() -> None:
    output = copy.deepcopy(dict(PLATFORM))
    access = output["clusters"]["lab"]["teams"]["fraud"]
    access["store"]["volume"] = {"name": "store", "csi": {"driver": "gcsfuse.csi.storage.gke.io"}}
    app = {"pipelines.mnist.apps": {"tensorboard": {"pool": "cpu"}}}
    (problem,) = refused(app, output)
    assert problem.key == "slipway:pipelines.mnist.apps.tensorboard"
    access["apps"] = {"mnist-tensorboard": {"writes": False}}
    assert loaded(app, output).request.apps[0].service_account == "mnist-tensorboard"


def test_all_that_is_wrong_is_told_at_once() -> None:
    refusals = refused(
        {"namespace": "other", f"{STEP}.pool": "gpus", f"{STEP}.memory": "8GB", "store": {"kind": "x"}}
    )
    assert {problem.key for problem in refusals} == {
        "slipway:namespace",
        "slipway:store",
        f"slipway:{STEP}.pool",
        f"slipway:{STEP}.memory",
    }


def test_one_stack_that_cannot_be_read_is_told_once() -> None:
    both = {"dev": {"stack": "nowhere", "cluster": "a"}, "two": {"stack": "nowhere", "cluster": "b"}}
    assert len(refused({"clusters": both, f"{STEP}.pool": "x"})) == 1


@pytest.mark.parametrize(
    ("changes", "key", "names"),
    [
        ({"teams.mnist.namespace": "a"}, "teams.mnist", []),
        ({"teams.gates.namespace": "a"}, "teams.gates", []),
        ({"teams.A.namespace": "a"}, "teams.A", []),
        ({"teams": {"a" * 31: {"namespace": "a"}}}, f"teams.{'a' * 31}", ["at most 30"]),
        ({"teams.a.namespace": "slipway"}, "teams.a.namespace", []),
        ({"teams.a.namespace": "kube-a"}, "teams.a.namespace", []),
        ({"teams.a.namespace": "x", "teams.b.namespace": "x"}, "teams.b.namespace", ["`a`"]),
        ({"teams.a": {"namespace": "x", "service_account": "default"}}, "teams.a.service_account", []),
    ],
)
def test_what_a_platform_may_not_say_of_its_teams(changes: dict[str, Any], key: str, names: list[str]) -> None:
    problem = the_problem(changed(EXISTING, changes))
    assert problem.key == f"slipway:{key}"
    assert [name for name in names if name not in f"{problem.reason}\n{problem.fix}"] == []
