"""Keeps `pulumi up` from ending Jobs that run: it looks which do before it takes their nodes away.

An update replaces, deletes or renews the nodes of a pool whatever runs on them. Jobs of `runs: cluster`, of
schedules, of other stacks and of an `up` that was interrupted run meanwhile. So the program compares what it
declares of clusters and pools with the stack's state, and where nodes would end, asks the cluster for the Jobs on
them. In a preview it names them. An update it ends before Pulumi is told of the first resource, unless the stack
file lets it end Jobs on that pool; and it looks again immediately before Pulumi is told of the pool. Jobs that the
update itself makes anew are named as well, and no more: whoever changed a step means it.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import cache, cached_property
from typing import Any, cast

import pulumi
from pulumi import _types  # pyright: ignore[reportPrivateUsage]

from slipway.infra import pulumi_cli
from slipway.infra.api_server import ApiServer, UnreadableError
from slipway.infra.clouds.registry import reviews
from slipway.infra.kubernetes.labels import INSTANCE
from slipway.infra.review.contract import Review
from slipway.infra.review.stack import (
    FAILURE_FIELDS,
    JOB,
    UNKNOWN,
    Properties,
    Resource,
    at,
    mapping,
    mappings,
    strings,
    text,
)
from slipway.infra.review.state import stack_of_state
from slipway.infra.schema.base import CreatedCluster
from slipway.infra.schema.names import UNREAD
from slipway.infra.settings.model import Settings
from slipway.infra.stack.ended_nodes import EndedJob, EndedNodes, Update
from slipway.infra.stack.running_jobs import RunningJob, jobs_in, jobs_on

KEY = "may_end_jobs_on"
"""The key of a cluster in a stack file: the pools on which an update may end Jobs."""


_Identity = tuple[str, str, str, str]
"""An object by its cluster, the type of its resource, its namespace and its name."""

RUNNING = frozenset(
    {JOB, *(f"kubernetes:{kind}" for kind in ("batch/v1:CronJob", "apps/v1:Deployment", "apps/v1:StatefulSet"))}
)
"""Types of objects with pods. What else a killed update leaves may hold data, and runs nothing."""


class RefusedUpdateError(pulumi.RunError):
    """Nothing of the update may be carried out, as what is declared tells. The text says why, and the way on."""


MOST_JOBS = 10
"""How many Jobs are named; the others are counted."""


@dataclass
class RunningWork:
    """Finds out which Jobs an update of the stack ends, while its program declares resources.

    ``allowed`` are, by cluster, the pools on which it may. In a ``preview`` it only says which Jobs there are.
    ``exported`` asks for the resources of the stack's state, ``connect`` for the API server of a cluster, and
    ``created`` for the resources that an update was creating when it was killed.
    """

    allowed: Mapping[str, Sequence[str]]
    preview: bool
    exported: Callable[[], Sequence[Properties]]
    reviews: Sequence[Review]
    connect: Callable[[str, str | None], ApiServer] = ApiServer
    created: Callable[[], Sequence[Properties]] = tuple
    _ended: list[EndedNodes] = field(default_factory=list[EndedNodes])
    _declared: set[_Identity] = field(default_factory=set[_Identity])

    def apply(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        """The transformation of every resource of the stack."""
        if args.type_.startswith("kubernetes:"):
            provider = args.opts.provider or (args.opts.parent and args.opts.parent.get_provider(args.type_))
            self._declared.add(_identity(getattr(provider, "_name", ""), args.type_, _plain(args.props)))
        watched = args.type_ == JOB or args.type_.partition(":")[0] in self._packages
        if not watched or args.opts.id is not None or not self._update:
            return None
        ignored = args.opts.ignore_changes or ()
        declared = Resource(
            urn="",
            type=args.type_,
            name=args.name,
            properties={_camel(key): _plain(item) for key, item in args.props.items() if item is not None},
            protect=bool(args.opts.protect),
            ignore_changes=[_camel(path) for path in cast("Sequence[str]", ignored)],
        )
        ended = self._update.declare(declared)
        self._ended += ended
        if self._update.keeps_policy(declared):
            kept = pulumi.ResourceOptions(ignore_changes=[*FAILURE_FIELDS])
            return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, kept))
        guarded = [nodes for nodes in ended if not self._may_end(nodes)]
        if not guarded or self.preview:
            return None
        # What the resource comes from is there then: the update of a control plane takes its time.
        sources = [cast("Any", item) for item in args.props.values() if isinstance(item, pulumi.Output)]
        second_look: Any = pulumi.Output.all(*sources).apply(lambda _: self._look_again(guarded))
        gated = pulumi.ResourceOptions(depends_on=[second_look])
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, gated))

    def check(self) -> None:
        """Raises RefusedUpdateError where the update ends Jobs and may not. To be called once all is declared."""
        if not self._update:
            return
        ended = [*self._ended, *self._update.removed()]
        whole = {nodes.cluster for nodes in ended if not nodes.pool}
        ended = [nodes for nodes in ended if nodes.cluster not in whole or not nodes.pool]
        meant = [nodes for nodes in ended if self.preview or self._may_end(nodes)]
        if said := self._say(meant):
            pulumi.log.warn(said)
        self._refuse([nodes for nodes in ended if nodes not in meant])
        if lines := self._made_anew(self._update.jobs()):
            pulumi.log.warn(
                "\n".join(["This update deletes Jobs that run, most of them to make them anew:", *lines])
            )

    def end_left(self) -> None:
        """Deletes what runs in clusters since a killed update left it, unknown to the state, and nothing declares.

        In a preview it says so. To be called once all is declared.
        """
        with contextlib.suppress(pulumi_cli.CliError):
            left = {_identity_of(item): item for item in self.created() if item.get("type") in RUNNING}
            known = {_identity_of(item) for item in (self._exported if left else ())}
            for identity in sorted(left.keys() - known - self._declared):
                self._end(identity, mapping(left[identity].get("inputs")))

    def _end(self, identity: _Identity, inputs: Properties) -> None:
        cluster, _, namespace, name = identity
        kind, owner = text(inputs.get("kind")), strings(at(inputs, "metadata", "labels")).get(INSTANCE)
        what = f'{kind} "{name}" in namespace "{namespace}" of cluster {cluster}'
        wanted = text(inputs.get("apiVersion")), kind, name, namespace
        try:
            live = self._server(cluster).find(*wanted)
            if live is None or strings(at(live, "metadata", "labels")).get(INSTANCE, "") != owner:
                return
            if not self.preview:
                self._server(cluster).delete(*wanted)
        except UnreadableError as error:
            pulumi.log.warn(f"{what}: a killed update may have left it, and nothing ends it: {error}")
            return
        deletes = "`pulumi up` deletes it" if self.preview else "it is deleted"
        pulumi.log.warn(f"{what}: a killed update left it, the state lacks it, and nothing declares it: {deletes}")

    def state(self) -> Sequence[Properties]:
        """The resources of the stack's state. Raises CliError."""
        if self._update is None:
            # A backend that did not answer is not waited for again.
            raise pulumi_cli.CliError("the stack's state is not known")
        return self._exported

    def _made_anew(self, ended: Sequence[EndedJob]) -> list[str]:
        """A line for each of the Jobs that runs, as far as its cluster tells."""
        now = datetime.now(UTC)
        lines: list[str] = []
        for cluster, namespace in dict.fromkeys((job.cluster, job.namespace) for job in ended):
            why = {job.name: job.why for job in ended if (job.cluster, job.namespace) == (cluster, namespace)}
            with contextlib.suppress(UnreadableError):
                running = jobs_in(self._server(cluster), namespace)
                lines += [
                    _describe(job, EndedNodes(cluster, "", "", why[job.name]), now)
                    for job in running
                    if job.name in why
                ]
        return lines

    def _may_end(self, nodes: EndedNodes) -> bool:
        """Of a whole cluster's nodes: where all of its pools are named."""
        ended = [nodes.pool] if nodes.pool else self._update.pools_of(nodes.cluster) if self._update else []
        return bool(ended) and {*ended} <= {*self.allowed.get(nodes.cluster, ())}

    async def _look_again(self, ended: Sequence[EndedNodes]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._refuse, ended)

    def _refuse(self, ended: Sequence[EndedNodes]) -> None:
        if said := self._say(ended):
            clusters = dict.fromkeys(f"slipway:clusters.{nodes.cluster}" for nodes in ended)
            raise RefusedUpdateError(
                f"{said}\nSo nothing is done to these nodes. Wait until the Jobs have ended (`slipway watch`), or "
                "stop them; or leave the pool as it is, beside a new one of another name, until they have. To end "
                f"them now, name the pool, of a whole cluster each one, under `{KEY}` of {', '.join(clusters)}."
            )

    def _say(self, ended: Sequence[EndedNodes]) -> str:
        """Which Jobs lose these nodes, a line for each, below their number; empty where none does."""
        now = datetime.now(UTC)
        jobs: list[str] = []
        unread: list[str] = []
        for nodes in ended:
            try:
                on_nodes = jobs_on(self._server(nodes.cluster), nodes.selector)
                jobs += [_describe(job, nodes, now) for job in on_nodes]
            except UnreadableError as error:
                what = f"pool {nodes.pool} of cluster" if nodes.pool else "cluster"
                unread.append(f"- which Jobs run on {what} {nodes.cluster} ({nodes.why}): {error}")
        lines = [f"This update ends {len(jobs)} running Job{'s' if len(jobs) > 1 else ''}:", *jobs[:MOST_JOBS]]
        lines += [f"- and {len(jobs) - MOST_JOBS} more"] if jobs[MOST_JOBS:] else []
        return "\n".join([*(lines if jobs else []), *(["It is not known:", *unread] if unread else [])])

    def _server(self, cluster: str) -> ApiServer:
        kubeconfig, context = pulumi_cli.kubeconfig_of(self._exported, cluster)
        if not kubeconfig:
            raise UnreadableError("the stack's state has no kubeconfig of it")
        return self.connect(kubeconfig, context)

    @cached_property
    def _packages(self) -> frozenset[str]:
        return frozenset(type_.partition(":")[0] for review in self.reviews for type_ in review.node_labels)

    @cached_property
    def _exported(self) -> Sequence[Properties]:
        return self.exported()

    @cached_property
    def _update(self) -> Update | None:
        """None where nobody knows what the stack has."""
        try:
            state = stack_of_state(pulumi.get_stack(), self._exported)
        except pulumi_cli.CliError as error:
            pulumi.log.warn(f"Whether this update ends running Jobs is not known: {error}")
            return None
        # As `pulumi_cli.unfinished_jobs` has it.
        unready = (resource for resource in self._exported if resource.get("initErrors"))
        return Update(state, self.reviews, frozenset(text(resource.get("urn")) for resource in unready))


def guard(settings: Settings, *, preview: bool) -> RunningWork | None:
    """Watches what the program declares after this; None where nothing outside of the program may be read, and
    where the program is run to destroy the stack: that ends what a killed update left, too.
    """
    if UNREAD.get():
        return None
    allowed = {
        name: cluster.may_end_jobs_on
        for name, cluster in settings.clusters.items()
        if isinstance(cluster, CreatedCluster)
    }
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    deployment = cache(lambda: pulumi_cli.deployment_of(stack))
    work = RunningWork(
        allowed,
        preview,
        lambda: mappings(deployment().get("resources")),
        reviews(),
        created=lambda: pulumi_cli.being_created(deployment()),
    )
    if pulumi_cli.starts_nothing():
        if pulumi_cli.starts_nothing(pulumi_cli.DESTROYS):
            work.end_left()
        return None
    pulumi.runtime.register_stack_transformation(work.apply)
    return work


def _identity(cluster: str, type_: str, inputs: object) -> _Identity:
    """Which object of a cluster these inputs of a resource are."""
    return cluster, type_, text(at(inputs, "metadata", "namespace")), text(at(inputs, "metadata", "name"))


def _identity_of(resource: Properties) -> _Identity:
    """The same of a resource of the state."""
    return _identity(pulumi_cli.provider_name(resource), text(resource.get("type")), resource.get("inputs"))


def _describe(job: RunningJob, nodes: EndedNodes, now: datetime) -> str:
    """``- Job fit in namespace ml on pool gpu of cluster dev: 1 pod, 3 h 10 min of work, $21 (…); it loses …``."""
    pool = f"pool {nodes.pool} of cluster" if nodes.pool else "cluster"
    hours = job.hours(now)
    money = f", ${hours * nodes.rate * len(job.nodes):,.2f} of nodes" if nodes.rate is not None else ""
    pods = f"{job.pods} pod{'s' if job.pods > 1 else ''}"
    return (
        f"- Job {job.name} in namespace {job.namespace} on {pool} {nodes.cluster}: {pods}, "
        f"{_duration(hours)} of work{money} ({nodes.why}); it loses {_loss(job.interval, hours)}"
    )


def _loss(interval: int | None, hours: float) -> str:
    """What of so many hours of work a Job loses that ends now, as far as its pods tell."""
    if interval is None:
        return "all of that but what its program saves itself: it has no `checkpoints`"
    if interval == 0 or interval >= hours * 3600:
        return "what came after its last checkpoint"
    most = _duration(interval / 3600)
    return f"what came after its last checkpoint: at most {most} where its program writes them as often"


def _plain(value: object) -> object:
    """A property as the engine is told it, with `UNKNOWN` for every output."""
    if isinstance(value, pulumi.Output | pulumi.Resource | pulumi.Asset | pulumi.Archive):
        return UNKNOWN
    if isinstance(value, Enum):
        return cast("object", value.value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {key: _plain(item) for key, item in entries if item is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    if _types.is_input_type(type(value)):
        return _plain(_types.input_type_to_dict(value))
    return value


def _camel(name: str) -> str:
    """``nodeConfig`` of ``node_config``."""
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def _duration(hours: float) -> str:
    minutes = round(hours * 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
