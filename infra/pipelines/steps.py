"""Puts a step where the settings say."""

from collections.abc import Mapping, Sequence

from infra.pipelines.images import tensorflow_image
from infra.platform import Platform, Resources
from infra.schema.paths import STORED
from infra.schema.quantities import cpu_millicores, mebibytes, seconds
from infra.settings.pipelines import StepSettings
from infra.step import Requirements, Step


def place(
    pipeline: str,
    name: str,
    module: str,
    *,
    arguments: Sequence[str],
    settings: StepSettings,
    platforms: Mapping[str, Platform],
    inputs: Mapping[str, Step] | None = None,
    requirements: Requirements | None = None,
) -> Step:
    """The step on the platform that has its pool, with the resources and the image that ``settings`` give it."""
    platform = next(platform for platform in platforms.values() if settings.pool in platform.pools)
    pool = platform.pools[settings.pool]
    return Step(
        pipeline=pipeline,
        name=name,
        module=module,
        arguments=arguments,
        image=settings.image or tensorflow_image(pool),
        platform=platform,
        pool=pool,
        resources=Resources(
            cpu=cpu_millicores(settings.cpu),
            memory=mebibytes(settings.memory),
            ephemeral_storage=mebibytes(settings.ephemeral_storage),
            gpus=settings.gpus,
        ),
        time_limit=seconds(settings.time_limit),
        inputs=inputs or {},
        requirements=requirements,
    )


def literal(text: str) -> str:
    """``text`` as it has to stand in a step's arguments, where braces mean something."""
    return text.replace("{", "{{").replace("}", "}}")


def stored(setting: str) -> str:
    """The argument for a setting that names a folder of the store, ``store:<path>``."""
    return f"{{store}}/{literal(setting.removeprefix(STORED))}"
