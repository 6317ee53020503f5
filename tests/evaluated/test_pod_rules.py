"""The restricted Pod Security Standard refuses what the API server refuses, in its words."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from slipway.evaluated.pod_rules import breaches, words
from slipway.infra.review.stack import UNKNOWN

RESTRICTED: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "containers": [
        {
            "name": "main",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    spec = copy.deepcopy(RESTRICTED)
    change(spec)
    return spec


def context(spec: dict[str, Any]) -> dict[str, Any]:
    return spec["containers"][0]["securityContext"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda spec: context(spec).pop("allowPrivilegeEscalation"),
            'container "main" must set securityContext.allow',
        ),
        (lambda spec: context(spec).pop("capabilities"), "unrestricted capabilities"),
        (lambda spec: context(spec)["capabilities"].update(add=["SYS_ADMIN"]), "unrestricted capabilities"),
        (lambda spec: spec["securityContext"].pop("runAsNonRoot"), "runAsNonRoot != true"),
        (lambda spec: context(spec).update(runAsUser=0), "runAsUser=0"),
        (lambda spec: spec["securityContext"].pop("seccompProfile"), "seccompProfile"),
        (lambda spec: context(spec).update(seccompProfile={"type": "Unconfined"}), "seccompProfile"),
        (lambda spec: context(spec).update(privileged=True), "privileged"),
        (lambda spec: spec.update(hostNetwork=True), "hostNetwork"),
        (
            lambda spec: spec["containers"][0].update(ports=[{"containerPort": 80, "hostPort": 80}]),
            'hostPort (container "main" uses hostPort 80)',
        ),
        (
            lambda spec: spec["volumes"].append({"name": "v", "hostPath": {}}),
            'restricted volume types (volume "v" uses restricted volume type "hostPath")',
        ),
        (lambda spec: spec.update(initContainers=[{"name": "init"}]), 'container "init"'),
    ],
)
def test_what_the_restricted_standard_forbids(change: Callable[[dict[str, Any]], object], says: str) -> None:
    assert breaches(RESTRICTED) == []
    assert says in words(breaches(changed(change)))


def test_the_breaches_of_a_careless_pod_are_said_as_by_the_api_server() -> None:
    # As Kubernetes 1.34 says it, but that it names several containers in one sentence.
    assert words(
        breaches({"containers": [{"name": "main", "securityContext": {"capabilities": {"add": ["BPF"]}}}]})
    ) == (
        'allowPrivilegeEscalation != false (container "main" must set '
        "securityContext.allowPrivilegeEscalation=false), "
        'unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"]; '
        'container "main" must not include "BPF" in securityContext.capabilities.add), '
        'runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" '
        'or "Localhost")'
    )


def test_what_only_an_update_knows_breaks_nothing() -> None:
    assert (
        breaches({"securityContext": UNKNOWN, "containers": [{"name": "main", "securityContext": UNKNOWN}]}) == []
    )
