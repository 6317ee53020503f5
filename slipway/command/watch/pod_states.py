"""From a pod and what was said of it to where it stands."""

import re
import signal
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import cast

from slipway.command.watch.denials import fix_of_denial, fix_of_refused_write
from slipway.command.watch.observed import (
    Event,
    Observed,
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
from slipway.command.watch.states import NOTHING, Hold, Nodes, Phase, PodState, Reason, duration
from slipway.evaluated.scheduling import find_untolerated, tolerations
from slipway.infra.clouds import registry
from slipway.infra.commands import command, with_pages
from slipway.infra.features import data_files
from slipway.infra.kubernetes.labels import COMPONENT, NAME
from slipway.infra.platform import Taint, TaintEffect
from slipway.infra.review.stack import Properties, at, mapping, mappings, text, whole
from slipway.runtime.failures import Cause, Failure, explain, known
from slipway.runtime.schedule.places.shortages import STOCKOUT
from slipway.runtime.usage.limits import IDLE, Reached

# What autoscalers, schedulers and kubelets say, turned into one plain clause with what mends it.
#
# The words that are known are data: ``data/waiting.toml`` beside this module, and a file of that name among the
# data of each cloud and feature. Words that no row knows are shown as they are: nothing is guessed.


FILE = Path("data") / "waiting.toml"


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
    "preview": command("preview"),
    "run": command("run", stack="…"),
    **dict.fromkeys(("name", "handler", "why", "since", "beside"), ""),
}
"""What stands in where the words name none."""


def files() -> list[Path]:
    """The files with the words that are known, those of clouds and features first."""
    packages = Path(registry.__file__).parent
    of_clouds = [packages / name / FILE for name in registry.CLOUDS]
    return [*filter(Path.is_file, of_clouds), *data_files(FILE.name), Path(__file__).parent / FILE]


@cache
def table(name: str) -> Sequence[Cause]:
    """The rows of one name of all files: ``scale_up``, ``scheduling``, ``images``."""
    contents = (tomllib.loads(path.read_text(encoding="utf-8")) for path in files())
    return [
        Cause(
            kind, pattern or f"(?i){STOCKOUT}", says, fix, "".join(key), f"{group['version']}: {group['source']}"
        )
        for content in contents
        for group in content.get(name, ())
        for kind, pattern, says, fix, *key in group["rows"]
    ]


def reason_of(row: Failure, words: str, section: str = "", *, says: str = "", kind: str = "") -> Reason:
    """The reason that a row gives, with the ``words`` in which it was row; without one what ``says`` that."""
    return Reason(row.says or says, with_pages(row.advice(section)), words, row.kind or kind)


def recognise(words: str, name: str, says: str = "", *, section: str = "", kind: str = "", **more: str) -> Reason:
    """The reason that the first row of the table ``name`` gives which knows ``words``; else what ``says`` that.

    ``more`` fills in what rows name, and ``section`` is the key of the step's settings.
    """
    return reason_of(known(words, table(name), **{**_OTHERWISE, **more}), words, section, says=says, kind=kind)


def seen(what: str, words: str = "", **more: str) -> Reason:
    """The reason for what objects themselves show: the row of the table ``seen`` for ``what``."""
    return replace(recognise(what, "seen", **more), words=words)


ELSEWHERE = re.compile(r"didn't match Pod's node affinity(?:/selector)?|didn't match node selector")
"""Said of nodes of other pools than the pod's."""

TAINTED = re.compile(r"untolerated taint|had taints")
"""Said of nodes of all pools, and since Kubernetes 1.36 without the name of the taint."""


@dataclass(frozen=True)
class Around:
    """What else is known when a pod is looked at, ``at`` that time: its events, and the nodes that it asks for.

    ``autoscaler`` is what it writes of its node groups, empty where nobody may read it. ``gone_nodes`` are names
    of nodes that are there no more, ``own_nodes`` those with the labels that the pod selects, None where nobody
    may read them. ``claims`` says of claims by name why they wait. ``hold`` is what holds the
    Job back. ``section`` is the key of the step's settings.
    """

    events: Sequence[Event] = ()
    nodes: Nodes = field(default_factory=Nodes)
    autoscaler: str = ""
    gone_nodes: frozenset[str] = frozenset()
    own_nodes: Sequence[Properties] | None = None
    claims: Mapping[str, Reason] = field(default_factory=dict[str, Reason])
    hold: Hold | None = None
    at: datetime | None = None
    section: str = ""

    def recognise(self, words: str, name: str, says: str = "", kind: str = "", **more: str) -> Reason:
        """As `recognise`, with the nodes and the settings of the pod."""
        return recognise(words, name, says, section=self.section, kind=kind, **self.nodes.words, **more)


UNBOUND = 60
"""Seconds after which a claim should have its volume."""

_OF_CLAIMS = ("FailedBinding", "ProvisioningFailed", "ExternalProvisioning", "VolumeMismatch")
_OF_PODS = ("WaitForFirstConsumer", "WaitForPodScheduled")
"""Events of claims (kubernetes/pkg/controller/volume/events/event.go, Kubernetes 1.37)."""


def waiting_claims(observed: Observed) -> dict[str, Reason]:
    """Why each claim of the namespace has no volume, by its name; without those that wait for their first pod."""
    reasons: dict[str, Reason] = {}
    for claim in observed.claims:
        last = newest(observed.events.get(uid_of(claim), ()), *_OF_CLAIMS, *_OF_PODS)
        if at(claim, "status", "phase") == "Bound" or (last and last.reason in _OF_PODS):
            continue
        no_class = last is None and at(claim, "spec", "storageClassName") is None
        words = last.message if last else "no storage class is set" if no_class else "it is not there yet"
        reason, created = recognise(words, "claims", words, kind="claim"), creation_time(claim)
        young = created is not None and (observed.at - created).total_seconds() < UNBOUND
        if not (young and reason.kind in {"claim", "provisioner"}):
            reasons[name_of(claim)] = replace(
                reason, says=f"the claim {name_of(claim)} has no volume: {reason.says}"
            )
    return reasons


LATE = 15 * 60
"""Seconds after which a node that was asked for should have come: what the Cluster Autoscaler waits for one
(`--max-node-provision-time` in its FAQ, seen November 2026)."""


def why_waiting(pod: Properties, words: str, around: Around) -> Reason:
    """Why no node takes the pod: what the autoscaler says of that, else the scheduler's ``words``."""
    scheduler = explain_scheduling(words, around, taints_of(pod, around.own_nodes))
    volumes = mappings(at(pod, "spec", "volumes"))
    claims = [text(at(volume, "persistentVolumeClaim", "claimName")) for volume in volumes]
    waiting = [around.claims[claim] for claim in claims if claim in around.claims]
    if scheduler.kind == "volume" and waiting:
        return replace(waiting[0], words=f"{waiting[0].words}; {words}")
    misled = around.hold.misled(pod, words) if around.hold and scheduler.kind == "selector" else None
    if misled:
        return misled
    return _of_autoscaler(scheduler, around) or scheduler


def _of_autoscaler(scheduler: Reason, around: Around) -> Reason | None:
    """What the autoscaler says of the pod, beside the ``scheduler``; None where it says nothing."""
    events, pool = around.events, around.nodes.pool
    request = newest(events, "TriggeredScaleUp", "Nominated")
    failure = newest(events, "FailedScaleUp", "InsufficientCapacityError")
    refusal = newest(events, "NotTriggerScaleUp")
    if failure and later(failure, request):
        made = f"no node of pool {pool} could be made" if pool else "no node could be made"
        return around.recognise(failure.message, "scale_up", f"{made}: {failure.message}", "scale-up")
    if request and later(request, refusal):
        return _requested(request, around)
    if refusal is not None:
        return _refusal(refusal.message, scheduler, around)
    for event in reversed(events):
        if event.reason == "FailedScheduling" and "karpenter" in event.by:
            says = f"Karpenter can make no node for it: {event.message}"
            return around.recognise(event.message, "scale_up", says, "karpenter")
    return None


def taints_of(pod: Properties, nodes: Sequence[Properties] | None) -> list[str] | None:
    """The taint of each of the ``nodes`` that keeps the pod away, as ``key: value``; None where none is known."""
    if nodes is None:
        return None
    tolerated = tolerations(at(pod, "spec", "tolerations"))
    taints = ([_taint(taint) for taint in mappings(at(node, "spec", "taints"))] for node in nodes)
    untolerated = (find_untolerated(tolerated, of_node) for of_node in taints)
    return [f"{taint.key}: {taint.value}" for taint in untolerated if taint is not None]


def _taint(taint: Properties) -> Taint:
    effect = cast("TaintEffect", text(taint.get("effect")))
    return Taint(text(taint.get("key")), text(taint.get("value")), effect)


def _requested(request: Event, around: Around) -> Reason:
    """Of a node that was asked for: that it is made, is queued for, is late, or that its group is in backoff."""
    groups = _GROUP.findall(request.message)
    if groups and (reason := _backoff(around, [group for group, *_ in groups])):
        return replace(reason, words=f"{request.message}; {reason.words}")
    words, nodes = request.message, around.nodes.words
    if around.nodes.queued:
        since = f", asked for at {request.at.astimezone():%H:%M}" if request.at else ""
        return seen("queued", words, **nodes, since=since)
    waited = (around.at - request.at).total_seconds() if around.at and request.at else 0
    if waited >= LATE:
        return seen("late", words, **nodes, waited=duration(waited))
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
    parts = re.sub(r"^\(it wouldn't fit[^)]*\)", "", words.partition("scale-up")[2].strip(" :")).strip(" :")
    if scheduler.kind == "too small":
        return replace(scheduler, words=f"{words}; {scheduler.words}")
    reason = around.recognise(parts, "no_scale_up")
    if reason.says:
        if reason.kind == "backoff":
            # The scheduler tells nothing of the cause.
            reason = _backoff(around) or reason
        return replace(reason, words=words)
    if parts and not ELSEWHERE.sub("", re.sub(r"\d+ node\(s\) ", "", parts)).strip(" ,"):
        return seen("no pool", words)
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
        if (reason := around.recognise(words, "scale_up")).says:
            return reason
    return None


def explain_scheduling(words: str, around: Around, taints: Sequence[str] | None = None) -> Reason:
    """``0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: …``.

    ``taints`` are those of the nodes of the pod's own pool, None where they are not known.
    """
    pool = around.nodes.pool
    if "no nodes available" in words:
        return seen("no node", words)
    sentence, _, preemption = re.sub(r" no new claims to deallocate.*", "", words).partition(" preemption:")
    head, _, tail = sentence.strip(" .").partition(": ")
    # A node that is too small even when nothing runs on it cannot be helped by preemption (Kubernetes 1.36).
    hopeless = re.search(r"0/(\d+) nodes are available: \1 Preemption is not helpful", preemption)
    counted = _count_nodes(tail if re.match(r"\d+/\d+ nodes", head) else sentence.strip(" ."))
    elsewhere = around.own_nodes == [] or any(count for count, part in counted if ELSEWHERE.search(part))
    parts = [(count, part) for count, part in counted if not ELSEWHERE.search(part)]
    if taints is not None:
        # What keeps the pod from the nodes of other pools is meant.
        parts = [(count, part) for count, part in parts if not TAINTED.search(part)]
        parts += [(count, f"had untolerated taint {{{taint}}}") for taint, count in Counter(taints).items()]
    if hopeless:
        parts = [(count, part.replace("Insufficient ", "TooSmall ")) for count, part in parts]
    reasons = [_clause(count, part, around) for count, part in sorted(parts, key=lambda entry: _rank(entry[1]))]
    if all(reason.kind == "taint" for reason in reasons) and elsewhere:
        beside = "".join(f"; of others, {reason.says}" for reason in reasons)
        return seen("no own node", words, pool=f"the pool {pool}" if pool else "its labels", beside=beside)
    if not reasons:
        return Reason(words or "no node takes it", "", words)
    says = "; ".join(dict.fromkeys(reason.says for reason in reasons))
    return Reason(says, reasons[0].fix, words, reasons[0].kind)


def _clause(count: int, part: str, around: Around) -> Reason:
    nodes = "one node is" if count == 1 else f"{count} nodes are"
    taint = re.search(r"taint \{(.*?)(?:: )?\}", part)
    return around.recognise(part, "scheduling", part, count=nodes, taint=taint[1] if taint else "a taint")


def _rank(part: str) -> int:
    """The row that knows a clause about nodes. Of several clauses that of the first row is to be mended."""
    rows = table("scheduling")
    return next((number for number, row in enumerate(rows) if re.search(row.pattern, part)), len(rows))


def _count_nodes(sentence: str) -> list[tuple[int, str]]:
    """The reasons with the number of nodes that each holds for; a taint may have commas of its own."""
    parts = re.findall(r"(?:^|, )(\d+) (.*?)(?=, \d+ |$)", sentence)
    return [(int(count), part) for count, part in parts] or ([(0, sentence)] if sentence else [])


PULL_FAILED = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"),
    }
)
"""Reasons for which a container waits for its image (kubernetes/pkg/kubelet/images/types.go, Kubernetes 1.37)."""

STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which one waits that is about to start. All others say that it cannot."""

_NONE: Properties = {}

_CONTAINERS = ("initContainers", "containers")

BUS_ERROR = 128 + signal.SIGBUS
"""The exit code of a program that wrote to shared memory for which there was no room."""


def main_container(pod: Properties) -> str:
    """The name of the container that runs the step's program; those that others add to the pod come before it."""
    names = [text(container.get("name")) for container in mappings(at(pod, "spec", "containers"))]
    step = labels_of(pod).get(COMPONENT, "")
    return step if step in names else (names or [""])[-1]


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
    if reason == "TerminationByKubelet" and (taken := recognise(message, "taken").says):
        return taken
    return recognise(reason, "taken", message or reason or "it was taken away").says


Standing = tuple[Phase, Reason, datetime | None]
"""Where a pod stands, why, and since when."""


def _phase(pod: Properties, status: Properties, around: Around) -> Standing:
    phase = at(pod, "status", "phase")
    if phase == "Succeeded":
        return Phase.DONE, NOTHING, None
    if phase == "Failed":
        return Phase.FAILED, failure(pod, status, around.section), None
    if deletion := deletion_time(pod):
        return Phase.ENDING, Reason(_disruption(pod)), deletion
    node = text(at(pod, "spec", "nodeName"))
    if not node:
        return _without_node(pod, around)
    return _lost(pod, node, around) or _on_its_node(pod, status, around)


def _on_its_node(pod: Properties, status: Properties, around: Around) -> Standing:
    if terminated := mapping(at(status, "state", "terminated")):
        others = [other for other in _statuses(pod) if mapping(at(other, "state", "running"))]
        ended = Reason("its program has ended")
        reason = seen("sidecar goes on", container=text(others[0].get("name"))) if others else ended
        return Phase.ENDING, reason, time_of(terminated.get("finishedAt"))
    if running := mapping(at(status, "state", "running")):
        return Phase.RUNNING, Reason(""), time_of(running.get("startedAt"))
    return _before_program(pod, around)


def _lost(pod: Properties, node: str, around: Around) -> Standing | None:
    """Of a pod whose node is silent or gone."""
    ready = conditions(pod).get("Ready")
    if node in around.gone_nodes:
        # Kubernetes deletes such pods after 40 s, and looks for them every 20 s (pkg/controller/podgc/
        # gc_controller.go, Kubernetes 1.34).
        return Phase.LOST, seen("node gone", node=node), since(ready)
    # A program has no readiness probe: where its pod is not ready, the node's controller said so, which has not
    # heard from the node for 50 s (kubernetes.io/docs/concepts/architecture/nodes, seen November 2026).
    silence = newest(around.events, "NodeNotReady")
    if ready is None or ready.get("status") == "True" or not (silence or ready.get("status") == "Unknown"):
        return None
    words = silence.message if silence else text(ready.get("message"))
    return Phase.LOST, seen("node silent", words, node=node), since(ready)


def _before_program(pod: Properties, around: Around) -> Standing:
    """Of a pod that has a node and whose program has not begun."""
    scheduled = since(holds(conditions(pod), "PodScheduled"))
    specs = {text(spec.get("name")): spec for kind in _CONTAINERS for spec in mappings(at(pod, "spec", kind))}
    init_statuses, main = _statuses(pod, "initContainerStatuses"), main_container(pod)
    for status in [*init_statuses, *_statuses(pod)]:
        waiting, name = mapping(at(status, "state", "waiting")), text(status.get("name"))
        why, words = text(waiting.get("reason")), text(waiting.get("message"))
        if why in PULL_FAILED:
            image = text(status.get("image")) or text(specs.get(name, {}).get("image"))
            return Phase.PULLING, _pull_failure(why, words, image, around), scheduled
        if why not in STARTING:
            whose = "" if name == main else f"container {name}: "
            reason = _start_failure(why, words, status, around)
            return Phase.STARTING, replace(reason, says=f"{whose}{reason.says}"), scheduled
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


def _start_failure(why: str, words: str, status: Properties, around: Around) -> Reason:
    """Why a container cannot start, or ends again and again."""
    ended = mapping(at(status, "lastState", "terminated"))
    if why == "CrashLoopBackOff" and ended:
        ending = explain(text(ended.get("message")))
        says = f"it ends again and again: {ending.words('it')} (exit code {whole(ended.get('exitCode'))})"
        return replace(reason_of(ending, words, around.section, kind="container"), says=says)
    reason = around.recognise(words, "volumes")
    return (
        reason
        if reason.says
        else reason_of(known(words), words, around.section, says=words or why, kind="container")
    )


def _pull_failure(why: str, words: str, image: str, around: Around) -> Reason:
    failures = [event for event in around.events if event.reason == "Failed" and "pull image" in event.message]
    # `Back-off pulling image "…"` alone says nothing of the cause; newer kubelets add it after a colon.
    all_words = " ".join(filter(None, [words, failures[-1].message if failures else ""]))
    says = f"{image or 'its image'} cannot be pulled: {words or why}"
    return around.recognise(f"{why}: {all_words}", "images", says, "image", image=image or "the image")


def _mount_failure(around: Around) -> Reason | None:
    failure = newest(
        around.events,
        *("FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox"),
        *("NetworkNotReady", "FailedPrepareDynamicResources"),
    )
    if failure is None or not later(failure, newest(around.events, "Pulling", "Pulled", "Created", "Started")):
        return None
    what = {"FailedCreatePodSandBox": "its network", "NetworkNotReady": "its network"}.get(
        failure.reason, "a volume"
    )
    words = failure.message
    return around.recognise(words, "volumes", f"{what} cannot be made ready: {words}", "volume")


def failure(pod: Properties, status: Properties, section: str = "") -> Reason:
    """Why the pod failed, in its program's own words; ``section`` is the key of the step's settings."""
    terminated = mapping(at(status, "state", "terminated"))
    message, name, code = (
        text(terminated.get("message")).strip(),
        text(status.get("name")),
        terminated.get("exitCode"),
    )
    every = [status, *_statuses(pod), *_statuses(pod, "initContainerStatuses")]
    if killed := [text(other.get("name")) for other in every if _was_killed(other)]:
        limit = _memory_limit(pod, killed[0])
        if name in killed:
            row = known(
                f"OOMKilled: it reached its limit of {limit}" if limit else "OOMKilled: its node has no more"
            )
            return reason_of(row, message, section)
        return seen("sidecar killed", message, container=killed[0], limit=limit or "its node's memory")
    words, why = text(at(pod, "status", "message")), text(at(pod, "status", "reason"))
    if why == "Evicted":
        return recognise(words, "taken", f"evicted by its node: {words}", section=section, kind="evicted")
    if (reached := Reached.parse(message)) and code == reached.code:
        return Reason(reached.says, reached.fix, message, "idle" if reached.kind == IDLE else "budget")
    failed = [other for other in every if whole(at(other, "state", "terminated", "exitCode"))]
    if not (terminated or failed):
        says = words or why or "its containers are gone, and nobody says why"
        return recognise(f"{why}: {words}", "rejected", says, kind="gone")
    return _of_container(pod, status if code or not failed else failed[0], section)


def _of_container(pod: Properties, status: Properties, section: str) -> Reason:
    """Why the container that made the pod fail did so."""
    terminated, name = mapping(at(status, "state", "terminated")), text(status.get("name"))
    message, is_main = text(terminated.get("message")).strip(), name == main_container(pod)
    code = whole(terminated.get("exitCode"))
    ended = "Bus error" if code == BUS_ERROR else ""
    ending = explain(message, ended, lock=command("lock", pipeline=labels_of(pod).get(NAME, "")))
    said = f"{ending.words('its program' if is_main else 'it')} (exit code {code})"
    whose = "" if is_main else f"container {name}: "
    reason = reason_of(ending, message, section, kind="failed" if is_main else "init")
    own_fix = fix_of_denial(pod, name, message) or fix_of_refused_write(pod, name, message)
    says = f"{whose}{ending.says}: {said}" if ending.says else f"{whose}{said}"
    return replace(reason, says=says, fix=own_fix or reason.fix)


def _was_killed(status: Properties) -> bool:
    """Whether the container was killed for want of memory; a sidecar may be started again since."""
    return any(at(status, state, "terminated", "reason") == "OOMKilled" for state in ("state", "lastState"))


def _memory_limit(pod: Properties, container: str) -> str:
    specs = [spec for kind in _CONTAINERS for spec in mappings(at(pod, "spec", kind))]
    spec = next((spec for spec in specs if spec.get("name") == container), _NONE)
    return text(at(spec, "resources", "limits", "memory"))


def _without_node(pod: Properties, around: Around) -> Standing:
    """Of a pod without a node."""
    if gates := mappings(at(pod, "spec", "schedulingGates")):
        names = ", ".join(text(gate.get("name")) for gate in gates)
        return Phase.WAITING, seen("gate", names, names=names), creation_time(pod)
    condition = conditions(pod).get("PodScheduled")
    if condition is None or condition.get("status") != "False":
        return Phase.WAITING, seen("not looked at"), creation_time(pod)
    words = text(condition.get("message"))
    if nominated := text(at(pod, "status", "nominatedNodeName")):
        return Phase.WAITING, seen("preempting", words, node=nominated), since(condition)
    return Phase.WAITING, why_waiting(pod, words, around), since(condition)
