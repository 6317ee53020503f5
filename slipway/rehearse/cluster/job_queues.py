"""Kueue's queues in a rehearsal: a Job is refused that its queue would never admit; all others start at once."""

from slipway.evaluated.queues import queued_job, queues_of
from slipway.infra.kubernetes.labels import released_labels
from slipway.infra.review.stack import Properties, Resource, mapping, strings
from slipway.rehearse.cluster.cluster_objects import Objects, RefusedError
from slipway.rehearse.cluster.job_controller import JobSpec


def require_quota(objects: Objects, resource: Resource, job: JobSpec) -> None:
    """Raises RefusedError where the Job names a queue in which it would wait for ever."""

    def cluster_wide(kind: str) -> list[tuple[str, Properties]]:
        return [(name, entry.inputs) for name, entry in objects.all_of(job.cluster, kind, "")]

    annotations = strings(resource.metadata.get("annotations"))
    labels = released_labels(strings(resource.metadata.get("labels")), annotations)
    local = objects.in_all_namespaces(job.cluster, "LocalQueue")
    spec = mapping(job.template.get("spec"))
    try:
        queues = queues_of(cluster_wide, [(namespace, name, entry.inputs) for namespace, name, entry in local])
        queued = queued_job(resource.name, job.namespace, labels, pods=job.workers, spec=spec)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    if queued is None:
        return
    namespace = objects.find(job.cluster, "Namespace", "", job.namespace)
    named = strings(namespace.metadata.get("labels")) if namespace else {}
    if reason := queues.obstacle(queued, named) or queues.never(queued):
        raise RefusedError(f"Kueue never admits it: {reason}")
