"""Services: what runs them, who may connect, that no object has the password, and what waits for them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.engine.provider_outputs import computed_outputs
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.service import services_of
from slipway.infra.placed import Step
from slipway.infra.platform import Egress, Platform, Resources
from slipway.infra.review.stack import Resource
from tests.infra.kubernetes.services import FILES, days, queue
from tests.support.recording import Recording, record, secret_inputs
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

pytestmark = pytest.mark.slow

STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
SERVICE = "kubernetes:core/v1:Service"
SECRET = "kubernetes:core/v1:Secret"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
QUOTA = "kubernetes:core/v1:ResourceQuota"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tree(tmp_path, FILES)


def run(
    root: Path,
    make: Callable[[Platform], Sequence[Step]],
    *,
    preview: bool = False,
    here: Callable[[], Platform] = platform,
    egress: Sequence[Egress] | None = (),
) -> Recording:
    def program() -> None:
        on = here()
        steps = list(make(on))
        count = len(services_of(steps))
        workspace = Workspace(on.name, WorkspaceArgs(on, "slipway", "runner", False, egress, count))
        declare(steps, {on.name: workspace}, root)

    return record(program, {}, preview=preview)


@pytest.fixture
def declared(root: Path) -> Callable[..., Recording]:
    """Declares the queue, with changes, and its client."""

    def declared(**changes: Any) -> Recording:
        return run(root, lambda on: [days(on, root, queue(on, **changes))])

    return declared


def pod(resource: Resource) -> dict[str, Any]:
    return resource.inputs["spec"]["template"]["spec"]


def container(recording: Recording) -> dict[str, Any]:
    (result,) = pod(recording.one(STATEFUL_SET))["containers"]
    return result


def test_no_object_but_the_secret_has_the_password(declared: Callable[..., Recording]) -> None:
    recording = declared()
    made = recording.one("random:index/randomPassword:RandomPassword")
    value = computed_outputs(made)["result"]
    assert (made.inputs["length"], made.inputs["special"]) == (32, False)
    secret = recording.one(SECRET)
    assert secret.inputs["stringData"] == {"password": value}
    assert "stringData" in secret_inputs(secret)
    others = [resource for resource in recording.resources if resource.urn not in {secret.urn, made.urn}]
    assert value not in json.dumps([other.inputs for other in others], default=str)


@pytest.mark.parametrize(
    ("argument", "seen"),
    [
        ("{password}", "secret"),
        ("a{password}b{password}c", "asecretbsecretc"),
        ("${password}", "$secret"),
        ("$${password}", "$$secret"),
        ("$(QUEUE_PASSWORD)", "$(QUEUE_PASSWORD)"),
        ("$$(HOME)", "$$(HOME)"),
        ("{{data}}", "{data}"),
        ("$", "$"),
    ],
)
def test_the_kubelet_makes_of_an_argument_what_was_written(
    argument: str, seen: str, declared: Callable[..., Recording]
) -> None:
    (live,) = container(declared(arguments=["serve", argument]))["args"]
    assert expanded(live, {"QUEUE_PASSWORD": "secret", "HOME": "/tmp"}) == seen


def expanded(text: str, variables: dict[str, str]) -> str:
    """``text`` as the kubelet expands it (kubernetes/third_party/forked/golang/expansion, Kubernetes 1.34)."""
    result, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            result, at = result + "$", at + 2
        elif text.startswith("$(", at) and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            result, at = result + variables.get(name, f"$({name})"), end + 1
        else:
            result, at = result + text[at], at + 1
    return result


def test_another_password_starts_another_pod(declared: Callable[..., Recording]) -> None:
    recording = declared()
    hash_ = computed_outputs(recording.one("random:index/randomPassword:RandomPassword"))["bcryptHash"]
    template = recording.one(STATEFUL_SET).inputs["spec"]["template"]
    assert template["metadata"]["annotations"] == {"slipway/password": hash_}


def test_a_service_of_several_clients_is_declared_once(root: Path) -> None:
    def program(on: Platform) -> list[Step]:
        clients = ["days", "report"]
        report = step(on, name="prepare", connects={"queue": queue(on, clients=clients)})
        return [days(on, root, queue(on, clients=clients)), replace(report, name="report")]

    recording = run(root, program)
    assert len(recording.of(STATEFUL_SET)) == 1
    assert recording.one(QUOTA).inputs["spec"]["hard"]["count/services"] == "1"


def labels(resource: Resource) -> dict[str, str]:
    return resource.inputs["spec"]["template"]["metadata"]["labels"]


def test_the_same_program_declares_the_same_service(root: Path) -> None:
    def one() -> list[Any]:
        recording = run(root, lambda on: [days(on, root, queue(on))])
        return [resource.inputs for resource in recording.of(STATEFUL_SET)]

    assert one() == one()


def test_another_volume_is_another_stateful_set_behind_the_same_address(
    declared: Callable[..., Recording],
) -> None:
    before, after, other = declared(), declared(storage=2048), declared(resources=Resources(1000, 2048, 512))
    names = [recording_.one(STATEFUL_SET).inputs["metadata"]["name"] for recording_ in (before, after, other)]
    assert names[0] != names[1]
    assert names[0] == names[2]
    assert after.one(STATEFUL_SET).delete_before_replace
    hosts = {recording_.one(SERVICE).inputs["metadata"]["name"] for recording_ in (before, after, other)}
    assert hosts == {"digits-queue"}


def test_names_leave_room_for_what_stands_behind_them(declared: Callable[..., Recording]) -> None:
    recording = declared(name="q" * 60)
    names = [
        resource.inputs["metadata"]["name"] for resource in recording.resources if "metadata" in resource.inputs
    ]
    assert max(map(len, names)) <= 63
    # The label of its pods with their revision.
    assert len(f"{recording.one(STATEFUL_SET).inputs['metadata']['name']}-0123456789") <= 63
