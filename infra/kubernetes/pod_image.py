"""The image of a pod that is named by its digest once it is built."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True)
class PodImage:
    """An image that only its build tells: its ``reference`` by digest, the resource ``built`` to wait for, and the
    Secret with which it is pulled, empty where nodes need none.
    """

    reference: pulumi.Output[str]
    built: pulumi.Resource
    pull_secret: str = ""


def pulled_with(image: PodImage | None) -> list[k8s.core.v1.LocalObjectReferenceArgs] | None:
    """The Secrets with which a pod pulls ``image``; None where there is no such image, or nodes need none."""
    if image is None or not image.pull_secret:
        return None
    return [k8s.core.v1.LocalObjectReferenceArgs(name=image.pull_secret)]


def inside(image: PodImage | None, containers: list[k8s.core.v1.ContainerArgs]) -> list[k8s.core.v1.ContainerArgs]:
    """``containers`` in ``image``, where there is one."""
    for each in containers if image else ():
        each.image = image.reference if image else None
    return containers
