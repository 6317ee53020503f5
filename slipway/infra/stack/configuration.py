"""From Pulumi's configuration to settings that are checked as a whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret

from slipway.infra.clouds.contract import Cloud
from slipway.infra.clouds.other_stack.platforms import outputs_of
from slipway.infra.clouds.registry import CLOUDS, require_packages
from slipway.infra.pipelines.contract import PipelineSettings
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.placement import shipping
from slipway.infra.schema.problems import PREFIX, Problem, SettingsError
from slipway.infra.schema.renamed import warning
from slipway.infra.schema.secret_values import protected
from slipway.infra.settings.loading import clouds_of, load, pipelines_in
from slipway.infra.settings.model import Settings
from slipway.infra.settings.pipelines import folder


def configured() -> dict[str, Any]:
    """All ``slipway:`` keys of the stack's configuration without their prefix, known or not, as plain values.

    What Pulumi knows as a secret is protected where it is one of ``slipway:secrets``, or nobody knows what it is.
    """
    values = {
        key.removeprefix(PREFIX): _plain(value)
        for key, value in _configuration().items()
        if key.startswith(PREFIX)
    }
    return {
        key: protected(value)
        if is_config_secret(PREFIX + key) and (key == "secrets" or key not in Settings.model_fields)
        else value
        for key, value in values.items()
    }


def _configuration() -> dict[str, Any]:
    # `pulumi.Config` can only be asked for keys by name, and an unknown one has to be refused.
    return {**pulumi.runtime.config.get_config_env(), **CONFIG.get()}


def _plain(value: Any) -> Any:
    """The CLI hands mappings and lists over as JSON, and scalars as text, which the settings' types take up."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value, parse_int=_whole)
    except (ValueError, RecursionError):
        return value


def _whole(digits: str) -> int | str:
    """Python refuses to read a number of more than 4,300 digits; as text, the settings refuse it by its key."""
    return int(digits) if len(digits) <= 4300 else digits


def checked(raw: Mapping[str, Any], root: Path) -> tuple[Settings, list[Cloud]]:
    """The settings and the clouds they use; raises SettingsError with the problems of all checks together."""
    require_packages(clouds_of(raw))
    problems: list[Problem] = []
    settings = None
    try:
        settings = load(raw, outputs_of, _warn)
    except SettingsError as error:
        problems.extend(error.problems)
    clouds = [CLOUDS[name] for name in clouds_of(raw)]
    for cloud in clouds:
        problems.extend(cloud.preflight_problems(settings and settings.request))
    problems.extend(problems_beside(raw, _configuration(), root))
    if settings is None or problems:
        raise SettingsError(problems)
    return settings, clouds


def _warn(renamed: Problem) -> None:
    pulumi.log.warn(warning(renamed.key, renamed.reason, renamed.fix))


def problems_beside(raw: Mapping[str, Any], values: Mapping[str, Any], root: Path) -> list[Problem]:
    """Problems other than those of the settings ``raw``, which may be right or wrong.

    That is the keys of their clouds' providers among ``values``, the whole configuration, and what the pipelines
    cannot ship from the repository at ``root``.
    """
    configuration = [problem for name in clouds_of(raw) for problem in CLOUDS[name].provider_problems(values)]
    return [*configuration, *shipping_problems(raw, root)]


def shipping_problems(raw: Mapping[str, Any], root: Path) -> list[Problem]:
    """What the pipelines of the settings ``raw``, right or wrong, cannot ship from the repository at ``root``.

    Of a section that has no right shape, what can be read of it counts.
    """
    return shipping.problems(pipelines_of(pipelines_in(raw)), root)


def pipelines_of(sections: Mapping[str, PipelineSettings]) -> list[DeclaredPipeline]:
    """The pipelines that the section `pipelines` of a stack file runs."""
    return [DeclaredPipeline(name, folder(name, settings), settings) for name, settings in sections.items()]
