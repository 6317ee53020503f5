"""`slipway shell` and `slipway open`: kubectl in a step's pod or before an app, with the stack's own login."""

import json
import logging
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.command.clusters import AccessError, Clusters, explain, kubectl
from slipway.command.watch.cli import WatchError, open_session
from slipway.command.watch.logs import choose
from slipway.command.watch.plan import PlanError, evaluate, plan_of
from slipway.command.watch.states import Phase
from slipway.infra.api_server import UnreadableError
from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.kubernetes.labels import APP, NAME, PEOPLE
from slipway.infra.places import PROJECT
from slipway.infra.review.stack import Stack, at, mapping, mappings, strings, text, whole
from slipway.rehearse.machine.processes import as_declared, handling

SERVICE = "kubernetes:core/v1:Service"

SHELL = ("sh", "-c", "exec $(command -v bash || echo sh)")
"""The shell of a container: the best that its image has."""

FORWARDING = "Forwarding from "
"""The beginning of the line by which kubectl says that a port is open (kubectl 1.37)."""


def enter(
    stack: str, step: str, words: Sequence[str], kubeconfig: Path | None, context: str, *, index: int
) -> int:
    """Runs a shell, or ``words``, in the container of the step's pod with that ``index``; its exit code."""
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        session = open_session(stack, kubeconfig, context)
        session.logs = False
        wanted = choose(step, session.plan)
        view = session.look()
        state = next(entry for entry in view.steps if entry.name == wanted.name)
        pods = [pod for pod in state.pods if pod.phase is Phase.RUNNING and (pod.index or 0) == index]
        if not pods:
            seen = command("logs", stack=stack, step=wanted.name)
            why = "; ".join(view.trouble) if state.phase is Phase.UNKNOWN else f"{state.says}; `{seen}`"
            raise WatchError(f"no pod of {wanted.name} with index {index} runs: {why}")
        terminal = "-it" if sys.stdin.isatty() and not words else "-i"
        inside = ["exec", terminal, pods[0].name, "--container", pods[0].container, "--", *(words or SHELL)]
        return _kubectl(session.clusters, state.cluster, session.plan.namespaces[state.cluster], inside)
    except (WatchError, PlanError, AccessError, UnreadableError) as error:
        report_error(explain(error) if isinstance(error, UnreadableError) else error)
        return Exit.REFUSED


@dataclass(frozen=True)
class Page:
    """An app that people use: the Service before it, its port and its first page."""

    name: str
    cluster: str
    namespace: str
    service: str
    port: int
    path: str


def open_app(stack: str, app: str, port: int, kubeconfig: Path | None, context: str) -> int:
    """Lets this machine reach an app at ``port``, 0 for the app's own, until Ctrl-C."""
    try:
        evaluated = evaluate(stack, PROJECT)
        places = {place.name: place for place in plan_of(evaluated).places}
        page = choose_page(app, stack, pages(evaluated))
        here = port or as_declared([page.port])[0]
        clusters = Clusters(stack, places, kubeconfig, context or None)
        words = ["port-forward", f"service/{page.service}", f"{here}:{page.port}"]
        return _kubectl(clusters, page.cluster, page.namespace, words, f"http://localhost:{here}{page.path}")
    except (WatchError, PlanError, AccessError) as error:
        report_error(error)
        return Exit.REFUSED


def pages(stack: Stack) -> list[Page]:
    """The apps of a stack that people use."""
    listed: list[Page] = []
    for service in stack.of_type(SERVICE):
        metadata = mapping(service.properties.get("metadata"))
        labels = strings(metadata.get("labels"))
        if for_people := strings(metadata.get("annotations")).get(PEOPLE):
            ports = mappings(at(service.properties, "spec", "ports"))
            number = next((whole(port.get("port")) for port in ports if port.get("name") == "http"), 0)
            where = (stack.cluster_of(service), text(metadata.get("namespace")), text(metadata.get("name")))
            path = text(mapping(json.loads(for_people)).get("path"))
            listed.append(Page(f"{labels.get(NAME)}.{labels.get(APP)}", *where, number, path))
    return listed


def choose_page(name: str, stack: str, known: Sequence[Page]) -> Page:
    """The app that ``name`` means, whole or the end of it; the only one where it is empty. Raises WatchError."""
    names = [page.name for page in known]
    meant = [page for page in known if not name or page.name == name or page.name.endswith(f".{name}")]
    if len(meant) != 1:
        has = f"it has {', '.join(names)}" if names else "it has none that people use"
        raise WatchError(f"name one app of the stack {stack}; {has}")
    return meant[0]


def _kubectl(clusters: Clusters, cluster: str, namespace: str, words: Sequence[str], address: str = "") -> int:
    """Runs kubectl in the namespace; prints the ``address`` once the way there is open. Raises AccessError."""
    server = clusters.server(cluster)
    # Ctrl-C is for kubectl, which has this terminal, too.
    leaving = handling(_leave_to_kubectl, signal.SIGINT)
    with tempfile.TemporaryDirectory(prefix="slipway-kubectl-") as folder, leaving:
        line = [*kubectl(server.kubeconfig, server.context, Path(folder)), "--namespace", namespace, *words]
        print(f"# {shlex.join(line)}", file=sys.stderr, flush=True)
        try:
            process = subprocess.Popen(line, stdout=subprocess.PIPE if address else None, text=True)
        except FileNotFoundError as error:
            raise AccessError("kubectl is not on PATH: https://kubernetes.io/docs/tasks/tools") from error
        for said in process.stdout or ():
            if said.startswith(FORWARDING):
                print(f"{address} until Ctrl-C", flush=True)
                break
        # What it says of each connection is for nobody.
        process.communicate()
    ended = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Exit.DONE if address and ended == Exit.INTERRUPTED else ended


def _leave_to_kubectl(*_: object) -> None:
    """Does nothing."""
