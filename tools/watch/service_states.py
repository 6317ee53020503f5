"""Services of pipelines, such as queues, whose program ends again and again."""

from collections.abc import Iterator, Sequence

from infra.kubernetes.labels import COMPONENT, NAME, SERVICE
from infra.review.properties import Properties, at, mapping, mappings, text, whole
from tools.watch.objects import conditions, deleted, holds, labels_of
from tools.watch.pod_states import last_words


def failing(pods: Sequence[Properties]) -> Iterator[str]:
    """Of each service whose program has ended and is not ready again: how often, and its own last words."""
    for pod in pods:
        labels = labels_of(pod)
        if SERVICE not in labels or deleted(pod) or holds(conditions(pod), "Ready"):
            continue
        for status in mappings(at(pod, "status", "containerStatuses")):
            ended = mapping(at(status, "state", "terminated")) or mapping(at(status, "lastState", "terminated"))
            if not ended:
                continue
            name = f"{labels.get(NAME, '')}.{labels.get(COMPONENT, '')}"
            count = max(whole(status.get("restartCount")), 1)
            times = "once" if count == 1 else f"{count} times"
            words = last_words(text(ended.get("message"))) or text(ended.get("reason"))
            code = whole(ended.get("exitCode"))
            yield f"service {name} is not ready: its program has ended {times}, with exit code {code}: {words}"
