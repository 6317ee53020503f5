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
from slipway.infra.kubernetes.labels import PART_OF
from slipway.infra.kubernetes.service import services_of
from slipway.infra.pipelines.contract import Probe
from slipway.infra.placed import Step
from slipway.infra.platform import Egress, Platform, Resources
from slipway.infra.review.stack import Resource
from tests.infra.kubernetes.services import FILES, IMAGE, days, queue
from tests.support.recording import Recording, record, secret_inputs
from tests.support.stand_in import platform, step
from tests.support.tree import write_tree

pytestmark = pytest.mark.slow

STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
SERVICE = "kubernetes:core/v1:Service"
SECRET = "kubernetes:core/v1:Secret"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
JOB = "kubernetes:batch/v1:Job"
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


def test_the_program_is_given_its_port_its_volume_and_its_password(declared: Callable[..., Recording]) -> None:
    recording = declared()
    live = container(recording)
    assert live["command"] == ["valkey-server"]
    assert live["args"] == ["--port", "6379", "--dir", "/data", "--requirepass", "$(QUEUE_PASSWORD)"]
    (variable,) = [variable for variable in live["env"] if variable["name"] == "QUEUE_PASSWORD"]
    assert variable["valueFrom"]["secretKeyRef"] == {
        "name": recording.one(SECRET).inputs["metadata"]["name"],
        "key": "password",
    }
    (mount,) = [volume_mount for volume_mount in live["volumeMounts"] if volume_mount["mountPath"] == "/data"]
    (claim,) = recording.one(STATEFUL_SET).inputs["spec"]["volumeClaimTemplates"]
    assert mount["name"] == claim["metadata"]["name"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "1Gi"}


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


def test_a_client_has_the_address_and_the_password_and_no_other_step_does(root: Path) -> None:
    recording = run(root, lambda on: [days(on, root, queue(on))])
    environments = {
        variable.name: {one["name"]: one for one in pod(variable)["containers"][0]["env"]}
        for variable in recording.of(JOB)
    }
    client = environments["digits-days"]
    host = recording.one(SERVICE).inputs
    assert client["QUEUE_ADDRESS"]["value"] == f"{host['metadata']['name']}:{host['spec']['ports'][0]['port']}"
    assert client["QUEUE_PASSWORD"]["valueFrom"]["secretKeyRef"]["name"] == "digits-queue-password"
    assert not [name for name in environments["digits-prepare"] if name.startswith("QUEUE")]


def test_a_client_waits_until_the_service_answers_and_what_comes_before_does_not(
    declared: Callable[..., Recording],
) -> None:
    recording = declared()
    jobs = {resource.name: resource for resource in recording.of(JOB)}
    ready = {recording.one(STATEFUL_SET).urn, recording.one(SERVICE).urn}
    assert ready <= recording.waits_for(jobs["digits-days"])
    assert not ready & recording.waits_for(jobs["digits-prepare"])
    assert recording.one(SECRET).urn in recording.waits_for(recording.one(STATEFUL_SET))


def test_a_service_of_several_clients_is_declared_once(root: Path) -> None:
    def program(on: Platform) -> list[Step]:
        clients = ["days", "report"]
        report = step(on, name="prepare", connects={"queue": queue(on, clients=clients)})
        return [days(on, root, queue(on, clients=clients)), replace(report, name="report")]

    recording = run(root, program)
    assert len(recording.of(STATEFUL_SET)) == 1
    assert recording.one(QUOTA).inputs["spec"]["hard"]["count/services"] == "1"


def peers(recording: Recording) -> list[dict[str, Any]]:
    (rule,) = recording.one(POLICY, "digits-queue").inputs["spec"]["ingress"]
    return rule["from"]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector selects what has ``labels``."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for match_expression in selector.get("matchExpressions", []):
        live, values = labels.get(match_expression["key"]), match_expression.get("values", [])
        met = {"In": live in values, "NotIn": live not in values, "DoesNotExist": live is None}
        if not met[match_expression["operator"]]:
            return False
    return True


def labels(resource: Resource) -> dict[str, str]:
    return resource.inputs["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("creates_namespace", [True, False])
def test_only_clients_reach_the_service_on_its_port_and_it_reaches_nothing(
    root: Path, creates_namespace: bool
) -> None:
    recording = run(
        root,
        lambda on: [days(on, root, queue(on))],
        here=lambda: replace(platform(), creates_namespace=creates_namespace),
    )
    client, other = (labels(resource) for resource in sorted(recording.of(JOB), key=lambda job: job.name))
    service = labels(recording.one(STATEFUL_SET))
    policies = {resource.name: resource.inputs["spec"] for resource in recording.of(POLICY)}

    inwards = policies["digits-queue"]
    assert selects(inwards["podSelector"], service)
    assert sorted(inwards["policyTypes"]) == ["Egress", "Ingress"]
    assert not inwards.get("egress")
    (rule,) = inwards["ingress"]
    (peer,) = rule["from"]
    assert [selects(peer["podSelector"], entry) for entry in (client, other, service)] == [True, False, False]
    assert rule["ports"] == [{"protocol": "TCP", "port": 6379}]

    outwards = policies["digits-queue-clients"]
    assert [selects(outwards["podSelector"], entry) for entry in (client, other, service)] == [True, False, False]
    (rule,) = outwards["egress"]
    assert [selects(entry["podSelector"], service) for entry in rule["to"]] == [True]
    assert rule["ports"] == [{"protocol": "TCP", "port": 6379}]

    # Policies add up: what lets steps reach public addresses may not hold for the service.
    everywhere = policies["here-limit-egress"]
    assert [selects(everywhere["podSelector"], entry) for entry in (client, other, service)] == [True, True, False]
    assert PART_OF.items() <= service.items()


def test_where_pods_may_connect_anywhere_clients_still_may(root: Path) -> None:
    recording = run(root, lambda on: [days(on, root, queue(on))], egress=None)
    client = next(labels(resource) for resource in recording.of(JOB) if resource.name == "digits-days")
    limiting = [
        resource
        for resource in recording.of(POLICY)
        if "Egress" in resource.inputs["spec"]["policyTypes"]
        and selects(resource.inputs["spec"]["podSelector"], client)
    ]
    assert limiting == []
    assert selects(peers(recording)[0]["podSelector"], client)


def test_a_workspace_without_services_is_as_before(root: Path) -> None:
    hard = run(root, lambda on: [step(on, name="prepare")]).one(QUOTA).inputs["spec"]["hard"]
    assert hard["count/services"] == "0"
    assert not [key for key in hard if key.startswith("services.")]


def test_services_open_no_way_in_from_outside(declared: Callable[..., Recording]) -> None:
    recording = declared()
    hard = recording.one(QUOTA).inputs["spec"]["hard"]
    assert {
        "count/services": "1",
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }.items() <= hard.items()
    assert recording.one(SERVICE).inputs["spec"]["type"] == "ClusterIP"


@pytest.mark.parametrize("user", [1000, None])
def test_the_pod_is_restricted_and_its_volume_belongs_to_its_user(root: Path, user: int | None) -> None:
    recording = run(root, lambda on: [days(on, root, queue(on))], here=lambda: replace(platform(), pod_user=user))
    live = pod(recording.one(STATEFUL_SET))
    context = live["securityContext"]
    assert [context.get(key) for key in ("runAsUser", "runAsGroup", "fsGroup")] == [user, user, user]
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert live["automountServiceAccountToken"] is False
    custom = container(recording)["securityContext"]
    assert custom["allowPrivilegeEscalation"] is False
    assert custom["readOnlyRootFilesystem"] is True
    assert custom["capabilities"] == {"drop": ["ALL"]}
    mounts = {volume_mount["mountPath"] for volume_mount in container(recording)["volumeMounts"]}
    assert mounts == {"/data", "/tmp"}


def test_memory_is_bounded_by_what_is_asked_for(declared: Callable[..., Recording]) -> None:
    live = container(declared())["resources"]
    assert live["requests"] == {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "512Mi"}
    assert live["limits"] == {"memory": "1Gi", "ephemeral-storage": "512Mi"}


def test_a_service_may_load_its_data_and_is_never_killed_for_being_slow(
    declared: Callable[..., Recording],
) -> None:
    live = container(declared())
    assert live["readinessProbe"]["tcpSocket"] == {"port": 6379}
    startup = live["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= 600
    assert "livenessProbe" not in live
    other = container(declared(probe=Probe("/health")))
    assert other["readinessProbe"]["httpGet"] == {"path": "/health", "port": 6379}
    assert "tcpSocket" not in other["readinessProbe"]


def test_the_pod_is_never_evicted_and_its_volume_goes_with_the_stack(declared: Callable[..., Recording]) -> None:
    recording = declared()
    stateful_set = recording.one(STATEFUL_SET)
    spec = stateful_set.inputs["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Delete", "whenScaled": "Retain"}
    assert spec["replicas"] == 1
    budget = recording.one(BUDGET).inputs["spec"]
    assert budget["minAvailable"] == 1
    assert selects(budget["selector"], labels(stateful_set))
    assert selects({"matchLabels": recording.one(SERVICE).inputs["spec"]["selector"]}, labels(stateful_set))


@pytest.mark.parametrize(("name", "class_"), [(None, None), ("fast", "fast")])
def test_the_volume_is_of_the_platforms_class(root: Path, name: str | None, class_: str | None) -> None:
    recording = run(
        root, lambda on: [days(on, root, queue(on))], here=lambda: replace(platform(), volume_class=name)
    )
    (claim,) = recording.one(STATEFUL_SET).inputs["spec"]["volumeClaimTemplates"]
    assert claim["spec"].get("storageClassName") == class_


def test_the_same_program_declares_the_same_service(root: Path) -> None:
    def one() -> list[Any]:
        recording = run(root, lambda on: [days(on, root, queue(on))])
        return [resource.inputs for resource in recording.of(STATEFUL_SET)]

    assert one() == one()


@pytest.mark.parametrize("preview", [True, False])
def test_a_preview_shows_the_pod_as_it_will_be(root: Path, preview: bool) -> None:
    live = container(run(root, lambda on: [days(on, root, queue(on))], preview=preview))
    assert live["image"] == IMAGE
    assert live["args"][-1] == "$(QUEUE_PASSWORD)"


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
