"""Apps of the kind `mlflow`: MLflow's server with the results of a pipeline as its runs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from slipway.infra.pipelines.app_kinds.contract import AppInFile, AppInStack, AppKind
from slipway.infra.pipelines.apps import AppDeclaration, KeptAppSettings
from slipway.infra.pipelines.contract import StepDeclaration, literal
from slipway.infra.pipelines.pods import Probe
from slipway.infra.schema.base import Cpu, Memory, Model, Size, refuse
from slipway.infra.schema.problems import Finding

MODULE = "slipway.workloads.apps.mlflow.serve"
"""What starts MLflow's server, and records results in it."""

REQUIREMENTS = "slipway/workloads/apps/mlflow/requirements.txt"
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


POSTGRES_ADDRESS = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?):(?P<port>\d{1,5})/(?P<name>[\w.-]+)"
)
"""The database of a Postgres, as text."""

USER, VERSION = re.compile(r"[\w.@-]+"), re.compile(r"\d+(?:\.\w+)+")


def _postgres_address(value: str) -> str:
    match = POSTGRES_ADDRESS.fullmatch(value)
    if match is None or not 0 < int(match["port"]) < 65536:
        fix = "write `db.example.com:5432/mlflow`, without a scheme, user or password"
        raise refuse("not host, port and name of a database", fix)
    return value


def _version(value: str) -> str:
    if not VERSION.fullmatch(value):
        raise refuse("not a version", "write that of MLflow, as the log of the pod has it: `3.17.2`")
    return value


def _user(value: str) -> str:
    if not USER.fullmatch(value):
        raise refuse("not a name of a user", "letters, digits, `_`, `-`, `.` and `@`")
    return value


class DatabaseSettings(Model):
    """A Postgres in place of a file on a volume. Somebody else makes it and backs it up, and nothing here deletes
    it.
    """

    address: Annotated[str, AfterValidator(_postgres_address)] = Field(
        description="Host, port and name of the database: `db.example.com:5432/mlflow`. It is empty, or MLflow's."
    )
    user: Annotated[str, AfterValidator(_user)] = Field(
        default="mlflow", description="The user, who may make tables."
    )
    password: str = Field(description="The secret of `slipway:secrets` that is the user's password.")
    tls: bool = Field(
        default=True,
        description="Refuse a connection that is not encrypted. `false` takes one in clear where the server has "
        "no other.",
    )
    migrate_to: Annotated[str, AfterValidator(_version)] | None = Field(
        default=None,
        description="The version of MLflow that may migrate the database of an earlier one, which then cannot use "
        "it any more; default: the pod refuses such a database, and says which version to write.",
    )

    def environment(self) -> dict[str, str]:
        """What a client of Postgres reads, but the password."""
        match = POSTGRES_ADDRESS.fullmatch(self.address)
        assert match is not None
        return {
            "PGHOST": match["host"],
            "PGPORT": match["port"],
            "PGDATABASE": match["name"],
            "PGUSER": self.user,
            "PGSSLMODE": "require" if self.tls else "prefer",
            "PGCONNECT_TIMEOUT": "10",
        }


class MlflowSettings(KeptAppSettings):
    """Where MLflow runs, and where its database is."""

    cpu: Cpu = Field(default="500m", description="CPU asked for.")
    # 600 MB with a few runs, of which two processes have half each.
    memory: Memory = Field(default="2Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="3Gi", description="Scratch space, with the packages.")
    storage: Size = Field(
        default="5Gi", description="Size of the volume with its database, and with files that programs upload."
    )
    database: DatabaseSettings | None = Field(
        default=None,
        description="A Postgres that you have, in place of the volume. It takes no files that programs upload.",
    )

    @property
    def has_volume(self) -> bool:
        """Whether its database is a file."""
        return self.database is None

    @model_validator(mode="after")
    def _kept_once(self) -> Self:
        if self.database and "storage" in self.model_fields_set:
            raise refuse("with a `database` there is no volume", "remove `storage`, or `database`")
        return self


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
    database = settings.database
    migrating = ["--migrate-to", literal(database.migrate_to)] if database and database.migrate_to else []
    kept = ["--postgres", *migrating] if database else ["--data", "{data}"]
    wanted = {step.name: _declared(step) for step in steps if step.name in (of or measured)}
    return AppDeclaration(
        name=name,
        title="MLflow",
        placed_by=settings,
        port=PORT,
        module=MODULE,
        arguments=[
            *("--pipeline", "{pipeline}", *kept, "--runs", "{runs}"),
            *("--host", "0.0.0.0", "--port", "{port}"),
        ],
        environment={
            RESULTS: literal(json.dumps(wanted, sort_keys=True)),
            **(database.environment() if database else {}),
        },
        secrets={"PGPASSWORD": database.password} if database else {},
        outside={"database": int(database.environment()["PGPORT"])} if database else {},
        requirements=REQUIREMENTS,
        probe=Probe(HEALTH),
        path=FIRST_PAGE,
        keeps_data=settings.has_volume,
        told_of_runs=True,
        grace=30,
    )


def _declared(step: StepDeclaration) -> Sequence[Mapping[str, Any]]:
    keys = {"name", "kind", "path", "select", "unit"}
    return [result.model_dump(mode="json", include=keys) for result in step.results if result.kind in MEASURED]
