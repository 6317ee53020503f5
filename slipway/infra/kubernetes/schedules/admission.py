"""What holds the service account of a pipeline's schedule to the Jobs of that pipeline.

RBAC cannot: who may create Jobs may create any, and a Job may use every service account and mount every Secret of
its namespace. A ValidatingAdmissionPolicy can, which compares each Job that the account creates with what was
planned (kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy, stable since Kubernetes 1.30,
seen November 2026). The plan stands in the policy itself: an API server whose last policy with a built-in
``paramKind`` was deleted finds no parameters again until it restarts
(github.com/kubernetes/kubernetes/issues/130887, open in November 2026).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.objects import wait_for

FREE = (
    "affinity",
    "nodeSelector",
    "resources",
    "schedulerName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
)
"""Keys of a pod or a container that say where it runs, how much it gets and how long it has to end. They give
access to nothing, and webhooks change them in a Job: GKE Autopilot's do
(cloud.google.com/kubernetes-engine/docs/concepts/autopilot-resource-requests, seen November 2026)."""

JOB_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
"""Labels that the API server gives to the pods of a Job
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""

MARK = "-[0-9]{8}-[0-9]{4}$"
"""How the name of a Job of a run by the clock ends (`slipway.runtime.schedule.run`), as a regular expression.
The run's directories end so, too, and stand in the words and environment variables of its programs."""

REFUSED = "this account may create the Jobs of its pipeline as the last update declared them, and no others"


def admit_only(
    name: str,
    pods: Mapping[str, Any],
    *,
    account: str,
    namespace: str,
    labels: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Declares that the service account ``account`` of ``namespace`` creates Jobs with one of ``pods``, and no
    others.

    These are pod templates as the Kubernetes API spells them, by what their Jobs' names have before the mark.
    """
    # Neither a namespace nor a CronJob has a dot in its name, so no two of a cluster's policies have one name.
    metadata = k8s.meta.v1.ObjectMetaArgs(name=f"{namespace}.{account}", labels=dict(labels))
    policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
        f"{name}-policy",
        metadata=metadata,
        spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs(
            failure_policy="Fail",
            match_constraints=k8s.admissionregistration.v1.MatchResourcesArgs(
                resource_rules=[
                    k8s.admissionregistration.v1.NamedRuleWithOperationsArgs(
                        api_groups=["batch"],
                        api_versions=["v1"],
                        operations=["CREATE", "UPDATE"],
                        resources=["jobs"],
                    )
                ]
            ),
            match_conditions=[
                k8s.admissionregistration.v1.MatchConditionArgs(
                    name="account",
                    expression=f'request.userInfo.username == "system:serviceaccount:{namespace}:{account}"',
                )
            ],
            variables=[
                k8s.admissionregistration.v1.VariableArgs(name=variable, expression=expression)
                for variable, expression in _variables(pods).items()
            ],
            validations=[
                k8s.admissionregistration.v1.ValidationArgs(
                    expression=expression,
                    message=f"{subject}: {REFUSED}",
                    # 403, after which the schedule's pod does not try again.
                    reason="Forbidden",
                )
                for subject, expression in _validations(sub_paths=_has_sub_paths(pods)).items()
            ],
        ),
        opts=opts,
    )
    binding = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
        f"{name}-policy-binding",
        metadata=metadata,
        spec=k8s.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpecArgs(
            policy_name=f"{namespace}.{account}", validation_actions=["Deny"]
        ),
        opts=wait_for(opts, policy),
    )
    return [policy, binding]


def _variables(pods: Mapping[str, Any]) -> dict[str, pulumi.Input[str]]:
    """The variables of the policy. Each pod has its own, for an expression has up to 100,000 characters
    (github.com/google/cel-go, parser/options.go, seen November 2026)."""
    values = {
        f"pod{index}": pulumi.Output.json_dumps(pod).apply(_literal) for index, pod in enumerate(pods.values())
    }
    planned = ", ".join(f"{json.dumps(name)}: variables.{pod}" for name, pod in zip(pods, values, strict=True))
    return {
        "mark": f"object.metadata.name.find({json.dumps(MARK)})",
        "name": "object.metadata.name.substring(0, size(object.metadata.name) - size(variables.mark))",
        "known": f'variables.mark != "" && variables.name in {json.dumps(list(pods))}',
        **values,
        "planned": f"{{{planned}}}[variables.name]",
        # Without `dyn` the API server warns that a pod is no map.
        "given": "dyn(object.spec.template)",
    }


def _literal(pod: str) -> str:
    """A pod template, from JSON, as an expression."""
    return f"dyn({_expression(_with_defaults(json.loads(pod)))})"


def _expression(value: Any) -> str:
    """CEL refuses values of several types in one map or list, unless it is told not to look."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{json.dumps(key)}: dyn({_expression(member)})" for key, member in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(f"dyn({_expression(element)})" for element in cast("list[Any]", value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _with_defaults(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod template with what the API server fills in of the fields that Slipway's pods leave out
    (pkg/apis/core/v1/defaults.go, Kubernetes 1.34)."""
    spec = pod["spec"]
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        for variable in container["env"]:
            if field := variable.get("valueFrom", {}).get("fieldRef"):
                field.setdefault("apiVersion", "v1")
    for volume in spec["volumes"]:
        if mounted := volume.get("configMap") or volume.get("secret"):
            mounted.setdefault("defaultMode", 0o644)
    return pod


def _has_sub_paths(pods: Mapping[str, Any]) -> bool:
    """Whether a container of ``pods`` mounts a folder of a volume, which may be one of the run."""
    return any(
        "subPath" in mount
        for pod in pods.values()
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
    )


def _validations(*, sub_paths: bool) -> dict[str, str]:
    """What the policy demands of a Job, as CEL expressions by their subject.

    With ``sub_paths`` folders of volumes may have the mark in their names.
    """
    compared = {
        "labels of the pod": _same("metadata.?labels.orValue({})", _one_of(JOB_LABELS)),
        "annotations of the pod": _same("metadata.?annotations.orValue({})", _one_of([])),
        "pod": _same("spec", _one_of([*FREE, "containers", "initContainers"])),
        "containers": _same_containers("spec.containers", sub_paths=sub_paths),
        "init containers": _same_containers("spec.?initContainers.orValue([])"),
    }
    return {
        "name": "variables.known",
        # A Job with a selector of its own takes pods over that are not its own.
        "selector": "!object.spec.?manualSelector.orValue(false)",
        **{subject: f"!variables.known || ({expression})" for subject, expression in compared.items()},
    }


def _one_of(keys: Sequence[str]) -> str:
    return f"k in {json.dumps(list(keys))}"


def _same(path: str, free: str) -> str:
    """An expression: the maps at ``path`` of both templates are equal, except for keys ``k`` that are ``free``."""
    return _same_map(f"variables.given.{path}", f"variables.planned.{path}", free, "{given} == {planned}")


def _same_containers(path: str, *, sub_paths: bool = False) -> str:
    """An expression: the containers at ``path`` of both templates are equal and in the same order, except for keys
    in `FREE` and for the mark in words, environment variables and, with ``sub_paths``, folders of volumes."""
    given, planned = f"variables.given.{path}", f"variables.planned.{path}"
    words = '.map(w, w.replace(variables.mark, ""))'
    environment = '.map(e, has(e.value) ? dyn(e.name + "=" + e.value.replace(variables.mark, "")) : e)'
    # What else such a mount can have stands in the text, too: none of it is free. Only folders may have `:`.
    text = (
        'dyn(m.name + ":" + m.mountPath + (m.?readOnly.orValue(false) ? ":ro:" : ":rw:") + '
        'm.?mountPropagation.orValue("") + ":" + m.?recursiveReadOnly.orValue("") + ":" + '
        'm.subPath.replace(variables.mark, ""))'
    )
    folders = f".map(m, has(m.subPath) ? {text} : m)"
    mounts = f' : k == "volumeMounts" ? {{given}}{folders} == {{planned}}{folders}' if sub_paths else ""
    equal = (
        f'(k in ["command", "args"] ? {{given}}{words} == {{planned}}{words}'
        f' : k == "env" ? {{given}}{environment} == {{planned}}{environment}{mounts}'
        " : {given} == {planned})"
    )
    same = _same_map("c", "p", _one_of(FREE), equal)
    return (
        f"{given}.map(c, c.name) == {planned}.map(c, c.name)"
        f" && {given}.all(c, {planned}.exists(p, p.name == c.name && {same}))"
    )


def _same_map(given: str, planned: str, free: str, equal: str) -> str:
    """``equal`` compares two values, which stand for ``{given}`` and ``{planned}`` in it."""
    values = equal.replace("{given}", f"{given}[k]").replace("{planned}", f"{planned}[k]")
    return f"{given}.all(k, {free} || (k in {planned} && {values})) && {planned}.all(k, {free} || k in {given})"
