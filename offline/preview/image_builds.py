"""What a preview says of the images that a stack builds."""

from collections.abc import Iterator

from infra.review.stack import JOB, Stack
from offline.policies.image_builds import BuiltImage, built_image
from offline.preview.model import Changes, Outcome
from offline.preview.phrasing import many

KIB = 1024


def image_remarks(stack: Stack, changes: Changes | None) -> Iterator[str]:
    """For each image whether the next update builds it; ``changes`` are from the base to now, None without one."""
    running = None if changes is None else {each.urn for each in changes.runs if each.outcome is Outcome.RUNS}
    for resource in stack.of_type(JOB):
        image = built_image(resource)
        if image is None:
            continue
        if running is None or resource.urn in running:
            yield f"the image of {image.name} will be built {_of(image)}, unless the registry has it"
        else:
            yield f"the image of {image.name} will not be built: nothing of its context has changed"


def _of(image: BuiltImage) -> str:
    size = f"{max(1, round(image.size / KIB))} KiB"
    return f"from {image.context}/{image.dockerfile} ({many(image.files, 'file')}, {size})"
