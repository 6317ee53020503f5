"""The files that pods mount from ConfigMaps, by their paths in the pod."""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.review.properties import at, mapping, mappings, text
from infra.review.stack import CONFIG_MAP, JOB, Resource, Stack
from offline.policies.workloads import workloads


def pod_spec(job: Resource) -> Mapping[str, Any]:
    """The pod that a Job starts."""
    return mapping(at(job.properties, "spec", "template", "spec"))


class ShippedFiles:
    """The files of all ConfigMaps of a stack, and the Jobs, services and apps that mount them."""

    def __init__(self, stack: Stack) -> None:
        self._maps = {_identity(each): each for each in stack.of_type(CONFIG_MAP)}
        self._paths: dict[tuple[str, str], dict[str, str]] = {}
        self._jobs = stack.of_type(JOB)
        for each in workloads(stack):
            for identity, items in _mounted(each.resource, each.spec):
                self._paths.setdefault(identity, {}).update(items)

    @property
    def files(self) -> dict[str, Any]:
        """The contents of all files that any Job mounts, by path."""
        return {path: content for job in self._jobs for path, content in self.of(job).items()}

    def path(self, config_map: Resource, key: str) -> str:
        """The path in the pod of the file at ``key``, from the pods that mount it; empty if none does."""
        return self._paths.get(_identity(config_map), {}).get(key, "")

    def of(self, job: Resource) -> dict[str, Any]:
        """The contents of all files that a Job mounts, by path."""
        found: dict[str, Any] = {}
        for identity, items in _mounted(job, pod_spec(job)):
            if identity in self._maps:
                held = self._maps[identity].properties
                contents = {**mapping(held.get("data")), **mapping(held.get("binaryData"))}
                found.update({path: contents.get(key) for key, path in items.items()})
        return found


def _identity(config_map: Resource) -> tuple[str, str]:
    """The provider and the object's name, which together identify the ConfigMap."""
    return config_map.provider, text(at(config_map.properties, "metadata", "name"))


def _mounted(owner: Resource, pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
    """The identities of the ConfigMaps that the ``pod`` of a resource mounts, each with the paths of its keys."""
    for volume in mappings(pod.get("volumes")):
        if name := text(at(volume, "configMap", "name")):
            items = mappings(at(volume, "configMap", "items"))
            yield (owner.provider, name), {text(item.get("key")): text(item.get("path")) for item in items}
