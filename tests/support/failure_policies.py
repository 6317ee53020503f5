"""What a podFailurePolicy says of a pod that failed, as the Job controller reads it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def action_for(rules: Sequence[Mapping[str, Any]], conditions: Collection[str], codes: Mapping[str, int]) -> str:
    """The action of the first rule that matches a pod with these conditions and exit codes, by container.

    Containers that ended well are left out (pkg/controller/job/pod_failure_policy.go of Kubernetes 1.37).
    """
    for rule in rules:
        if any(pattern["type"] in conditions for pattern in rule.get("onPodConditions", ())):
            return rule["action"]
        wanted = rule.get("onExitCodes")
        named = wanted.get("containerName") if wanted else None
        looked_at = [code for container, code in codes.items() if code and named in {None, container}]
        if wanted and any((code in wanted["values"]) == (wanted["operator"] == "In") for code in looked_at):
            return rule["action"]
    return "Count"
