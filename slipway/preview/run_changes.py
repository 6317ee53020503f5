"""What a change does to Jobs with items, on several nodes or with places, beyond running them again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from slipway.evaluated.phrasing import duration, join, money
from slipway.evaluated.places import moves_of
from slipway.infra.kubernetes.labels import data_of
from slipway.infra.kubernetes.pods.limits import POOL_FLAG
from slipway.infra.kubernetes.review import QUEUE_FLAG
from slipway.infra.kubernetes.run import MEASURE
from slipway.infra.placed import FOLDERS
from slipway.infra.review.stack import Properties, Resource, at, mappings, strings, texts, whole
from slipway.infra.schema.names import short_digest

# Jobs that work on items: which items an update works on again, and what else it changes about the Jobs.


ITEMS_FLAG = "--items"
"""The argument of workers before the pattern of their items (`slipway.runtime.items.worker`)."""

SEARCH_FLAG = "--search"
"""The argument of workers before what they search for, as JSON (`slipway.runtime.search.worker`)."""

Again = Literal["", "all", "changed"]

NUMBERS: Mapping[str, str] = {
    "--lease": "its lease, in seconds,",
    "--attempts": "the number of attempts at an item",
    "--allow-failed": "how many of its items may fail",
    "--mode": "its mode",
}
"""The arguments of workers that are told with their values, as text."""

# The fingerprint follows from the image, the environment and others, which have remarks of their own.
_OF_WORKERS = frozenset({*NUMBERS, "--workers", QUEUE_FLAG, "--queue-password", "--fingerprint"})


def pattern(job: Resource) -> str:
    """The pattern of the Job's items; empty where it has none."""
    return _flags(job).get(ITEMS_FLAG, "")


def find_scope(job: Resource, causes: Sequence[str], inputs: Mapping[str, str]) -> Again:
    """Whether a Job that runs again works on all of its items, or on those that are new or changed.

    ``causes`` are why it runs again. ``inputs`` are the causes that are new results of its inputs, by directory,
    and new data, by its folder. If the only cause is that what has the items is new, the items that
    are as before stay done.
    """
    if not pattern(job):
        return ""
    own_causes = {cause for directory, cause in inputs.items() if f"/{directory}/" in pattern(job)}
    return "changed" if causes and own_causes.issuperset(causes) else "all"


def scope_words(items: Again) -> list[str]:
    """What `find_scope` finds, as text."""
    scopes = {
        "all": "it works on all of its items again",
        "changed": "it works only on items that are new or changed",
    }
    return [scopes[items]] if items else []


def trials_words(job: Resource) -> list[str]:
    """How many trials the search of a Job has, as text; nothing where it has none."""
    try:
        search = json.loads(_flags(job).get(SEARCH_FLAG, ""))
        trials, at_once = search["trials"], search["at_once"]
    except (ValueError, TypeError, KeyError):
        return []
    return [f"it tries {trials} combinations, {at_once} at once, but for those that it has tried before"]


def data_changes(old: Resource, new: Resource) -> dict[str, str]:
    """What changed about the data that a Job reads and nothing of the stack makes, as text by the input's name."""
    before, after = (data_of(strings(at(side.properties, "metadata", "annotations"))) for side in (old, new))
    causes = {name: f"it no longer reads {name}, {url}" for name, (url, _) in before.items() if name not in after}
    for name, (url, digest) in after.items():
        earlier_url, earlier_digest = before.get(name, ("", ""))
        if not earlier_url:
            causes[name] = f"it reads {name}, {url}"
        elif url != earlier_url:
            causes[name] = f"its input {name} is {url}, and was {earlier_url}"
        elif digest != earlier_digest:
            digests = [short_digest(digest) or "none", short_digest(earlier_digest) or "none"]
            causes[name] = f"the data of its input {name} changed: {url}, digest {digests[0]}, before {digests[1]}"
    return causes


def folders_of_items(old: Resource, new: Resource) -> dict[str, str]:
    """Those of `data_changes` by the data's folder in a pod, as far as they concern single items alone."""
    same = _flags(old).get("--fingerprint") == _flags(new).get("--fingerprint")
    return {f"{FOLDERS}/{name}".strip("/"): cause for name, cause in data_changes(old, new).items() if same}


def changes(old: Resource, new: Resource) -> list[str]:
    """What changed about the workers of a Job. Its result stays the same."""
    return list(_changes(old, new)) if pattern(old) and pattern(new) else []


def without_workers(arguments: Sequence[str]) -> list[str]:
    """The arguments of a container without those of `changes`."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    dropped = {index for index in range(end) if words[index] in _OF_WORKERS}
    return [word for index, word in enumerate(words) if not {index, index - 1} & dropped]


def _changes(old: Resource, new: Resource) -> Iterator[str]:
    pods = [whole(at(side.properties, "spec", "parallelism"), 1) for side in (old, new)]
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
        flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
        if {ITEMS_FLAG, SEARCH_FLAG} & {*flags}:
            return dict(pairwise(flags))
    return {}


# Jobs whose pods work together on several nodes: what an update changes about their group.


RUNNER = "slipway.runtime.steps.command"
"""The module that starts the same program where there is one pod."""

MEET, WAIT, ROLES, OUTPUT, SHARED = "--meet", "--wait", "--roles", "--output", "--shared"

_OF_NODES = frozenset({"--node", MEET, WAIT, ROLES, "--gpus", SHARED})
"""Arguments of the launcher that say how the pods find one another, each with a value."""

_TOLD = frozenset({"args", "command", "env", "resources", "volumeMounts"})

RUNTIME = ("slipway/runtime/", "slipway/workloads/", "slipway/__init__.py")
"""Where the launcher and the runner of commands are; `slipway/workloads/` in an older base."""

_VARIABLES = frozenset({"JOB_UID", "JOB_NAME"})


def nodes_of(job: Resource) -> int:
    """On how many nodes the Job's pods work together; 1 where they do not."""
    return whole(at(job.properties, "spec", "parallelism"), 1) if _is_launched(job) else 1


def node_run_changes(old: Resource, new: Resource) -> list[str]:
    """What changed about the pods that work together."""
    return list(_node_run_changes(old, new)) if _is_launched(old) or _is_launched(new) else []


def command(job: Resource) -> list[str]:
    """The command, without the pool that what measures the step is told: the pod's selector says that."""
    words = texts(_container(job).get("command"))
    if MEASURE not in words or POOL_FLAG not in words:
        return words
    flag = words.index(POOL_FLAG)
    return [*words[:flag], *words[flag + 2 :]]


def own_command(job: Resource) -> list[str]:
    """What starts the program, without the launcher before it."""
    words = command(job)
    if not _is_launched(job):
        return words
    if OUTPUT in _node_run_flags(job):
        return [*words[:-1], RUNNER]
    # What measures the step stays before the program.
    return [*words[:-3], *_program(job)[:3]]


def own_arguments(job: Resource) -> list[str]:
    """The arguments of the program and its runner, without those for the connection between its pods."""
    arguments = texts(_container(job).get("args"))
    if not _is_launched(job):
        return arguments
    if OUTPUT not in _node_run_flags(job):
        return _program(job)[3:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    dropped = {index for index in range(end) if arguments[index] in _OF_NODES}
    return [word for index, word in enumerate(arguments) if not {index, index - 1} & dropped]


def own_environment(job: Resource) -> list[str]:
    """The environment, each variable as text, without those that identify the pod among the others."""
    variables = mappings(_container(job).get("env"))
    return [
        str(sorted(variable.items(), key=str)) for variable in variables if variable.get("name") not in _VARIABLES
    ]


def own_volumes(job: Resource) -> list[str]:
    """The volumes as text, without those of shipped files, which have remarks of their own."""
    volumes = mappings(at(job.properties, "spec", "template", "spec", "volumes"))
    return [str(volume) for volume in volumes if "configMap" not in volume]


def own_container(job: Resource) -> list[str]:
    """The container as text, without what other functions describe."""
    container = _container(job)
    rest = {key: value for key, value in container.items() if key not in _TOLD}
    return [str(rest), *map(str, mappings(container.get("volumeMounts")))]


def without_launcher(paths: Sequence[str]) -> list[str]:
    """The ``paths`` of shipped files without those of the launcher and the runner, which affect no result."""
    return [path for path in paths if not path.startswith(RUNTIME)]


def _node_run_changes(old: Resource, new: Resource) -> Iterator[str]:
    before, after = nodes_of(old), nodes_of(new)
    if before != after:
        yield f"the number of its nodes changed from {before} to {after}, which gives another result"
    if before == 1 or after == 1:
        return
    flags = _node_run_flags(old), _node_run_flags(new)
    roles = [flag.get(ROLES, "") or "workers alone" for flag in flags]
    if roles[0] != roles[1] and before == after:
        yield f"the roles of its pods changed from {roles[0]} to {roles[1]}, which gives another result"
    waits = [flag.get(WAIT, "") for flag in flags]
    if waits[0] != waits[1]:
        yield f"how long its pods wait for one another changed from {waits[0]} s to {waits[1]} s"
    ports = [flag.get(MEET, "").rpartition(":")[2] for flag in flags]
    if ports[0] != ports[1]:
        yield f"the port at which its pods meet changed from {ports[0]} to {ports[1]}"


def _is_launched(job: Resource) -> bool:
    # By its arguments: the module had another name in earlier versions.
    return MEET in _node_run_flags(job)


def _container(job: Resource) -> Properties:
    containers = mappings(at(job.properties, "spec", "template", "spec", "containers"))
    return containers[0] if containers else {}


def _node_run_flags(job: Resource) -> dict[str, str]:
    """The options of the launcher with their values; of a repeated option the last value."""
    arguments: Sequence[str] = texts(_container(job).get("args"))
    return dict(pairwise(arguments[: arguments.index("--")] if "--" in arguments else arguments))


def _program(job: Resource) -> list[str]:
    arguments = texts(_container(job).get("args"))
    return arguments[arguments.index("--") + 1 :] if "--" in arguments else []


# Jobs of steps with places: what an update changes about where and when they may run.


_TIMES = ("time_limit", "next_after", "deadline", "work")
"""The keys of a step with places that are times, in seconds."""


def places_changes(old: Resource, new: Resource) -> list[str]:
    """What changed about the places of a step, from what the Job of its mover says of them."""
    before, after = moves_of(old), moves_of(new)
    causes: list[str] = []
    if before.get("places") != after.get("places"):
        causes.append(f"its places were {join(before.get('places', ()))}")
    for key in (*_TIMES, "returns", "max_price"):
        if before.get(key) != after.get(key):
            values = [_rule(key, side.get(key)) for side in (before, after)]
            causes.append(f"its {key} changed from {values[0]} to {values[1]}")
    return causes


def _rule(key: str, value: Any) -> str:
    if value is None:
        return "none"
    if key == "max_price":
        return money(value)
    return duration(value) if key in _TIMES else str(value)
