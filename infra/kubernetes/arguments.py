"""The command line of a step's container: what its program is given, and before it what its runner has to know."""

import re
from collections.abc import Mapping

from infra.kubernetes.node_group import launcher_flags
from infra.kubernetes.run import LIBRARIES, Run
from infra.step import CODE, PACKAGES, Step

BUNDLE = "/bundle"
STORE = "/store"
FOLDERS = "/folders"

PER_ITEM = ("item", "output", "previous")
"""References in the arguments of a step with items that stand for something else with each item."""


def arguments(run: Run) -> list[str]:
    """The arguments of the step's container, with the paths that they have in the pod."""
    step, there = run.step, places(run)
    of_nodes = launcher_flags(step)
    if step.command is None:
        own = [in_pod(argument, there) for argument in step.arguments]
        if not of_nodes:
            return own
        # A module publishes itself; its launcher only looks at the directory.
        shared = ["--shared", f"{STORE}/{run.path}"] if step.publishes else []
        flags = [*map(escaped, [*_named(step), *shared, *_secrets(step)]), *of_nodes]
        return [*flags, "--", step.interpreter, "-m", step.module or "", *own]
    words = [in_pod(argument, there | filled_in(step)) for argument in step.arguments]
    return [*map(escaped, [*_flags(run), *_items_flags(run, there)]), *of_nodes, "--", *words]


def places(run: Run) -> dict[str, str]:
    """The directories in the pod that the references in the step's arguments stand for."""
    return {
        "store": STORE,
        "output": f"{STORE}/{run.path}",
        **{name: f"{STORE}/{each.path}" for name, each in run.inputs.items()},
        **{name: f"{FOLDERS}/{name}" for name in run.folders},
    }


def filled_in(step: Step) -> dict[str, str]:
    """The references that stay as they are, since it is the runner that knows what they stand for."""
    best = {name: f"{{best:{name}}}" for name in step.choices}
    return best | ({name: f"{{{name}}}" for name in PER_ITEM} if step.items else {})


def in_pod(text: str, there: Mapping[str, str]) -> str:
    """``text`` with directories in place of its references, as Kubernetes has to be given it."""
    return escaped(text.format_map(there))


def escaped(text: str) -> str:
    """What Kubernetes turns into ``text``: it puts variables in place of ``$(NAME)``, and ``$`` in place of ``$$``
    (kubernetes/third_party/forked/golang/expansion, Kubernetes 1.34).
    """
    return re.sub(r"\$(?=[$(])", "$$", text)


def _flags(run: Run) -> list[str]:
    """What the runner of a command has to know."""
    step = run.step
    flags = ["--output", f"{STORE}/{run.path}", *_named(step)]
    flags += ["--code", f"{BUNDLE}/{CODE}"]
    for name, each in run.inputs.items():
        place = f"{STORE}/{each.path}"
        flags += [f"--{name}", place] if name in {PACKAGES, LIBRARIES} else ["--input", f"{name}={place}"]
    for name, choice in step.choices.items():
        flags += ["--best", f"{name}={choice.of}:{choice.path}#{choice.select}:{','.join(choice.among)}"]
    for result in step.results:
        flags += ["--result", f"{result.name}={result.path}{f'#{result.select}' if result.select else ''}"]
    return [*flags, *_secrets(step)]


def _named(step: Step) -> list[str]:
    return ["--step", f"{step.pipeline}.{step.name}"]


def _secrets(step: Step) -> list[str]:
    """The variables whose values nobody is to read in the log."""
    variables = [*sorted(step.secrets), *(service.password_variable for service in step.connects.values())]
    return [word for variable in variables for word in ("--secret", variable)]


def _items_flags(run: Run, there: Mapping[str, str]) -> list[str]:
    """What the worker of a step with items has to know beside that."""
    step, items = run.step, run.step.items
    if items is None:
        return []
    flags = ["--items", items.files.format_map(there), "--mode", items.mode, "--attempts", str(items.attempts)]
    flags += ["--allow-failed", str(items.allow_failed), "--lease", str(items.lease)]
    flags += ["--workers", str(step.workers), "--fingerprint", run.surroundings]
    if items.queue:
        queue = step.connects[items.queue]
        flags += ["--queue", queue.address, "--queue-password", queue.password_variable]
    return flags
