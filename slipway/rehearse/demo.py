"""A demo: a rehearsal whose apps stay up until Ctrl-C."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipway.engine.project import SlipwayProject
from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import Problem, SettingsError, printable
from slipway.infra.stack.configuration import pipelines_of
from slipway.infra.terminal import new_console
from slipway.rehearse import session
from slipway.rehearse.beside import is_beside
from slipway.rehearse.cluster.cluster_objects import contents
from slipway.rehearse.cluster.server_specs import first_page
from slipway.rehearse.cluster.services import Server
from slipway.rehearse.engine import Engine
from slipway.rehearse.machine.processes import LOOPBACK
from slipway.rehearse.output import outcome
from slipway.rehearse.output.outcome import Configuration, Options
from slipway.rehearse.session import Session
from slipway.rehearse.state import ServicePhase

POLL = 0.2
"""Seconds between two looks at whether the demo is to end, and at apps that started again."""

TOKEN = "token"
"""The key of the Secret with an app's token, and the parameter of an address that has it."""


@dataclass(frozen=True)
class OpenedPage:
    """An app that people can open: its title and its address on this machine, which may have its token.

    ``asks`` are the names of the apps that it asks.
    """

    app: str
    asks: frozenset[str]
    title: str
    url: str
    has_token: bool


@dataclass(frozen=True)
class Demo:
    """Keeps the apps of a rehearsal for ``seconds``, or until it is interrupted where that is None."""

    console: Console
    seconds: float | None = None

    def keep(self, engine: Engine) -> None:
        """Says where the apps are, and returns when they are to end, or when all of them have."""
        apps = [server for server in engine.services.servers if server.spec.app]
        self._announce(apps)
        until = None if self.seconds is None else time.monotonic() + self.seconds
        while not engine.interrupted and (until is None or time.monotonic() < until):
            for app in apps:
                app.look_again()
            if all(app.record.phase is not ServicePhase.RUNNING for app in apps):
                break
            time.sleep(POLL)
        ending = "Ends the apps" + ("; Ctrl-C again does not wait for them" if engine.interrupted else "")
        self.console.print(Text(f"\n{ending}."))

    def _announce(self, apps: Sequence[Server]) -> None:
        reached_apps = {name for caller in apps for name in caller.asks}
        pages = [opened_app for opened_app in map(opened_page, apps) if opened_app]
        # What people are to try comes before what they look into, and before what only programs ask.
        pages.sort(key=lambda page: (page.app in reached_apps, not page.asks, page.has_token))
        self.console.print()
        for app in apps:
            if reached := reached_from_outside(app):
                text = (
                    f"{app.record.name} listens at {reached}: whoever reaches this machine can use it. Let its "
                    "program take the address from its command line: a demo writes 127.0.0.1 in place of 0.0.0.0"
                )
                self.console.print(Text(text, "bold red"), soft_wrap=True)
        if any(page.has_token for page in pages):
            text = "An address with a token lets in whoever has it: show it to nobody."
            self.console.print(Text(text, "yellow"), soft_wrap=True)
        if pages:
            # Never in a table: a terminal that is narrow would break an address in two.
            width = max(len(page.title) for page in pages)
            self.console.print(Text("Open in a browser of this machine:", "bold"), soft_wrap=True)
            for page in pages:
                link = Text(page.url, f"bold blue link {page.url}")
                self.console.print(Text(f"  {printable(page.title):<{width}}  ") + link, soft_wrap=True)
        table = Table.grid(padding=(0, 2, 0, 0))
        for app in apps:
            where = ", ".join(
                f"{name} {LOOPBACK}:{app.ports[port]}"
                + ("" if app.ports[port] == port else f" in place of {port}, which is not to be had here")
                for name, port in app.spec.ports.items()
            )
            table.add_row(Text(f"  {app.record.name}", "dim"), Text(where, "dim"))
        self.console.print(table)
        wait = "Ctrl-C ends them all" if self.seconds is None else f"They end after {self.seconds:g} s"
        self.console.print(Text(f"{wait}. Their logs: {apps[0].surroundings.place.logs}"), soft_wrap=True)


def opened_page(app: Server) -> OpenedPage | None:
    """What people open of ``app``; None where it is not for people."""
    page = first_page(app.spec, app.namespace)
    if page is None:
        return None
    token = token_of(app)
    url = f"http://{LOOPBACK}:{app.ports[page.port]}{page.path}"
    if token:
        url += f"{'&' if '?' in url else '?'}{TOKEN}={token}"
    return OpenedPage(app.record.name, app.asks, page.title, url, bool(token))


def token_of(app: Server) -> str:
    """The token that ``app`` was given; empty where it has none."""
    for entry in app.spec.pod.container.env:
        reference = mapping(mapping(entry.get("valueFrom")).get("secretKeyRef"))
        secret = app.namespace.find("Secret", str(reference.get("name")))
        if reference.get("key") == TOKEN and secret:
            return contents(secret).get(TOKEN, b"").decode()
    return ""


def reached_from_outside(app: Server) -> str:
    """Where ``app`` listens beyond this machine; empty where it does not, or nobody may know."""
    ports = set(app.ports.values())
    with contextlib.suppress(psutil.Error, OSError):
        for net_connection in psutil.net_connections("tcp"):
            local = net_connection.laddr
            if (
                net_connection.status == psutil.CONN_LISTEN
                and local
                and local.port in ports
                and local.ip not in _LOOPBACKS
            ):
                return f"{local.ip}:{local.port}"
    return ""


_LOOPBACKS = frozenset({LOOPBACK, "::1", f"::ffff:{LOOPBACK}"})


def require_apps(stack: str, configuration: Configuration) -> None:
    """Raises SettingsError where the ``stack`` has no app."""
    pipelines = pipelines_of(configuration.settings.pipelines)
    if not any(pipeline.apps for pipeline in pipelines):
        raise SettingsError(list(_no_apps(stack, [pipeline.name for pipeline in pipelines])))


def _no_apps(stack: str, pipelines: Sequence[str]) -> Iterator[Problem]:
    for name in pipelines or ["…"]:
        yield Problem(
            f"slipway:pipelines.{name}.apps",
            None,
            f"a demo keeps the apps of a stack running, and the stack {stack} has none",
            "name the apps that it runs, or take another stack",
        )


def show(
    stack: str,
    output: Path | None,
    config_file: Path | None,
    seconds: float | None,
    *,
    fresh: bool,
    all_pipelines: bool,
) -> Exit:
    """Rehearses the stack in the folder ``output``, then keeps its apps for ``seconds``, or until Ctrl-C."""
    console = new_console()

    def run() -> Exit:
        configuration = session.configure(stack, PROJECT, config_file, all_pipelines=all_pipelines)
        require_apps(stack, configuration)
        options = Options(stack, PROJECT, outcome.folder_for(stack, output), fresh)
        project = SlipwayProject.read(PROJECT)
        with project.in_folder():
            kept = Session(project.run, configuration, options, console, Demo(console, seconds).keep, is_beside)
            return kept.run().exit_code

    return outcome.exit_code(run)
