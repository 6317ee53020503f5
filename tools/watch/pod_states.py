"""From a pod and what was said of it to where it stands."""

import re
from datetime import datetime

from infra.kubernetes.labels import COMPONENT
from infra.review.properties import Properties, at, mapping, mappings, text, whole
from tools.watch.objects import (
    conditions,
    created,
    deleted,
    gpus_of,
    holds,
    index_of,
    labels_of,
    later,
    name_of,
    newest,
    since,
    time_of,
    uid_of,
)
from tools.watch.reasons import DISRUPTIONS, explained, sidecars, table
from tools.watch.states import NOTHING, Phase, PodState, Reason
from tools.watch.waiting import Around, waiting

PULL_FAILED = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
CONFIG_FAILED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
"""Reasons for which a container waits (kubernetes/pkg/kubelet/images and kuberuntime, Kubernetes 1.34)."""


_NONE: Properties = {}


def main_container(pod: Properties) -> str:
    """The name of the container that runs the step's program."""
    names = [text(each.get("name")) for each in mappings(at(pod, "spec", "containers"))]
    step = labels_of(pod).get(COMPONENT, "")
    own = [name for name in names if name not in sidecars()]
    return step if step in names else next(iter(own or names), "")


def pod_state(pod: Properties, around: Around) -> PodState:
    """Where the pod stands."""
    found = conditions(pod)
    disrupted = holds(found, "DisruptionTarget")
    container = main_container(pod)
    status = next((each for each in _statuses(pod) if each.get("name") == container), _NONE)
    running = mapping(at(status, "state", "running"))
    terminated = mapping(at(status, "state", "terminated"))
    phase, reason, at_ = _phase(pod, status, around)
    ended = time_of(terminated.get("finishedAt")) if phase.over else None
    return PodState(
        name=name_of(pod),
        uid=uid_of(pod),
        phase=phase,
        reason=reason,
        since=at_,
        index=index_of(pod),
        node=text(at(pod, "spec", "nodeName")),
        container=container,
        gpus=gpus_of(pod),
        created=created(pod),
        began=since(holds(found, "PodScheduled")),
        running_since=time_of(running.get("startedAt")) or time_of(terminated.get("startedAt")),
        ended=ended or (_last_change(pod) if phase.over else None),
        code=whole(terminated.get("exitCode")) if terminated else None,
        said=text(terminated.get("message")).strip(),
        disrupted=_disruption(disrupted, pod),
    )


def _statuses(pod: Properties) -> list[Properties]:
    return mappings(at(pod, "status", "containerStatuses"))


def _last_change(pod: Properties) -> datetime | None:
    times = [since(each) for each in conditions(pod).values()]
    return max((each for each in times if each), default=None)


def _disruption(condition: Properties | None, pod: Properties) -> str:
    """Who took the pod away, and why; empty where nobody did.

    An eviction without the condition is one for a limit of the pod's own, which counts as its failure.
    """
    if condition is None:
        return ""
    reason, message = text(condition.get("reason")), text(condition.get("message"))
    words = message or text(at(pod, "status", "message"))
    if reason == "TerminationByKubelet" and (known := explained(words, table("taken"))):
        return known.says
    return DISRUPTIONS.get(reason) or message or reason or "it was taken away"


Found = tuple[Phase, Reason, datetime | None]


def _phase(pod: Properties, status: Properties, around: Around) -> Found:
    if (ended := at(pod, "status", "phase")) in {"Succeeded", "Failed"}:
        return (Phase.DONE, NOTHING, None) if ended == "Succeeded" else (Phase.FAILED, failure(pod, status), None)
    if going := deleted(pod):
        why = _disruption(holds(conditions(pod), "DisruptionTarget"), pod)
        return Phase.ENDING, Reason(why), going
    if not (node := text(at(pod, "spec", "nodeName"))):
        return _unscheduled(pod, around)
    return _lost(pod, node, around) or _on_its_node(pod, status, around)


def _on_its_node(pod: Properties, status: Properties, around: Around) -> Found:
    terminated = mapping(at(status, "state", "terminated"))
    if terminated:
        return Phase.ENDING, Reason("its program has ended"), time_of(terminated.get("finishedAt"))
    if running := mapping(at(status, "state", "running")):
        return Phase.RUNNING, Reason(""), time_of(running.get("startedAt"))
    return _beginning(pod, around)


def _lost(pod: Properties, node: str, around: Around) -> Found | None:
    """Of a pod whose node is silent or gone."""
    ready = conditions(pod).get("Ready")
    if node in around.gone_nodes:
        # Kubernetes deletes such pods after 40 s, and looks for them every 20 s (pkg/controller/podgc/
        # gc_controller.go, Kubernetes 1.34).
        reason = Reason(
            f"its node {node} is gone",
            "wait: within about a minute its pod is deleted, and another one started",
            kind="node lost",
        )
        return Phase.LOST, reason, since(ready)
    # A program has no readiness probe: where its pod is not ready, the node's controller said so, which has not
    # heard from the node for 50 s (kubernetes.io/docs/concepts/architecture/nodes, seen November 2026).
    lost = newest(around.events, "NodeNotReady")
    if ready is None or ready.get("status") == "True" or not (lost or ready.get("status") == "Unknown"):
        return None
    reason = Reason(
        f"nothing is heard from its node {node}",
        "wait: after five minutes its pod is started on another node",
        lost.message if lost else text(ready.get("message")),
        "node lost",
    )
    return Phase.LOST, reason, since(ready)


def _beginning(pod: Properties, around: Around) -> Found:
    """Of a pod that has a node and whose program has not begun."""
    scheduled = since(holds(conditions(pod), "PodScheduled"))
    for each in [*mappings(at(pod, "status", "initContainerStatuses")), *_statuses(pod)]:
        name = text(each.get("name"))
        waiting = mapping(at(each, "state", "waiting"))
        why, words = text(waiting.get("reason")), text(waiting.get("message"))
        image = text(each.get("image")) or _image(pod, name)
        if why in PULL_FAILED:
            return Phase.PULLING, _not_pulled(why, words, image, around), scheduled
        if why in CONFIG_FAILED:
            return (
                Phase.STARTING,
                explained(words, table("volumes")) or Reason(words or why, kind="container"),
                scheduled,
            )
    if found := _mounting(around):
        return Phase.STARTING, found, scheduled
    if found := _pulling(around):
        return Phase.PULLING, found[0], found[1]
    for each in mappings(at(pod, "status", "initContainerStatuses")):
        name, restarts = text(each.get("name")), _sidecar(pod, text(each.get("name")))
        if not restarts and (running := mapping(at(each, "state", "running"))):
            what = "it installs its packages" if name == "packages" else f"its container {name} runs first"
            return Phase.STARTING, Reason(what), time_of(running.get("startedAt"))
    return Phase.STARTING, Reason("its volumes and containers are being made"), scheduled


def _sidecar(pod: Properties, name: str) -> bool:
    return any(
        each.get("name") == name and each.get("restartPolicy") == "Always"
        for each in mappings(at(pod, "spec", "initContainers"))
    )


def _image(pod: Properties, container: str) -> str:
    both = [*mappings(at(pod, "spec", "initContainers")), *mappings(at(pod, "spec", "containers"))]
    return next((text(each.get("image")) for each in both if each.get("name") == container), "")


def _not_pulled(why: str, words: str, image: str, around: Around) -> Reason:
    failed = [each for each in around.events if each.reason == "Failed" and "pull image" in each.message]
    # `Back-off pulling image "…"` alone says nothing of the cause; newer kubelets add it after a colon.
    whole_words = " ".join(filter(None, [words, failed[-1].message if failed else ""]))
    found = explained(whole_words, table("images"), image=image or "the image")
    if found:
        return found
    return Reason(f"{image or 'its image'} cannot be pulled: {words or why}", "", whole_words or why, "image")


def _pulling(around: Around) -> tuple[Reason, datetime | None] | None:
    begun, over = newest(around.events, "Pulling"), newest(around.events, "Pulled", "Failed")
    if begun is None or not later(begun, over):
        return None
    image = re.search(r'image "([^"]+)"', begun.message)
    return Reason(image[1] if image else "", words=begun.message), begun.at


def _mounting(around: Around) -> Reason | None:
    failed = newest(
        around.events, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"
    )
    if not later(failed, newest(around.events, "Pulling", "Pulled", "Created", "Started")):
        return None
    assert failed is not None
    found = explained(failed.message, table("volumes"))
    if found:
        return found
    what = "its network" if failed.reason == "FailedCreatePodSandBox" else "a volume"
    return Reason(f"{what} cannot be made ready: {failed.message}", "", failed.message, "volume")


def failure(pod: Properties, status: Properties) -> Reason:
    """Why the pod failed, its program's own words last."""
    terminated = mapping(at(status, "state", "terminated"))
    said = text(terminated.get("message")).strip()
    if terminated.get("reason") == "OOMKilled" or any(
        at(each, "state", "terminated", "reason") == "OOMKilled" for each in _statuses(pod)
    ):
        limit = _memory(pod, text(status.get("name")))
        return Reason(
            f"killed for want of memory: its limit is {limit}" if limit else "killed for want of memory",
            "raise the step's `memory`, or let it read less at a time",
            said,
            "memory",
        )
    if at(pod, "status", "reason") == "Evicted":
        words = text(at(pod, "status", "message"))
        return explained(words, table("taken")) or Reason(
            f"evicted by its node: {words}",
            "raise the step's `memory` or `ephemeral_storage`",
            words,
            "evicted",
        )
    init = [
        each
        for each in mappings(at(pod, "status", "initContainerStatuses"))
        if whole(at(each, "state", "terminated", "exitCode"))
    ]
    if not terminated and init:
        ended = mapping(at(init[0], "state", "terminated"))
        what = f"its container {init[0].get('name')} ended with exit code {whole(ended.get('exitCode'))}"
        return Reason(what, "", text(ended.get("message")).strip(), "init")
    if not terminated:
        words = text(at(pod, "status", "message")) or text(at(pod, "status", "reason"))
        return Reason(words or "its containers are gone, and nobody says why", "", words, "gone")
    code = whole(terminated.get("exitCode"))
    last = last_words(said)
    stated = f"exit code {code}"
    return Reason(f"{stated}: {last}" if last and stated not in last else last or stated, "", said, "failed")


def last_words(said: str) -> str:
    """The line that tells most of the last ones: that of the error, else the last."""
    lines = [each.strip() for each in said.splitlines() if each.strip()]
    errors = [each for each in lines if re.match(r"(?i)(?:\w*error|fatal|exception)\b", each)]
    return (errors or lines or [""])[-1]


def _memory(pod: Properties, container: str) -> str:
    found = (
        text(at(each, "resources", "limits", "memory"))
        for each in mappings(at(pod, "spec", "containers"))
        if not container or each.get("name") == container
    )
    return next(found, "")


def _unscheduled(pod: Properties, around: Around) -> Found:
    """Of a pod without a node."""
    begun = created(pod)
    if gates := mappings(at(pod, "spec", "schedulingGates")):
        names = ", ".join(text(each.get("name")) for each in gates)
        return Phase.WAITING, Reason(f"held by the scheduling gate {names}", words=names, kind="gate"), begun
    condition = conditions(pod).get("PodScheduled")
    if condition is None or condition.get("status") != "False":
        return Phase.WAITING, Reason("the scheduler has not looked at it yet", kind="new"), begun
    if nominated := text(at(pod, "status", "nominatedNodeName")):
        what = f"pods of lower priority leave {nominated} for it"
        return (
            Phase.WAITING,
            Reason(what, words=text(condition.get("message")), kind="preempting"),
            since(condition),
        )
    words = text(condition.get("message"))
    return Phase.WAITING, waiting(words, around), since(condition)
