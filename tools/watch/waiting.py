"""Why a pod has no node: what the autoscaler and the scheduler say of it, as one plain clause."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tools.watch.objects import Event, later, newest
from tools.watch.reasons import explained, table
from tools.watch.states import Reason

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
    karpenter = [each for each in events if each.reason == "FailedScheduling" and "karpenter" in each.by]
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
    first = next((each for each in clauses if each.kind != "anti-affinity"), clauses[0])
    return Reason("; ".join(_unique(each.says for each in clauses)), first.fix, words, first.kind)


def _parts(said: str) -> list[tuple[int, str]]:
    """The reasons with the number of nodes that each holds for; a taint may have commas of its own."""
    found = re.findall(r"(?:^|, )(\d+) (.*?)(?=, \d+ |$)", said)
    return [(int(count), part) for count, part in found] or ([(0, said)] if said else [])


def _unique(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))
