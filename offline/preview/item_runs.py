"""Jobs that work on items: what of them an update works on again, and what else it changes about them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from infra.kubernetes.review.clients import QUEUE_FLAG
from infra.review.properties import at, mappings, texts, whole
from infra.review.stack import Resource

ITEMS_FLAG = "--items"
"""The argument of workers before the pattern of their items (`workloads.runtime.worker`)."""

Again = Literal["", "all", "changed"]

NUMBERS: Mapping[str, str] = {
    "--lease": "its lease, in seconds,",
    "--attempts": "the number of attempts at an item",
    "--allow-failed": "how many of its items may fail",
    "--mode": "its mode",
}
"""The arguments of workers that are told with their values, as text."""

# The fingerprint follows from the image, the environment and others that are told by themselves.
_OF_WORKERS = frozenset({*NUMBERS, "--workers", QUEUE_FLAG, "--queue-password", "--fingerprint"})


def pattern(job: Resource) -> str:
    """The pattern of the Job's items; empty where it has none."""
    return _flags(job).get(ITEMS_FLAG, "")


def again(job: Resource, causes: Sequence[str], inputs: Mapping[str, str]) -> Again:
    """Which items a Job works on that runs again for these ``causes``: all, or those that are new or changed.

    ``inputs`` are the causes that are another result of an input, by its directory. That of the items themselves
    decides of no item but those that it changes.
    """
    if not pattern(job):
        return ""
    own = {cause for directory, cause in inputs.items() if f"/{directory}/" in pattern(job)}
    return "changed" if causes and own.issuperset(causes) else "all"


def words(items: Again) -> list[str]:
    """What `again` found, as text."""
    told = {
        "all": "it works on all of its items again",
        "changed": "it works only on items that are new or changed",
    }
    return [told[items]] if items else []


def changes(old: Resource, new: Resource) -> list[str]:
    """What changed about the workers of a Job, which decides no result."""
    return list(_changes(old, new)) if pattern(old) and pattern(new) else []


def without_workers(arguments: Sequence[str]) -> list[str]:
    """The arguments of a container without those of `changes`."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    dropped = {index for index in range(end) if words[index] in _OF_WORKERS}
    return [word for index, word in enumerate(words) if not {index, index - 1} & dropped]


def _changes(old: Resource, new: Resource) -> Iterator[str]:
    pods = [whole(at(each.properties, "spec", "parallelism"), 1) for each in (old, new)]
    if pods[0] != pods[1]:
        yield f"the number of its workers changed from {pods[0]} to {pods[1]}"
    before, after = _flags(old), _flags(new)
    for flag, name in NUMBERS.items():
        if before.get(flag) != after.get(flag):
            yield f"{name} changed from {before.get(flag)} to {after.get(flag)}"
    if before.get(QUEUE_FLAG) != after.get(QUEUE_FLAG):
        queue = after.get(QUEUE_FLAG)
        yield f"its items come from {queue} now" if queue else "each of its workers has its own share of the items"


def _flags(job: Resource) -> dict[str, str]:
    """The arguments of a worker with what follows them; none for other Jobs."""
    for container in mappings(at(job.properties, "spec", "template", "spec", "containers")):
        arguments = texts(container.get("args"))
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if ITEMS_FLAG in own:
            return dict(pairwise(own))
    return {}
