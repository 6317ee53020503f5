"""Jobs that build images in the cluster, and the guards that their pods lack."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.kubernetes.labels import IMAGE_ANNOTATION
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import at, strings
from infra.review.stack import JOB, Resource, Stack


@dataclass(frozen=True)
class BuiltImage:
    """What a Job builds, as its annotation says: ``size`` are the bytes of its context's ``files``."""

    name: str
    context: str
    dockerfile: str
    files: int
    size: int


def built_image(resource: Resource) -> BuiltImage | None:
    """The image that a Job builds; None where it is no such Job."""
    annotation = strings(at(resource.properties, "metadata", "annotations")).get(IMAGE_ANNOTATION)
    if resource.type != JOB or annotation is None:
        return None
    try:
        found: Any = json.loads(annotation)
        return BuiltImage(found["name"], found["context"], found["dockerfile"], found["files"], found["bytes"])
    except (ValueError, KeyError, TypeError):
        return None


def _unguarded(stack: Stack) -> Iterator[Violation]:
    for resource in stack.of_type(JOB):
        if image := built_image(resource):
            yield Violation(
                resource.urn,
                f"it builds an image from {image.context}/{image.dockerfile} without seccomp and AppArmor: the "
                "commands of that file, and all that they install, meet the whole kernel of a node, and may push "
                "any image as the build",
                "build only what you trust so far; or build it elsewhere, and write `image` with its digest in "
                "place of `build`",
            )


POLICIES = (
    Policy(
        "unguarded-build",
        Severity.WARNING,
        "No image is built in the cluster, where BuildKit runs without seccomp and AppArmor.",
        _unguarded,
        "Name the image by digest, or suppress the finding for a Dockerfile that you trust.",
        harm=Harm.OPENING,
    ),
)
