"""Kueue's flavors: which of them a Job gets, whether they have room for its pods, and whether they ever will.

After pkg/scheduler/flavorassigner/flavorassigner.go of github.com/kubernetes-sigs/kueue at commit ff69552 (22
August 2026, API version v1beta2), for Jobs with one set of pods.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from infra.review.properties import Properties, mapping, whole
from offline.engine import queue_objects
from offline.engine.quantities import shown
from offline.engine.queue_objects import (
    NAMESPACE_NAME,
    PODS,
    Asked,
    ClusterQueue,
    Flavor,
    FlavorResource,
    Group,
    Holder,
    Quota,
    is_stopped,
)
from offline.engine.queue_quotas import Quotas, Used, used_of
from offline.engine.scheduling import holds, selector_picks, untolerated

API = "kueue.x-k8s.io/v1beta2"

Objects = Callable[[str], Iterable[tuple[str, Properties]]]
"""By a kind: the names and properties of the objects of that kind."""


class Mode(IntEnum):
    """How well flavors fit; the higher the better."""

    NEVER = 0
    NO_FIT = 1
    PREEMPT = 2
    FIT = 3


@dataclass(frozen=True)
class Assignment:
    """The flavors for a Job of a ClusterQueue, by resource, and what it then uses of them.

    ``reasons`` are why it has to wait.
    """

    mode: Mode
    flavors: Mapping[str, str] = field(default_factory=dict[str, str])
    usage: Mapping[FlavorResource, int] = field(default_factory=dict[FlavorResource, int])
    borrows: bool = False
    reasons: Sequence[str] = ()
    queue: str = ""


@dataclass(frozen=True)
class Queues:
    """The queues of one cluster."""

    flavors: Mapping[str, Flavor]
    quotas: Quotas
    local_queues: Mapping[tuple[str, str], str]
    """Names of ClusterQueues by namespace and name of a LocalQueue."""
    stopped: frozenset[tuple[str, str]]
    """The LocalQueues that are stopped."""
    priorities: Mapping[str, int]
    checks: frozenset[str]

    def of(self, asked: Asked) -> ClusterQueue | None:
        """The ClusterQueue of a Job; None where there is none."""
        return self.quotas.cluster_queues.get(self.local_queues.get((asked.namespace, asked.queue), ""))

    def obstacle(self, asked: Asked, labels: Mapping[str, str]) -> str:
        """Why the Job waits whatever others use; empty where nothing but quota is in its way.

        ``labels`` are those of its namespace.
        """
        if (asked.namespace, asked.queue) not in self.local_queues:
            return f"LocalQueue {asked.queue} doesn't exist in {asked.namespace}"
        queue = self.of(asked)
        if queue is None:
            name = self.local_queues[asked.namespace, asked.queue]
            return f"ClusterQueue {name} of LocalQueue {asked.queue} doesn't exist"
        named = {NAMESPACE_NAME: asked.namespace, **labels}
        if queue.selector is None or not selector_picks(queue.selector, named):
            return f"Workload namespace doesn't match ClusterQueue selector of {queue.name}"
        return self._inactive(queue, asked)

    def _inactive(self, queue: ClusterQueue, asked: Asked) -> str:
        if queue.stopped or (asked.namespace, asked.queue) in self.stopped:
            return f"ClusterQueue {queue.name} or its LocalQueue {asked.queue} is stopped by its stopPolicy"
        if missing := [name for name in queue.flavors if name not in self.flavors]:
            return f"ClusterQueue {queue.name} is inactive: flavors do not exist: {', '.join(missing)}"
        if missing := [name for name in queue.checks if name not in self.checks]:
            return f"ClusterQueue {queue.name} is inactive: AdmissionChecks do not exist: {', '.join(missing)}"
        return ""

    def never(self, asked: Asked) -> str:
        """Why quota alone keeps the Job waiting for ever, with the figures; empty where it does not."""
        queue = self.of(asked)
        if queue is None or (empty := self.assign(asked, {})).mode > Mode.NEVER:
            return ""
        lacking = list(self._exceeded(queue, asked))
        if not lacking:
            return f"no quota of queue {queue.name} is for its pods: {'; '.join(empty.reasons)}"
        return f"it asks for {', '.join(lacking)}"

    def beyond_share(self, asked: Asked) -> str:
        """Why the Job takes nothing back that others borrow, with the figures; empty where it may.

        Jobs of other queues are stopped only for what is within the queue's own quota (`fitsResourceQuota` in
        flavorassigner.go). Seen with Kueue 0.19.2, with fair sharing, too.
        """
        queue = self.of(asked)
        if queue is None or not queue.parent or not queue.reclaims or self.never(asked):
            return ""
        lacking = list(self._exceeded(queue, asked, own=True))
        return f"it asks for {', '.join(lacking)}" if lacking else ""

    def _exceeded(self, queue: ClusterQueue, asked: Asked, *, own: bool = False) -> Iterator[str]:
        """What is asked for and what there is, of each resource that no flavor for the pods has enough of.

        With ``own``, what others lend does not count.
        """
        for group in queue.groups:
            fitting = [name for name in group.flavors if not self._mismatch(name, asked)]
            wanted = {name: value for name, value in _wanted(queue, asked).items() if name in group.resources}
            for resource, value in wanted.items():
                most = max((self._most(queue, (name, resource), own=own) for name in fitting), default=None)
                if most is not None and value > most:
                    each = f" ({asked.pods} pods)" if asked.pods > 1 and resource != PODS else ""
                    there = f"the {'share' if own else 'quota'} of queue {queue.name} is {shown(resource, most)}"
                    yield f"{shown(resource, value)} {resource} in all{each}, and {there}"

    def _most(self, queue: ClusterQueue, key: FlavorResource, *, own: bool) -> int:
        return queue.quotas.get(key, Quota(0)).nominal if own else self.quotas.most(queue, key, {})

    def assign(self, asked: Asked, used: Used) -> Assignment:
        """The flavors for a Job beside what is ``used``, by ClusterQueue. The Job has one."""
        queue = self.quotas.cluster_queues[self.local_queues[asked.namespace, asked.queue]]
        covered = {resource: group for group in queue.groups for resource in group.resources}
        wanted = _wanted(queue, asked)
        flavors: dict[str, str] = {}
        usage: dict[FlavorResource, int] = {}
        found: list[Assignment] = []
        for resource in wanted:
            group = covered.get(resource)
            if group is None:
                return Assignment(Mode.NEVER, reasons=[f"resource {resource} unavailable in ClusterQueue"])
            if resource in flavors:
                continue
            own = {name: wanted[name] for name in group.resources if name in wanted}
            best = self._assign_group(queue, group, own, asked, used)
            if best.mode <= Mode.NO_FIT:
                return best
            found.append(best)
            flavors |= best.flavors
            usage |= best.usage
        return Assignment(
            min((each.mode for each in found), default=Mode.FIT),
            flavors,
            usage,
            any(each.borrows for each in found),
            [reason for each in found for reason in each.reasons],
            queue.name,
        )

    def _assign_group(
        self,
        queue: ClusterQueue,
        group: Group,
        wanted: Mapping[str, int],
        asked: Asked,
        used: Used,
    ) -> Assignment:
        """The best flavor of a group: the first that fits, or whose Jobs may be stopped."""
        reasons: list[str] = []
        best: Assignment | None = None
        for name in group.flavors:
            if reason := self._mismatch(name, asked):
                reasons.append(reason)
                continue
            tried = self._assign_flavor(queue, name, wanted, used)
            reasons += tried.reasons
            if best is None or (tried.mode, not tried.borrows) > (best.mode, not best.borrows):
                best = tried
            if tried.mode is Mode.FIT and not (tried.borrows and queue.tries_next):
                break
        if best is None:
            return Assignment(Mode.NEVER, reasons=reasons)
        return Assignment(
            best.mode, best.flavors, best.usage, best.borrows, [] if best.mode is Mode.FIT else reasons
        )

    def _assign_flavor(
        self,
        queue: ClusterQueue,
        flavor: str,
        wanted: Mapping[str, int],
        used: Used,
    ) -> Assignment:
        modes, borrows, reasons = [Mode.FIT], False, list[str]()
        for resource, value in wanted.items():
            key = (flavor, resource)
            most, left = self.quotas.most(queue, key, used), self.quotas.left(queue, key, used)
            nominal = queue.quotas.get(key, Quota(0)).nominal
            if value > most:
                modes.append(Mode.NEVER)
                reasons.append(
                    f"insufficient quota for {resource} in flavor {flavor}, request ({shown(resource, value)}) > "
                    f"maximum capacity ({shown(resource, most)})"
                )
            elif value > left:
                modes.append(Mode.PREEMPT if queue.preempts and value <= nominal else Mode.NO_FIT)
                more = shown(resource, value - left)
                reasons.append(f"insufficient unused quota for {resource} in flavor {flavor}, {more} more needed")
            borrows = borrows or used_of(used, queue.name, key) + value > nominal
        usage = {(flavor, resource): value for resource, value in wanted.items()}
        return Assignment(min(modes), dict.fromkeys(wanted, flavor), usage, borrows, reasons)

    def _mismatch(self, name: str, asked: Asked) -> str:
        """Why pods cannot be on the nodes of a flavor. Of labels only those count that the flavor names."""
        flavor = self.flavors.get(name)
        if flavor is None:
            return f"flavor {name} not found"
        if taint := untolerated([*asked.tolerations, *flavor.tolerations], flavor.taints):
            return f"untolerated taint {{{taint.key}: {taint.value}}} in flavor {name}"
        chosen = all(flavor.labels[key] == value for key, value in asked.selector.items() if key in flavor.labels)
        terms = [[each for each in term if each.key in flavor.labels] for term in asked.affinity]
        fits = not terms or any(all(holds(each, flavor.labels) for each in term) for term in terms)
        return "" if chosen and fits else f"flavor {name} doesn't match node affinity"


def _wanted(queue: ClusterQueue, asked: Asked) -> dict[str, int]:
    """What the queue has to have for a Job: of resources that it covers, of pods, and of all others."""
    covered = {resource for group in queue.groups for resource in group.resources}
    wanted = {name: value for name, value in asked.amounts.items() if value or name in covered}
    return {**wanted, PODS: asked.pods} if PODS in covered else wanted


def queues_of(cluster_wide: Objects, local_queues: Iterable[tuple[str, str, Properties]]) -> Queues:
    """The queues that these objects are; ``local_queues`` are by namespace and name.

    Raises ValueError for an amount that is no quantity.
    """
    local = [(namespace, name, mapping(each.get("spec"))) for namespace, name, each in local_queues]
    return Queues(
        flavors={
            name: queue_objects.flavor(mapping(each.get("spec"))) for name, each in cluster_wide("ResourceFlavor")
        },
        quotas=Quotas(
            {
                name: queue_objects.cluster_queue(name, mapping(each.get("spec")))
                for name, each in cluster_wide("ClusterQueue")
            },
            {name: _cohort(name, mapping(each.get("spec"))) for name, each in cluster_wide("Cohort")},
        ),
        local_queues={(namespace, name): str(spec.get("clusterQueue") or "") for namespace, name, spec in local},
        stopped=frozenset((namespace, name) for namespace, name, spec in local if is_stopped(spec)),
        priorities={name: whole(each.get("value"), 0) for name, each in cluster_wide("WorkloadPriorityClass")},
        checks=frozenset(name for name, _ in cluster_wide("AdmissionCheck")),
    )


def _cohort(name: str, spec: Properties) -> Holder:
    return Holder(name, str(spec.get("parentName") or ""), queue_objects.quotas(spec))
