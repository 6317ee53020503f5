"""What has to be right before anything is declared on Google Cloud, beyond the shape of the settings."""

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.rules import no_project
from infra.schema.problems import Problem, SettingsError
from infra.schema.request import Request


def project() -> str:
    """The project that everything is created in; raises SettingsError where the stack has none."""
    found = gcp.config.project
    if not found:
        raise SettingsError([no_project(pulumi.get_stack())])
    return found


def problems(_: Request | None = None) -> list[Problem]:
    """What a stack with clusters on Google Cloud lacks beside its settings."""
    return [] if gcp.config.project else [no_project(pulumi.get_stack())]
