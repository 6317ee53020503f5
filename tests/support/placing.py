"""Pipelines put on the pools of the stand-in platform, without a stack file."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pulumi

from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.results import Outputs
from slipway.infra.pipelines.contract import PipelineSettings
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.results import SHOW
from slipway.infra.placed import Step
from slipway.infra.placement.placing import place
from slipway.infra.platform import Pool, Store
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stand_in import cpu_pool, gpu_pool, platform

Steps = Mapping[str, Step]


def inspect(
    folder: str,
    settings: PipelineSettings,
    look: Callable[[Steps], Any],
    *,
    name: str = "",
    beside: Mapping[str, PipelineSettings] | None = None,
    pools: Callable[[], list[Pool]] = lambda: [cpu_pool(), gpu_pool()],
) -> Any:
    """What ``look`` finds in the steps of a pipeline, inside a program; ``beside`` are others of the stack."""

    def program() -> Any:
        pipelines = [DeclaredPipeline(name or folder, folder, settings)]
        pipelines += [DeclaredPipeline(other, other, values) for other, values in (beside or {}).items()]
        placed = place(pipelines, {"here": platform(*pools())}, Gates("image"), ROOT)
        return look({step.name: step for step in placed[name or folder]})

    return record(program, {}, preview=True).result


def outputs(folder: str, settings: PipelineSettings, change: Callable[[Store], Store]) -> Recording:
    """The program that declares a pipeline's Jobs and exports its outputs, on a platform with a changed store."""

    def program() -> None:
        here = platform(cpu_pool(), gpu_pool())
        here = replace(here, store=change(here.store))
        placed = place([DeclaredPipeline(folder, folder, settings)], {"here": here}, Gates("image"), ROOT)
        workspaces = {"here": Workspace("here", WorkspaceArgs(here, "slipway", "runner", protect=False))}
        made = Outputs(declare(placed[folder], workspaces, ROOT), workspaces)
        pulumi.export(folder, made.of(placed[folder]))
        pulumi.export(SHOW, made.described)

    return record(program, {}, preview=False)
