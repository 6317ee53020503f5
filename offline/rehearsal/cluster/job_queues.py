"""Kueue in a rehearsal: Jobs with a queue's name wait until there is quota for all of their pods."""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipway.infra.kubernetes.labels import PRIORITY_LABEL, released_labels
from slipway.infra.review.stack import Properties, Resource, mapping, strings
from slipway.offline.evaluated.queues import AdmittedJob, QueuedJob, Queues, decide, queued_job, queues_of
from slipway.offline.evaluated.scheduling import Toleration
from slipway.offline.rehearsal.cluster.cluster_objects import Objects, RefusedError
from slipway.offline.rehearsal.cluster.job_controller import JobSpec
from slipway.offline.rehearsal.machine.processes import CancelledError

POLL = 0.1
"""Seconds between two looks at whether a Job that waits was given up."""


@dataclass
class Ticket:
    """A Job in a queue, from its creation to its end. ``preempt`` stops its pods, and gets the name of the Job
    that replaces it."""

    cluster: str
    job: QueuedJob
    preempt: Callable[[str], None]
    admitted: AdmittedJob | None = None
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of its flavor: Kueue adds them to the pods' node selector."""
    tolerations: Sequence[Toleration] = ()
    """Tolerations of its flavor, which Kueue adds, too."""

    @property
    def quota(self) -> str:
        """The flavor that it was given, and the resources that it has of it."""
        resources = ", ".join(name for name, value in self.job.amounts.items() if value)
        return f"{self.admitted.flavor}: {resources}" if self.admitted else ""


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
        annotations = strings(resource.metadata.get("annotations"))
        labels = released_labels(strings(resource.metadata.get("labels")), annotations)
        try:
            queues = self._queues(job.cluster)
            spec = mapping(job.template.get("spec"))
            queued = queued_job(
                resource.name, job.namespace, labels, pods=job.workers, spec=spec, priorities=queues.priorities
            )
        except ValueError as error:
            raise RefusedError(str(error)) from error
        if queued is None:
            return None
        priority = labels.get(PRIORITY_LABEL)
        if priority is not None and priority not in queues.priorities:
            raise RefusedError(f'workloadpriorityclasses.kueue.x-k8s.io "{priority}" not found')
        namespace = self.objects.find(job.cluster, "Namespace", "", job.namespace)
        named = strings(namespace.metadata.get("labels")) if namespace else {}
        if reason := queues.obstacle(queued, named) or queues.never(queued):
            raise RefusedError(f"Kueue never admits it: {reason}")
        with self._changed:
            ticket = Ticket(job.cluster, replace(queued, order=next(self._count)), preempt)
            self._tickets.append(ticket)
        return ticket

    def wait(self, ticket: Ticket, cancelled: Callable[[], bool], waits: Callable[[str], None]) -> None:
        """Returns once the Job is admitted. ``waits`` gets each new reason why it is not.

        Raises CancelledError; the Job is in its queue no more then.
        """
        last_reason = ""
        with self._changed:
            self._look(ticket.cluster)
            while ticket.admitted is None:
                if cancelled():
                    self._tickets.remove(ticket)
                    raise CancelledError
                if ticket.reason != last_reason:
                    last_reason = ticket.reason
                    waits(last_reason)
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
        here = [entry for entry in self._tickets if entry.cluster == cluster]
        running = [entry.admitted for entry in here if entry.admitted is not None]
        waiting = [entry for entry in here if entry.admitted is None]
        queues = self._queues(cluster)
        decision = decide(queues, [entry.job for entry in waiting], running)
        by_order = {entry.job.order: entry for entry in here}
        for admitted_job, flavor in decision.admitted:
            self._admit(by_order[admitted_job.order], flavor, queues)
        for waiting_ticket in waiting:
            waiting_ticket.reason = decision.reasons.get(waiting_ticket.job.order, "")
        for stopped, preemptor in decision.stopped:
            ticket = by_order[stopped.job.order]
            ticket.admitted = replace(stopped, stopping=True)
            ticket.preempt(preemptor.name)
        self._changed.notify_all()

    def _admit(self, ticket: Ticket, flavor: str, queues: Queues) -> None:
        # As `PodSetInfo.Merge` does it (pkg/podset/podset.go of Kueue v0.19.2).
        ticket.labels = queues.flavors[flavor].labels
        ticket.tolerations = queues.flavors[flavor].tolerations
        ticket.admitted = AdmittedJob(ticket.job, flavor, next(self._count))

    def _queues(self, cluster: str) -> Queues:
        def cluster_wide(kind: str) -> list[tuple[str, Properties]]:
            return [(name, entry.inputs) for name, entry in self.objects.all_of(cluster, kind, "")]

        local = self.objects.in_all_namespaces(cluster, "LocalQueue")
        return queues_of(cluster_wide, [(namespace, name, entry.inputs) for namespace, name, entry in local])
