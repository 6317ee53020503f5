"""The files that travel to pods in ConfigMaps, by the paths that they have there."""

from collections.abc import Mapping
from typing import Any

from infra.properties import at, mapping, mappings, text
from infra.review import Declared, Stack

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
JOB = "kubernetes:batch/v1:Job"


def is_config_map(resource: Declared) -> bool:
    """Whether it holds files."""
    return resource.type == CONFIG_MAP


def pod_spec(job: Declared) -> Mapping[str, Any]:
    """The pod that a Job starts."""
    return mapping(at(job.properties, "spec", "template", "spec"))


def files_by_key(stack: Stack, config_map: Declared) -> dict[str, str]:
    """Paths in the pod by the keys of the ConfigMap, as the Jobs that mount it say; empty where none does."""
    name = text(at(config_map.properties, "metadata", "name"))
    found: dict[str, str] = {}
    for job in stack.of_type(JOB):
        if job.provider == config_map.provider:
            for volume in mappings(pod_spec(job).get("volumes")):
                if text(at(volume, "configMap", "name")) == name:
                    items = mappings(at(volume, "configMap", "items"))
                    found.update({text(item.get("key")): text(item.get("path")) for item in items})
    return found


def shipped(stack: Stack, job: Declared) -> dict[str, Any]:
    """The contents of all files that a Job mounts from ConfigMaps of the stack, by path."""
    maps = {
        text(at(each.properties, "metadata", "name")): each
        for each in stack.of_type(CONFIG_MAP)
        if each.provider == job.provider
    }
    found: dict[str, Any] = {}
    for volume in mappings(pod_spec(job).get("volumes")):
        config_map = maps.get(text(at(volume, "configMap", "name")))
        if config_map is not None:
            contents = {**mapping(config_map.properties.get("data")), **_binary(config_map)}
            for item in mappings(at(volume, "configMap", "items")):
                found[text(item.get("path"))] = contents.get(text(item.get("key")))
    return found


def _binary(config_map: Declared) -> Mapping[str, Any]:
    return mapping(config_map.properties.get("binaryData"))
