"""From the plain values of a stack file to `Settings`, or one error that lists everything wrong with them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.commands import page
from slipway.infra.features import parts
from slipway.infra.pipelines.contract import AnyPipeline, PipelineSettings
from slipway.infra.pipelines.discovery import declared_steps, pipeline
from slipway.infra.platform_output import Resolve
from slipway.infra.schema import yaml_files
from slipway.infra.schema.plain_values import order
from slipway.infra.schema.problems import Finding, Problem, SettingsError, key_of
from slipway.infra.schema.repairs import as_written
from slipway.infra.settings.checks import apps, cluster_runs, pipelines, places, stack, steps
from slipway.infra.settings.model import Rehearsal, Settings
from slipway.infra.settings.parsing import OVERLAY, Reading, read
from slipway.infra.settings.pipelines import folder, folders_in, is_known, unread
from slipway.infra.settings.standing import problem_of

CHECKS: tuple[Callable[[Reading], Iterable[Finding]], ...] = (
    stack.check_names,
    stack.same_pool_names,
    stack.same_resource_names,
    pipelines.check,
    pipelines.same_job_names,
    pipelines.too_many_steps,
    pipelines.check_inputs,
    steps.check_caches,
    cluster_runs.check,
    places.check,
    steps.check_steps,
    apps.check,
    apps.check_apps,
    stack.check_teams,
    stack.check_metrics,
    apps.check_ingress,
    stack.check_secrets,
    stack.check,
    *parts("checks", "check"),
)
"""Those that hold on every cloud."""


def load(
    raw: Mapping[str, Any], resolve: Resolve = unread, warn: Callable[[Problem], object] = lambda _: None
) -> Settings:
    """The settings in ``raw``: the ``slipway:`` keys without their prefix, as plain Python values.

    ``resolve`` reads the outputs of the stacks whose clusters these use. ``warn`` is told of keys that are read by
    the name of an earlier release, those of the pipelines' files included.
    The ``rehearsal`` overlay, laid over the rest, is checked as well. Raises SettingsError with every problem,
    or where a pipeline cannot say its steps.
    """
    if problems := yaml_files.exceeded(raw) or _nothing(raw):
        raise SettingsError(problems)
    reading, findings = _examine(raw, resolve)
    problems = [problem_of(finding, raw) for finding in findings]
    renamed = [finding.problem() for finding in reading.renamed]
    overlay = raw.get(OVERLAY)
    if isinstance(overlay, dict) and overlay:
        problems += _overlay_problems(raw, cast("dict[str, Any]", overlay), findings, resolve, renamed.append)
    pipelines_run = _pipelines_run(raw)
    problems += [problem for declared in pipelines_run for problem in declared.problems]
    settings = reading.settings
    if settings is None or problems:
        raise SettingsError(problems)
    for problem in [*renamed, *(problem for declared in pipelines_run for problem in declared.renamed)]:
        warn(problem)
    for name, section in settings.pipelines.items():
        declared_steps(folder(name, section), section)
    return settings


def _pipelines_run(raw: Mapping[str, Any]) -> list[AnyPipeline]:
    """The pipelines that ``raw`` runs, with or without its overlay."""
    overlay = raw.get(OVERLAY)
    over = lay_over(raw, overlay_settings(cast("dict[str, Any]", overlay))) if isinstance(overlay, dict) else {}
    folders = dict.fromkeys([*folders_in(raw), *folders_in(over)])
    return [pipeline(folder) for folder in folders]


def _nothing(raw: Mapping[str, Any]) -> list[Problem]:
    """The one problem of a stack without any settings."""
    if raw:
        return []
    reason = "no key of the stack's configuration begins with `slipway:`"
    fix = f"write `slipway:clusters`, `slipway:store` and `slipway:pipelines`, as {page('your-project.md')} shows"
    return [Problem("slipway", None, reason, fix)]


def lay_over(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``overlay`` in place of its own, section by section.

    Lists and single values are replaced whole; neither argument is changed.
    """
    merged = dict(base)
    for key, value in overlay.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = lay_over(cast("Mapping[str, Any]", below), cast("Mapping[str, Any]", value))
        else:
            merged[key] = value
    return merged


def overlay_settings(overlay: Mapping[str, Any]) -> dict[str, Any]:
    """What of the section ``rehearsal`` is settings, without its own keys."""
    return {key: value for key, value in overlay.items() if key not in {OVERLAY, *Rehearsal.model_fields}}


def clouds_of(raw: Mapping[str, Any]) -> list[str]:
    """The clouds that the clusters of ``raw``, right or wrong, mean, in the registry's order."""
    return [] if yaml_files.exceeded(raw) else _clouds_of(read(raw))


def pipelines_in(raw: Mapping[str, Any]) -> Mapping[str, PipelineSettings]:
    """The sections of the pipelines in ``raw``, right or wrong, of which it is known what they run.

    Each is valid; what was wrong in it has its default or a stand-in. None where ``raw`` exceeds a limit.
    """
    if yaml_files.exceeded(raw):
        return {}
    sections = read(raw).draft.pipelines
    return {name: settings for name, settings in sections.items() if is_known(name, settings)}


def _clouds_of(reading: Reading) -> list[str]:
    named = {cluster.cloud for cluster in reading.draft.clusters.values()}
    return [name for name in CLOUDS if name in named]


def _examine(raw: Mapping[str, Any], resolve: Resolve) -> tuple[Reading, list[Finding]]:
    reading = read(raw, resolve)
    findings = [finding for check in CHECKS for finding in check(reading)]
    for name in _clouds_of(reading):
        findings += [finding for check in CLOUDS[name].checks() for finding in check(reading.request)]
    judged = [as_written(finding, reading.written) for finding in findings if reading.judges(finding)]
    return reading, sorted([*reading.findings, *judged], key=lambda finding: order(raw, finding.path))


def _overlay_problems(
    raw: Mapping[str, Any],
    overlay: Mapping[str, Any],
    known: Iterable[Finding],
    resolve: Resolve,
    warn: Callable[[Problem], object],
) -> Iterable[Problem]:
    """What is wrong only once the overlay is laid over the rest, with the key in the overlay.

    ``warn`` is told of the overlay's keys that are read by the name of an earlier release.
    """
    prefix = f"slipway:{OVERLAY}."
    if OVERLAY in overlay:
        yield Problem(prefix + OVERLAY, overlay[OVERLAY], "an overlay has no overlay of its own", "remove it")
    rest = {key: value for key, value in raw.items() if key != OVERLAY}
    yield from pipelines.overlay_problems(rest, overlay)
    reading, findings = _examine(lay_over(rest, overlay_settings(overlay)), resolve)
    for finding in reading.renamed:
        if _reaches(overlay, finding.path):
            warn(finding.problem(prefix))
    before = {(finding.path, finding.reason) for finding in known}
    for finding in findings:
        if (finding.path, finding.reason) in before:
            continue
        if _reaches(overlay, finding.path):
            yield finding.problem(prefix)
        else:
            yield Problem(
                key_of((), prefix),
                overlay,
                f"with it, {key_of(finding.path)} is wrong: {finding.reason}",
                f"there: {finding.fix}",
            )


def _reaches(overlay: object, path: Iterable[str | int]) -> bool:
    """Whether the overlay says anything at ``path``, or replaces what holds it."""
    for part in path:
        if not isinstance(overlay, dict):
            return True
        section = cast("dict[Any, Any]", overlay)
        key = next((key for key in section if str(key) == str(part)), None)
        if key is None:
            return False
        overlay = section[key]
    return True
