"""From a stack's settings to the Jobs that build the images of its steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pulumi

from infra.kubernetes.build_space import BuildSpace, BuildSpaceArgs
from infra.kubernetes.image_build import ImageJob, ImageJobArgs, Images, bundle
from infra.kubernetes.named_registry import named_registry
from infra.kubernetes.pod_image import PodImage
from infra.kubernetes.workspace import PULL_SECRET
from infra.pipelines.images import BUILDKIT_IMAGE, CPU_IMAGE
from infra.platform import Platform
from infra.schema.quantities import seconds
from infra.schema.request import builds_namespace
from infra.settings.model import Settings
from infra.step import IMAGE_BUILD


def declare_images(
    settings: Settings, platforms: Mapping[str, Platform], images: Images, root: Path
) -> dict[str, PodImage]:
    """Declares the Jobs that build ``images``, and returns what pods name them by."""
    said = settings.registry
    if said is None or not images.found:
        return {}
    platform = next(each for each in platforms.values() if said.pool in each.pools)
    login = registry_login(settings, "login")
    registry = named_registry(said.repository, login) if said.repository else platform.registry
    if registry is None:
        raise ValueError(f"cluster {platform.name} has no registry")
    space = BuildSpace(
        f"{platform.name}-images",
        BuildSpaceArgs(
            platform, registry, builds_namespace(settings.namespace), settings.egress.allowed(), login=login
        ),
    )
    program = bundle(root, registry)
    wanted = {
        identity: ImageJob(
            f"{IMAGE_BUILD}-{each.name}",
            ImageJobArgs(
                each,
                space,
                platform.pools[said.pool],
                said.asked,
                seconds(said.time_limit),
                CPU_IMAGE,
                BUILDKIT_IMAGE,
                program,
            ),
        )
        for identity, each in images.found.items()
    }
    secret = PULL_SECRET if registry_login(settings, "pull_login") else ""
    return {identity: PodImage(each.reference, each.job, secret) for identity, each in wanted.items()}


def registry_login(settings: Settings, key: Literal["login", "pull_login"]) -> pulumi.Output[str] | None:
    """The Docker configuration with a login of the registry that is named; None where it wants none."""
    said = settings.registry
    name = said and (said.pull_login or said.login if key == "pull_login" else said.login)
    return pulumi.Output.secret(settings.secrets[name].get_secret_value()) if name else None
