"""The ids of Google Cloud projects, as Google lets them be chosen."""

import re
from collections.abc import Mapping
from typing import Any

from infra.schema.problems import Problem

KEY = "gcp:project"

# https://cloud.google.com/resource-manager/docs/creating-managing-projects, as documented in 2025. What stands
# before a colon is the domain of a project that is older than organizations.
PROJECT = re.compile(r"([a-z0-9][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")

FIX = "write the id (6 to 30 lower-case letters, digits and hyphens), not the name or number"


def is_project(text: str) -> bool:
    """Whether ``text`` can be the id of a project."""
    return PROJECT.fullmatch(text) is not None


def problems(values: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the provider's own keys among ``values``, by their full names."""
    project = values.get(KEY)
    if not project or is_project(str(project)):
        return []
    return [Problem(KEY, project, "not a project id", f"{FIX}: `gcloud projects list` shows it as PROJECT_ID")]
