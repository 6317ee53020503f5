"""The labels that every resource of the program carries, in the names that Kubernetes recommends for them
(kubernetes.io/docs/concepts/overview/working-with-objects/common-labels), and the annotations of Jobs."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, cast

NAME = "app.kubernetes.io/name"

COMPONENT = "app.kubernetes.io/component"
"""The label of what belongs to a step, with its name."""

PART_OF = {"app.kubernetes.io/part-of": "slipway", "app.kubernetes.io/managed-by": "pulumi"}
"""By these a stack knows its own objects (`slipway.infra.kubernetes.cluster.ownership`): with others, `pulumi
preview` would refuse to replace any object that an earlier version made."""

SERVICE = "slipway/service"
"""The label of the pods of a service with its name."""

APP = "slipway/app"
"""The label of the pods of an app with its name."""

LOGIN = "slipway/login"
"""The label of the pods of the proxy that asks people to log in, with the name of the app behind it."""

PEOPLE = "slipway/people"
"""The annotation of the Service of an app that people use: JSON, ``title`` and the ``path`` of its first page."""

TAKEN_OVER = {"pulumi.com/patchForce": "true"}
"""Annotations of what an `up` that was killed may leave, unknown to Pulumi: the next one takes it over, also with
another content."""

INSTANCE = "app.kubernetes.io/instance"
"""The label that names the stack that owns an object, as `instance` spells it."""

RUN_ANNOTATION = "slipway/run"
"""The annotation of a Job with its directory below the store's root; a Job that leaves no result has none."""

INPUTS_ANNOTATION = "slipway/inputs"
"""The annotation of a Job with the results that it reads: JSON, from an input's name to its directory."""

DATA_ANNOTATION = "slipway/data"
"""The annotation of a Job with the data that it reads and nothing of the stack makes: JSON, from an input's name
to its address and the digest of its listing, which may be empty."""

RESULTS_ANNOTATION = "slipway/results"
"""The annotation of a Job with its results that are worth showing: JSON, a list
(`slipway.infra.pipelines.results`)."""

RUNS_ANNOTATION = "slipway/runs"
"""The annotation of a Job that is created suspended, with who lets it run: `slipway.infra.placed.CLUSTER_RUN` or
`MOVER`. What acts for a mover in another cluster has it, too, and is not suspended."""

PLACE_ANNOTATION = "slipway/place"
"""The annotation of a Job that runs a step at one of its places: JSON. ``of`` is the Job of the step, ``index``
counts its places from 0, and ``pool`` is that of the place. What people learn of the run is at that Job."""

MOVES_ANNOTATION = "slipway/moves"
"""The annotation of the Job of a step with places: JSON, its ``places`` by their pools, whether the nodes of each
are ``sure``, the ConfigMap with the ``notes`` of what moves it, and when it goes from one to the next."""

PLAN_ANNOTATION = "slipway/plan"
"""The annotation of a mover's pod with a digest of its Jobs, so that other ones replace the mover."""

HOLDER_ANNOTATION = "slipway/holder"
"""The annotation of the Jobs of a step's places with the mover's pod that may change them
(`slipway.runtime.schedule.places.jobs`); `STOPPED` where none may."""

STOPPED = ""
"""The holder of the Jobs of a step that somebody stopped, until a pod of its mover claims them."""

USAGE_ANNOTATION = "slipway/usage"
"""The annotation of a Job with the folder below the store's root in which its pods keep what they use
(`slipway.runtime.usage.measure`): a file for each by its index. A Job that is not measured has none."""

MEASURED = "slipway/measured"
"""The label of pods of steps that answer Prometheus while they run."""

IMAGE_ANNOTATION = "slipway/image"
"""The annotation of a Job that builds an image: JSON. ``tag`` is the image's, which ends in its context's digest,
``context`` the folder, ``dockerfile`` a path in it, ``files`` and ``bytes`` what the context has."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""The label of a Job with the LocalQueue by which Kueue admits it
(kueue.sigs.k8s.io/docs/tasks/run/jobs, seen November 2026)."""

QUEUE_ANNOTATION = "slipway/queue"
"""The annotation of a Job that is created suspended, with the LocalQueue whose label it gets from who lets it run:
with the label, Kueue would let it run as soon as there is quota."""

PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""The label of a Job with its WorkloadPriorityClass
(github.com/kubernetes-sigs/kueue, pkg/controller/constants/constants.go)."""

VALUE_LIMIT = 63
"""Longest value of a label (kubernetes.io/docs/concepts/overview/working-with-objects/labels, November 2026)."""

_PLAIN = re.compile(r"[A-Za-z0-9]([-_A-Za-z0-9]*[A-Za-z0-9])?")


def step_labels(pipeline: str, step: str) -> dict[str, str]:
    """Labels of what belongs to one step."""
    return {**PART_OF, NAME: pipeline, COMPONENT: step}


def job_labels(pipeline: str, step: str, queue: str | None, priority: str | None = None) -> dict[str, str]:
    """Labels of a step's Job; ``queue`` is the LocalQueue by which it is admitted, None where none does.

    ``priority`` is the WorkloadPriorityClass by which it comes before others there.
    """
    labels = step_labels(pipeline, step)
    if queue:
        labels[QUEUE_LABEL] = queue
        if priority:
            labels[PRIORITY_LABEL] = priority
    return labels


def outside_queue(labels: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of a Job with these labels that is in its queue only while somebody lets it run."""
    kept = {name: value for name, value in labels.items() if name != QUEUE_LABEL}
    return kept, {QUEUE_ANNOTATION: labels[QUEUE_LABEL]} if QUEUE_LABEL in labels else {}


def released_labels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """The labels that a Job with these has while it may run."""
    queue = annotations.get(QUEUE_ANNOTATION)
    return {**labels, QUEUE_LABEL: queue} if queue else dict(labels)


def service_labels(pipeline: str, service: str) -> dict[str, str]:
    """Labels of the pods of one service, and of no others."""
    return {**step_labels(pipeline, service), SERVICE: service}


def app_labels(pipeline: str, app: str) -> dict[str, str]:
    """Labels of the pods of one app, and of no others."""
    return {**step_labels(pipeline, app), APP: app}


def inputs_of(annotations: Mapping[str, object]) -> dict[str, str]:
    """The directories of the results that a Job with these annotations reads, by the input's name."""
    return {name: path for name, path in _read(annotations, INPUTS_ANNOTATION).items() if isinstance(path, str)}


def data_of(annotations: Mapping[str, object]) -> dict[str, tuple[str, str]]:
    """Address and digest of the data that a Job with these annotations reads, by the input's name."""
    values = {name: cast("list[object]", value) for name, value in _read(annotations, DATA_ANNOTATION).items()}
    return {name: (str(value[0]), str(value[1])) for name, value in values.items() if len(value) == 2}


def _read(annotations: Mapping[str, object], name: str) -> dict[str, object]:
    """The JSON object of an annotation; an empty one where there is none."""
    try:
        content: Any = json.loads(str(annotations.get(name, "")))
    except ValueError:
        return {}
    return cast("dict[str, object]", content) if isinstance(content, dict) else {}


def instance(organization: str, project: str, stack: str) -> str:
    """The value of `INSTANCE` for a stack: ``slipway.gcp-dev``, different for any two stacks.

    The organization stands in front of it, unless it is the one that a backend without organizations gives.
    A name that does not fit a label, or that has a dot of its own, ends in a hash of the three.
    """
    parts = [project, stack] if organization == "organization" else [organization, project, stack]
    name = ".".join(parts)
    if len(name) <= VALUE_LIMIT and all(_PLAIN.fullmatch(part) for part in parts):
        return name
    mark = hashlib.sha256("/".join(parts).encode()).hexdigest()[:7]
    beginning = re.sub(r"[^-_.A-Za-z0-9]", "-", name)[: VALUE_LIMIT - len(mark) - 1].strip("-_.")
    return f"{beginning}-{mark}"
