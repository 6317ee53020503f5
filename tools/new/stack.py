"""``make new STACK=mine CLOUD=…``: the file of a stack that runs one pipeline on pools of its own."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import jinja2
import yaml
from pydantic import ValidationError

from infra.clouds.registry import CLOUDS
from infra.pipelines import shipping
from infra.pipelines.contract import placements
from infra.pipelines.declared import DeclaredPipeline
from infra.pipelines.discovery import ROOT, is_path, known, location, pipeline, pipeline_names
from infra.platform import Resources
from infra.schema.problems import Problem, SettingsError, did_you_mean, listed, without_prefix
from infra.schema.secret_values import MASK
from infra.schema.starter import CPU_POOL, GPU_POOL, Starter, Wish
from infra.settings.checks.pipelines import section_name_findings
from infra.settings.loading import load
from infra.settings.model import Settings
from infra.settings.registry import KEY as REGISTRY
from infra.settings.registry import RegistrySettings
from offline.rehearsal.secrets import variable
from tools.new.section import (
    USES,
    Section,
    apps_of,
    apps_together,
    builds,
    largest,
    most_nodes,
    needs,
    on_cpus,
    on_gpus,
    secrets_of,
    section,
    written,
)
from tools.new.writing import Draft, RefusedError, taken

STACKS = ROOT / "stacks"
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
    cloud, uses, region, gpu = (
        given.get("CLOUD"),
        given.get("USES", example),
        given.get("REGION"),
        given.get("GPU"),
    )
    target = STACKS / f"Pulumi.{stack}.yaml"
    problems = [*_name_problems(stack, target), *_cloud_problems(cloud)]
    found: Section | None = None
    try:
        found = _section(uses, gpu)
    except RefusedError as refused:
        problems += refused.problems
    starter = PLACES[cloud].starter(_wish(found, region, gpu)) if cloud is not None and cloud in PLACES else None
    if starter is not None and not isinstance(starter, Starter):
        problems += starter
    if problems or found is None or not isinstance(starter, Starter):
        raise RefusedError(problems)
    chosen = found if starter.gpu_pool else on_cpus(found)
    text = _rendered(stack, chosen, starter)
    secrets = secrets_of(chosen)
    values = without_prefix(yaml.safe_load(text)["config"])
    try:
        # Only the Pulumi CLI can write them into the file, once there is a stack.
        settings = load({**values, **({SECRETS: dict.fromkeys(secrets, MASK)} if secrets else {})})
    except SettingsError as error:
        raise RefusedError(error.problems) from error
    return Draft(target, text, tuple(_said(target, chosen, settings, starter)))


def _name_problems(stack: str, target: Path) -> Iterator[Problem]:
    if len(stack) > NAME_LIMIT:
        reason = f"{len(stack)} characters, and the name of a Pulumi stack has at most {NAME_LIMIT}"
        yield Problem("STACK", stack, reason, "shorten it")
    elif "/" in stack:
        own = stack.rpartition("/")[2] or "mine"
        fix = f"write the stack's own name, STACK={own}, and the rest of it in `pulumi stack init`"
        yield Problem("STACK", stack, "the name of a file, which has no organization in it", fix)
    elif not NAME.fullmatch(stack):
        reason = "not the name of a Pulumi stack: letters, digits, `-`, `_` and `.`, and no hyphen in front"
        yield Problem("STACK", stack, reason, "choose one such as `team-a`")
    else:
        yield from taken("STACK", stack, target, ROOT)


def _cloud_problems(cloud: str | None) -> Iterator[Problem]:
    places = ", ".join(f"CLOUD={name} ({each.title})" for name, each in PLACES.items())
    if cloud is None:
        yield Problem("CLOUD", None, "a stack runs somewhere", f"write one of {places}")
    elif cloud not in PLACES:
        yield Problem(
            "CLOUD", cloud, "no cloud of that name", did_you_mean(cloud, PLACES, f"write one of {places}")
        )


def _section(uses: str, gpu: str | None) -> Section:
    """The section of the pipeline, with GPUs where some are asked for; raises `RefusedError`."""
    name, named = (location(uses).path.name, uses) if is_path(uses) else (uses, None)
    if not known(uses):
        raise RefusedError([_unknown(uses)])
    problems = [
        Problem("USES", uses, f"the section would be called `{name}`: {each.reason}", each.fix)
        for each in section_name_findings((), name)
    ]
    try:
        declared = pipeline(uses)
    except SettingsError as error:
        raise RefusedError([*problems, *error.problems]) from error
    if problems or declared.problems:
        raise RefusedError([*problems, *declared.problems])
    found = section(name, named, declared)
    try:
        settings = found.settings
    except ValidationError as error:
        keys = listed(sorted({".".join(map(str, each["loc"])) for each in error.errors()}), "and")
        fix = "write the stack file by hand, as docs/stacks.md shows"
        raise RefusedError([Problem("USES", uses, f"{keys} of it have no default", fix)]) from error
    return on_gpus(found) if gpu and needs(settings, gpus=True) is None else found


def _unknown(uses: str) -> Problem:
    if is_path(uses):
        reason = f"there is no pipeline.yaml in {location(uses).path}"
        return Problem("USES", uses, reason, "write the path of a pipeline's folder, relative to the repository")
    names = pipeline_names()
    fix = did_you_mean(uses, names, f"write {listed(names)}, or make it: make new PIPELINE={uses}")
    return Problem("USES", uses, "no folder of that name below `workloads/` declares a pipeline", fix)


def _wish(found: Section | None, region: str | None, gpu: str | None) -> Wish:
    """What the section asks of a cloud; that of ordinary steps where it is not known."""
    if found is None:
        return Wish(region, gpu, ORDINARY, ORDINARY if gpu else None)
    settings = found.with_apps
    cpu, gpus = needs(settings, gpus=False) or ORDINARY, needs(settings, gpus=True)
    if _building(found):
        cpu = largest((cpu, RegistrySettings(pool=CPU_POOL).asked))
    return Wish(region, gpu, cpu, gpus, apps_together(settings))


def _rendered(stack: str, found: Section, starter: Starter) -> str:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True
    )
    template = environment.from_string(starter.template.read_text(encoding="utf-8"))
    nodes = {f"{pool}_nodes": most_nodes(found.settings, gpus=pool == GPU_POOL) for pool in (CPU_POOL, GPU_POOL)}
    own = {"stack": stack, "runs": found.name, "pipelines": _registry(found, starter) + _pipelines(found)}
    return template.render({**starter.values, **nodes, **own})


def _registry(found: Section, starter: Starter) -> str:
    """The section `registry`, where the cluster builds images; as a comment where those of apps are left out."""
    if not _building(found):
        return ""
    repository = f", repository: {starter.repository}" if starter.repository else ""
    mark = "" if builds(found) else "# "
    return (
        "  # Where its images are built, and which registry they are pushed to: docs/image-builds.md.\n"
        f"  {mark}slipway:{REGISTRY}: {{pool: {CPU_POOL}{repository}}}\n\n"
    )


def _building(found: Section) -> bool:
    """Whether the cluster builds an image for anything of the pipeline."""
    return builds(found) or any(each.build for each in apps_of(found))


def _pipelines(found: Section) -> str:
    lines = ["  slipway:pipelines:"]
    if found.given:
        lines += [
            f"    # {listed(found.given, 'and')} got a GPU because one was asked for. A step that uses none",
            "    # runs as well with `{pool: cpu}` alone, and costs less.",
        ]
    return "\n".join([*lines, written(found, "    ")]) + "\n"


def _said(target: Path, found: Section, settings: Settings, starter: Starter) -> Iterator[str]:
    stack = target.name.removeprefix("Pulumi.").removesuffix(".yaml")
    places = ", ".join(f"{at[-1]} on pool {step.pool}" for at, step in placements(found.settings))
    yield f"Wrote {target.relative_to(ROOT)}: {found.name}, with {places}"
    yield from _idle_gpus(found, settings)
    if apps := ", ".join(each.name for each in apps_of(found)):
        yield f"Left out, as comments in the file: {apps}, since apps are billed around the clock"
    if builds(found) and starter.repository:
        yield f"Set first, in the file: slipway:{REGISTRY}.repository, where images are pushed to"
    if found.guessed:
        yield f"Set first, in the file: {', '.join(found.guessed)}"
    secrets = secrets_of(found)
    if secrets:
        yield "Set first, since the file is refused without its secrets:"
        yield f"  pulumi stack init {stack}"
        yield from (f"  pulumi config set --secret --path 'slipway:secrets.{each}' -s {stack}" for each in secrets)
        variables = ", ".join(map(variable, secrets))
        yield f"  or, for rehearsals alone, {variables} in the environment"
    yield from _unshipped(found)
    yield "Next:"
    yield f"  make rehearse STACK={stack}"
    yield f"  make preview STACK={stack}    what it costs, and the quota it needs"
    yield "Before the first `pulumi up`:"
    if not secrets:
        yield f"  pulumi stack init {stack}"
    yield from (f"  {line.format(stack=stack)}" for line in starter.before)


def _unshipped(found: Section) -> Iterator[str]:
    """What the files of the pipeline lack, a lock file for example: the stack is refused until it is there."""
    declared = DeclaredPipeline(found.name, found.values.get(USES, found.name), found.settings)
    problems = {each.reason: each for each in shipping.problems([declared], ROOT)}
    if problems:
        yield "Correct first, since the file is refused until then:"
        yield from (f"  {each.key}: {each.reason}; {each.fix}" for each in problems.values())


def _idle_gpus(found: Section, settings: Settings) -> Iterator[str]:
    """A node has as many GPUs as the smallest machine with them, which may be more than any step uses."""
    used = needs(found.settings, gpus=True)
    for cluster in settings.clusters.values():
        for name, pool in cluster.pools.items():
            node = pool.node()
            if used is not None and node is not None and node.gpus > used.gpus:
                beside = f"all paid for, and no step uses more than {used.gpus}"
                yield f"A node of pool {name} has {node.gpus} GPUs, {beside}"
