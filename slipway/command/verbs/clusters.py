"""The verbs that ask clouds and clusters: `doctor`, `watch`, `logs`, `shell`, `open`, `show`, `run`, `stop`."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.command.verbs.options import Context, Format, FormatOption, Kubeconfig, Stack, Stacks
from slipway.infra.commands import command
from slipway.infra.features import verbs


def doctor(stack: Stacks = None, format: FormatOption = Format.TEXT) -> None:
    """Say what is missing before the first `pulumi up` of each stack, with the command that mends it.

    Changes nothing, and asks clouds and clusters only for what they have. Exits with 0 where all that could be
    checked is fine, and with 1 where something is missing or wrong.
    """
    from slipway.command.doctor.examination import main

    raise typer.Exit(main(stack or [], as_json=format is Format.JSON))


def watch(
    stack: Stack = "",
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    format: FormatOption = Format.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Show what the Jobs of a stack do: queued, waiting and why, running and how far, done, failed and why.

    On a terminal it goes on until q is pressed; elsewhere it prints a line for each change, and ends with 0 once
    all steps are done, with 1 once one failed and none goes on. With --once it ends with 2 where a cluster cannot
    be read.
    """
    as_json = format is Format.JSON
    if as_json and not once:
        raise typer.BadParameter("JSON is of one moment: add --once", param_hint="'--format'")
    from slipway.command.watch.cli import main

    raise typer.Exit(main(stack, kubeconfig, context, once=once, as_json=as_json))


def logs(
    stack: Stack = "",
    step: Annotated[str, typer.Option(metavar="NAME", help="The step: train, or pipeline.train.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the step is over.")] = False,
    attempts: Annotated[bool, typer.Option("--attempts", help="Also of pods that were replaced.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Print the logs of a step's pods, each line with the pod's rank where there are several.

    Of a pod that was replaced after an eviction the newest is printed; --attempts prints those before it, too, as
    far as the cluster still has them. Ends with 1 where the step failed, with 2 where there is no log.
    """
    from slipway.command.watch.logs import main

    raise typer.Exit(main(stack, step, kubeconfig, context, follow=follow, attempts=attempts))


def shell(
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step: train, or pipeline.train.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="In place of a shell; write -- before it.")
    ] = None,
    stack: Stack = "",
    index: Annotated[int, typer.Option(metavar="N", help="Of several pods, the one with this index.")] = 0,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Open a shell in the container of a step that runs, or run a command there, by kubectl.

    Ends with the exit code of the shell or command, and with 2 where the step does not run.
    """
    from slipway.command.shell import enter

    raise typer.Exit(enter(stack, step, words or [], kubeconfig, context, index=index))


def open_app(
    app: Annotated[str, typer.Argument(metavar="APP", help="The app: page, or pipeline.page.")] = "",
    stack: Stack = "",
    port: Annotated[int, typer.Option(metavar="N", help="Of this machine; default: the app's own.")] = 0,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Reach an app from this machine, at an address of its own that is printed, by kubectl's port-forward."""
    from slipway.command.shell import open_app as forward

    raise typer.Exit(forward(stack, app, port, kubeconfig, context))


def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT",
            help="A result, or what the examples have. Without it, the names of all results.",
        ),
    ] = None,
    stack: Stack = "",
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="For copies of results; default: build/show/<stack>.")
    ] = None,
    rehearsal: Annotated[bool, typer.Option("--rehearsal", help="Of rehearsals on this machine.")] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show results of a stack that is up: tables and numbers here, files and folders as copies."""
    as_json, shows = format is Format.JSON, verbs("SHOWS")
    if names and (verb := shows.get(names[0])):
        raise typer.Exit(verb.load()(names, stack, rehearsal=rehearsal, as_json=as_json))
    if rehearsal:
        ways = ", ".join(f"`{command('show', word, stack=stack, rehearsal=True)}`" for word in shows)
        raise typer.BadParameter(f"of rehearsals there are {ways}", param_hint="'--rehearsal'")
    from slipway.command.show import main

    raise typer.Exit(main(names or [], stack, output, as_json=as_json))


def run(stack: Stack = "", kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Go on with a run that was stopped or failed; what is done is not run again."""
    from slipway.command.runs import Namespace, act_on_runs

    raise typer.Exit(act_on_runs(stack, kubeconfig, context, Namespace.run))


def stop(
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="A step that `pulumi up` runs; without, a run in the cluster.")
    ] = "",
    stack: Stack = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
) -> None:
    """Stop a run in the cluster, or a step: its pods end, and what they saved stays."""
    from slipway.command.runs import Namespace, act_on_runs, stop_step

    if step:
        raise typer.Exit(stop_step(stack, step, kubeconfig, context))
    raise typer.Exit(act_on_runs(stack, kubeconfig, context, Namespace.stop))
