"""``make new STACK=mine CLOUD=…``: the file of a stack that runs one pipeline on pools of its own."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

import jinja2
import yaml
from pydantic import BaseModel, ValidationError

from slipway.command.new.writing import Draft, RefusedError, name_clashes
from slipway.engine.stack_config import project_name
from slipway.infra.clouds.registry import CLOUDS, require_packages
from slipway.infra.commands import command, option, page, shared_page
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings
from slipway.infra.pipelines.contract import (
    AnyPipeline,
    PipelineSettings,
    PodSettings,
    ServiceSettings,
    StepSettings,
    placements,
)
from slipway.infra.pipelines.discovery import (
    DeclaredPipeline,
    is_path,
    location,
    names_pipeline,
    pipeline,
    pipeline_names,
)
from slipway.infra.placement import shipping
from slipway.infra.places import PROJECT
from slipway.infra.platform import Resources, add, largest
from slipway.infra.review.stack import is_for_production, mapping
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, spell
from slipway.infra.schema.problems import Problem, SettingsError, did_you_mean, listed, without_prefix
from slipway.infra.schema.request import CPU_POOL, GPU_POOL, Starter, Wish
from slipway.infra.schema.secret_values import MASK
from slipway.infra.schema.validation import possible
from slipway.infra.settings.checks.pipelines import section_name_findings
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import KEY as REGISTRY
from slipway.infra.settings.model import RegistrySettings, Settings
from slipway.rehearse.session import variable

POOL, GPUS, USES, NODES = "pool", "gpus", "uses", "nodes"

SCHEDULE = "schedule"
NIGHTLY = '{cron: "0 3 * * *", time_zone: Etc/UTC}'


@dataclass(frozen=True)
class Section:
    """A pipeline's section of a stack file, as plain values.

    ``guessed`` are the required settings of which nobody but the user knows the value: what stands there has only
    the right type. ``given`` are the steps that were put on GPUs without asking for any themselves. ``apps`` are
    the keys that would run the pipeline's apps, which the section leaves out.
    """

    name: str
    pipeline: AnyPipeline
    values: Mapping[str, Any]
    guessed: Sequence[str] = ()
    given: Sequence[str] = ()
    apps: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def settings(self) -> PipelineSettings:
        """The settings that the values are; raises pydantic's ValidationError where they are none."""
        return self.pipeline.settings.model_validate(self.values)

    @property
    def with_apps(self) -> PipelineSettings:
        """The settings with all apps; raises pydantic's ValidationError where the values are none."""
        return self.pipeline.settings.model_validate({**self.values, **self.apps})


def section(name: str, uses: str | None, pipeline: AnyPipeline) -> Section:
    """The section that the pipeline starts with: what its settings require."""
    guessed: list[str] = []
    values = _required_values(pipeline.settings, guessed)
    apps = {key: app for key, app in _apps(pipeline.settings).items() if key not in values}
    return Section(name, pipeline, {**({USES: uses} if uses else {}), **values}, tuple(guessed), apps=apps)


def _required_values(model: type[BaseModel], guessed: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, known in model.model_fields.items():
        kind, inside = known.annotation, list[str]()
        if isinstance(kind, type) and issubclass(kind, PodSettings):
            values[key] = _place(kind)
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and (below := _required_values(kind, inside)):
            values[key] = below
            guessed += [f"{key}.{name}" for name in inside]
        elif known.is_required():
            values[key] = possible(known)
            guessed.append(key)
    return values


def _place(kind: type[PodSettings]) -> dict[str, Any]:
    gpus = issubclass(kind, StepSettings | AppSettings) and kind.model_fields[GPUS].default
    return {POOL: GPU_POOL, GPUS: gpus} if gpus else {POOL: CPU_POOL}


def _apps(model: type[BaseModel]) -> dict[str, Any]:
    """The keys of ``model`` that run apps, each on the pool that it asks for."""
    values: dict[str, Any] = {}
    for key, known in model.model_fields.items():
        for kind in (known.annotation, *get_args(known.annotation)):
            if isinstance(kind, type) and issubclass(kind, AppSettings):
                values[key] = _place(kind)
            elif isinstance(kind, type) and issubclass(kind, BaseModel) and (below := _apps(kind)):
                values[key] = below
    return values


def most_needed(settings: PipelineSettings, *, gpus: bool) -> Resources | None:
    """The most that any step or app with GPUs, or without, asks for; None where there is none.

    Without GPUs this includes all services: they stay where they are while steps run.
    """
    placed = [pod for _, pod in placements(settings) if bool(pod.asked_gpus) is gpus]
    if not placed:
        return None
    staying = [pod.asked for pod in placed if isinstance(pod, ServiceSettings)]
    passing = [pod.asked for pod in placed if not isinstance(pod, ServiceSettings)]

    def both(amount: Callable[[Resources], int]) -> int:
        return max(map(amount, passing), default=0) + sum(map(amount, staying))

    return Resources(
        both(lambda pod: pod.cpu),
        both(lambda pod: pod.memory),
        both(lambda pod: pod.ephemeral_storage),
        gpus=max(pod.asked_gpus for pod in placed),
    )


def apps_together(settings: PipelineSettings) -> Resources:
    """What all apps without GPUs ask for together."""
    pods = (app.asked for _, app in placements(settings) if isinstance(app, AppSettings) and not app.asked_gpus)
    return add(*pods)


def most_nodes(settings: PipelineSettings, *, gpus: bool) -> int:
    """The most nodes that any step with GPUs, or without, runs on at once."""
    return max(
        (int(getattr(pod, NODES, 1)) for _, pod in placements(settings) if bool(pod.asked_gpus) is gpus),
        default=1,
    )


def apps_of(section: Section) -> Sequence[AppDeclaration]:
    """The pipeline's apps, as they would be placed."""
    return section.pipeline.apps(section.with_apps)


def builds(section: Section) -> bool:
    """Whether the cluster builds an image for a step or service; those of apps that it leaves out aside."""
    declared = (*section.pipeline.steps(section.settings), *section.pipeline.services(section.settings))
    return any(pod.build for pod in declared)


def secrets_of(section: Section) -> Sequence[str]:
    """The names of the stack's secrets that its steps are given."""
    return sorted({name for step in section.pipeline.steps(section.settings) for name in step.secrets.values()})


def on_gpus(section: Section) -> Section:
    """The section with one GPU for each step that reads another one's results, or else for every step."""
    places = [(at, step) for at, step in placements(section.settings) if isinstance(step, StepSettings)]
    reading = {
        str(place[-1])
        for step in section.pipeline.steps(section.settings)
        for place, settings in places
        if step.inputs
        and (settings is step.placed_by or place[-1] == (step.variant.of if step.variant else step.name))
    }
    chosen = reading or {str(place[-1]) for place, _ in places}

    def change(name: str, step: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**step, POOL: GPU_POOL, GPUS: 1} if name in chosen else step

    return replace(section, values=_with_steps(section.values, change), given=sorted(chosen))


def on_cpus(section: Section) -> Section:
    """The section with every step, service and app on the pool without GPUs."""

    def change(_: str, step: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**step, POOL: CPU_POOL, **({GPUS: 0} if step.get(GPUS) else {})}

    values, apps = (_with_steps(part, change) for part in (section.values, section.apps))
    return replace(section, values=values, apps=apps)


def _with_steps(
    values: Mapping[str, Any], change: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, Any]:
    """``values`` in which each section that names its pool is what ``change`` makes of it by its key."""
    changed = dict(values)
    for key, value in values.items():
        if isinstance(value, Mapping):
            below = mapping(cast("object", value))
            changed[key] = change(key, below) if POOL in below else _with_steps(below, change)
    return changed


def render_section(section: Section, indent: str) -> str:
    """The section as it stands in a stack file, with the settings that have a default as comments."""
    return "\n".join(f"{indent}{line}".rstrip() for line in _lines(section))


def _lines(section: Section) -> Iterator[str]:
    fields = section.pipeline.settings.model_fields
    yield f"{section.name}:"
    for key in section.guessed:
        if key in section.values:
            yield f"  # Put your own value here. {fields[key].description or ''}".rstrip()
            yield f"  {key}: {_flow(section.values[key])}"
    written_last = [key for key in section.values if _section_of(section.values[key])]
    for key, value in section.values.items():
        if key not in (*section.guessed, *written_last):
            yield f"  {key}: {_flow(value)}"
    yield from _optional(section)
    for key in written_last:
        yield from _entry(key, section.values[key], "  ")
    yield from (f"  # {line}" for line in _comments(section))


def _optional(section: Section) -> Iterator[str]:
    """The parameters of the pipeline that have a default, with it."""
    for key, known in section.pipeline.settings.model_fields.items():
        # What every pipeline can be told stands in the pages.
        common = PipelineSettings.model_fields.get(key)
        of_pipeline = common is None or common.annotation != known.annotation
        if of_pipeline and key not in section.values and isinstance(known.default, str | int | float):
            yield from [f"  # {known.description}"] if known.description else []
            yield f"  # {key}: {_flow(known.default)}"


def _comments(section: Section) -> Iterator[str]:
    """What the section can have beside its steps, as it would stand there."""
    if SCHEDULE not in section.values:
        yield "Runs it by the clock as well, here each night, which is billed."
        yield f"{SCHEDULE}: {NIGHTLY}"
    if section.apps:
        yield "Its apps stay after the steps, and are billed around the clock. With `follow: newest`"
        yield "beside `pool` an app goes on to what a schedule makes."
    for key, app in section.apps.items():
        yield from _entry(key, app, "")


def _section_of(value: Any) -> Mapping[str, Any]:
    """The value where it is a section of sections, which does not go on one line; else an empty one."""
    section = mapping(value)
    return section if any(isinstance(inner, Mapping) for inner in section.values()) else {}


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    """A line for a single value and for a section of such, else a line for each key."""
    nested = _section_of(value)
    yield f"{indent}{key}:" if nested else f"{indent}{key}: {_flow(value)}"
    for below, inner in nested.items():
        yield from _entry(below, inner, f"{indent}  ")


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = mapping(cast("object", value))
        return f"{{{', '.join(f'{key}: {_flow(part)}' for key, part in inner.items())}}}"
    plain = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    text = plain.removesuffix("\n").removesuffix("\n...")
    # As people write a number that has to be text: "2".
    return f'"{text[1:-1]}"' if re.fullmatch(r"'[^'\"\\]*'", text) else text


STACKS = PROJECT / "stacks"
PLACES = {name: cloud for name, cloud in CLOUDS.items() if cloud.has_starter}

SECRETS = "secrets"

NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
NAME_LIMIT = 100
"""`ParseStackName` of sdk/go/common/tokens in pulumi/pulumi, read on 2026-11-22.

A hyphen in front would make an option of it."""

ORDINARY = Resources(cpu=1000, memory=4096, ephemeral_storage=4096)
"""What a step asks for that says nothing: room on a pool that no step is on yet."""


def draft(stack: str, given: Mapping[str, str], example: str) -> Draft:
    """The file of the stack, from the options of the command line; ``example`` runs where none names a pipeline.

    Raises `RefusedError` with everything that keeps it from being one.
    """
    cloud, region, gpu = given.get("CLOUD"), given.get("REGION"), given.get("GPU")
    uses = given.get("USES", example)
    target = STACKS / f"Pulumi.{stack}.yaml"
    problems = [*_name_problems(stack, target), *_cloud_problems(cloud)]
    run: Section | None = None
    try:
        run = _section(uses, gpu)
    except RefusedError as refused:
        problems += refused.problems
    starter = PLACES[cloud].starter(_wish(run, region, gpu)) if cloud is not None and cloud in PLACES else None
    if starter is not None and not isinstance(starter, Starter):
        problems += [replace(problem, key=option(problem.key.lower())) for problem in starter]
    if problems or run is None or not isinstance(starter, Starter):
        raise RefusedError(problems)
    chosen = run if starter.gpu_pool else on_cpus(run)
    text = _render(stack, chosen, starter)
    secrets = secrets_of(chosen)
    values = without_prefix(yaml.safe_load(text)["config"])
    try:
        # Only the Pulumi CLI can write them into the file, once there is a stack.
        settings = load({**values, **({SECRETS: dict.fromkeys(secrets, MASK)} if secrets else {})})
    except SettingsError as error:
        raise RefusedError(error.problems) from error
    return Draft(target, text, tuple(_report(target, chosen, settings, starter)))


def _name_problems(stack: str, target: Path) -> Iterator[Problem]:
    if len(stack) > NAME_LIMIT:
        reason = f"{len(stack)} characters, and the name of a Pulumi stack has at most {NAME_LIMIT}"
        yield Problem(option("stack"), stack, reason, "shorten it")
    elif "/" in stack:
        name = stack.rpartition("/")[2] or "mine"
        fix = f"write the stack's own name, {option('stack', name)}, and the rest of it in `pulumi stack init`"
        yield Problem(option("stack"), stack, "the name of a file, which has no organization in it", fix)
    elif not NAME.fullmatch(stack):
        reason = "not the name of a Pulumi stack: letters, digits, `-`, `_` and `.`, and no hyphen in front"
        yield Problem(option("stack"), stack, reason, "choose one such as `team-a`")
    else:
        yield from name_clashes(option("stack"), stack, target, PROJECT)


def _cloud_problems(cloud: str | None) -> Iterator[Problem]:
    places = ", ".join(f"{option('cloud', name)} ({place.title})" for name, place in PLACES.items())
    if cloud is None:
        yield Problem(option("cloud"), None, "a stack runs somewhere", f"write one of {places}")
    elif cloud not in PLACES:
        yield Problem(
            option("cloud"), cloud, "no cloud of that name", did_you_mean(cloud, PLACES, f"write one of {places}")
        )


def _section(uses: str, gpu: str | None) -> Section:
    """The section of the pipeline, with GPUs where some are asked for; raises `RefusedError`."""
    name, named = (location(uses).path.name, uses) if is_path(uses) else (uses, None)
    if not names_pipeline(uses):
        raise RefusedError([_unknown_pipeline(uses)])
    problems = [
        Problem(
            option("uses"),
            uses,
            f"the section would be called `{name}`: {finding.reason}",
            finding.fix,
        )
        for finding in section_name_findings((), name)
    ]
    try:
        declared = pipeline(uses)
    except SettingsError as error:
        raise RefusedError([*problems, *error.problems]) from error
    if problems or declared.problems:
        raise RefusedError([*problems, *declared.problems])
    run = section(name, named, declared)
    try:
        settings = run.settings
    except ValidationError as error:
        keys = listed(sorted({".".join(map(str, problem["loc"])) for problem in error.errors()}), "and")
        fix = f"write the stack file by hand, as {page('your-project.md')} shows"
        raise RefusedError([Problem(option("uses"), uses, f"{keys} of it have no default", fix)]) from error
    return on_gpus(run) if gpu and most_needed(settings, gpus=True) is None else run


def _unknown_pipeline(uses: str) -> Problem:
    if is_path(uses):
        reason = f"there is no pipeline.yaml in {location(uses).path}"
        return Problem(
            option("uses"), uses, reason, "write the path of a pipeline's folder, relative to the repository"
        )
    names = pipeline_names()
    if not uses:
        fix = f"write {option('uses', 'NAME')}: {listed(names)}"
        return Problem(option("uses"), uses, "it is not given, and there are several pipelines", fix)
    fix = did_you_mean(uses, names, f"write {listed(names)}, or make it: {command('new', pipeline=uses)}")
    return Problem(option("uses"), uses, "no folder of that name below `workloads/` declares a pipeline", fix)


def _wish(section: Section | None, region: str | None, gpu: str | None) -> Wish:
    """What the section asks of a cloud; that of ordinary steps where it is not known."""
    if section is None:
        return Wish(region, gpu, ORDINARY, ORDINARY if gpu else None)
    settings = section.with_apps
    cpu, gpus = most_needed(settings, gpus=False) or ORDINARY, most_needed(settings, gpus=True)
    if _builds_anything(section):
        cpu = largest(cpu, RegistrySettings(pool=CPU_POOL).asked)
    return Wish(region, gpu, cpu, gpus, apps_together(settings))


def _render(stack: str, section: Section, starter: Starter) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
    template = environment.from_string(starter.template.read_text(encoding="utf-8"))
    nodes = {f"{pool}_nodes": most_nodes(section.settings, gpus=pool == GPU_POOL) for pool in (CPU_POOL, GPU_POOL)}
    texts = {"stack": stack, "runs": section.name, "pipelines": _registry(section, starter) + _pipelines(section)}
    texts["namespace"] = spell(KUBERNETES_NAME_LIMIT, project_name(PROJECT), stack)
    protect = is_for_production(stack)
    return template.render(
        {"command": command, "page": shared_page, "protect": protect, **starter.values, **nodes, **texts}
    )


def _registry(section: Section, starter: Starter) -> str:
    """The section `registry`, where the cluster builds images; as a comment where those of apps are left out."""
    if not _builds_anything(section):
        return ""
    repository = f", repository: {starter.repository}" if starter.repository else ""
    mark = "" if builds(section) else "# "
    return (
        "  # Where its images are built, and which registry they are pushed to.\n"
        f"  {mark}slipway:{REGISTRY}: {{pool: {CPU_POOL}{repository}}}\n\n"
    )


def _builds_anything(section: Section) -> bool:
    """Whether the cluster builds an image for anything of the pipeline."""
    return builds(section) or any(app.build for app in apps_of(section))


def _pipelines(section: Section) -> str:
    lines = ["  slipway:pipelines:"]
    if section.given:
        lines += [
            f"    # {listed(section.given, 'and')} got a GPU because one was asked for. A step that uses none",
            "    # runs as well with `{pool: cpu}` alone, and costs less.",
        ]
    return "\n".join([*lines, render_section(section, "    ")]) + "\n"


def _report(target: Path, section: Section, settings: Settings, starter: Starter) -> Iterator[str]:
    stack = target.name.removeprefix("Pulumi.").removesuffix(".yaml")
    places = ", ".join(f"{at[-1]} on pool {step.pool}" for at, step in placements(section.settings))
    yield f"Wrote {target.relative_to(PROJECT)}: {section.name}, with {places}"
    yield from _idle_gpus(section, settings)
    if apps := ", ".join(app.name for app in apps_of(section)):
        yield f"Left out, as comments in the file: {apps}, since apps are billed around the clock"
    if builds(section) and starter.repository:
        yield f"Set first, in the file: slipway:{REGISTRY}.repository, where images are pushed to"
    if section.guessed:
        yield f"Set first, in the file: {', '.join(section.guessed)}"
    secrets = secrets_of(section)
    if secrets:
        yield "Set first, since the file is refused without its secrets:"
        yield f"  pulumi stack init {stack}"
        yield from (
            f"  pulumi config set --secret --path 'slipway:secrets.{secret}' -s {stack}" for secret in secrets
        )
        variables = ", ".join(map(variable, secrets))
        yield f"  or, for rehearsals alone, {variables} in the environment"
    yield from _lacking(section, settings)
    yield "Next:"
    yield f"  {command('rehearse', stack=stack)}"
    yield f"  {command('preview', stack=stack)}    what it costs, and the quota it needs"
    yield "Before the first `pulumi up`:"
    if not secrets:
        yield f"  pulumi stack init {stack}"
    yield from (f"  {line.format(stack=stack)}" for line in starter.before)


def _lacking(section: Section, settings: Settings) -> Iterator[str]:
    """What the stack is refused for until it is there: a lock file of the pipeline, the provider of a cloud."""
    declared = DeclaredPipeline(section.name, section.values.get(USES, section.name), section.settings)
    problems = {problem.reason: problem for problem in shipping.problems([declared], PROJECT)}
    try:
        require_packages([cluster.cloud for cluster in settings.clusters.values()])
    except SettingsError as error:
        problems |= {problem.reason: problem for problem in error.problems}
    if problems:
        yield "Correct first, since the file is refused until then:"
        yield from (f"  {problem.key}: {problem.reason}; {problem.fix}" for problem in problems.values())


def _idle_gpus(section: Section, settings: Settings) -> Iterator[str]:
    """A node has as many GPUs as the smallest machine with them, which may be more than any step uses."""
    used = most_needed(section.settings, gpus=True)
    for cluster in settings.clusters.values():
        for name, pool in cluster.pools.items():
            node = pool.node()
            if used is not None and node is not None and node.gpus > used.gpus:
                beside = f"all paid for, and no step uses more than {used.gpus}"
                yield f"A node of pool {name} has {node.gpus} GPUs, {beside}"
