"""From a pod and what was said of it to where it stands."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from slipway.infra.clouds import registry
from slipway.infra.commands import command
from slipway.infra.kubernetes.labels import COMPONENT
from slipway.infra.review.stack import Properties, at, mapping, mappings, text, whole
from slipway.tools.watch.denials import fix_of_denial, fix_of_refused_write
from slipway.tools.watch.observed import (
    Event,
    conditions,
    creation_time,
    deletion_time,
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
from slipway.tools.watch.states import NOTHING, Nodes, Phase, PodState, Reason, duration
from slipway.workloads.runtime.usage.limits import IDLE, Reached
from slipway.workloads.schedule.places.shortages import STOCKOUT

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

    def explain(self, words: str, **more: str) -> Reason | None:
        """The reason that ``words`` give; None where the pattern does not find them."""
        match = re.search(self.pattern, words)
        if match is None:
            return None
        groups = {name: value for name, value in match.groupdict().items() if value}
        names = {**_OTHERWISE, **more, **groups}
        if zone := groups.get("zone"):
            names["zones"] = zone
        return Reason(self.says.format_map(names), self.fix.format_map(names), words, self.kind)


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
    "pool": "its pool",
    "machine": "such machine",
    "zones": "the pool's zones",
    "elsewhere": "give its step further pools (`places`, docs/places.md)",
    "doctor": command("doctor", stack="…"),
}
"""What stands in where the words name none."""


def files() -> list[Path]:
    """The files with the words that are known, those of clouds first."""
    packages = Path(registry.__file__).parent
    of_clouds = [packages / name / FILE for name in registry.CLOUDS]
    return [*filter(Path.is_file, of_clouds), Path(__file__).parent / FILE]


@cache
def table(name: str) -> Sequence[Known]:
    """The rows of one name of all files: ``scale_up``, ``scheduling``, ``images``. The first that knows counts."""
    return [
        Known(row["kind"], row.get("pattern") or f"(?i){STOCKOUT}", row["says"], row["fix"])
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


def recognise(words: str, rows: Sequence[Known], **more: str) -> Reason | None:
    """The first of ``rows`` that knows ``words``; None where none does. ``more`` fills in what rows name."""
    return next(filter(None, (row.explain(words, **more) for row in rows)), None)


def recognise_or(words: str, name: str, says: str, fix: str = "", kind: str = "", **more: str) -> Reason:
    """The reason that the table ``name`` knows for ``words``; else one that says ``says``."""
    return recognise(words, table(name), **more) or Reason(says, fix, words, kind)


# Why a pod has no node: what the autoscaler and the scheduler say of it, as one plain clause.


ELSEWHERE = re.compile(r"didn't match Pod's node affinity(?:/selector)?|didn't match node selector")
"""Said of nodes of other pools than the pod's."""


@dataclass(frozen=True)
class Around:
    """What else is known when a pod is looked at, ``at`` that time: the ``events`` of the pod, the nodes that it
    asks for, and what the autoscaler writes of its node groups (the text of its status, empty where nobody may
    read it).

    ``gone_nodes`` are the names of nodes that are not there any more. ``flavor`` is the one that Kueue admitted
    the pod's Job for, and ``added`` the labels that it added to the pod's node selector.
    """

    events: Sequence[Event] = ()
    nodes: Nodes = field(default_factory=Nodes)
    autoscaler: str = ""
    gone_nodes: frozenset[str] = frozenset()
    flavor: str = ""
    added: Mapping[str, str] = field(default_factory=dict[str, str])
    at: datetime | None = None


LATE = 15 * 60
"""Seconds after which a node that was asked for should have come: what the Cluster Autoscaler waits for one
(`--max-node-provision-time` in its FAQ, seen November 2026)."""


def why_waiting(words: str, around: Around) -> Reason:
    """Why no node takes a pod: what the autoscaler says of that, else the scheduler's ``words``."""
    events = around.events
    pool, known = around.nodes.pool, around.nodes.words
    scheduler = explain_scheduling(words, pool)
    if scheduler.kind == "selector" and around.added:
        labels = " ".join(f"{key}={value}" for key, value in around.added.items())
        return Reason(
            f"Kueue admitted it for the flavor {around.flavor}, and added the labels of that to what it selects "
            f"({labels}): no node has these and those of its own pool",
            "give the labels of all flavors of the queue one key with different values (docs/teams.md): this wait "
            "has no end",
            words,
            "flavor",
        )
    request = newest(events, "TriggeredScaleUp", "Nominated")
    failure = newest(events, "FailedScaleUp")
    refusal = newest(events, "NotTriggerScaleUp")
    if failure and later(failure, request):
        words = failure.message
        says = f"no node of pool {pool} could be made: {words}" if pool else f"no node could be made: {words}"
        return recognise_or(words, "scale_up", says, kind="scale-up", **known)
    if request and later(request, refusal):
        return _requested(request, around)
    if refusal is not None:
        return _refusal(refusal.message, scheduler, around)
    for event in reversed(events):
        if event.reason == "FailedScheduling" and "karpenter" in event.by:
            words = event.message
            says = f"Karpenter can make no node for it: {words}"
            return recognise_or(words, "scale_up", says, kind="karpenter", **known)
    return scheduler


def _requested(request: Event, around: Around) -> Reason:
    """Of a node that was asked for: that it is made, is queued for, is late, or that its group is in backoff."""
    groups = _GROUP.findall(request.message)
    if groups and (reason := _backoff(around, [group for group, *_ in groups])):
        return replace(reason, words=f"{request.message}; {reason.words}")
    nodes, words = {**_OTHERWISE, **around.nodes.words}, request.message
    if around.nodes.queued:
        since = f", asked for at {request.at.astimezone():%H:%M}" if request.at else ""
        says = "queued: the cloud gives {machine} in {zones} for pool {pool} when it has some".format_map(nodes)
        return Reason(f"{says}{since}", f"wait; or {nodes['elsewhere']}", words, "queued")
    waited = (around.at - request.at).total_seconds() if around.at and request.at else 0
    if waited >= LATE:
        says = "no {machine} in {zones} has come for pool {pool}".format_map(nodes)
        says += f", asked for {duration(waited)} ago; the cloud may have none left"
        return Reason(says, f"wait: it is asked for again; or {nodes['elsewhere']}", words, "late")
    return Reason(_describe_request(words), "", words, "coming")


_GROUP = re.compile(r"\{(?:\S*/)?([\w.-]+) (\d+)->(\d+) \(max: (\d+)\)\}")
"""A node group in the message of a request, its nodes before and after, and the most that it may have."""


def _describe_request(words: str) -> str:
    """``pod triggered scale-up: [{…/instanceGroups/gke-dev-train-1-grp 0->1 (max: 1)}]``."""
    if claim := re.search(r"nodeclaim/(\S+)", words):
        return f"a node is being made for it ({claim[1]})"
    groups = _GROUP.findall(words)
    if not groups:
        return "a node is being made for it"
    return "; ".join(
        f"{'a node is' if int(after) - int(before) == 1 else f'{int(after) - int(before)} nodes are'} being made "
        f"for it in {group}, which then has {after} of at most {most}"
        for group, before, after, most in groups
    )


def _refusal(words: str, scheduler: Reason, around: Around) -> Reason:
    """``pod didn't trigger scale-up: 1 max node group size reached, 3 node(s) didn't match Pod's node …``."""
    parts = words.partition("scale-up")[2].strip(" :")
    pool = around.nodes.pool
    if reason := recognise(parts, table("no_scale_up"), **around.nodes.words):
        if reason.kind == "backoff":
            # The scheduler tells nothing of the cause.
            reason = _backoff(around) or reason
        return replace(reason, words=words)
    if parts and not ELSEWHERE.sub("", re.sub(r"\d+ node\(s\) ", "", parts)).strip(" ,"):
        return Reason(
            "no pool that can grow has the labels that the step asks for",
            f"`{command('preview')}` says which pool the step is for; somebody may have changed or deleted it",
            words,
            "selector",
        )
    template = explain_scheduling(parts, pool) if parts else NOTHING
    if template.kind:
        whose = f"node of pool {pool}" if pool else "node"
        return Reason(f"no new {whose} would take it either: {template.says}", template.fix, words, template.kind)
    return replace(scheduler, words=f"{words}; {scheduler.words}")


def _backoff(around: Around, groups: Sequence[str] = ()) -> Reason | None:
    """What the autoscaler's status says of the ``groups`` that it has stopped growing; without, of the pool's."""
    blocks = re.split(r"\n\s*-\s*\n?\s*(?=name:)|\n\s*- (?=name:)", around.autoscaler)
    pool = re.escape(around.nodes.pool)
    # Behind a pool's name, GKE and EKS write hexadecimal digits: that of one pool may begin that of another.
    of_pool = [block for block in blocks if re.search(rf"[-/]{pool}-[0-9a-f]{{8}}\b", block.split("\n", 1)[0])]
    for block in of_pool or blocks:
        name = block.split("\n", 1)[0].strip(' "').rpartition("/")[2]
        if "Backoff" not in block or (around.nodes.pool not in name) or (groups and name not in groups):
            continue
        words = " ".join(re.findall(r"error(?:Code|Message): \"?(.*?)\"?\s*(?=\n|$)", block))
        if reason := recognise(words, table("scale_up"), **around.nodes.words):
            return reason
    return None


def explain_scheduling(words: str, pool: str = "") -> Reason:
    """``0/3 nodes are available: 1 node(s) had untolerated taint {…}, 2 Insufficient cpu. preemption: …``."""
    if "no nodes available" in words:
        return Reason("the cluster has no node yet", "", words, "no node")
    sentence = re.split(r"\.? preemption:| no new claims to deallocate", words)[0].strip(" .")
    head, _, tail = sentence.partition(": ")
    clauses: list[Reason] = []
    elsewhere = False
    for count, part in _count_nodes(tail if re.match(r"\d+/\d+ nodes", head) else sentence):
        if ELSEWHERE.search(part):
            elsewhere = elsewhere or count > 0
        else:
            nodes = "one node is" if count == 1 else f"{count} nodes are"
            clauses.append(recognise(part, table("scheduling"), count=nodes) or Reason(part))
    if not clauses and elsewhere:
        return Reason(
            f"no node of the pool {pool} is there" if pool else "no node has the labels that it asks for",
            "where the pool grows by itself, wait for its node; else look at the nodes' labels: "
            "`kubectl get nodes --show-labels`",
            words,
            "selector",
        )
    if not clauses:
        return Reason(words or "no node takes it", "", words)
    # That a step's pods have a node each is meant; what keeps them from the other nodes is to be mended.
    first = next((clause for clause in clauses if clause.kind != "anti-affinity"), clauses[0])
    return Reason("; ".join(dict.fromkeys(clause.says for clause in clauses)), first.fix, words, first.kind)


def _count_nodes(sentence: str) -> list[tuple[int, str]]:
    """The reasons with the number of nodes that each holds for; a taint may have commas of its own."""
    parts = re.findall(r"(?:^|, )(\d+) (.*?)(?=, \d+ |$)", sentence)
    return [(int(count), part) for count, part in parts] or ([(0, sentence)] if sentence else [])


PULL_FAILED = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
CONFIG_FAILED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
"""Reasons for which a container waits (kubernetes/pkg/kubelet/images and kuberuntime, Kubernetes 1.34)."""

_NONE: Properties = {}

_CONTAINERS = ("initContainers", "containers")


def main_container(pod: Properties) -> str:
    """The name of the container that runs the step's program."""
    names = [text(container.get("name")) for container in mappings(at(pod, "spec", "containers"))]
    step = labels_of(pod).get(COMPONENT, "")
    programs = [name for name in names if name not in sidecars()]
    return step if step in names else next(iter(programs or names), "")


def pod_state(pod: Properties, around: Around) -> PodState:
    """Where the pod stands."""
    container = main_container(pod)
    status = next((status for status in _statuses(pod) if status.get("name") == container), _NONE)
    running = mapping(at(status, "state", "running"))
    terminated = mapping(at(status, "state", "terminated"))
    phase, reason, moment = _phase(pod, status, around)
    changes = [since(condition) for condition in conditions(pod).values()]
    ended = time_of(terminated.get("finishedAt")) or max(filter(None, changes), default=None)
    return PodState(
        name=name_of(pod),
        uid=uid_of(pod),
        phase=phase,
        reason=reason,
        since=moment,
        index=index_of(pod),
        node=text(at(pod, "spec", "nodeName")),
        container=container,
        gpus=gpus_of(pod),
        created=creation_time(pod),
        began=since(holds(conditions(pod), "PodScheduled")),
        running_since=time_of(running.get("startedAt")) or time_of(terminated.get("startedAt")),
        ended=ended if phase.over else None,
        code=whole(terminated.get("exitCode")) if terminated else None,
        disrupted=_disruption(pod),
    )


def _statuses(pod: Properties, kind: str = "containerStatuses") -> list[Properties]:
    return mappings(at(pod, "status", kind))


def _disruption(pod: Properties) -> str:
    """Who took the pod away, and why; empty where nobody did.

    An eviction without the condition is one for a limit of the pod's own, which counts as its failure.
    """
    condition = holds(conditions(pod), "DisruptionTarget")
    if condition is None:
        return ""
    reason, message = text(condition.get("reason")), text(condition.get("message"))
    words = message or text(at(pod, "status", "message"))
    if reason == "TerminationByKubelet" and (known := recognise(words, table("taken"))):
        return known.says
    return DISRUPTIONS.get(reason) or message or reason or "it was taken away"


Standing = tuple[Phase, Reason, datetime | None]
"""Where a pod stands, why, and since when."""


def _phase(pod: Properties, status: Properties, around: Around) -> Standing:
    phase = at(pod, "status", "phase")
    if phase == "Succeeded":
        return Phase.DONE, NOTHING, None
    if phase == "Failed":
        return Phase.FAILED, failure(pod, status), None
    if deletion := deletion_time(pod):
        return Phase.ENDING, Reason(_disruption(pod)), deletion
    node = text(at(pod, "spec", "nodeName"))
    if not node:
        return _without_node(pod, around)
    return _lost(pod, node, around) or _on_its_node(pod, status, around)


def _on_its_node(pod: Properties, status: Properties, around: Around) -> Standing:
    if terminated := mapping(at(status, "state", "terminated")):
        return Phase.ENDING, Reason("its program has ended"), time_of(terminated.get("finishedAt"))
    if running := mapping(at(status, "state", "running")):
        return Phase.RUNNING, Reason(""), time_of(running.get("startedAt"))
    return _before_program(pod, around)


def _lost(pod: Properties, node: str, around: Around) -> Standing | None:
    """Of a pod whose node is silent or gone."""
    ready = conditions(pod).get("Ready")
    if node in around.gone_nodes:
        # Kubernetes deletes such pods after 40 s, and looks for them every 20 s (pkg/controller/podgc/
        # gc_controller.go, Kubernetes 1.34).
        fix = "wait: within about a minute its pod is deleted, and another one started"
        return Phase.LOST, Reason(f"its node {node} is gone", fix, kind="node lost"), since(ready)
    # A program has no readiness probe: where its pod is not ready, the node's controller said so, which has not
    # heard from the node for 50 s (kubernetes.io/docs/concepts/architecture/nodes, seen November 2026).
    silence = newest(around.events, "NodeNotReady")
    if ready is None or ready.get("status") == "True" or not (silence or ready.get("status") == "Unknown"):
        return None
    reason = Reason(
        f"nothing is heard from its node {node}",
        "wait: after five minutes its pod is started on another node",
        silence.message if silence else text(ready.get("message")),
        "node lost",
    )
    return Phase.LOST, reason, since(ready)


def _before_program(pod: Properties, around: Around) -> Standing:
    """Of a pod that has a node and whose program has not begun."""
    scheduled = since(holds(conditions(pod), "PodScheduled"))
    specs = {text(spec.get("name")): spec for kind in _CONTAINERS for spec in mappings(at(pod, "spec", kind))}
    init_statuses = _statuses(pod, "initContainerStatuses")
    for status in [*init_statuses, *_statuses(pod)]:
        waiting = mapping(at(status, "state", "waiting"))
        why, words = text(waiting.get("reason")), text(waiting.get("message"))
        if why in PULL_FAILED:
            image = text(status.get("image")) or text(specs.get(text(status.get("name")), {}).get("image"))
            return Phase.PULLING, _pull_failure(why, words, image, around), scheduled
        if why in CONFIG_FAILED:
            return Phase.STARTING, recognise_or(words, "volumes", words or why, kind="container"), scheduled
    if reason := _mount_failure(around):
        return Phase.STARTING, reason, scheduled
    pulling = newest(around.events, "Pulling")
    if pulling and later(pulling, newest(around.events, "Pulled", "Failed")):
        image = re.search(r'image "([^"]+)"', pulling.message)
        return Phase.PULLING, Reason(image[1] if image else "", words=pulling.message), pulling.at
    for status in init_statuses:
        name, running = text(status.get("name")), mapping(at(status, "state", "running"))
        # One that is restarted always is a sidecar, which runs beside the program.
        if running and specs.get(name, {}).get("restartPolicy") != "Always":
            what = "it installs its packages" if name == "packages" else f"its container {name} runs first"
            return Phase.STARTING, Reason(what), time_of(running.get("startedAt"))
    return Phase.STARTING, Reason("its volumes and containers are being made"), scheduled


def _pull_failure(why: str, words: str, image: str, around: Around) -> Reason:
    failures = [event for event in around.events if event.reason == "Failed" and "pull image" in event.message]
    # `Back-off pulling image "…"` alone says nothing of the cause; newer kubelets add it after a colon.
    all_words = " ".join(filter(None, [words, failures[-1].message if failures else ""]))
    says = f"{image or 'its image'} cannot be pulled: {words or why}"
    return recognise_or(all_words or why, "images", says, kind="image", image=image or "the image")


def _mount_failure(around: Around) -> Reason | None:
    failure = newest(
        around.events, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"
    )
    if failure is None or not later(failure, newest(around.events, "Pulling", "Pulled", "Created", "Started")):
        return None
    what = "its network" if failure.reason == "FailedCreatePodSandBox" else "a volume"
    words = failure.message
    return recognise_or(words, "volumes", f"{what} cannot be made ready: {words}", kind="volume")


def failure(pod: Properties, status: Properties) -> Reason:
    """Why the pod failed, its program's own words last."""
    terminated = mapping(at(status, "state", "terminated"))
    message = text(terminated.get("message")).strip()
    if any(
        at(container, "state", "terminated", "reason") == "OOMKilled" for container in [status, *_statuses(pod)]
    ):
        limit = _memory_limit(pod, text(status.get("name")))
        return Reason(
            f"killed for want of memory: its limit is {limit}" if limit else "killed for want of memory",
            "raise the step's `memory`, or let it read less at a time",
            message,
            "memory",
        )
    words = text(at(pod, "status", "message"))
    if at(pod, "status", "reason") == "Evicted":
        fix = "raise the step's `memory` or `ephemeral_storage`"
        return recognise_or(words, "taken", f"evicted by its node: {words}", fix, "evicted")
    if (reached := Reached.parse(message)) and whole(terminated.get("exitCode")) == reached.code:
        return Reason(reached.says, reached.fix, message, "idle" if reached.kind == IDLE else "budget")
    if terminated:
        code, last = f"exit code {whole(terminated.get('exitCode'))}", last_words(message)
        container = text(status.get("name"))
        fix = fix_of_denial(pod, container, message) or fix_of_refused_write(pod, container, message)
        says = f"{code}: {last}" if last and code not in last else last or code
        return recognise(f"{code}\n{message}", table("failed")) or Reason(says, fix, message, "failed")
    for container in _statuses(pod, "initContainerStatuses"):
        ended = mapping(at(container, "state", "terminated"))
        if code := whole(ended.get("exitCode")):
            what = f"its container {container.get('name')} ended with exit code {code}"
            return Reason(what, "", text(ended.get("message")).strip(), "init")
    words = words or text(at(pod, "status", "reason"))
    return Reason(words or "its containers are gone, and nobody says why", "", words, "gone")


def last_words(message: str) -> str:
    """The line that tells most of the last ones: that of the error, else the last."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(?:\w*error|fatal|exception)\b", line)]
    return (errors or lines or [""])[-1]


def _memory_limit(pod: Properties, container: str) -> str:
    specs = mappings(at(pod, "spec", "containers"))
    spec = next((spec for spec in specs if not container or spec.get("name") == container), _NONE)
    return text(at(spec, "resources", "limits", "memory"))


def _without_node(pod: Properties, around: Around) -> Standing:
    """Of a pod without a node."""
    if gates := mappings(at(pod, "spec", "schedulingGates")):
        names = ", ".join(text(gate.get("name")) for gate in gates)
        reason = Reason(f"held by the scheduling gate {names}", words=names, kind="gate")
        return Phase.WAITING, reason, creation_time(pod)
    condition = conditions(pod).get("PodScheduled")
    if condition is None or condition.get("status") != "False":
        return Phase.WAITING, Reason("the scheduler has not looked at it yet", kind="new"), creation_time(pod)
    words = text(condition.get("message"))
    if nominated := text(at(pod, "status", "nominatedNodeName")):
        what = f"pods of lower priority leave {nominated} for it"
        return Phase.WAITING, Reason(what, words=words, kind="preempting"), since(condition)
    return Phase.WAITING, why_waiting(words, around), since(condition)
