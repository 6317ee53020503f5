"""What a namespace lets in: the *restricted* Pod Security Standard and quotas, in the API server's words."""

from collections.abc import Mapping, Sequence

from infra.platform import GPU_RESOURCE, Resources
from infra.review.properties import Properties, mapping, mappings, texts
from infra.schema.quantities import cpu_millicores, mebibytes
from offline.rehearsal.cluster_objects import Namespace, RefusedError
from offline.rehearsal.pods import Container, PodSpec

ENFORCE = "pod-security.kubernetes.io/enforce"

RESTRICTED_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""kubernetes.io/docs/concepts/security/pod-security-standards, "Restricted", November 2026, like all the rules
below."""

MANDATORY = {"requests.cpu": "cpu", "requests.memory": "memory"}
"""What every container must ask for once a quota counts it: kubernetes.io/docs/concepts/policy/resource-quotas."""


def admit(namespace: Namespace, template: Properties, pod: PodSpec, requests: Resources) -> None:
    """Raises RefusedError where the pod of ``template`` would not be created in ``namespace``.

    ``requests`` is what it asks for with what a cloud injects. Volumes are looked at when they are mounted.
    """
    account = pod.service_account
    if account != "default" and not namespace.find("ServiceAccount", account):
        raise RefusedError(
            f'error looking up service account {namespace.name}/{account}: serviceaccount "{account}" not found'
        )
    if namespace.labels.get(ENFORCE) == "restricted" and (broken := violations(mapping(template.get("spec")))):
        raise RefusedError(f'pod is forbidden: violates PodSecurity "restricted": {", ".join(broken)}')
    for name, hard in namespace.quotas():
        if exceeded := quota_violations(hard, pod, requests):
            raise RefusedError(f"pod is forbidden: quota {name}: {'; '.join(exceeded)}")


def violations(spec: Properties) -> list[str]:
    """What of a pod spec the *restricted* standard forbids; empty where nothing is."""
    whole = mapping(spec.get("securityContext"))
    found = [f"host namespaces ({key}=true)" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in mappings(spec.get("volumes")):
        kinds = volume.keys() - {"name"} - RESTRICTED_VOLUMES
        found += [f"restricted volume types (volume {volume['name']!r} uses {kind})" for kind in sorted(kinds)]
    for container in (*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))):
        found += _container_violations(container, whole)
    return found


def _container_violations(container: Properties, pod: Properties) -> list[str]:
    own = mapping(container.get("securityContext"))
    effective = {**pod, **own}
    capabilities = mapping(own.get("capabilities"))
    seccomp = mapping(effective.get("seccompProfile")).get("type")
    name = container.get("name")
    return [
        f'{what} (container "{name}" must set securityContext.{how})'
        for broken, what, how in (
            (own.get("privileged"), "privileged", "privileged=false"),
            (
                own.get("allowPrivilegeEscalation") is not False,
                "allowPrivilegeEscalation != false",
                "allowPrivilegeEscalation=false",
            ),
            (
                "ALL" not in texts(capabilities.get("drop"))
                or set(texts(capabilities.get("add"))) - {"NET_BIND_SERVICE"},
                "unrestricted capabilities",
                'capabilities.drop=["ALL"]',
            ),
            (effective.get("runAsNonRoot") is not True, "runAsNonRoot != true", "runAsNonRoot=true"),
            (effective.get("runAsUser") == 0, "runAsUser=0", "runAsUser to another user"),
            (
                seccomp not in {"RuntimeDefault", "Localhost"},
                "seccompProfile",
                'seccompProfile.type to "RuntimeDefault" or "Localhost"',
            ),
        )
        if broken
    ]


def quota_violations(hard: Mapping[str, str], pod: PodSpec, requests: Resources) -> list[str]:
    """What of a quota's ``hard`` limits a pod breaks on its own; what other pods use is not counted."""
    containers: Sequence[Container] = (*pod.init_containers, pod.container)
    found = [
        f"must specify {key} for: {container.name}"
        for key, field in MANDATORY.items()
        if key in hard
        for container in containers
        if getattr(container.requests, field) == 0
    ]
    limits = {
        "requests.cpu": (cpu_millicores, requests.cpu, "m"),
        "requests.memory": (mebibytes, requests.memory, "Mi"),
        "requests.ephemeral-storage": (mebibytes, requests.ephemeral_storage, "Mi"),
        f"requests.{GPU_RESOURCE}": (int, requests.gpus, ""),
    }
    found += [
        f"exceeded, requested: {key}={wanted}{unit}, limited: {key}={hard[key]}"
        for key, (parse, wanted, unit) in limits.items()
        if key in hard and wanted > parse(hard[key])
    ]
    return found
