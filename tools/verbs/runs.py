"""`slipway run` and `slipway stop`."""

import typer

from slipway.tools.verbs.options import Context, Kubeconfig, Stack


def run(stack: Stack = "", kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Go on with a run that was stopped or failed; what is done is not run again."""
    from slipway.tools.runs import Namespace, act_on_runs

    raise typer.Exit(act_on_runs(stack, kubeconfig, context, Namespace.run, starts=True))


def stop(stack: Stack = "", kubeconfig: Kubeconfig = None, context: Context = "") -> None:
    """Stop a run: its pods end, and what they saved stays."""
    from slipway.tools.runs import Namespace, act_on_runs

    raise typer.Exit(act_on_runs(stack, kubeconfig, context, Namespace.stop))
