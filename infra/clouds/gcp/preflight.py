"""What has to be right before anything is declared on Google Cloud, beyond the shape of the settings."""

import pulumi
import pulumi_gcp as gcp

from infra.schema.problems import Problem, SettingsError
from infra.schema.request import Request


def project() -> str:
    """The project that everything is created in; raises SettingsError where the stack has none."""
    found = gcp.config.project
    if not found:
        raise SettingsError([_no_project()])
    return found


def problems(_: Request | None = None) -> list[Problem]:
    """What a stack with clusters on Google Cloud lacks beside its settings."""
    return [] if gcp.config.project else [_no_project()]


def _no_project() -> Problem:
    return Problem(
        "gcp:project",
        None,
        "the stack does not say which Google Cloud project to create things in",
        f"pulumi config set gcp:project <your-project-id> -s {pulumi.get_stack()}",
    )
