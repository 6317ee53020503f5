"""`make run` and `make stop` of Jobs that `pulumi up` does not wait for."""

import copy
import hashlib
import json
import time
from collections.abc import Generator, Mapping
from typing import Any

import pytest
import yaml

from slipway.command.runs import Namespace, RunError
from slipway.infra.api_server import ApiServer
from slipway.infra.kubernetes import labels
from slipway.runtime.schedule.places import jobs
from slipway.runtime.usage.limits import MONTH, RUN, month_of
from tests.runtime.places.world import merge
from tests.support.json_server import serving
from tests.support.servers.api_server import kubeconfig

JOBS = "/apis/batch/v1/namespaces/slipway/jobs"
PODS = "/api/v1/namespaces/slipway/pods"
MAPS = "/api/v1/namespaces/slipway/configmaps"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/slipway/workloads"


def job(name: str, ended: str = "", *, suspend: bool = False, held: bool = True) -> dict[str, Any]:
    conditions = [{"type": ended, "status": "True"}] if ended else []
    labels = {"app.kubernetes.io/name": "mnist"}
    own = {"controller-uid": f"uid-{name}", "batch.kubernetes.io/job-name": name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "slipway",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": labels,
            "annotations": {"slipway/runs": "cluster-run"} if held else {},
        },
        "spec": {
            "suspend": suspend,
            "backoffLimit": 0,
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": {**labels, **own}}, "spec": {"restartPolicy": "Never"}},
        },
        "status": {"conditions": conditions},
    }


class Api:
    """The Jobs of a namespace; one that is deleted goes once it was looked for."""

    def __init__(self, *jobs: Mapping[str, Any]) -> None:
        self.maps: dict[str, Any] = {}
        self.workloads: list[dict[str, Any]] = []
        self.last: list[str] = []
        self.jobs: dict[str, Any] = {entry["metadata"]["name"]: copy.deepcopy(entry) for entry in jobs}
        self.going: set[str] = set()
        self.done: list[tuple[str, str]] = []

    def answer(self, method: str, path: str, content: Any) -> tuple[int, dict[str, Any]]:
        name, _, part = path.removeprefix(JOBS).strip("/").partition("/")
        if path.startswith(PODS):
            return 200, {"items": self.pods()}
        if path.startswith((MAPS, WORKLOADS)):
            return self.other(method, path, content)
        if method == "POST":
            name = content["metadata"]["name"]
            assert name not in self.jobs
            self.jobs[name] = {**content, "metadata": {**content["metadata"], "uid": "another"}, "status": {}}
        elif not name:
            return 200, {"items": list(self.jobs.values())}
        elif name not in self.jobs:
            return 404, {"message": "not found"}
        elif method == "DELETE":
            assert content["preconditions"]["uid"] == self.jobs[name]["metadata"]["uid"]
            self.going.add(name)
        elif part == "status":
            # The start of a Job that runs is the API server's to note.
            assert self.jobs[name]["spec"]["suspend"]
            merge(self.jobs[name]["status"], content["status"])
        elif method == "PATCH":
            merge(self.jobs[name], content)
        elif name in self.going:
            self.going.discard(name)
            return 200, self.jobs.pop(name)
        if method != "GET" and not part:
            self.done.append((method, name))
        return 200, self.jobs.get(name, {})

    def other(self, method: str, path: str, content: Any) -> tuple[int, dict[str, Any]]:
        name = path.removeprefix(f"{MAPS}/")
        changed = self.workloads if path.startswith(WORKLOADS) else [self.maps[name]] if name in self.maps else []
        for item in changed if method == "PATCH" else ():
            merge(item, content)
        if path.startswith(WORKLOADS):
            return 200, {"items": self.workloads}
        return (200, self.maps[name]) if name in self.maps else (404, {})

    def pods(self) -> list[Any]:
        """Those of the runner. Before its pod has ended, it lets those Jobs run that are `last`."""
        if not self.last:
            return [{"status": {"phase": "Failed"}}]
        self.jobs[self.last.pop()]["spec"]["suspend"] = False
        return [{"status": {"phase": "Running"}}]

    def suspended(self) -> dict[str, bool]:
        return {name: entry["spec"]["suspend"] for name, entry in self.jobs.items()}


@pytest.fixture
def api() -> Api:
    return Api(
        job("cluster-run", held=False),
        job("prepare", "Complete"),
        job("train"),
        job("predict", suspend=True),
        job("of-an-up", held=False),
    )


@pytest.fixture
def namespace(api: Api) -> Generator[Namespace]:
    with serving(api.answer) as server:
        config = yaml.safe_dump(kubeconfig(int(server.address.rpartition(":")[2])))
        yield Namespace(ApiServer(config), "slipway", sleep=lambda _: None)


def test_a_run_that_was_stopped_goes_on(api: Api, namespace: Namespace) -> None:
    list(namespace.stop())
    # First what would let the others run again.
    assert api.done == [("PATCH", "cluster-run"), ("PATCH", "train")]
    assert [name for name, suspended in api.suspended().items() if not suspended] == ["prepare", "of-an-up"]
    list(namespace.run())
    # The runner alone: it lets those run whose turn it is.
    assert api.done[2:] == [("PATCH", "cluster-run")]
    assert api.suspended()["cluster-run"] is False


def test_a_step_of_an_up_is_held_and_no_other(api: Api, namespace: Namespace) -> None:
    assert any("of-an-up: held" in line for line in namespace.stop_step("of-an-up"))
    assert api.done == [("PATCH", "of-an-up")]
    assert api.suspended()["of-an-up"] is True
    api.jobs["of-an-up"] = job("of-an-up", "Complete", held=False)
    api.done.clear()
    assert list(namespace.stop_step("of-an-up"))
    assert api.done == []
    with pytest.raises(RunError, match="make stop"):
        list(namespace.stop_step("train"))
    with pytest.raises(RunError, match="no Job gone"):
        list(namespace.stop_step("gone"))


def test_a_step_that_kueue_admitted_is_not_let_go_on(api: Api, namespace: Namespace) -> None:
    api.workloads = [
        {"metadata": {"name": "w", "ownerReferences": [{"uid": "uid-of-an-up"}]}, "spec": {"active": True}}
    ]
    list(namespace.stop_step("of-an-up"))
    assert api.workloads[0]["spec"]["active"] is False


def test_a_run_that_was_stopped_for_longer_than_its_limit_goes_on(api: Api, namespace: Namespace) -> None:
    for name in ("cluster-run", "train", "of-an-up"):
        api.jobs[name]["status"]["startTime"] = "2026-11-25T10:00:00Z"
    list(namespace.stop())
    list(namespace.run())
    # The Job controller would count from there, and end them at once.
    assert [name for name, entry in api.jobs.items() if entry["status"].get("startTime")] == ["of-an-up"]


def test_what_the_runner_let_run_before_its_pod_had_ended_is_held_too(api: Api, namespace: Namespace) -> None:
    api.last = ["train", "predict"]
    list(namespace.stop())
    assert [name for name, suspended in api.suspended().items() if not suspended] == ["prepare", "of-an-up"]


def test_a_run_that_runs_is_left_alone(api: Api, namespace: Namespace) -> None:
    list(namespace.run())
    assert api.done == []


def test_a_step_that_failed_is_made_anew_as_it_was_declared(api: Api, namespace: Namespace) -> None:
    api.jobs["train"] = job("train", "Failed")
    api.jobs["cluster-run"] = job("cluster-run", "Failed", held=False)
    list(namespace.run())
    assert api.done == [("DELETE", "train"), ("POST", "train"), ("DELETE", "cluster-run"), ("POST", "cluster-run")]
    assert (api.suspended()["train"], api.suspended()["cluster-run"]) == (True, False)
    made = api.jobs["train"]
    assert "selector" not in made["spec"]
    assert made["spec"]["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": "mnist"}
    assert made["spec"]["backoffLimit"] == 0
    assert "resourceVersion" not in made["metadata"]
    assert made["metadata"]["annotations"] == {"slipway/runs": "cluster-run"}


def test_nothing_runs_again_when_all_is_done(api: Api, namespace: Namespace) -> None:
    for name in ("cluster-run", "train", "predict"):
        api.jobs[name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    list(namespace.run())
    list(namespace.stop())
    assert api.done == []


def test_a_stack_that_is_not_up_is_said(api: Api, namespace: Namespace) -> None:
    api.jobs.clear()
    with pytest.raises(RunError, match="pulumi up"):
        list(namespace.run())


@pytest.mark.parametrize("kind", [RUN, MONTH])
def test_nothing_goes_on_while_the_budget_is_spent(api: Api, namespace: Namespace, kind: str) -> None:
    api.jobs["train"] = job("train", "Failed")
    api.jobs["cluster-run"] = job("cluster-run", "Failed", held=False)
    pod = {"containers": [{"args": ["--attempts", "attempts", "--limits", "limits"]}]}
    api.jobs["cluster-run"]["spec"]["template"]["spec"] = pod
    limits = {"stack": "dev", "runs": ["mnist/train/0"], "prices": {}, kind: 40.0}
    api.maps = {"limits": {"data": {"limits.json": json.dumps(limits)}}, "attempts": {"data": {}}}
    if kind == RUN:
        digest = hashlib.sha256(b"mnist/train/0").hexdigest()[:16]
        noted = {"runs": digest, "kind": RUN, "words": "this run cost $40.02", "dollars": 40.02, "limit": 40.0}
        api.maps["attempts"]["data"]["spent"] = json.dumps(noted)
    else:
        said = f"the nodes of {month_of(time.time())[0]} so far cost $40.02, until they are gone, and "
        ended = {"exitCode": 21, "message": f"{said}`slipway:budget.month` is $40.00"}
        status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
        api.pods = lambda: [{"status": status}]
    with pytest.raises(RunError, match=rf"40\.02.*budget\.{kind}"):
        list(namespace.run())
    # The words of the failed pod are there still, and no Job waits for its start anew.
    assert api.done == []
    api.maps["limits"]["data"]["limits.json"] = json.dumps({**limits, kind: 41.0})
    list(namespace.run())
    assert api.suspended()["cluster-run"] is False


def at_place(name: str, ended: str = "", *, suspend: bool = True) -> dict[str, Any]:
    made = job(name, ended, suspend=suspend)
    made["metadata"]["annotations"] = {"slipway/runs": "mover", "slipway/holder": "train-x"}
    return made


@pytest.fixture
def moved(api: Api) -> Api:
    """``train`` is at its second place, and asks for nodes of the first."""
    moves = {"plan": "train-mover", "notes": "train-mover-notes"}
    api.jobs["train"]["metadata"]["annotations"]["slipway/moves"] = json.dumps(moves)
    # It was a place before the last `up`, which was interrupted.
    no_more = at_place("at-flex", suspend=False)
    no_more["metadata"]["annotations"]["slipway/place"] = json.dumps({"of": "train", "index": 1, "pool": "flex"})
    places = (
        no_more,
        at_place("at-spot"),
        at_place("spot-probe", suspend=False),
        at_place("at-own", suspend=False),
    )
    api.jobs |= {place["metadata"]["name"]: place for place in places}
    of_an_up = at_place("of-an-up-at-spot", suspend=False)
    api.jobs[of_an_up["metadata"]["name"]] = of_an_up
    plan = {"jobs": {place["metadata"]["name"]: "uid" for place in places if place is not no_more}}
    api.maps["train-mover"] = {"data": {"plan.json": json.dumps(plan)}}
    api.maps["train-mover-notes"] = {"data": {"about": "x", "at-own": "2", "state": "{}"}}
    return api


def test_a_mover_knows_what_a_stop_writes() -> None:
    assert (labels.HOLDER_ANNOTATION, labels.STOPPED) == (jobs.HOLDER_ANNOTATION, jobs.STOPPED)


def test_a_step_with_places_is_stopped_with_what_moves_it(moved: Api, namespace: Namespace) -> None:
    list(namespace.stop())
    assert [name for name, suspended in moved.suspended().items() if not suspended] == [
        "prepare",
        "of-an-up",
        "of-an-up-at-spot",
    ]
    names = [name for _, name in moved.done]
    # First what would let them run again; and what of it is not gone yet may change them no more.
    assert names.index("train") < names.index("at-own")
    for name in ("at-flex", "at-spot", "spot-probe", "at-own"):
        assert moved.jobs[name]["metadata"]["annotations"]["slipway/holder"] == ""
    assert moved.jobs["of-an-up-at-spot"]["metadata"]["annotations"]["slipway/holder"] == "train-x"
    list(namespace.hold_place("of-an-up-at-spot"))
    assert moved.suspended()["of-an-up-at-spot"] is True
    assert moved.jobs["of-an-up-at-spot"]["metadata"]["annotations"]["slipway/holder"] == ""
    moved.done.clear()
    list(namespace.run())
    assert moved.done == [("PATCH", "cluster-run")]


def test_of_a_step_with_places_that_failed_what_failed_is_made_anew(moved: Api, namespace: Namespace) -> None:
    moved.jobs["train"]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    moved.jobs["at-own"] = at_place("at-own", "Failed", suspend=True)
    moved.jobs["cluster-run"] = job("cluster-run", "Failed", held=False)
    list(namespace.run())
    made = [name for method, name in moved.done if method == "POST"]
    assert made == ["at-own", "train", "cluster-run"]
    assert moved.suspended()["at-own"] is True
    # The next `up` declares the same attempt as the last one did, and so has nothing to do.
    assert moved.maps["train-mover-notes"]["data"] == {"about": "x", "state": "{}"}
