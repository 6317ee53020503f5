"""What a program declares beside `slipway.run`: a rehearsal declares it, and runs none of it.

The images of these pods are not here, and their commands may be meant for anything but this machine.
"""

from collections.abc import Iterable, Sequence

from slipway.engine.provider_outputs import kind_of
from slipway.evaluated.workloads import TEMPLATES
from slipway.infra.places import PACKAGE
from slipway.infra.review.stack import JOB, Resource

NOT_RUN = "declared beside `slipway.run`; a rehearsal runs only what that declares"


def is_beside(resource: Resource) -> bool:
    """Whether the program declares the resource itself: all pods of `slipway.run` are in components of it."""
    return not resource.urn.split("::")[2].startswith(f"{PACKAGE}:")


def not_run(resources: Iterable[Resource]) -> Sequence[str]:
    """One line that names these pods but for Jobs, of which the table of Jobs tells; none without any."""
    names = [
        f"{kind_of(resource.type)} {resource.name}"
        for resource in resources
        if resource.type in TEMPLATES and resource.type != JOB
    ]
    return [f"Declared, not run here: {', '.join(names)}"] if names else []
