"""Steps on several nodes in a ``pipeline.yaml``: what they become, and what is wrong with them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.features.nodes.feature import Nodes
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.file import reading
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.placed import Step
from slipway.infra.placement.placing import place, room
from slipway.infra.settings.loading import load
from tests.infra.pipelines.file_problems import check
from tests.infra.pipelines.sums import SECTION, stack, written
from tests.support.checkout import ROOT
from tests.support.recording import record
from tests.support.stack_values import changed
from tests.support.stand_in import platform


def read(folder: Path, declared: object, **section: Any) -> tuple[dict[str, str], StepDeclaration]:
    """What is wrong with the file, by key, and the step."""
    path = written(folder, {"steps.train.nodes": declared})
    declaration = reading.read(Folder(path, "sums", str(path)))
    wrong = {
        problem.key.partition(": ")[2]: f"{problem.reason}; {problem.fix}" for problem in declaration.problems
    }
    settings = declaration.settings.model_validate(
        changed(SECTION, {f"steps.train.{key}": section[key] for key in section})
    )
    return wrong, next(step for step in declaration.steps(settings) if step.name == "train")


@pytest.mark.parametrize(
    ("nodes", "meant"),
    [
        (2, Nodes(2)),
        ({"count": 3, "wait": "90s", "port": 4000}, Nodes(3, {}, 90, 4000)),
        ({"count": 5, "roles": {"ps": 1, "worker": 4}}, Nodes(5, {"ps": 1, "worker": 4})),
        (1, None),
        ({"count": 1, "roles": {"chief": 1}}, None),
    ],
)
def test_a_number_or_a_section_says_how_many(tmp_path: Path, nodes: object, meant: Nodes | None) -> None:
    wrong, step = read(tmp_path, nodes)
    assert wrong == {}
    assert step.parts == ([meant] if meant else [])
    if meant:
        assert list(step.parts[0].roles) == list(meant.roles), "in the order of their ranks"


def test_a_stack_file_has_another_number_and_another_wait(tmp_path: Path) -> None:
    _, step = read(tmp_path, 2, nodes=4, wait="30s")
    assert step.parts == [Nodes(4, wait=30)]
    _, alone = read(tmp_path, 2, nodes=1)
    assert alone.parts == []


@pytest.mark.parametrize(
    ("roles", "nodes", "meant"),
    [
        ({"chief": 1, "worker": 3}, 2, {"chief": 1, "worker": 1}),
        ({"chief": 1, "worker": 3}, 6, {"chief": 1, "worker": 5}),
        ({"chief": 1, "ps": 3}, 6, {"chief": 1, "ps": 3, "worker": 2}),
    ],
)
def test_with_another_number_there_are_more_or_fewer_workers(
    tmp_path: Path, roles: dict[str, int], nodes: int, meant: dict[str, int]
) -> None:
    _, step = read(tmp_path, {"count": 4, "roles": roles}, nodes=nodes)
    assert step.parts == [Nodes(nodes, meant)]


@pytest.mark.parametrize(
    ("nodes", "key", "names"),
    [
        (0, "nodes", ["1 to 256 nodes"]),
        (True, "nodes", ["`2`"]),
        ("2", "nodes", ["`2`"]),
        ({"count": 300}, "nodes.count", ["256"]),
        ({"wait": "5m"}, "nodes.count", []),
        ({"count": 2, "port": 80}, "nodes.port", ["1025"]),
        ({"cuont": 2}, "nodes.cuont", ["`count`"]),
        ({"count": 2, "roles": {"Master": 1, "worker": 1}}, "nodes.roles.Master", ["`chief`"]),
        ({"count": 2, "roles": {"PS": 1, "worker": 1}}, "nodes.roles.PS", ["`ps`"]),
        ({"count": 2, "roles": {"wroker": 2}}, "nodes.roles.wroker", ["`worker`"]),
        ({"count": 2, "roles": {"cook": 2}}, "nodes.roles.cook", ["`chief`", "`worker`", "`ps`", "`evaluator`"]),
        ({"count": 5, "roles": {"ps": 1, "worker": 3}}, "nodes.roles", ["`count: 4`", "`worker: 4`"]),
        ({"count": 4, "roles": {"chief": 2, "worker": 2}}, "nodes.roles", ["`chief: 1`"]),
        ({"count": 3, "roles": {"evaluator": 2, "worker": 1}}, "nodes.roles", ["`evaluator: 1`"]),
        ({"count": 2, "roles": {"ps": 1, "evaluator": 1}}, "nodes.roles", []),
        ({"count": 2, "roles": {"worker": 0, "chief": 1}}, "nodes.roles.worker", ["below 1"]),
    ],
)
def test_wrong_nodes_are_refused_with_the_fix(tmp_path: Path, nodes: object, key: str, names: list[str]) -> None:
    wrong, _ = read(tmp_path, nodes, nodes=2, wait="5m")
    check(wrong, "", {f"steps.train.{key}": names})


def test_items_are_worked_on_by_workers_and_not_on_nodes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "steps.train.items": {"files": "{prepare}/*.csv"},
            "steps.train.run": ["python", "train.py", "{item}", "{output}"],
            "steps.train.results": {},
        },
    )
    (problem,) = reading.read(Folder(path, "sums", str(path))).problems
    assert problem.key == "sums/pipeline.yaml: steps.train.nodes"
    assert "as `workers`" in problem.fix


BESIDE = {"services": {"cache": {"kind": "valkey", "resources": {"cpu": "3"}}}, "steps.train.connects": ["cache"]}
ON_TWO_NODES = {"steps.train": {"pool": "cpu", "cpu": "2"}}


def placed(folder: Path, section: dict[str, Any]) -> list[Step]:
    """The steps, on a pool that has two nodes with 3900m each."""
    pipeline = DeclaredPipeline("sums", str(folder), load(stack(folder, section)).pipelines["sums"])

    def program() -> Any:
        return place([pipeline], {"here": platform()}, Gates("image"), ROOT)["sums"]

    return record(program, {}, preview=True).result


def test_room_is_counted_one_pod_a_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train = next(step for step in placed(written(tmp_path / "alone"), ON_TWO_NODES) if step.name == "train")
    assert (train.pods, room(train)) == (2, 2)
    small = replace(train, resources=replace(train.resources, cpu=100))
    assert room(small) == 2
    assert room(replace(small, parts=[])) > 2
    assert not caplog.records


def test_services_may_leave_no_room_for_all_of_the_nodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    section = {**ON_TWO_NODES, "services": {"cache": {"pool": "cpu"}}}
    placed(written(tmp_path / "beside", BESIDE), section)
    (warning,) = [record.getMessage() for record in caplog.records if "room" in record.getMessage()]
    assert warning.startswith(
        "slipway:pipelines.sums.steps.train.nodes: pool cpu has room for 1 of 2 pods, one a node"
    )


def test_variants_share_nodes_where_both_fit(tmp_path: Path) -> None:
    folder = written(
        tmp_path / "variants",
        {"steps.train.matrix": {"rate": [0.1, 0.2]}, "steps.report.run": ["python", "report.py", "{output}"]},
    )

    def waits(cpu: str) -> bool:
        steps = {step.name: step for step in placed(folder, {"steps.train": {"pool": "cpu", "cpu": cpu}})}
        first, second = (step for name, step in steps.items() if name.startswith("train-"))
        return first.job in {step.job for step in second.after}

    assert waits("2"), "each takes both nodes"
    assert not waits("1")
