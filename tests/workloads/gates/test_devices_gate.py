"""The devices gate against a Kubernetes API that answers as the test wants it to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.workloads.gates import devices
from slipway.workloads.gates.devices import Pool, missing
from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, OK, USAGE, StepError
from tests.workloads.json_server import Server, serving
from tests.workloads.steps import only_error, run, start

GPU = "nvidia.com/gpu"
POOL = Pool("train", 1, 0, {"pool": "train"})

Answer = tuple[int, dict[str, Any]]


def node(name: str = "node-1", gpus: int = 1, *, pool: str = "train", **changes: Any) -> dict[str, Any]:
    amounts = {"cpu": "4", **({GPU: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": {"pool": pool}, **changes.pop("metadata", {})},
        "spec": changes.pop("spec", {}),
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            **changes,
        },
    }


class Api:
    """The next of ``answers``, and the last one from then on."""

    def __init__(self, folder: Path) -> None:
        self.answers: list[Answer] = []
        self.folder = folder
        self.server = Server("")
        (folder / "token").write_text("secret\n", encoding="utf-8")

    def answer(self, *_: object) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def arguments(self, *pools: tuple[str, int, int, str], timeout: float = 0) -> list[str]:
        words = ["--api", f"http://{self.server.address}", "--service-account", str(self.folder)]
        for pool in pools:
            words += ["--pool", *map(str, pool)]
        return [*words, "--timeout", str(timeout)]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = Api(tmp_path)
    with serving(api.answer) as api.server:
        yield api


def nodes(*items: dict[str, Any], more: str = "") -> Answer:
    return 200, {"kind": "NodeList", "metadata": {"continue": more}, "items": list(items)}


def test_gpus_that_are_all_there_pass(api: Api) -> None:
    api.answers = [nodes(node(gpus=8), node("other", 0, pool="cpu"))]

    output = run("gates.devices", *api.arguments(("train", 8, 1, "pool=train"), ("predict", 1, 0, "pool=predict")))

    assert "Pool train: 8 GPU(s) allocatable on each of node-1" in output
    assert "Pool predict: no node yet" in output
    assert api.server.authorizations == {"Bearer secret"}


@pytest.mark.slow
def test_it_waits_until_the_device_plugin_is_there(api: Api) -> None:
    api.answers = [nodes(node(gpus=0))]
    process = start("gates.devices", *api.arguments(("train", 1, 0, "pool=train"), timeout=60))
    assert process.stdout is not None
    assert "Waiting: pool train: node node-1 has 0 of 1" in process.stdout.readline()

    api.answers = [nodes(node(gpus=1))]

    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output


def test_a_node_without_its_gpus_is_named_when_time_is_up(api: Api) -> None:
    taint = {"key": "dedicated", "value": "lab", "effect": "NoSchedule"}
    api.answers = [nodes(node(), node("node-2", 0, spec={"taints": [taint]}))]

    output = run("gates.devices", *api.arguments(("train", 1, 0, "pool=train")), code=ACCELERATOR_REFUSED)

    error = only_error(output)
    assert "pool train: node node-2 has 0 of 1 nvidia.com/gpu allocatable" in error
    assert "node-1" not in error
    assert "driver" in error
    assert "the device plugin, which has to tolerate dedicated=lab:NoSchedule?" in error


def test_a_pool_that_always_has_nodes_is_waited_for(api: Api) -> None:
    api.answers = [nodes(node())]

    output = run("gates.devices", *api.arguments(("train", 1, 2, "pool=train")), code=ACCELERATOR_REFUSED)

    assert "pool train: 1 of at least 2 nodes are there" in only_error(output)


def test_the_nodes_come_in_pages(api: Api) -> None:
    api.answers = [nodes(node(), more="a/b="), nodes(node("node-2", 0))]

    output = run("gates.devices", *api.arguments(("train", 1, 0, "pool=train")), code=ACCELERATOR_REFUSED)

    assert "node-2" in only_error(output)
    assert [path.partition("&")[2] for _, path, _ in api.server.asked[:2]] == ["", "continue=a%2Fb%3D"]


def test_what_the_api_refuses_is_said_in_its_words(api: Api) -> None:
    api.answers = [(403, {"kind": "Status", "message": "nodes is forbidden: User cannot list"})]

    output = run("gates.devices", *api.arguments(("train", 1, 0, "pool=train")), code=ACCELERATOR_REFUSED)

    assert "nodes could not be read: the Kubernetes API answered 403: nodes is forbidden" in only_error(output)


@pytest.mark.parametrize("propagation", [-1.0, 60.0], ids=["later", "at-first"])
def test_a_right_has_a_moment_to_reach_the_api(
    propagation: float, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused at first may just have been granted; later it never was, and waiting is no use."""
    api.answers = [(403, {"message": "nodes is forbidden"}), nodes(node())]
    for name, value in {"PROPAGATION": propagation, "FIRST_PAUSE": 0, "stop_on_sigterm": lambda _: None}.items():
        monkeypatch.setattr(devices, name, value)
    arguments = api.arguments(("train", 1, 0, "pool=train"), timeout=60)
    if propagation > 0:
        assert devices.main(arguments) == OK
    else:
        with pytest.raises(StepError, match="403: nodes is forbidden"):
            devices.main(arguments)


@pytest.mark.slow
def test_an_api_that_stumbles_is_asked_again(api: Api) -> None:
    api.answers = [(503, {"message": "etcd is away"}), nodes(node())]
    process = start("gates.devices", *api.arguments(("train", 1, 0, "pool=train"), timeout=60))

    output, _ = process.communicate(timeout=30)

    assert process.returncode == 0, output
    assert "503: etcd is away" in output


def test_without_a_token_it_says_so(tmp_path: Path) -> None:
    output = run("gates.devices", "--service-account", tmp_path, "--pool", "train", 1, 0, "a=b", code=USAGE)
    assert "no token" in only_error(output)


@pytest.mark.parametrize("change", [{"spec": {"unschedulable": True}}, {"metadata": {"deletionTimestamp": "now"}}])
def test_a_node_that_takes_no_pods_is_left_out(change: dict[str, Any]) -> None:
    going = node("going", 0)
    for key, value in change.items():
        going[key] = {**going[key], **value}
    assert missing(POOL, [going], GPU) == []


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (
            node(gpus=0, conditions=[{"type": "Ready", "status": "False", "message": "no CNI"}]),
            "not Ready: no CNI",
        ),
        (node(gpus=0, capacity={GPU: "1"}), "unhealthy"),
        (node(gpus=0, metadata={"labels": {"pool": "train", "nvidia.com/gpu.deploy.driver": "true"}}), "Operator"),
        (node(gpus=0), "driver"),
    ],
    ids=["not-ready", "unhealthy", "operator", "nothing"],
)
def test_the_likely_reason_is_what_the_node_says(state: dict[str, Any], reason: str) -> None:
    (line,) = missing(POOL, [state], GPU)
    assert reason in line


def test_fewer_gpus_than_expected_are_another_machine_or_shared_otherwise() -> None:
    (line,) = missing(Pool("train", 8, 0, {"pool": "train"}), [node(gpus=1)], GPU)
    assert "has 1 of 8" in line
    assert "another machine" in line
