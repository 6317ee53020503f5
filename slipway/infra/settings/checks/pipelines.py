"""Which pipelines a stack runs, by which names, and what each says of its own section."""

from collections.abc import Iterator, Mapping
from pathlib import Path as File
from typing import Any, cast

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.commands import page
from slipway.infra.pipelines.contract import PipelineSettings, Section
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.pipelines.discovery import WORKLOADS, is_path, location, outside, pipeline, pipeline_names
from slipway.infra.pipelines.inputs import INPUTS, data_of
from slipway.infra.pipelines.matrix import MOST_STEPS
from slipway.infra.pipelines.results import STACK_OUTPUTS
from slipway.infra.placed import GATES_FOLDER, OWN_NAMES
from slipway.infra.platform import Data
from slipway.infra.schema.base import PoolSettings
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.problems import Finding, Path, Problem, key_of, listed, nearest
from slipway.infra.schema.rules import rules_of
from slipway.infra.settings.parsing import OVERLAY, Draft, Reading
from slipway.infra.settings.pipelines import KEY, folder, is_known, steps_if_any

RULES = rules_of(File(__file__).with_name("rules.toml"))
"""The rules of all checks in this folder."""

NAME_LIMIT = 40
"""Characters of a pipeline's name, of which those of its Jobs and labels are made."""

RENAME = "choose another name, and write below it which pipeline it is: `uses: <folder>`"


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about each section's name and pipeline, and those of the pipeline's own checks."""
    pools = pools_of(reading.draft)
    for name, settings in reading.draft.pipelines.items():
        at: Path = (KEY, name)
        known = is_known(name, settings)
        if known or settings.uses is not None:
            yield from section_name_findings(at, name)
        if not known:
            yield _unknown(at, name, settings)
            continue
        yield from _schedule((*at, "schedule"), name, settings, reading.draft)
        for check_section in pipeline(folder(name, settings)).checks:
            yield from check_section(Section(at, settings, pools))


def section_name_findings(at: Path, name: str) -> Iterator[Finding]:
    """What keeps a section of `pipelines` from having the name."""
    if len(name) > NAME_LIMIT:
        reason = f"{len(name)} characters, and a pipeline's name has at most {NAME_LIMIT}: its Jobs' names hold it"
        yield Finding(at, name, reason, "shorten it")
        return
    yield from name_findings(at, name)
    taken = {
        **dict.fromkeys(STACK_OUTPUTS, f"`{name}` is an output of the stack itself"),
        **{
            folder_name: f"`{folder_name}/` of the store has the {supplement.name} of GPU steps"
            for folder_name, supplement in SUPPLEMENTS.items()
        },
        **OWN_NAMES,
        GATES_FOLDER: f"`{GATES_FOLDER}/` of the store has what gates write",
    }
    if name in taken:
        yield Finding(at, name, taken[name], RENAME)


def too_many_steps(reading: Reading) -> Iterator[Finding]:
    """Each step, and each of its variants, is a Job with objects of its own."""
    for name, settings in reading.draft.pipelines.items():
        if (count := len(steps_if_any(name, settings))) > MOST_STEPS:
            reason = f"{count} steps, variants counted, and a pipeline has at most {MOST_STEPS}"
            fix = "remove values of a `matrix`, or make several pipelines of it"
            yield Finding((KEY, name), None, reason, fix)


def _schedule(at: Path, name: str, settings: PipelineSettings, draft: Draft) -> Iterator[Finding]:
    """A CronJob creates Jobs in its own cluster."""
    if settings.schedule is None:
        return
    pools = pools_of(draft)
    named = [step.placed_by.pool for step in steps_if_any(name, settings)]
    clusters = {pools[pool][0][1] for pool in named if pool in pools}
    if len(clusters) > 1:
        yield Finding(
            at,
            None,
            f"its steps run in the clusters {listed(map(str, clusters), 'and')}, and a schedule creates Jobs "
            "in one",
            "run all of its steps on pools of one cluster, or run `pulumi up` by your own schedule",
            read=(("pipelines", name),),
        )


def _unknown(at: Path, name: str, settings: PipelineSettings) -> Finding:
    known = pipeline_names()
    named = name if settings.uses is None else settings.uses
    if (location(named).path / "pipeline.py").is_file():
        reason, fix = "pipelines in Python were removed in 0.1", f"write a `pipeline.yaml`: {page('removed.md')}"
        return Finding(at if settings.uses is None else (*at, "uses"), named, reason, fix)
    reason = "`workloads/` has no folder of that name with a `pipeline.yaml`"
    if settings.uses is None:
        near = nearest(name, known)
        fix = f"did you mean `{near}`? " if near else ""
        uses = f"{fix}A name of your own has the pipeline's below it: `uses: {near or known[0]}`"
        return Finding(at, name, reason, uses)
    if is_path(settings.uses):
        reason = f"there is no `pipeline.yaml` in {location(settings.uses).path}"
        fix = f"correct the path, relative to the repository, or write one of {listed(known, 'and')}"
        if outside(settings.uses):
            reason = (
                f"{reason}, which is outside of the repository: a clone of it, as in CI, is without that folder"
            )
            fix = f"{fix}; or put the folder there before, or below `{WORKLOADS}/` for good"
        return Finding((*at, "uses"), settings.uses, reason, fix)
    near = nearest(settings.uses, known)
    fix = f"did you mean `{near}`?" if near else f"write {listed(known)}"
    return Finding((*at, "uses"), settings.uses, reason, fix)


def pools_of(draft: Draft) -> dict[str, tuple[Path, PoolSettings]]:
    """The pools that can be read, by name, with their places; of two with one name the first."""
    by_name: dict[str, tuple[Path, PoolSettings]] = {}
    for cluster, content in draft.clusters.items():
        for name, pool in content.pools.items():
            by_name.setdefault(name, (("clusters", cluster, "pools", name), pool))
    return by_name


def same_job_names(reading: Reading) -> Iterator[Finding]:
    """A step's Jobs are called ``<pipeline>-<step>``: `b-c` of `a` and `c` of `a-b` would be one."""
    first: dict[str, tuple[str, str]] = {}
    for name, settings in reading.draft.pipelines.items():
        at: Path = (KEY, name)
        if name in OWN_NAMES:
            # `section_name_findings` refuses it.
            continue
        for step in steps_if_any(name, settings):
            job = f"{name}-{step.name}"
            other, of = first.setdefault(job, (step.name, name))
            if of != name:
                like = f"that of step `{other}` of pipeline `{of}`"
                reason = f"with its name, the Job of step `{step.name}` is called `{job}`, like {like}"
                yield Finding(at, name, reason, RENAME)
                break


def check_inputs(reading: Reading) -> Iterator[Finding]:
    """Findings about the place of each input: one for each cluster whose steps read it and cannot."""
    draft, request = reading.draft, reading.request
    for name, settings in draft.pipelines.items():
        for key, data in data_of(settings).items():
            if data.in_store:
                yield from _input_folder((KEY, name, INPUTS, key), data, draft)
    for access in request.inputs:
        for name, cluster in draft.clusters.items():
            if access not in request.inputs_on(name):
                continue
            if problem := CLOUDS[cluster.cloud].input_problem(access.data, name, request):
                read: tuple[Path, ...] = ((*access.at, "url"), ("clusters", name, "cloud"), ("store", "kind"))
                yield Finding(access.at, access.data.url, *problem, read=read)


def _input_folder(at: Path, data: Data, draft: Draft) -> Iterator[Finding]:
    """A finding where a folder of the store has an owner, whose results have digests of their own."""
    top = data.folder.partition("/")[0]
    taken = {*draft.pipelines, *OWN_NAMES, GATES_FOLDER, *SUPPLEMENTS}
    if top in taken or top.startswith("."):
        reason = f"`{top}/` of the store has results of steps, or what is kept of them"
        fix = "name a folder that no step writes, such as `{store}/data`; of an earlier step write `{<step>}`"
        yield Finding(at, data.url, reason, fix, read=((*at, "url"), (KEY,)))


def overlay_problems(raw: Mapping[str, Any], overlay: Mapping[str, Any]) -> Iterator[Problem]:
    """Inputs that a rehearsal has elsewhere, and that would keep the digest of what the stack has.

    ``raw`` and ``overlay`` are plain values, which may be wrong.
    """
    for name, section in _mapping(overlay.get(KEY)).items():
        for key, value in _mapping(_mapping(section).get(INPUTS)).items():
            before = _mapping(_mapping(_mapping(_mapping(raw.get(KEY)).get(name)).get(INPUTS)).get(key))
            changed = _mapping(value)
            if "url" in changed and "digest" not in changed and "digest" in before:
                at = key_of((OVERLAY, KEY, name, INPUTS, key))
                url = changed["url"]
                reason = f"the digest of {before.get('url')} would stand beside it, which is other data"
                yield Problem(at, url, reason, f'write the address alone: `{key}: "{url}"`')


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
