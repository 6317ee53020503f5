"""A step that runs on several nodes at once, as one training: a pod on each, and each knows the others.

`slipway.features.nodes.pod.launcher` starts the program in each pod. TensorFlow's roles of the pods, which of them
can be together, and how a ``pipeline.yaml`` writes them, are here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import BeforeValidator, Field

from slipway.infra.features import Feature
from slipway.infra.pipelines.step_keys import INTERRUPTED, KILLED, InPod, StepKey, StepPart, field_as, told
from slipway.infra.schema.base import Duration, Int, Model, refuse
from slipway.infra.schema.problems import Finding, Path, did_you_mean, key_of, listed
from slipway.infra.schema.quantities import seconds

if TYPE_CHECKING:
    from slipway.infra.settings.checks.steps import Target
    from slipway.infra.settings.parsing import Draft

NODES, WAIT = "nodes", "wait"
"""Keys of the step: the first in a ``pipeline.yaml`` and in a stack file, the second below it and beside it."""

MOST = 256
"""Pods of one training. A mistake has more."""

TOLD: Mapping[str, str] = {
    WAIT: "how long its pods wait for one another changed from {} s to {} s",
    "port": "the port at which its pods meet changed from {} to {}",
}
"""`Nodes.tells` as text."""

NEIGHBOUR_FAILED = 15
"""The exit code of a pod that ends since another one failed: that one is the cause."""

LAUNCHER_FORMAT = 1
"""Part of the digest of every step on several nodes, in place of the launcher's files. Raise it when pods start to
be told something else of one another, and all of these steps run again."""

CHIEF, WORKER, PS, EVALUATOR = ROLES = ("chief", "worker", "ps", "evaluator")
"""The roles of `tf.distribute.cluster_resolver.TFConfigClusterResolver` and of Kubeflow's TFJob
(www.tensorflow.org/guide/distributed_training, "TF_CONFIG", seen November 2026)."""

ONCE = (CHIEF, EVALUATOR)
"""Roles that one pod at most can have."""

OTHER_NAMES: Mapping[str, str] = {
    "master": CHIEF,
    "parameterserver": PS,
    "parameter_server": PS,
    "parameter-server": PS,
    "server": PS,
    "eval": EVALUATOR,
    "slave": WORKER,
}
"""What else the roles are called: TFJob's `Master` is the chief."""


def role_called(role: str) -> str | None:
    """The role that ``role``, which is none, is another name of; None where it is no role's."""
    lower = role.lower()
    name = OTHER_NAMES.get(lower, lower.removesuffix("s") if lower not in ROLES else lower)
    return name if name in ROLES else None


def role_problems(roles: Mapping[str, int], count: int) -> Iterator[tuple[str, str]]:
    """Why pods with these ``roles``, known ones, are not the ``count`` pods of one training, each with a fix."""
    for role in ONCE:
        if roles.get(role, 0) > 1:
            yield f"{roles[role]} pods with the role `{role}`, of which there is one at most", f"write `{role}: 1`"
    if not roles.get(CHIEF) and not roles.get(WORKER):
        yield (
            f"none of the pods trains: {listed(roles, 'and')} never end by themselves",
            f"add `{WORKER}`, with a number of pods",
        )
    pods = sum(roles.values())
    if pods != count:
        without = pods - roles.get(WORKER, 0)
        fix = f"write `count: {pods}`"
        yield (
            f"the roles are those of {pods} pods, and the step runs on {count} nodes",
            f"{fix}, or `{WORKER}: {count - without}`" if count > without else fix,
        )


def resize(roles: Mapping[str, int], count: int) -> dict[str, int]:
    """``roles`` for ``count`` pods: workers are added or left out. There may be too few of them: none, or less."""
    if not roles:
        return {}
    missing = count - sum(roles.values())
    return dict(roles) if not missing else {**roles, WORKER: roles.get(WORKER, 0) + missing}


def fewest(roles: Mapping[str, int]) -> int:
    """The least number of pods for which `resize` leaves a worker, or the roles as they are where none has it."""
    others = sum(amount for role, amount in roles.items() if role != WORKER)
    return others + 1 if WORKER in roles else others


FIRST_PORT = 1025
"""The lowest port of a program on several nodes: a user's, as that below it is, at which the pods meet."""


def _nodes_section(value: Any) -> Any:
    """The section that ``value``, plain YAML, stands for: ``count: 2`` for ``2``.

    Raises what pydantic shows for what is neither a section nor a number of nodes.
    """
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse("neither a number nor a section", "write `2`, or a section with `count`: `{count: 2}`")
    if not 1 <= value <= MOST:
        raise refuse(f"a step runs on 1 to {MOST} nodes", f"write a number from 1 to {MOST}")
    return {"count": value}


class StepNodes(Model):
    """The nodes on which a step runs at once: a pod on each, which asks for what `resources` say, and on a pool
    with GPUs for all of its node's. Each program finds the others in `TF_CONFIG`, and its place among them in
    `RANK` and `WORLD_SIZE`; `MASTER_ADDR` and `MASTER_PORT` are where those of PyTorch meet, and
    `JAX_COORDINATOR_ADDRESS` is where those of JAX do. All start together. Where a pod is lost, all start again
    once it is replaced: programs save checkpoints, and go on with the newest. `{output}` is one directory for all.
    """

    count: Int = Field(ge=1, le=MOST, description="Number of nodes; on one the step runs as any step.")
    roles: dict[str, Annotated[Int, Field(ge=1)]] = Field(
        default_factory=dict[str, int],
        description=f"How many pods have each of TensorFlow's roles ({listed(ROLES, 'and')}), in the order of "
        "their ranks: `{chief: 1, worker: 3}`. They add up to `count`. Default: all are workers.",
    )
    wait: Duration = Field(
        default="10m",
        description="Pods that are there wait so long for those that are missing; then the step fails, and frees "
        "its nodes.",
    )
    port: Int = Field(
        default=2222,
        ge=FIRST_PORT,
        le=65535,
        description="The port that the program of each pod has to itself; the pods meet at the one below it.",
    )

    def findings(self, at: Path) -> Iterator[Finding]:
        """Findings about the roles of this section at ``at``."""
        unknown = [role for role in self.roles if role not in ROLES]
        for role in unknown:
            name = role_called(role)
            fix = f"write `{name}`" if name else did_you_mean(role, ROLES, f"write {listed(ROLES)}")
            place = (*at, "roles", role)
            yield Finding(place, self.roles[role], f"TensorFlow knows no role `{role}`", fix)
        if self.roles and not unknown:
            read = ((*at, "count"), *((*at, "roles", role) for role in ROLES))
            for reason, fix in role_problems(self.roles, self.count):
                yield Finding((*at, "roles"), self.roles, reason, fix, read=read)

    def count_findings(self, at: Path, count: int) -> Iterator[Finding]:
        """A finding where a stack file has too small a ``count``, at ``at``, for the roles of this section."""
        if count != self.count and count < fewest(self.roles):
            counts = [f"{role}: {amount}" for role, amount in self.roles.items()]
            yield Finding(
                at,
                count,
                f"its pods have the roles {listed(counts, 'and')}: on fewer nodes fewer have the role "
                f"`{WORKER}`, and there has to be one",
                f"write `{NODES}: {fewest(self.roles)}` or more",
            )


DeclaredNodes = Annotated[StepNodes, BeforeValidator(_nodes_section, json_schema_input_type=Int | StepNodes)]
"""The nodes of a step: a section, or their number alone."""


class WithNodes(Model):
    """The key of a step on several nodes."""

    nodes: DeclaredNodes | None = Field(
        default=None,
        description="Runs it on several nodes at once, as one training: a number, or a section.",
    )


@dataclass(frozen=True)
class Nodes(StepPart):
    """The pods of one training: ``pods`` of them at once, each on a node of its own, and each knows the others.

    ``roles`` are how many have each of TensorFlow's roles, in the order of their ranks; they add up to ``pods``.
    Where there are none, all are workers. The pods that are there wait ``wait`` seconds for those that are not.
    The program of each has ``port`` to itself; the pods meet at the one below it.
    """

    pods: int
    roles: Mapping[str, int] = field(default_factory=dict[str, int])
    wait: int = 600
    port: int = 2222

    key: ClassVar[str] = NODES
    pods_key: ClassVar[str] = NODES
    module: ClassVar[str] = "slipway.features.nodes.pod.launcher"
    tolerated: ClassVar[Sequence[int]] = (KILLED, INTERRUPTED, NEIGHBOUR_FAILED)
    is_indexed: ClassVar[bool] = True

    @property
    def ports(self) -> Mapping[str, int]:
        """Where the pods meet, and where their programs do."""
        return {"meet": self.port - 1, "program": self.port}

    @property
    def surrounds(self) -> Mapping[str, object]:
        """How long pods wait for one another, and at which port, decides nothing."""
        return {NODES: {"launcher": LAUNCHER_FORMAT, "count": self.pods, "roles": list(self.roles.items())}}

    def tells(self, pod: InPod) -> Mapping[str, object]:
        """How the pods find one another."""
        return {WAIT: self.wait, "port": self.ports["meet"]}

    def flags_by_kubelet(self, pod: InPod) -> list[str]:
        """What each launcher has to know of the others."""
        flags = [word for host in pod.hosts for word in ("--node", f"{host}:{self.port}")]
        flags += ["--meet", f"{pod.hosts[0]}:{self.ports['meet']}", "--wait", str(self.wait)]
        if self.roles:
            flags += ["--roles", ",".join(f"{role}={count}" for role, count in self.roles.items())]
        if pod.gpus:
            flags += ["--gpus", str(pod.gpus)]
        return flags


class NodesKey(StepKey):
    """The key `nodes`."""

    name: ClassVar[str] = NODES
    part: ClassVar[type[StepPart]] = Nodes
    fields: ClassVar[type[Model]] = WithNodes
    explains: ClassVar[Sequence[str]] = (NODES,)

    def settings(self, step: Any) -> Mapping[str, Any]:
        """How many nodes, and how long their pods wait for one another."""
        nodes = step.nodes
        count = Annotated[Int, Field(ge=1, le=MOST)]
        about = "Pods that run it together, each on a node of its own."
        wait = field_as(StepNodes, WAIT, nodes.wait if nodes else "10m")
        return {NODES: (count, Field(default=nodes.count if nodes else 1, description=about)), WAIT: wait}

    def findings(self, file: Any) -> Iterator[Finding]:
        """Roles of pods, and nodes of a step whose pods know nothing of one another."""
        for name, step in file.steps.items():
            nodes, at = step.nodes, ("steps", name, NODES)
            if nodes is None:
                continue
            if getattr(step, "items", None) is not None:
                reason = "the pods of a step with `items` know nothing of one another, and each works on its own"
                fix = "remove it, and write how many pods work on the items as `workers`; or remove `items`"
                yield Finding(at, nodes.count, reason, fix, read=((*at[:2], "items"),))
            yield from nodes.findings(at)

    def target_findings(self, at: Path, placed: Any, target: "Target", draft: "Draft") -> Iterator[Finding]:
        """A pool that has not as many nodes, or whose nodes have other GPUs."""
        if getattr(placed, NODES, 1) > 1:
            yield from _count(at, placed, target, draft)
            if target.pool.has_gpus:
                yield from _node_gpus(at, placed, target, draft)

    def section_findings(self, at: Path, step: Any, settings: Any, file: Any) -> Iterator[Finding]:
        """A number of nodes that the roles do not allow, and pods that wait until the step's time is over."""
        yield from step.nodes.count_findings((*at, NODES), settings.nodes)
        if settings.nodes > 1 and seconds(settings.wait) >= seconds(settings.time_limit):
            reason = "its pods would wait for one another until the time limit of the step, "
            yield Finding(
                (*at, WAIT),
                settings.wait,
                f"{reason}{settings.time_limit}, is over",
                "write less, such as `10m`, or a longer `time_limit`",
                read=((*at, "time_limit"), (*at, NODES)),
            )

    def causes(self, old: Any, new: Any) -> Iterator[str]:
        """The number of nodes and the roles of pods, which decide the result, and how the pods meet."""
        yield from told(TOLD, old, new)
        before, after = old.decides.get(NODES), new.decides.get(NODES)
        counts = [side["count"] if side else 1 for side in (before, after)]
        if counts[0] != counts[1]:
            yield f"the number of its nodes changed from {counts[0]} to {counts[1]}, which gives another result"
        elif before and after and before["roles"] != after["roles"]:
            roles = [",".join(f"{role}={count}" for role, count in side["roles"]) for side in (before, after)]
            said = [words or "workers alone" for words in roles]
            yield f"the roles of its pods changed from {said[0]} to {said[1]}, which gives another result"

    def declare(self, step: Any, settings: Any, file: Any, fill: Callable[[str], str]) -> Nodes | None:
        """The pods, where there are several: on one node the step runs as any step."""
        nodes = step.nodes
        if nodes is None or settings.nodes == 1:
            return None
        return Nodes(settings.nodes, resize(nodes.roles, settings.nodes), seconds(settings.wait), nodes.port)


def _count(at: Path, step: Any, target: "Target", draft: "Draft") -> Iterator[Finding]:
    from slipway.infra.settings.checks.steps import targets

    most = target.most_nodes
    # A pool without any node is a finding about every step.
    if not most or most >= step.nodes:
        return
    alike = [
        name
        for name, other in targets(draft).items()
        if (other.most_nodes or 0) >= step.nodes and other.pool.has_gpus == target.pool.has_gpus
    ]
    more = f"let it have {step.nodes}"
    more += f" (`{key_of(target.nodes_key)}`)" if target.nodes_key else " in the stack that has it"
    elsewhere = f", take one that has ({listed(alike)})" if alike else ""
    fewer = f"`nodes: {most}` or less" if most > 1 else "`nodes: 1`"
    yield Finding(
        (*at, "nodes"),
        step.nodes,
        f"pool `{target.name}` has at most {most} node{'s' * (most != 1)}, and each pod needs one of its own",
        f"{more}{elsewhere}, or write {fewer}",
        read=((*at, "pool"), *([target.nodes_key] if target.nodes_key else [])),
    )


def _node_gpus(at: Path, step: Any, target: "Target", draft: "Draft") -> Iterator[Finding]:
    read = ((*at, "pool"), (*at, "nodes"), *target.keys_of("gpus"))
    if target.pool.shares_gpus:
        from slipway.infra.settings.checks.steps import targets

        whole = [
            name for name, other in targets(draft).items() if other.pool.has_gpus and not other.pool.shares_gpus
        ]
        yield Finding(
            (*at, "nodes"),
            step.nodes,
            f"pool `{target.name}` divides its GPUs, and a share takes turns with others: all nodes of a training "
            "would wait for the slowest at every step",
            f"{f'take a pool with whole GPUs ({listed(whole)}), or ' if whole else ''}write `nodes: 1`",
            read=read,
        )
    elif target.node is None and not step.gpus:
        reason = f"pool `{target.name}` has GPUs, which would be paid for and idle"
        yield Finding((*at, "gpus"), step.gpus, reason, "write how many one of its nodes has", read)
    elif target.node is not None and step.gpus != target.node.gpus > 0:
        gpus = target.node.gpus
        if not step.gpus:
            reason = f"each node of pool `{target.name}` has {gpus}, which would be paid for and idle"
        elif step.gpus < gpus:
            idle = (gpus - step.gpus) * step.nodes
            reason = (
                f"each node of pool `{target.name}` has {gpus}, and no two pods of the step are on one node: "
                f"{idle} GPU{'s' * (idle != 1)} of {step.nodes} nodes would be paid for and idle"
            )
        else:
            reason = f"one node of pool `{target.name}` has {gpus}"
        yield Finding(
            (*at, "gpus"), step.gpus, reason, f"write `gpus: {gpus}`, all of a node's, or take another pool", read
        )


FEATURE = Feature(step_keys=(NodesKey(),))
