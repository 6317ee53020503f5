"""`slipway watch` and `slipway logs`."""

from typing import Annotated

import typer

from slipway.tools.verbs.options import Context, Format, FormatOption, Kubeconfig, Stack


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
    from slipway.tools.watch.cli import main

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
    from slipway.tools.watch.logs import main

    raise typer.Exit(main(stack, step, kubeconfig, context, follow=follow, attempts=attempts))
