"""What keeps a pipeline's files from being shipped, found before anything is declared."""

from collections.abc import Mapping
from pathlib import Path

from infra.kubernetes.run import bundle_of
from infra.kubernetes.shipped_files import ShippingError
from infra.schema.problems import Problem
from infra.step import Requirements


def bundle_problems(modules: Mapping[str, tuple[str, Requirements | None]], root: Path) -> list[Problem]:
    """One problem for each bundle that cannot be made of the repository at ``root``.

    ``modules`` are what the steps run and what they need installed, by the step's key in a stack file.
    """
    found: list[Problem] = []
    for key, (module, requirements) in modules.items():
        try:
            bundle_of(module, requirements, root)
        except ShippingError as error:
            found.append(Problem(key, error.value, error.reason, error.fix))
    return found
