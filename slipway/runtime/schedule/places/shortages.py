"""Why a pod gets no node, in the words of autoscalers and clouds. Standard library only, Python 3.9.

The mover of a step with places goes on by it, and `slipway watch` tells people by it (its data/waiting.toml).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

REFUSALS = ("FailedScaleUp", "NotTriggerScaleUp")
"""Reasons of events by which the Cluster Autoscaler says that a pod gets no node (cluster-autoscaler,
processors/status/eventing_scale_up_processor.go, seen November 2026)."""

ASKED = "TriggeredScaleUp"
"""The reason of the event by which it says that it has asked for one."""

STOCKOUT = (
    r"(?:scale up in zones (?P<zones>[\w, -]+?) associated with this pod failed: )?"
    r"(?P<said>GCE out of resources|GCE_STOCKOUT|(?:ZONE_)?RESOURCE_POOL_EXHAUSTED"
    r"|does not have enough resources available"
    r"|sufficient (?P<machine>[\w.-]+) capacity in the Availability Zone you requested(?: \((?P<zone>[\w-]+)\))?"
    r"|Insufficient(?:Instance|Host|ReservedInstance|)Capacity(?:Error)?\b|UnfulfillableCapacity"
    r"|no Spot capacity available|insufficient capacity, all requested instance types were unavailable)"
)
"""What messages have where the cloud has no such machine now, as a regular expression for words in either case.

Compute Engine's (docs.cloud.google.com/kubernetes-engine/docs/how-to/cluster-autoscaler-visibility, and
docs.cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability), EC2's
(docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html), and Karpenter's
(github.com/aws/karpenter-provider-aws/issues/5578 and 4346); all seen November 2026.
"""

QUOTA = r"quota[^.;]* exceeded|QUOTA_EXCEEDED|(?:Vcpu|Instance)LimitExceeded|SpotInstanceCount(?:Limit)?Exceeded"
"""The same where a quota of the project or account is used up, which no waiting mends soon."""

BACKOFF = "in backoff after failed scale-up"
"""What the autoscaler says while it does not ask again, whatever the reason was."""

_SHORTAGE = re.compile(f"{STOCKOUT}|{QUOTA}|{BACKOFF}", re.IGNORECASE)


def shortage(message: str) -> str:
    """The words of the message that say that there is no such machine to be had now; empty where it says no such
    thing."""
    match = _SHORTAGE.search(message)
    return match["said"] or match[0] if match else ""


def shortage_of(pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> str:
    """Why the pods get no node, in the words of the newest event of each that an autoscaler wrote.

    Empty where that is not for want of machines. Events of a Job's earlier pods stay for an hour, and do not
    count.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=_time):
        if event.get("reason") in (*REFUSALS, ASKED):
            newest[event.get("involvedObject", {}).get("name", "")] = event
    names = [pod["metadata"]["name"] for pod in pods]
    last = [newest[name] for name in names if name in newest]
    refusals = [str(event.get("message", "")) for event in last if event["reason"] in REFUSALS]
    return next((words for message in refusals if (words := shortage(message))), "")


def _time(event: Mapping[str, Any]) -> str:
    written = event.get("metadata", {}).get("creationTimestamp")
    return event.get("lastTimestamp") or event.get("eventTime") or written or ""
