"""Apps of the kind `mlflow`: MLflow's server with the results of a pipeline as its runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from infra.pipelines.app_kind import AppInFile, AppInStack, AppKind
from infra.pipelines.apps import AppDeclaration, KeptAppSettings
from infra.pipelines.contract import StepDeclaration, literal
from infra.pipelines.pods import Probe
from infra.schema.base import Cpu, Memory, Size
from infra.schema.problems import Finding

MODULE = "workloads.apps.mlflow.serve"
"""What starts MLflow's server, and records results in it."""

REQUIREMENTS = "workloads/apps/mlflow/requirements.txt"
"""MLflow with all that it needs."""

PORT = 5000
"""MLflow's own."""

HEALTH = "/health"
"""What answers by whatever name it is asked (mlflow/server/security_utils.py, MLflow 3.17)."""

FIRST_PAGE = "/#/experiments/1/runs?workflowType=machine_learning"
"""The runs of the first experiment that is created, which is the pipeline's; MLflow's own, `Default`, is 0. By
default its page opens for conversations (MLflow 3.17)."""

RESULTS = "SLIPWAY_RESULTS"
"""The environment variable with what each step declares of its results, as JSON."""

CLIENT = {"MLFLOW_TRACKING_URI": "{output}/mlruns"}
"""With it in its environment, a step's program logs into its result (workloads/apps/mlflow/logged.py)."""

MEASURED = {"number", "curves"}
"""The kinds of results that become metrics of a run."""


class MlflowSettings(KeptAppSettings):
    """Where MLflow runs."""

    cpu: Cpu = Field(default="500m", description="CPU asked for, as a Kubernetes quantity.")
    # 600 MB with a few runs, of which two processes have half each.
    memory: Memory = Field(default="2Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="3Gi", description="Scratch space, with the packages.")
    storage: Size = Field(
        default="5Gi", description="Size of the volume with its database, and with files that programs upload."
    )


class MlflowApp(AppKind):
    """MLflow's server. Each result of a step in the store is a run of it, with its parameters, numbers and curves,
    by whatever it was made: `pulumi up`, a schedule or a rehearsal.
    """

    kind: Literal["mlflow"] = Field(description="MLflow.")
    settings = MlflowSettings

    step: str | None = Field(
        default=None,
        description="The step whose results are runs; default: those of all that declare a number or curves, or "
        "call MLflow.",
    )

    def findings(self, app: AppInFile) -> Iterator[Finding]:
        """A finding about its step."""
        if self.step is not None:
            yield from app.step_findings(("step",), self.step)

    def declare(self, app: AppInStack) -> AppDeclaration:
        """MLflow over all variants of its step."""
        return declaration(app.name, app.placed_by, app.steps, *(app.variants_of(self.step) if self.step else []))


def declaration(name: str, settings: MlflowSettings, steps: Sequence[StepDeclaration], *of: str) -> AppDeclaration:
    """MLflow called ``name`` over the results of the steps that ``of`` names, by default of all of ``steps`` that
    declare something to measure, or whose programs call MLflow. It waits for no step.
    """
    measured = {step.name for step in steps if _declared(step) or CLIENT.items() <= step.environment.items()}
    wanted = {step.name: _declared(step) for step in steps if step.name in (of or measured)}
    return AppDeclaration(
        name=name,
        title="MLflow",
        placed_by=settings,
        port=PORT,
        module=MODULE,
        arguments=[
            *("--pipeline", "{pipeline}", "--data", "{data}", "--runs", "{runs}"),
            *("--host", "0.0.0.0", "--port", "{port}"),
        ],
        environment={RESULTS: literal(json.dumps(wanted, sort_keys=True))},
        requirements=REQUIREMENTS,
        probe=Probe(HEALTH),
        path=FIRST_PAGE,
        keeps_data=True,
        told_of_runs=True,
        grace=30,
    )


def _declared(step: StepDeclaration) -> Sequence[Mapping[str, Any]]:
    keys = {"name", "kind", "path", "select", "unit"}
    return [result.model_dump(mode="json", include=keys) for result in step.results if result.kind in MEASURED]
