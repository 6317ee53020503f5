"""What a preview says, as data: rendered as text and Markdown, and published as JSON.

``FORMAT`` counts incompatible changes. Docstrings and descriptions end up in the published schema
(docs/preview.schema.json), which ``python -m slipway.evaluated.model [--check]`` writes.
"""

import json
import sys
from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from slipway.files import write_or_check
from slipway.infra.places import LIBRARY
from slipway.infra.review.contract import Harm, Severity

FORMAT = 2

SCHEMA = LIBRARY / "docs" / "preview.schema.json"


class Model(BaseModel):
    """Immutable, and without keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _name(value: object) -> object:
    return value.name.lower() if isinstance(value, Enum) else value


EnumName = Annotated[str, BeforeValidator(_name)]
"""A member of an enumeration by the name that it has in code: what people read for it may change."""


class Operation(StrEnum):
    """What an update would do to a resource."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


class Outcome(StrEnum):
    """What becomes of a Job that is created or replaced."""

    RUNS = "runs"
    RESUMES = "finds its result"


class PropertyChange(Model):
    """One property that differs. A secret is ``[secret]``.

    What only an update knows is ``[unknown]``, or has its name where that is known: ``[store.arn]``.
    """

    path: str = Field(description="Where it is, for example `nodeConfig.taints[0].value`.")
    before: Any = Field(default=None, description="Its value at the base; null where it was not set.")
    after: Any = Field(default=None, description="Its value now; null where it is no longer set.")
    forces: bool = Field(default=False, description="Whether this change replaces the resource.")


class ResourceChange(Model):
    """One resource that an update would touch."""

    urn: str
    type: str
    name: str
    place: str = Field(
        default="",
        description="The line of the program that declares it; empty for what a stack file asks for.",
    )
    operation: Operation
    properties: list[PropertyChange] = Field(default_factory=list)
    because: str = Field(
        default="", description="Why it is replaced where none of its own properties says so: what it depends on."
    )
    known: bool = Field(
        default=True,
        description="False where no schema says whether a change of these properties replaces it.",
    )
    note: str = Field(
        default="", description="What an update in place means for what runs there, from the provider's documents."
    )
    protected: bool = Field(
        default=False, description="Pulumi's protect: the update refuses to delete or replace it."
    )
    of: str = Field(
        default="", description="The URN of the Job of the step with places whose part it is; empty for others."
    )


class JobRun(Model):
    """A Job that the next update would create, and so run."""

    urn: str
    name: str
    outcome: Outcome
    cluster: str
    pool: str = Field(description="The pool that takes it; empty where none can, or where that is not known.")
    known: bool = Field(default=True, description="False where the preview cannot tell which pool can take it.")
    accelerator: str = ""
    gpus: int = Field(default=0, description="GPUs of each of its pods.")
    nodes: int = Field(default=1, description="On how many nodes its pods work together, one on each.")
    places: list[str] = Field(
        default_factory=list,
        description="The pools of which one at a time runs it, in their order; `pool` is the first.",
    )
    because: str = Field(description="What changed for it.")
    items: Literal["", "all", "changed"] = Field(
        default="",
        description="Of a Job that works on items and runs again: whether it works on `all` of them, or only on "
        "those that are new or `changed`; empty for others.",
    )


class Changes(Model):
    """From the base to now."""

    resources: list[ResourceChange] = Field(default_factory=list)
    unchanged: int = 0
    runs: list[JobRun] = Field(default_factory=list)
    remarks: list[str] = Field(default_factory=list)
    unknown: list[str] = Field(
        default_factory=list,
        description="Pipelines whose files are outside of the repository: changes of these cannot be seen.",
    )


class CostLine(Model):
    """What one resource costs, in US dollars."""

    resource: str = Field(description="Its name.")
    what: str
    hourly: float | None = Field(description="Of one of them, per hour; null where the price is not known.")
    idle: float | None = Field(description="Per hour while no Job runs.")
    most: float | None = Field(description="Per hour with every pool at its largest.")
    idle_count: float = Field(default=1, description="How many of them are billed while no Job runs.")
    most_count: float = Field(default=1, description="The same with every pool at its largest.")
    source: str = ""
    as_of: str = Field(
        default="", description="Date of the price's source, or `undated, read 2026-11-21` of one that has none."
    )
    metered: bool = Field(default=False, description="Paid by use, so in no sum.")
    metered_price: str = Field(default="", description="For example `$0.026 per GiB-month`.")
    new: bool = Field(
        default=True, description="Whether the base does not have the same line; true without a base."
    )


class StepRange(Model):
    """What a step with places costs and takes: from the cheapest place to the dearest, without waiting for nodes.

    Prices that are not known are left out; ``least`` and ``most`` are null where none is known.
    """

    places: list[str] = Field(description="The pools of which one at a time runs it, in their order.")
    least: float | None
    most: float | None
    least_seconds: float
    most_seconds: float
    least_place: str
    most_place: str
    least_basis: Literal["work", "measured", "rehearsed", "limit"] = Field(
        description="Of the fewest seconds: `work` where the stack file says it, else as in `StepCost`."
    )
    most_basis: Literal["deadline", "limit"]
    max_price: float | None = Field(default=None, description="At which it ends, in US dollars.")
    unpriced: list[str] = Field(default_factory=list, description="Places whose price is not known.")
    needs: list["PlaceNeed"] = Field(
        default_factory=list, description="What each place needs of the quotas of machines and GPUs."
    )


class PlaceNeed(Model):
    """What a step needs of one quota at one of its places; ``metric`` and ``where`` as in `QuotaNeed`."""

    place: str
    metric: str
    where: str
    needed: float
    unit: str


class StepCost(Model):
    """What one Job costs. Of a step with places it is at the dearest, for as long as it may take."""

    job: str
    pool: str
    seconds: float = Field(description="How long it holds its nodes, boot included.")
    basis: Literal["measured", "rehearsed", "deadline", "limit", "found", "unknown"] = Field(
        description="`measured` in a run of the stack, `rehearsed` on a CPU, the `deadline` or the time "
        "`limit`, `found` for one that finds its result and ends at once, or `unknown`."
    )
    dollars: float | None = Field(
        description="What its nodes cost in that time, be it paid anyway or not; null where no price is known."
    )
    paid_anyway: bool = Field(description="Whether the nodes are there, and billed, without this Job, too.")
    stack: str = Field(
        default="", description="The stack that is billed for the pool's nodes, where that is another one."
    )
    nodes: int = Field(default=1, description="How many nodes its pods are on.")
    by_pod: bool = Field(
        default=False, description="Whether its pods are billed, for as long as they run, and not their nodes."
    )
    range: StepRange | None = Field(default=None, description="Of a step with places; null for any other.")


class KeptNodes(Model):
    """Nodes that a pool has only because services stay there, while no Job runs."""

    pool: str
    services: list[str]
    nodes: int = Field(description="How many more than the pool has at least.")
    monthly: float | None = Field(description="What they cost in a month; null where no price is known.")


class ScheduledCost(Model):
    """A pipeline that runs by itself, with the Jobs of one run as `RunCost` counts them."""

    name: str
    cron: str
    time_zone: str
    times: float | None = Field(description="How often a month, on average; null where that is not known.")
    basis: Literal["measured", "rehearsed", "limit"] = Field(description="Which times of its Jobs count.")
    dollars: float | None = Field(description="Of one run; null where no price is known.")
    paid_anyway: float = Field(description="How much of `dollars` is for nodes that are there without it.")
    monthly: float | None = Field(description="What all runs of a month cost beside what is paid anyway.")


Cause = Literal["boot", "image", "gate", "packages", "inputs", "restore", "loading", "program", "publish", "kept"]
"""What a node's time is paid for: until it can run a pod, and pulls its image; a test of its GPUs, what the image
lacks, inputs, an earlier checkpoint, the program, its result; and without a Job."""


class PaidPart(Model):
    """What a cause adds to what nodes are paid for."""

    cause: Cause
    seconds: float = Field(description="Of all nodes together; each second of a node is in one part.")
    dollars: float | None = Field(description="Null where the price of a node is not known.")
    source: str = Field(default="", description="Of how long it takes, with its date; empty for times of Jobs.")


class Paid(Model):
    """What GPU nodes that come and go are paid for, and what of it is useful: the time of programs."""

    paid: float = Field(description="Seconds of all nodes, from when each is asked for until it is gone.")
    useful: float = Field(description="How many of them are the programs'.")
    ratio: float | None = Field(description="Paid over useful; null where no program runs.")
    dollars: float | None = Field(description="For `paid`; null where the price of a node is not known.")
    useful_dollars: float | None = Field(description="For `useful`.")
    at_least: bool = Field(
        description="Whether a step is counted at its time limit, so that `ratio` is the least that it can be. "
        "The time of a gate that is not known is left out."
    )
    parts: list[PaidPart]


class PaidStep(Paid):
    """The part of one Job: with the boot if it is the first on a node, its gates, and the time after it."""

    job: str
    pool: str
    nodes: int = Field(description="On how many nodes.")


class PaidUseful(Paid):
    """That of all Jobs that run."""

    steps: list[PaidStep] = Field(description="In the order in which the Jobs begin.")


class RunCost(Model):
    """What the Jobs that run cost, from the first node that is asked for until the last is given back.

    With a base these are the Jobs that the change runs or re-creates; without one, and in a new stack, all. Time
    on nodes that are there at all times counts like any other: it is paid without these Jobs, too, but nothing
    else can have the nodes meanwhile.
    """

    dollars: float | None = Field(description="The sum of the known prices; null where none is known.")
    paid_anyway: float = Field(
        default=0, description="How much of `dollars` is for nodes that are there, and billed, without these Jobs."
    )
    most: float | None = Field(
        default=None, description="The same sum with every Job at its time limit; null where one has none."
    )
    unknown: list[str] = Field(
        default_factory=list,
        description="What is in none of the sums, which are lower bounds where this is not empty.",
    )
    steps: list[StepCost] = Field(default_factory=list, description="In the order in which the Jobs begin.")
    paid: PaidUseful | None = Field(
        default=None, description="What GPU nodes are paid for beside programs; null where none comes and goes."
    )


class Cost(Model):
    """List prices in US dollars, without discounts, taxes, and what is paid by use.

    A sum is of the known prices; ``unknown`` names what it leaves out. It is null where nothing that is billed by
    the hour has a known price.
    """

    idle_hourly: float | None = Field(description="While no Job runs.")
    idle_monthly: float | None = Field(description="The same for a month of 730 hours.")
    most_hourly: float | None = Field(description="With every pool at its largest.")
    least_nodes: int = Field(default=0, description="Nodes of all pools while no Job runs.")
    most_nodes: int = Field(default=0, description="Nodes of all pools at their largest.")
    run: RunCost | None = Field(default=None, description="Of the Jobs that run; null where none does.")
    scheduled: list[ScheduledCost] = Field(default_factory=list, description="Pipelines that run by themselves.")
    kept: list[KeptNodes] = Field(default_factory=list, description="Nodes that services keep; in `idle_hourly`.")
    lines: list[CostLine] = Field(default_factory=list)
    unknown: list[str] = Field(default_factory=list, description="What no source prices.")
    stale: list[str] = Field(
        default_factory=list, description="Sources older than 90 days, and then those without a date."
    )


class CostDifference(Model):
    """From the base to now; null where it depends on a price that is not known."""

    idle_hourly: float | None
    idle_monthly: float | None
    most_hourly: float | None
    least_nodes: int = 0
    most_nodes: int = 0
    scheduled_monthly: float | None = Field(
        default=0, description="Of what runs by itself, beside what is paid anyway."
    )


class Level(IntEnum):
    """How bad a finding or a failed evaluation is, the worst first."""

    LOSS = 0
    OPENING = 1
    INTERRUPTION = 2
    REFUSAL = 3
    ERROR = 4
    WARNING = 5


_BY_HARM: Mapping[Harm | None, Level] = {
    Harm.LOSS: Level.LOSS,
    Harm.OPENING: Level.OPENING,
    Harm.REFUSAL: Level.REFUSAL,
}


class Finding(Model):
    """One breach of a policy."""

    policy: str
    severity: Severity
    resource: str = Field(description="A URN, or a configuration key.")
    name: str = Field(description="The resource's name and kind, or the key, for people.")
    place: str = Field(default="", description="The line of the program that declares the resource.")
    reason: str
    fix: str
    new: bool = Field(default=True, description="Whether the base did not have it; true without a base.")
    harm: bool = Field(
        default=False,
        description="Whether something of the user's is lost, opened or billed, or the update is refused.",
    )
    harm_kind: Harm | None = Field(default=None, description="Which harm it is; null where `harm` is false.")

    @property
    def level(self) -> Level:
        """How bad it is: by its harm, and otherwise by its severity."""
        if self.harm_kind in _BY_HARM:
            return _BY_HARM[self.harm_kind]
        if self.severity is Severity.WARNING:
            return Level.WARNING
        return Level.INTERRUPTION if self.harm_kind is Harm.INTERRUPTION else Level.ERROR

    @property
    def rank(self) -> tuple[int, ...]:
        """Sorts findings, the worst first: in each level errors, and then what does harm."""
        return self.level, self.severity is not Severity.ERROR, not self.harm


class Suppressed(Model):
    """A finding that the stack file suppresses."""

    finding: Finding
    why: str
    until: str = ""


class QuotaNeed(Model):
    """What the stack needs of one quota with every pool at its largest."""

    metric: str
    where: str
    needed: float
    unit: str
    see: str
    ordinary: float | None = None
    known: bool = Field(
        default=True,
        description="Whether a source names the quota; where it is false, `metric` says what is counted.",
    )
    new: bool = Field(default=True, description="Whether the base needs another amount; true without a base.")


class Failure(Model):
    """Why a stack could not be evaluated."""

    revision: Literal["base", "head"]
    message: str
    problems: list[dict[str, str]] = Field(
        default_factory=list, description="Problems of the stack file: key, value, reason, fix."
    )


class StackPreview(Model):
    """One stack. Parts that could not be worked out are null; ``failures`` say why."""

    stack: str
    failures: list[Failure] = Field(default_factory=list)
    resources: int = 0
    new_stack: bool = Field(default=False, description="There is no such stack at the base.")
    removed: bool = Field(default=False, description="The base has it, and now it is gone.")
    changes: Changes | None = Field(default=None, description="Null without a base.")
    cost: Cost | None = None
    difference: CostDifference | None = None
    findings: list[Finding] = Field(default_factory=list)
    suppressed: list[Suppressed] = Field(default_factory=list)
    quotas: list[QuotaNeed] = Field(default_factory=list)
    remarks: list[str] = Field(default_factory=list)
    diagram: str = Field(
        default="",
        description="The architecture in Mermaid. Empty where the base has the same, and where it is too large.",
    )


class PackageVersions(Model):
    """A package of which the base pins another version. Each revision was evaluated by its own."""

    package: str
    base: str = Field(description="The version that evaluated the base.")
    here: str = Field(description="The version that evaluated this revision; empty where it has none.")


class Preview(Model):
    """All stacks of the project, those that a change does most to first."""

    format: Literal[2] = FORMAT
    base: str = Field(default="", description="The revision that was compared with; empty without one.")
    versions: list[PackageVersions] = Field(
        default_factory=list[PackageVersions],
        description="Slipway, Pulumi's SDK and those of providers, where the base has another version.",
    )
    basis: Literal["measured", "rehearsed", "limit"] = Field(
        default="limit",
        description="What all costs of Jobs are counted by: the times of the stacks' last runs, those of "
        "rehearsals on a CPU, or, where any of the Jobs lacks such a time, the time limits of all.",
    )
    prices_as_of: str = Field(default="", description="Date of the oldest price used that has one.")
    stacks: list[StackPreview]


def document(content: Model) -> str:
    """What a verb says as JSON, with a line break at its end."""
    return content.model_dump_json(indent=2) + "\n"


def schema() -> str:
    """The JSON Schema of `document`."""
    content = Preview.model_json_schema(mode="serialization")
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    content["title"] = "Preview of Slipway's stacks"
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(SCHEMA, schema(), "slipway.evaluated.model", sys.argv[1:]))
