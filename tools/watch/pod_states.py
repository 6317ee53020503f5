"""From a pod and what was said of it to where it stands."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from infra import clouds
from infra.clouds.registry import CLOUDS
from infra.kubernetes.labels import COMPONENT
from infra.review.stack import Properties, at, mapping, mappings, text, whole
from tools.watch.observed import (
    Event,
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
from tools.watch.states import NOTHING, Phase, PodState, Reason

# What autoscalers, schedulers, kubelets and Kueue say, turned into one plain clause with what mends it.
#
# The words that are known are data: ``data/waiting.toml`` beside this module, and a file of that name among each
# cloud's data. Words that no row knows are shown as they are: nothing is guessed.


FILE = Path("data") / "waiting.toml"


@dataclass(frozen=True)
class Known:
    """Words that are known: those that ``pattern`` finds. Its named groups may stand in ``says`` and ``fix``."""

    kind: str
    pattern: str
    says: str
    fix: str
    source: str


DISRUPTIONS: Mapping[str, str] = {
    "EvictionByEvictionAPI": "its node was drained",
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was lost, or may not run it any more",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node was shut down or ran short of something",
    "DeletionByClusterAutoscaler": "the autoscaler removed its node",
}
"""By the reason of the condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions,
seen November 2026). What its message says more exactly is in the table `taken`."""

_OTHERWISE = {
    "image": "the image",
    "where": "the region",
    "count": "a node is",
    "claim": "its claim",
    "queue": "its queue",
}
"""What stands in where the words name none."""


def files() -> list[Path]:
    """The files with the words that are known, those of clouds first."""
    packages = Path(clouds.__file__).parent
    found = [packages / name / FILE for name in CLOUDS]
    return [*(path for path in found if path.is_file()), Path(__file__).parent / FILE]


@cache
def table(name: str) -> Sequence[Known]:
    """The rows of one name of all files: ``scale_up``, ``scheduling``, ``images``. The first that knows counts."""
    return [
        Known(**{key: str(value) for key, value in row.items() if key != "read"})
        for content in _contents()
        for row in content.get(name, ())
    ]


@cache
def sidecars() -> frozenset[str]:
    """The names of containers that clouds add to a pod."""
    return frozenset(str(sidecar) for content in _contents() for sidecar in content.get("sidecars", ()))


@cache
def _contents() -> Sequence[dict[str, Any]]:
    return [tomllib.loads(path.read_text(encoding="utf-8")) for path in files()]


def explained(words: str, rows: Sequence[Known], **more: str) -> Reason | None:
    """The first of ``rows`` that knows ``words``; None where none does. ``more`` fills in what rows name."""
    for row in rows:
        if found := re.search(row.pattern, words):
            groups = {name: value for name, value in found.groupdict().items() if value}
            filled = {**_OTHERWISE, **more, **groups}
            return Reason(row.says.format_map(filled), row.fix.format_map(filled), words, row.kind)
    return None


# Why a pod has no node: what the autoscaler and the scheduler say of it, as one plain clause.


ELSEWHERE = re.compile(r"didn't match Pod's node affinity(?:/selector)?|didn't match node selector")
"""Said of nodes of other pools than the pod's."""


@dataclass(frozen=True)
class Around:
    """What else is known when a pod is looked at: the ``events`` of the pod, the pool that it is for, and what the
    autoscaler writes of its node groups (the text of its status, empty where nobody may read it).

    ``gone_nodes`` are the names of nodes that are not there any more. ``flavor`` is the one that Kueue admitted
    the pod's Job for, and ``added`` the labels that it added to the pod's node selector.
    """

    events: Sequence[Event] = ()
    pool: str = ""
    autoscaler: str = ""
    gone_nodes: frozenset[str] = frozenset()
    flavor: str = ""
    added: Mapping[str, str] = field(default_factory=dict[str, str])


def waiting(words: str, around: Around) -> Reason:
    """Why no node takes a pod: what the autoscaler says of that, else the scheduler's ``words``."""
    events = around.events
    scheduler = scheduling(words, around.pool)
    if scheduler.kind == "selector" and around.added:
        labels = " ".join(f"{key}={value}" for key, value in around.added.items())
        return Reason(
            f"Kueue admitted it for the flavor {around.flavor}, and added the labels of that to what it selects "
            f"({labels}): no node has these and those of its own pool",
            "give the labels of all flavors of the queue one key with different values (docs/kueue.md): this wait "
            "has no end",
            words,
            "flavor",
        )
    asked = newest(events, "TriggeredScaleUp", "Nominated")
    failed = newest(events, "FailedScaleUp")
    refused = newest(events, "NotTriggerScaleUp")
    if failed and later(failed, asked):
        return explained(failed.message, table("scale_up")) or Reason(
            f"a node could not be made: {failed.message}", "", failed.message, "scale-up"
        )
    if asked and later(asked, refused):
        return Reason(_asked(asked), "", asked.message, "coming")
    if refused is not None:
        return _refused(refused, scheduler, around)
    karpenter = [event for event in events if event.reason == "FailedScheduling" and "karpenter" in event.by]
    if karpenter:
        last = karpenter[-1]
        return explained(last.message, table("scale_up")) or Reason(
            f"Karpenter can make no node for it: {last.message}", "", last.message, "karpenter"
        )
    return scheduler


def _asked(event: Event) -> str:
    """``pod triggered scale-up: [{…/instanceGroups/gke-dev-train-1-grp 0->1 (max: 1)}]``."""
    if found := re.search(r"nodeclaim/(\S+)", event.message):
        return f"a node is being made for it ({found[1]})"
    groups = re.findall(r"\{(?:\S*/)?([\w.-]+) (\d+)->(\d+) \(max: (\d+)\)\}", event.message)
    if not groups:
        return "a node is being made for it"
    return "; ".join(
        f"{'a node is' if int(after) - int(before) == 1 else f'{int(after) - int(before)} nodes are'} being made "
        f"for it in {group}, which then has {after} of at most {most}"
        for group, before, after, most in groups
    )


def _refused(event: Event, scheduler: Reason, around: Around) -> Reason:
    """``pod didn't trigger scale-up: 1 max node group size reached, 3 node(s) didn't match Pod's node …``."""
    parts = event.message.partition("scale-up")[2].strip(" :")
    for row in table("no_scale_up"):
        if found := explained(parts, [row]):
            if row.kind == "backoff":
                detail = _backoff(around)
                # The scheduler tells nothing of the cause.
                found = detail or found
            return Reason(found.says, found.fix, event.message, found.kind)
    if parts and not ELSEWHERE.sub("", re.sub(r"\d+ node\(s\) ", "", parts)).strip(" ,"):
        return Reason(
            "no pool that can grow has the labels that the step asks for",
            "`make preview` says which pool the step is for; somebody may have changed or deleted it",
            event.message,
            "selector",
        )
    template = scheduling(parts, around.pool) if parts else None
    if template and template.kind:
        return Reason(
            f"no new node would take it either: {template.says}", template.fix, event.message, template.kind
        )
    return Reason(scheduler.says, scheduler.fix, f"{event.message}; {scheduler.words}", scheduler.kind)


def _backoff(around: Around) -> Reason | None:
    """What the autoscaler's status says of the node group of the pool that it has stopped growing."""
    text_ = around.autoscaler
    for block in re.split(r"\n\s*-\s*\n?\s*(?=name:)|\n\s*- (?=name:)", text_):
        if "Backoff" not in block or (around.pool and around.pool not in block.split("\n", 1)[0]):
            continue
        words = " ".join(re.findall(r"error(?:Code|Message): \"?(.*?)\"?\s*(?=\n|$)", block))
        if found := explained(words, table("scale_up")):
            return found
    return None


def scheduling(words: str, pool: str = "") -> Reason:
    """``0/3 nodes are available: 1 node(s) had untolerated taint {…}, 2 Insufficient cpu. preemption: …``."""
    if "no nodes available" in words:
        return Reason("the cluster has no node yet", "", words, "no node")
    said = re.split(r"\.? preemption:| no new claims to deallocate", words)[0].strip(" .")
    head, _, tail = said.partition(": ")
    parts = _parts(tail if re.match(r"\d+/\d+ nodes", head) else said)
    clauses: list[Reason] = []
    elsewhere = 0
    for count, part in parts:
        if ELSEWHERE.search(part):
            elsewhere += count
        elif found := explained(
            part, table("scheduling"), count="one node is" if count == 1 else f"{count} nodes are"
        ):
            clauses.append(found)
        else:
            clauses.append(Reason(part))
    if not clauses and elsewhere:
        what = f"no node of the pool {pool} is there" if pool else "no node has the labels that it asks for"
        return Reason(
            what,
            "where the pool grows by itself, wait for its node; else look at the nodes' labels: "
            "`kubectl get nodes --show-labels`",
            words,
            "selector",
        )
    if not clauses:
        return Reason(words or "no node takes it", "", words)
    # That a step's pods have a node each is meant; what keeps them from the other nodes is to be mended.
    first = next((clause for clause in clauses if clause.kind != "anti-affinity"), clauses[0])
    return Reason("; ".join(_unique(clause.says for clause in clauses)), first.fix, words, first.kind)


def _parts(said: str) -> list[tuple[int, str]]:
    """The reasons with the number of nodes that each holds for; a taint may have commas of its own."""
    found = re.findall(r"(?:^|, )(\d+) (.*?)(?=, \d+ |$)", said)
    return [(int(count), part) for count, part in found] or ([(0, said)] if said else [])


def _unique(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))


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
    times = [since(condition) for condition in conditions(pod).values()]
    return max((time for time in times if time), default=None)


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
    failed = [event for event in around.events if event.reason == "Failed" and "pull image" in event.message]
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
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(?:\w*error|fatal|exception)\b", line)]
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
        names = ", ".join(text(gate.get("name")) for gate in gates)
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
