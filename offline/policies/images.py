"""Images and charts whose content may change without a change of the stack."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.kubernetes.labels import IMAGE_ANNOTATION
from infra.pipelines.images import DATA, IMAGES
from infra.review.contract import Harm, Policy, Severity, Violation
from infra.review.stack import JOB, Resource, Stack, at, strings
from offline.evaluated.workloads import workloads

RELEASE = "kubernetes:helm.sh/v3:Release"
CHARTS = (RELEASE, "kubernetes:helm.sh/v4:Chart", "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v2:Chart")

EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
"""A whole version, of which Helm has nothing to choose (semver.org, 2.0.0)."""

WHOLE_VERSION = re.compile(r"\d+\.\d+\.\d+")
"""A whole version in a tag. Publishers move `2.21` but not `2.21.0`; only a digest never changes."""

PINNING = (
    "Run `make pin-images` once, where the registries can be reached, and commit what it writes; what runs in "
    "these images then runs again."
)

LOCAL = re.compile(r"^(?:[./~]|.*\.tgz$)")


def _find_images(stack: Stack) -> Iterator[Violation]:
    for workload in workloads(stack):
        named = {
            str(container["image"]): None
            for container in workload.containers
            if isinstance(container.get("image"), str)
        }
        for image in named:
            _, _, tag = image.rpartition("/")[2].partition(":")
            if "@sha256:" in image or WHOLE_VERSION.search(tag):
                continue
            yield Violation(
                workload.resource.urn,
                f"the image {image} is whatever its registry has under that name when a pod starts",
                "name it by digest, which `docker buildx imagetools inspect <image>` shows, or by a whole version",
            )


def _find_defaults(stack: Stack) -> Iterator[Violation]:
    """One finding for the data file that names the image, instead of one for each Job."""
    used = {container.get("image") for workload in workloads(stack) for container in workload.containers}
    if images := [tag for tags in IMAGES.values() for tag in tags if tag in used]:
        reason = "images that are run by default are named by a tag, which can be moved"
        yield Violation(f"infra/data/{DATA.name}", f"{reason}: {', '.join(images)}", PINNING)


def _find_charts(stack: Stack) -> Iterator[Violation]:
    for resource in stack.resources.values():
        chart, version = resource.properties.get("chart"), resource.properties.get("version")
        if resource.type not in CHARTS or not isinstance(chart, str) or LOCAL.match(chart) or "@sha256:" in chart:
            continue
        if version is None or version == "":
            reason = f"the chart {chart} has no version, so Helm takes the newest"
        elif isinstance(version, str) and not EXACT.fullmatch(version):
            reason = f"the version {version} of the chart {chart} is a range, of which Helm takes the newest"
        else:
            continue
        yield Violation(resource.urn, reason, "name one version, such as 1.2.3")


POLICIES = (
    Policy(
        "unpinned-image",
        Severity.ERROR,
        "Every image is named by digest or by a tag with a whole version: not `latest`, `stable` or `3.11`.",
        _find_images,
        "Name the image by digest, or by a whole version that its publisher does not move.",
    ),
    Policy(
        "default-image-by-tag",
        Severity.WARNING,
        "The images that are run by default are named by digest.",
        _find_defaults,
        PINNING,
    ),
    Policy(
        "unpinned-chart",
        Severity.ERROR,
        "Every Helm chart that is fetched has one exact version.",
        _find_charts,
        "Name the version.",
    ),
)


# Jobs that build images in the cluster without the guards that their pods need.


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
        image: Any = json.loads(annotation)
        return BuiltImage(image["name"], image["context"], image["dockerfile"], image["files"], image["bytes"])
    except (ValueError, KeyError, TypeError):
        return None


def _find_unguarded(stack: Stack) -> Iterator[Violation]:
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


IMAGE_BUILD_POLICIES = (
    Policy(
        "unguarded-build",
        Severity.WARNING,
        "No image is built in the cluster, where BuildKit runs without seccomp and AppArmor.",
        _find_unguarded,
        "Name the image by digest, or suppress the finding for a Dockerfile that you trust.",
        harm=Harm.OPENING,
    ),
)
