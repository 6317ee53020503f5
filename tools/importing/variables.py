"""What the pods of a training know of one another, in words of what a step with ``nodes`` tells them."""

import re
from collections.abc import Iterator, Sequence

from slipway.infra.schema.problems import Problem
from slipway.tools.importing.pods import Replica

SET = frozenset(
    {
        "TF_CONFIG",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "JAX_COORDINATOR_ADDRESS",
        "SLIPWAY_GENERATION",
    }
)
"""The variables that a step with ``nodes`` sets (slipway.workloads.runtime.nodes.work)."""

ENDPOINT = {"PET_RDZV_ENDPOINT": "$(MASTER_ADDR):$(MASTER_PORT)"}
"""What the training operator sets for elastic trainings alone (pkg/controller.v1/pytorch/elastic.go, 1.9). It is a
default of torchrun, so it is set only where a command names it, or another rendezvous than torchrun's own."""

RENDEZVOUS = "rdzv"
"""In options and variables of torchrun's rendezvous: ``--rdzv-backend=c10d``, ``PET_RDZV_ENDPOINT``."""

INDEX = "job-completion-index"
"""In the field of a pod that has its index in a Job, an annotation or a label (kubernetes.io/docs/tasks/job/
indexed-parallel-processing-static, November 2026)."""

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""The variable that Kubernetes gives the containers of an Indexed Job."""

RANK_0 = "$(MASTER_ADDR)"

PART_OF_HOST_NAME = re.compile(r"""(?:\$\(|`|<\(|^|[;&|]\s*)hostname\s*\||\$\{HOSTNAME(?:##?|%%?|:|/)[^}]*\}""")
"""Where a shell takes a part of its pod's host name, such as `$(hostname | cut -d- -f4)`: mostly the index."""


def replace_hosts(text: str, replicas: Sequence[Replica]) -> str:
    """``text`` with the address of rank 0 in place of its host name."""
    return _hosts(replicas).sub(lambda match: RANK_0 if _is_first(match, replicas) else match[0], text)


def host_problems(at: str, text: str, replicas: Sequence[Replica]) -> Iterator[Problem]:
    """The host names of other pods in ``text``, and parts of the pod's: those of a step have other ones."""
    if match := PART_OF_HOST_NAME.search(text):
        yield Problem(
            at,
            match[0],
            "it takes a part of the pod's host name, and pods of a step have other ones",
            "take the rank from `RANK`, which a step sets (docs/distributed.md)",
        )
    for match in _hosts(replicas).finditer(text):
        if not _is_first(match, replicas):
            yield Problem(
                at,
                match[0],
                "it is the host name of a pod, and pods of a step have other ones",
                "take the addresses from `TF_CONFIG`, `MASTER_ADDR` and `RANK`, which a step sets "
                "(docs/distributed.md)",
            )


def _hosts(replicas: Sequence[Replica]) -> re.Pattern[str]:
    """The host names of all pods, where a name or an address can begin: not as a part of a path."""
    names = "|".join(re.escape(replica.host) for replica in replicas if len(replica.host) > 1)
    return re.compile(rf"(?:(?<![\w./-])|(?<=://))(?P<host>{names or '(?!)'})(?P<index>\d+)(?:\.[\w-]+)*(?![\w-])")


def _is_first(match: re.Match[str], replicas: Sequence[Replica]) -> bool:
    return match["index"] == "0" and match["host"] == replicas[0].host
