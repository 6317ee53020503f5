"""Kueue's flavors: which of them a Job gets, and whether its pods fit now or can ever fit.

After pkg/scheduler/flavorassigner/flavorassigner.go of github.com/kubernetes-sigs/kueue at commit ff69552 (22
August 2026, API version v1beta2), for Jobs with one set of pods.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from infra.review.stack import Properties, mapping, whole
from offline.evaluated import queue_objects
from offline.evaluated.queue_objects import (
    NAMESPACE_NAME,
    PODS,
    ClusterQueue,
    Flavor,
    FlavorResource,
    Group,
    Holder,
    QueuedJob,
    Quota,
    is_stopped,
)
from offline.evaluated.scheduling import holds, selector_picks, shown, untolerated

# How much of a quota is left, and how much it has at most, where queues lend one another unused quota.
#
# After pkg/cache/scheduler/resource_node.go of github.com/kubernetes-sigs/kueue at commit ff69552 (22 August
# 2026): a holder keeps what it does not lend, and the rest of its quota is available to its whole cohort.


Used = Mapping[str, Mapping[FlavorResource, int]]
"""What is in use of each flavor's resources, by ClusterQueue."""


@dataclass(frozen=True)
class Quotas:
    """The quotas of ClusterQueues and cohorts, by name."""

    cluster_queues: Mapping[str, ClusterQueue]
    cohorts: Mapping[str, Holder]

    def _children(self, cohort: str) -> list[Holder]:
        holders: list[Holder] = [*self.cluster_queues.values(), *self._all_cohorts().values()]
        return [holder for holder in holders if holder.parent == cohort and not self._is_cohort(holder, cohort)]

    def _is_cohort(self, holder: Holder, cohort: str) -> bool:
        return not isinstance(holder, ClusterQueue) and holder.name == cohort

    def _all_cohorts(self) -> dict[str, Holder]:
        """Those with an object, and those that only others name."""
        named = {
            cluster_queue.parent for cluster_queue in (*self.cluster_queues.values(), *self.cohorts.values())
        } - {""}
        return {name: self.cohorts.get(name, Holder(name, "", {})) for name in (*named, *self.cohorts)}

    def _subtree(self, holder: Holder, key: FlavorResource) -> int:
        nominal = holder.quotas.get(key, Quota(0)).nominal
        if isinstance(holder, ClusterQueue):
            return nominal
        lent = (self._subtree(child, key) - self._kept(child, key) for child in self._children(holder.name))
        return nominal + sum(lent)

    def _kept(self, holder: Holder, key: FlavorResource) -> int:
        """What is not lent."""
        limit = holder.quotas.get(key, Quota(0)).lending
        return 0 if limit is None else max(0, self._subtree(holder, key) - limit)

    def _usage(self, holder: Holder, key: FlavorResource, used: Used) -> int:
        if isinstance(holder, ClusterQueue):
            return used_of(used, holder.name, key)
        children = self._children(holder.name)
        return sum(max(0, self._usage(child, key, used) - self._kept(child, key)) for child in children)

    def left(self, holder: Holder, key: FlavorResource, used: Used) -> int:
        """What is left of a quota, with what others lend."""
        subtree, usage = self._subtree(holder, key), self._usage(holder, key, used)
        if not holder.parent:
            return subtree - usage
        kept = self._kept(holder, key)
        above = self.left(self._all_cohorts()[holder.parent], key, used)
        limit = holder.quotas.get(key, Quota(0)).borrowing
        if limit is not None:
            above = min(above, subtree - kept - max(0, usage - kept) + limit)
        return max(0, kept - usage) + above

    def most(self, holder: Holder, key: FlavorResource, used: Used) -> int:
        """The quota if no Job uses any of it, with the quota that others lend."""
        subtree = self._subtree(holder, key)
        if not holder.parent:
            return subtree
        available = self._kept(holder, key) + self.most(self._all_cohorts()[holder.parent], key, used)
        limit = holder.quotas.get(key, Quota(0)).borrowing
        return available if limit is None else min(subtree + limit, available)


def used_of(used: Used, queue: str, key: FlavorResource) -> int:
    """What is in use of a queue's flavor."""
    return used.get(queue, {}).get(key, 0)


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

    def of(self, job: QueuedJob) -> ClusterQueue | None:
        """The ClusterQueue of a Job; None where there is none."""
        return self.quotas.cluster_queues.get(self.local_queues.get((job.namespace, job.queue), ""))

    def obstacle(self, job: QueuedJob, labels: Mapping[str, str]) -> str:
        """Why the Job waits whatever others use; empty where nothing but quota is in its way.

        ``labels`` are those of its namespace.
        """
        if (job.namespace, job.queue) not in self.local_queues:
            return f"LocalQueue {job.queue} doesn't exist in {job.namespace}"
        queue = self.of(job)
        if queue is None:
            name = self.local_queues[job.namespace, job.queue]
            return f"ClusterQueue {name} of LocalQueue {job.queue} doesn't exist"
        named = {NAMESPACE_NAME: job.namespace, **labels}
        if queue.selector is None or not selector_picks(queue.selector, named):
            return f"Workload namespace doesn't match ClusterQueue selector of {queue.name}"
        return self._inactive(queue, job)

    def _inactive(self, queue: ClusterQueue, job: QueuedJob) -> str:
        if queue.stopped or (job.namespace, job.queue) in self.stopped:
            return f"ClusterQueue {queue.name} or its LocalQueue {job.queue} is stopped by its stopPolicy"
        if missing := [name for name in queue.flavors if name not in self.flavors]:
            return f"ClusterQueue {queue.name} is inactive: flavors do not exist: {', '.join(missing)}"
        if missing := [name for name in queue.checks if name not in self.checks]:
            return f"ClusterQueue {queue.name} is inactive: AdmissionChecks do not exist: {', '.join(missing)}"
        return ""

    def never(self, job: QueuedJob) -> str:
        """Why quota alone keeps the Job waiting for ever, with the figures; empty where it does not."""
        queue = self.of(job)
        if queue is None or (empty := self.assign(job, {})).mode > Mode.NEVER:
            return ""
        lacking = list(self._find_exceeded(queue, job))
        if not lacking:
            return f"no quota of queue {queue.name} is for its pods: {'; '.join(empty.reasons)}"
        return f"it asks for {', '.join(lacking)}"

    def beyond_share(self, job: QueuedJob) -> str:
        """Why the Job takes nothing back that others borrow, with the figures; empty where it may.

        Jobs of other queues are stopped only for what is within the queue's own quota (`fitsResourceQuota` in
        flavorassigner.go). Seen with Kueue 0.19.2, with fair sharing, too.
        """
        queue = self.of(job)
        if queue is None or not queue.parent or not queue.reclaims or self.never(job):
            return ""
        lacking = list(self._find_exceeded(queue, job, own_share=True))
        return f"it asks for {', '.join(lacking)}" if lacking else ""

    def _find_exceeded(self, queue: ClusterQueue, job: QueuedJob, *, own_share: bool = False) -> Iterator[str]:
        """A sentence for each resource that no suitable flavor has enough of: the request and the limit.

        With ``own_share``, what others lend does not count.
        """
        for group in queue.groups:
            fitting = [name for name in group.flavors if not self._mismatch(name, job)]
            wanted = {
                name: value for name, value in _wanted_amounts(queue, job).items() if name in group.resources
            }
            for resource, value in wanted.items():
                most = max(
                    (self._most(queue, (name, resource), own_share=own_share) for name in fitting), default=None
                )
                if most is not None and value > most:
                    pods_words = f" ({job.pods} pods)" if job.pods > 1 and resource != PODS else ""
                    limit_words = (
                        f"the {'share' if own_share else 'quota'} of queue {queue.name} is {shown(resource, most)}"
                    )
                    yield f"{shown(resource, value)} {resource} in all{pods_words}, and {limit_words}"

    def _most(self, queue: ClusterQueue, key: FlavorResource, *, own_share: bool) -> int:
        return queue.quotas.get(key, Quota(0)).nominal if own_share else self.quotas.most(queue, key, {})

    def assign(self, job: QueuedJob, used: Used) -> Assignment:
        """The flavors for a Job beside what is ``used``, by ClusterQueue. The Job has one."""
        queue = self.quotas.cluster_queues[self.local_queues[job.namespace, job.queue]]
        covered = {resource: group for group in queue.groups for resource in group.resources}
        wanted = _wanted_amounts(queue, job)
        flavors: dict[str, str] = {}
        usage: dict[FlavorResource, int] = {}
        assignments: list[Assignment] = []
        for resource in wanted:
            group = covered.get(resource)
            if group is None:
                return Assignment(Mode.NEVER, reasons=[f"resource {resource} unavailable in ClusterQueue"])
            if resource in flavors:
                continue
            group_wants = {name: wanted[name] for name in group.resources if name in wanted}
            best = self._assign_group(queue, group, group_wants, job, used)
            if best.mode <= Mode.NO_FIT:
                return best
            assignments.append(best)
            flavors |= best.flavors
            usage |= best.usage
        return Assignment(
            min((assignment.mode for assignment in assignments), default=Mode.FIT),
            flavors,
            usage,
            any(assignment.borrows for assignment in assignments),
            [reason for assignment in assignments for reason in assignment.reasons],
            queue.name,
        )

    def _assign_group(
        self,
        queue: ClusterQueue,
        group: Group,
        wanted: Mapping[str, int],
        job: QueuedJob,
        used: Used,
    ) -> Assignment:
        """The best flavor of a group: the first that fits, or whose Jobs may be stopped."""
        reasons: list[str] = []
        best: Assignment | None = None
        for name in group.flavors:
            if reason := self._mismatch(name, job):
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

    def _mismatch(self, name: str, job: QueuedJob) -> str:
        """Why pods cannot be on the nodes of a flavor. Of labels only those count that the flavor names."""
        flavor = self.flavors.get(name)
        if flavor is None:
            return f"flavor {name} not found"
        if taint := untolerated([*job.tolerations, *flavor.tolerations], flavor.taints):
            return f"untolerated taint {{{taint.key}: {taint.value}}} in flavor {name}"
        chosen = all(flavor.labels[key] == value for key, value in job.selector.items() if key in flavor.labels)
        terms = [[expression for expression in term if expression.key in flavor.labels] for term in job.affinity]
        fits = not terms or any(all(holds(expression, flavor.labels) for expression in term) for term in terms)
        return "" if chosen and fits else f"flavor {name} doesn't match node affinity"


def _wanted_amounts(queue: ClusterQueue, job: QueuedJob) -> dict[str, int]:
    """The amounts of resources that a Job needs from the queue, with the number of pods where the queue counts
    pods."""
    covered = {resource for group in queue.groups for resource in group.resources}
    wanted = {name: value for name, value in job.amounts.items() if value or name in covered}
    return {**wanted, PODS: job.pods} if PODS in covered else wanted


def queues_of(cluster_wide: Objects, local_queues: Iterable[tuple[str, str, Properties]]) -> Queues:
    """The queues that these objects are; ``local_queues`` are by namespace and name.

    Raises ValueError for an amount that is no quantity.
    """
    local = [(namespace, name, mapping(resource.get("spec"))) for namespace, name, resource in local_queues]
    return Queues(
        flavors={
            name: queue_objects.flavor(mapping(resource.get("spec")))
            for name, resource in cluster_wide("ResourceFlavor")
        },
        quotas=Quotas(
            {
                name: queue_objects.cluster_queue(name, mapping(resource.get("spec")))
                for name, resource in cluster_wide("ClusterQueue")
            },
            {name: _cohort(name, mapping(resource.get("spec"))) for name, resource in cluster_wide("Cohort")},
        ),
        local_queues={(namespace, name): str(spec.get("clusterQueue") or "") for namespace, name, spec in local},
        stopped=frozenset((namespace, name) for namespace, name, spec in local if is_stopped(spec)),
        priorities={
            name: whole(resource.get("value"), 0) for name, resource in cluster_wide("WorkloadPriorityClass")
        },
        checks=frozenset(name for name, _ in cluster_wide("AdmissionCheck")),
    )


def _cohort(name: str, spec: Properties) -> Holder:
    return Holder(name, str(spec.get("parentName") or ""), queue_objects.quotas(spec))


# Which Job Kueue admits next, and which Jobs it preempts for one that waits.
#
# After pkg/scheduler/scheduler.go, pkg/cache/queue/cluster_queue.go and pkg/scheduler/preemption of
# github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026). What is left out: fair sharing, Jobs of
# other ClusterQueues that are stopped for one (``reclaimWithinCohort``, ``borrowWithinCohort``), admission checks.


@dataclass(frozen=True)
class AdmittedJob:
    """A Job that has quota. ``since`` counts admissions. While it is ``stopping`` it keeps its quota until its
    pods end."""

    job: QueuedJob
    assignment: Assignment
    since: int = 0
    stopping: bool = False


@dataclass
class Decision:
    """What one look at the queues comes to: who starts, who is stopped for whom, and why the others wait.

    ``stopped`` are pairs of the Job that is stopped and the one for which; ``reasons`` are by `QueuedJob.order`.
    """

    admitted: list[tuple[QueuedJob, Assignment]] = field(default_factory=list[tuple[QueuedJob, Assignment]])
    stopped: list[tuple[AdmittedJob, QueuedJob]] = field(default_factory=list[tuple[AdmittedJob, QueuedJob]])
    reasons: dict[int, str] = field(default_factory=dict[int, str])


def decide(queues: Queues, waiting: Iterable[QueuedJob], running: Sequence[AdmittedJob]) -> Decision:
    """Looks at all queues once. ``waiting`` are Jobs whose queues exist and are active.

    Each ClusterQueue offers its Job with the highest priority, or the oldest of several. Of the offered Jobs,
    those that borrow nothing come first. A Job that does not fit lets later ones pass, unless its queue is strict.
    """
    decision = Decision()
    used = _usage(running)
    lines = _lines(queues, waiting)
    while heads := [(line[0], queues.assign(line[0], used)) for line in lines.values() if line]:
        job, assignment = min(heads, key=lambda head: (head[1].borrows, -head[0].priority, head[0].order))
        queue = _queue(queues, job)
        line = lines[queue.name]
        line.pop(0)
        if assignment.mode is Mode.FIT:
            decision.admitted.append((job, assignment))
            _add(used, queue.name, assignment.usage)
            continue
        decision.reasons[job.order] = "; ".join(assignment.reasons)
        if assignment.mode is Mode.PREEMPT and (targets := _targets(queues, job, running, used)):
            decision.stopped += [(target, job) for target in targets if not target.stopping]
            names = ", ".join(target.job.name for target in targets)
            decision.reasons[job.order] += f"; Pending the preemption of {names}"
            # Nobody else gets what is freed for it.
            _add(used, queue.name, assignment.usage)
        if queue.strict:
            for later in line:
                decision.reasons[later.order] = f"waits behind {job.name} (StrictFIFO)"
            line.clear()
    return decision


def _lines(queues: Queues, waiting: Iterable[QueuedJob]) -> dict[str, list[QueuedJob]]:
    lines: dict[str, list[QueuedJob]] = {}
    for job in sorted(waiting, key=lambda entry: (-entry.priority, entry.order)):
        lines.setdefault(_queue(queues, job).name, []).append(job)
    return lines


def _queue(queues: Queues, job: QueuedJob) -> ClusterQueue:
    queue = queues.of(job)
    assert queue is not None
    return queue


def _usage(running: Iterable[AdmittedJob]) -> dict[str, dict[FlavorResource, int]]:
    used: dict[str, dict[FlavorResource, int]] = {}
    for admitted in running:
        _add(used, admitted.assignment.queue, admitted.assignment.usage)
    return used


def _add(
    used: dict[str, dict[FlavorResource, int]], queue: str, usage: Mapping[FlavorResource, int], sign: int = 1
) -> None:
    queue_usage = used.setdefault(queue, {})
    for key, value in usage.items():
        queue_usage[key] = queue_usage.get(key, 0) + sign * value


def _targets(
    queues: Queues,
    job: QueuedJob,
    running: Sequence[AdmittedJob],
    used: Mapping[str, Mapping[FlavorResource, int]],
) -> list[AdmittedJob]:
    """The Jobs of lower priority to stop so that ``job`` fits, as few as possible; none where stopping all is not
    enough.

    It stops the lowest priority first, and the newest first where priorities are equal.
    """
    queue = _queue(queues, job)
    left = {name: dict(usage) for name, usage in used.items()}
    lower = [
        admitted
        for admitted in running
        if admitted.assignment.queue == queue.name and admitted.job.priority < job.priority
    ]
    lower.sort(key=lambda entry: (not entry.stopping, entry.job.priority, -entry.since))
    targets: list[AdmittedJob] = []
    for candidate in lower:
        targets.append(candidate)
        _add(left, queue.name, candidate.assignment.usage, -1)
        if queues.assign(job, left).mode is Mode.FIT:
            break
    else:
        return []
    for target in targets[-2::-1]:
        _add(left, queue.name, target.assignment.usage)
        if queues.assign(job, left).mode is Mode.FIT:
            targets.remove(target)
        else:
            _add(left, queue.name, target.assignment.usage, -1)
    return targets
