"""Images and charts that are the same tomorrow as today."""

import re
from collections.abc import Iterator

from infra.review import Policy, Severity, Stack, Violation
from stacks.policies.workloads import workloads

RELEASE = "kubernetes:helm.sh/v3:Release"
CHARTS = (RELEASE, "kubernetes:helm.sh/v4:Chart", "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v2:Chart")

EXACT = re.compile(r"v?\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
"""A whole version, with nothing left for Helm to choose (semver.org, 2.0.0)."""

LOCAL = re.compile(r"^(?:[./~]|.*\.tgz$)")


def _images(stack: Stack) -> Iterator[tuple[str, str, str | None]]:
    """The images without a digest, with the URN of what runs them and their tag."""
    for workload in workloads(stack):
        named = {str(each["image"]): None for each in workload.containers if isinstance(each.get("image"), str)}
        for image in named:
            if "@sha256:" not in image:
                _, _, tag = image.rpartition("/")[2].partition(":")
                yield workload.resource.urn, image, tag or None


def _unpinned(stack: Stack) -> Iterator[Violation]:
    for urn, image, tag in _images(stack):
        if tag in {None, "latest"}:
            yield Violation(
                urn,
                f"the image {image} is whatever is newest when a pod starts",
                "name it by digest; `docker buildx imagetools inspect <image>` shows that",
            )


def _tagged(stack: Stack) -> Iterator[Violation]:
    for urn, image, tag in _images(stack):
        if tag not in {None, "latest"}:
            yield Violation(
                urn,
                f"the image {image} has a tag, which can be moved to another image",
                "add the digest; `docker buildx imagetools inspect <image>` shows it",
            )


def _charts(stack: Stack) -> Iterator[Violation]:
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
        "Every image has a tag or a digest, and no tag is `latest`.",
        _unpinned,
        "Name the image by digest.",
    ),
    Policy(
        "image-by-tag",
        Severity.WARNING,
        "Images are named by digest; a tag can be moved.",
        _tagged,
        "Add the digest to the tag.",
    ),
    Policy(
        "unpinned-chart",
        Severity.ERROR,
        "Every Helm chart that is fetched has one exact version.",
        _charts,
        "Name the version.",
    ),
)
