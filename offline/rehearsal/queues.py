"""Kueue in a rehearsal: Jobs with a queue's name wait until there is quota for all of their pods."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.kubernetes.labels import PRIORITY_LABEL
from infra.review.properties import Properties, mapping, strings
from infra.review.stack import Resource
from offline.engine.queue_admission import Admitted, decide
from offline.engine.queue_objects import Asked, asked_by
from offline.engine.queues import Assignment, Queues, queues_of
from offline.engine.scheduling import Toleration
from offline.rehearsal.cluster_objects import Objects, RefusedError
from offline.rehearsal.job_controller import JobSpec
from offline.rehearsal.processes import CancelledError

POLL = 0.1
"""Seconds between two looks at whether a Job that waits was given up."""


@dataclass
class Ticket:
    """A Job in a queue, from its creation to its end. ``preempt`` stops its pods, and is told for whom."""

    cluster: str
    asked: Asked
    preempt: Callable[[str], None]
    admitted: Admitted | None = None
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of the flavors that it was given: Kueue adds them to the pods' node selector."""
    tolerations: Sequence[Toleration] = ()
    """Tolerations of these flavors, which Kueue adds, too."""

    @property
    def flavors(self) -> str:
        """What it was given, as people read it: resources and the flavor of each."""
        by_flavor: dict[str, list[str]] = {}
        if self.admitted is None:
            return ""
        for resource, flavor in self.admitted.assignment.flavors.items():
            by_flavor.setdefault(flavor, []).append(resource)
        return "; ".join(f"{flavor}: {', '.join(resources)}" for flavor, resources in by_flavor.items())


@dataclass
class JobQueues:
    """The queues of all clusters. Usable from several threads."""

    objects: Objects
    _tickets: list[Ticket] = field(default_factory=list[Ticket])
    _count: Iterator[int] = field(default_factory=itertools.count)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, resource: Resource, job: JobSpec, preempt: Callable[[str], None]) -> Ticket | None:
        """Puts a Job into its queue; None where it names none, so that it starts at once.

        Raises RefusedError where it would wait for ever.
        """
        labels = strings(resource.metadata.get("labels"))
        try:
            queues = self._queues(job.cluster)
            spec = mapping(job.template.get("spec"))
            asked = asked_by(
                resource.name, job.namespace, labels, pods=job.workers, spec=spec, priorities=queues.priorities
            )
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if asked is None:
            return None
        priority = labels.get(PRIORITY_LABEL)
        if priority is not None and priority not in queues.priorities:
            raise RefusedError(f'workloadpriorityclasses.kueue.x-k8s.io "{priority}" not found')
        namespace = self.objects.find(job.cluster, "Namespace", "", job.namespace)
        named = strings(namespace.metadata.get("labels")) if namespace else {}
        if reason := queues.obstacle(asked, named) or queues.never(asked):
            raise RefusedError(f"Kueue never admits it: {reason}")
        with self._changed:
            ticket = Ticket(job.cluster, replace(asked, order=next(self._count)), preempt)
            self._tickets.append(ticket)
        return ticket

    def wait(self, ticket: Ticket, cancelled: Callable[[], bool], waits: Callable[[str], None]) -> None:
        """Returns once the Job is admitted. ``waits`` is told, once each, why it is not.

        Raises CancelledError; the Job is in its queue no more then.
        """
        told = ""
        with self._changed:
            self._look(ticket.cluster)
            while ticket.admitted is None:
                if cancelled():
                    self._tickets.remove(ticket)
                    raise CancelledError
                if ticket.reason != told:
                    told = ticket.reason
                    waits(told)
                self._changed.wait(POLL)

    def back(self, ticket: Ticket) -> None:
        """The pods of a Job that was stopped for another are gone: it waits again, in its old place."""
        with self._changed:
            ticket.admitted, ticket.reason = None, ""
            self._look(ticket.cluster)

    def leave(self, ticket: Ticket) -> None:
        """The Job is over: what it had is free."""
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._look(ticket.cluster)

    def _look(self, cluster: str) -> None:
        """Admits whom there is quota for."""
        there = [each for each in self._tickets if each.cluster == cluster]
        running = [each.admitted for each in there if each.admitted is not None]
        waiting = [each for each in there if each.admitted is None]
        queues = self._queues(cluster)
        found = decide(queues, [each.asked for each in waiting], running)
        by_order = {each.asked.order: each for each in there}
        for asked, assignment in found.admitted:
            self._admit(by_order[asked.order], assignment, queues)
        for each in waiting:
            each.reason = found.reasons.get(each.asked.order, "")
        for stopped, asked in found.stopped:
            ticket = by_order[stopped.asked.order]
            ticket.admitted = replace(stopped, stopping=True)
            ticket.preempt(asked.name)
        self._changed.notify_all()

    def _admit(self, ticket: Ticket, assignment: Assignment, queues: Queues) -> None:
        # As `PodSetInfo.Merge` does it (pkg/podset/podset.go of Kueue v0.19.2).
        flavors = [queues.flavors[name] for name in dict.fromkeys(assignment.flavors.values())]
        ticket.labels = {key: value for flavor in flavors for key, value in flavor.labels.items()}
        ticket.tolerations = [each for flavor in flavors for each in flavor.tolerations]
        ticket.admitted = Admitted(ticket.asked, assignment, next(self._count))

    def _queues(self, cluster: str) -> Queues:
        def cluster_wide(kind: str) -> list[tuple[str, Properties]]:
            return [(name, each.inputs) for name, each in self.objects.all_of(cluster, kind, "")]

        local = self.objects.in_all_namespaces(cluster, "LocalQueue")
        return queues_of(cluster_wide, [(namespace, name, each.inputs) for namespace, name, each in local])
