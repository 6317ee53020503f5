"""The section `registry` of a stack file: where images are built, and where they are pushed to."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.pipelines.contract import PodSettings
from infra.schema.base import Cpu, Duration, Memory, Size, refuse
from infra.schema.image import REFERENCE

KEY = "registry"

_HOST = re.compile(r"(?:[^/]*[.:][^/]*|localhost)/.+")


def _repository(value: str) -> str:
    example = "write for example `registry.example.org/team/slipway`"
    if "@" in value or ":" in value.rpartition("/")[2]:
        raise refuse("a repository has no tag and no digest: each image has its own", example)
    if not REFERENCE.fullmatch(f"{value}@sha256:{'0' * 64}"):
        raise refuse("no registry can have a repository of this name", example)
    if not _HOST.fullmatch(value):
        raise refuse("it begins with no registry: what stands before the first `/` has a dot or a port", example)
    return value


Repository = Annotated[str, AfterValidator(_repository)]
"""A repository of a registry, the registry's host first."""


class RegistrySettings(PodSettings):
    """Where images are built that pipelines declare by `build`, and which registry has them. Without `repository`
    that is the cloud's own, Artifact Registry or ECR, which the stack declares, and to which the build's own
    identity may push.
    """

    cpu: Cpu = Field(default="2", description="CPU that a build asks for, as a Kubernetes quantity.")
    memory: Memory = Field(default="4Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(
        default="16Gi", description="Disk space for the layers of the image, its base images included."
    )
    time_limit: Duration = Field(default="1h", description="Hard limit of a build, waiting for a node included.")
    repository: Repository | None = Field(
        default=None,
        description="A repository of another registry: `registry.example.org/team/slipway`. It has to keep tags "
        "from being moved, but those that begin with `cache-`.",
    )
    login: str | None = Field(
        default=None,
        description="The secret, below `slipway:secrets`, with the login that pushes to it: a Docker "
        "configuration, JSON, as `docker login` leaves it. Default: it wants none.",
    )
    pull_login: str | None = Field(
        default=None, description="The secret with the login that pulls from it; default: that of `login`."
    )
