"""What is wrong with the nodes of the steps of a ``pipeline.yaml`` that run on several.

The same holds for what a stack file says of them, which `of_section` checks.
"""

from collections.abc import Iterator
from typing import Any

from infra.pipelines.contract import MultiNodeSettings, Section
from infra.pipelines.file_nodes import StepNodes
from infra.pipelines.file_settings import NODES
from infra.pipelines.node_roles import ROLES, WORKER, fewest, meant, unsuitable
from infra.pipelines.pipeline_file import PipelineFile
from infra.schema.problems import Finding, Path, did_you_mean, listed


def check(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about roles, and about what a step on several nodes cannot have."""
    for name, step in declared.steps.items():
        if step.nodes is None:
            continue
        at: Path = ("steps", name, NODES)
        if step.items is not None:
            reason = "the pods of a step with `items` know nothing of one another, and each works on its own"
            fix = "remove it, and write how many pods work on the items as `workers`; or remove `items`"
            yield Finding(at, step.nodes.count, reason, fix, read=((*at[:2], "items"),))
        yield from _roles((*at, "roles"), step.nodes)


def of_section(declared: PipelineFile, section: Section[Any]) -> Iterator[Finding]:
    """Findings about what a stack file says of steps on several nodes."""
    for name, step in declared.steps.items():
        settings = getattr(getattr(section.settings, "steps", None), name, None)
        if step.nodes is None or not isinstance(settings, MultiNodeSettings):
            continue
        roles, count = step.nodes.roles, settings.nodes
        if count != step.nodes.count and count < fewest(roles):
            yield Finding(
                section.key("steps", name, NODES),
                count,
                f"its pods have the roles {listed(_counted(roles), 'and')}: on fewer nodes fewer have the role "
                f"`{WORKER}`, and there has to be one",
                f"write `{NODES}: {fewest(roles)}` or more",
            )


def _counted(roles: dict[str, int]) -> list[str]:
    return [f"{role}: {count}" for role, count in roles.items()]


def _roles(at: Path, nodes: StepNodes) -> Iterator[Finding]:
    unknown = [role for role in nodes.roles if role not in ROLES]
    for role in unknown:
        same = meant(role)
        fix = f"write `{same}`" if same else did_you_mean(role, ROLES, f"write {listed(ROLES)}")
        yield Finding((*at, role), nodes.roles[role], f"TensorFlow knows no role `{role}`", fix)
    if nodes.roles and not unknown:
        for reason, fix in unsuitable(nodes.roles, nodes.count):
            yield Finding(
                at, nodes.roles, reason, fix, read=((*at[:-1], "count"), *((*at, each) for each in ROLES))
            )
