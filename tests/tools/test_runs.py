"""`make run` and `make stop` of Jobs that `pulumi up` does not wait for."""

import copy
from collections.abc import Generator, Mapping
from typing import Any

import pytest
import yaml

from slipway.infra.api_server import ApiServer
from slipway.tools.runs import Namespace, RunError
from tests.support.api_server import kubeconfig
from tests.workloads.json_server import serving

JOBS = "/apis/batch/v1/namespaces/slipway/jobs"


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
        self.jobs: dict[str, Any] = {entry["metadata"]["name"]: copy.deepcopy(entry) for entry in jobs}
        self.going: set[str] = set()
        self.done: list[tuple[str, str]] = []

    def answer(self, method: str, path: str, content: Any) -> tuple[int, dict[str, Any]]:
        name = path.removeprefix(JOBS).strip("/")
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
        elif method == "PATCH":
            self.jobs[name]["spec"] |= content["spec"]
        elif name in self.going:
            self.going.discard(name)
            return 200, self.jobs.pop(name)
        if method != "GET":
            self.done.append((method, name))
        return 200, self.jobs.get(name, {})

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
