"""Which Services pods connect to and which Secrets they are given, as far as their declarations say."""

import re
from collections.abc import Iterator
from itertools import pairwise

from infra.review.properties import at, mappings, text, texts
from infra.review.stack import JOB, Resource, Stack

SERVICE = "kubernetes:core/v1:Service"
SECRET = "kubernetes:core/v1:Secret"

QUEUE_FLAG = "--queue"
"""The argument of workers before the address of the service that hands their items out
(`workloads.runtime.worker`)."""

_ADDRESS = re.compile(r"(?<![\w.-])([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)(?:\.[a-z0-9.-]+)?:(\d{1,5})(?!\d)")
"""A host, of which the first label counts, and a port."""


def addresses(spec: object) -> Iterator[tuple[str, int]]:
    """The hosts, without the domain, and ports that the containers of a pod's spec name."""
    for container in (*mappings(at(spec, "initContainers")), *mappings(at(spec, "containers"))):
        values = [text(each.get("value")) for each in mappings(container.get("env"))]
        for word in (*texts(container.get("command")), *texts(container.get("args")), *values):
            yield from ((host, int(port)) for host, port in _ADDRESS.findall(word))


def secrets_of(spec: object) -> set[str]:
    """The names of the Secrets that the pods of this spec are given as variables or files."""
    containers = (*mappings(at(spec, "initContainers")), *mappings(at(spec, "containers")))
    names = [at(each, "secret", "secretName") for each in mappings(at(spec, "volumes"))]
    for container in containers:
        names += [at(each, "valueFrom", "secretKeyRef", "name") for each in mappings(container.get("env"))]
        names += [at(each, "secretRef", "name") for each in mappings(container.get("envFrom"))]
    return {text(name) for name in names} - {""}


def queued_items(set_: Resource, stack: Stack) -> list[str]:
    """The names of the Jobs whose items a StatefulSet hands out.

    Empty where another Job connects to it, too: what that keeps there nobody knows.
    """
    name = text(at(set_.properties, "spec", "serviceName"))
    found: list[str] = []
    for job in stack.of_type(JOB):
        spec = at(job.properties, "spec", "template", "spec")
        if job.provider != set_.provider or name not in {host for host, _ in addresses(spec)}:
            continue
        if name not in _queues(spec):
            return []
        found.append(job.name)
    return found


def _queues(spec: object) -> Iterator[str]:
    """The hosts that workers get their items from."""
    for container in mappings(at(spec, "containers")):
        words = texts(container.get("args"))
        for flag, word in pairwise(words):
            if flag == QUEUE_FLAG and (address := _ADDRESS.match(word)):
                yield address[1]
