"""The command `slipway`: its verbs, each a function in `verbs/` that is imported when the verb is called."""

import functools
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from slipway.command.verbs.options import enter_project
from slipway.infra.commands import page
from slipway.infra.exits import Exit
from slipway.infra.features import Verb, verbs
from slipway.infra.places import PACKAGE

VERBS: Mapping[str, Verb] = {
    "new": Verb(
        "slipway.command.verbs.projects",
        "new",
        "Write a project, a pipeline, or a stack that runs it.",
        (
            "new acme  # a project in the folder acme",
            "new --pipeline churn",
            "new --stack dev --cloud existing --uses churn",
        ),
        anywhere=True,
    ),
    "rehearse": Verb(
        "slipway.command.verbs.rehearsals",
        "rehearse",
        "Run a stack on this machine, on the CPU.",
        (
            "rehearse",
            "rehearse --stack dev --fresh  # from the first step on",
            "rehearse --disrupt train  # as if its Spot node ended",
        ),
    ),
    "demo": Verb(
        "slipway.command.verbs.rehearsals",
        "demo",
        "Rehearse a stack, then keep its apps here until Ctrl-C.",
        (
            "demo",
            "demo --stack dev --for 60  # a minute",
        ),
    ),
    "preview": Verb(
        "slipway.command.verbs.previews",
        "preview",
        "Say what a change does to each stack, what it costs, and what is wrong with it.",
        (
            "preview",
            "preview --base origin/main --stack prod  # what this branch changes",
            "preview --format json --output preview.json",
        ),
    ),
    "check": Verb(
        "slipway.command.verbs.previews",
        "check",
        "Hold every stack to the policies.",
        (
            "check",
            "check --stack prod --fail-on warning",
        ),
    ),
    "explain": Verb(
        "slipway.command.verbs.projects",
        "explain",
        "Say what a key of a stack file or of pipeline.yaml means.",
        (
            "explain  # the keys at the top",
            "explain clusters.pools.spot",
            "explain pipelines.churn",
            "explain steps.run --format json",
        ),
        anywhere=True,
    ),
    "lock": Verb(
        "slipway.command.verbs.projects",
        "lock",
        "Compile the lock file of a pipeline.",
        ("lock --pipeline churn",),
    ),
    "pin-images": Verb(
        "slipway.command.verbs.projects",
        "pin_images",
        "Name the default images by the digests that their registries have.",
        ("pin-images",),
    ),
    "doctor": Verb(
        "slipway.command.verbs.clusters",
        "doctor",
        "Say what is missing before the first `pulumi up`, and what mends it.",
        (
            "doctor --stack dev",
            "doctor --format json",
        ),
    ),
    "watch": Verb(
        "slipway.command.verbs.clusters",
        "watch",
        "Show what the Jobs of a stack do, and why they wait.",
        (
            "watch --stack dev",
            "watch --stack dev --once",
        ),
    ),
    "logs": Verb(
        "slipway.command.verbs.clusters",
        "logs",
        "Print the logs of a step.",
        (
            "logs --stack dev --step train",
            "logs --stack dev --step train --follow",
        ),
    ),
    "shell": Verb(
        "slipway.command.verbs.clusters",
        "shell",
        "Open a shell in the container of a step that runs.",
        (
            "shell train --stack dev",
            "shell train --stack dev -- nvidia-smi",
        ),
    ),
    "open": Verb(
        "slipway.command.verbs.clusters",
        "open_app",
        "Reach an app of a stack that is up from this machine.",
        (
            "open page --stack dev",
            "open page --stack dev --port 9000",
        ),
    ),
    "show": Verb(
        "slipway.command.verbs.clusters",
        "show",
        "Show results of a stack that is up.",
        (
            "show --stack dev  # what there is",
            "show --stack dev predictions",
            *(example for verb in verbs("SHOWS").values() for example in verb.examples),
        ),
    ),
    "run": Verb(
        "slipway.command.verbs.clusters",
        "run",
        "Go on with a run that `pulumi up` does not wait for.",
        ("run --stack dev",),
    ),
    "stop": Verb(
        "slipway.command.verbs.clusters",
        "stop",
        "Stop such a run, or a step; its pods end, and what they saved stays.",
        (
            "stop --stack dev",
            "stop train --stack dev  # one step that `pulumi up` runs",
        ),
    ),
    **verbs(),
}
"""By its word, in the order of the help."""


class Verbs(TyperGroup):
    """The verbs as a group that imports the module of a verb only when that is called or completed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in VERBS.items():
            self.add_command(TyperCommand(name, help=verb.summary, short_help=verb.summary))

    def main(self, *arguments: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Runs a verb. Wrong words are reported as every other error is, in one line."""
        if not standalone_mode:
            return super().main(*arguments, standalone_mode=False, **options)
        try:
            # The number is that of an Exit; a verb that ends without one returns nothing.
            sys.exit(super().main(*arguments, standalone_mode=False, **options))
        except typer.TyperException as error:
            # No verb that goes well needs what knows the words of errors.
            from slipway.command.wrong_words import report  # noqa: PLC0415

            report(error)
            sys.exit(error.exit_code)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and the words after it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, load(name, VERBS[name]) if name is not None and name in VERBS else stub, rest


# Plain help: with boxes it is twice as long, and a narrow terminal breaks every line of it. Typer's own tracebacks
# print the values of variables, which include secrets.
_new_typer = functools.partial(typer.Typer, rich_markup_mode=None, pretty_exceptions_enable=False)
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def load(name: str, verb: Verb) -> Any:
    """The command of a verb, as its module declares it, with examples below its help."""
    function = verb.load()

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> None:
        if not verb.anywhere:
            enter_project()
        function(*arguments, **options)

    app = _new_typer(add_completion=False)
    app.command(name, epilog=_examples(verb), context_settings=HELP)(call)
    return typer.main.get_command(app)


def _examples(verb: Verb) -> str:
    """Examples, whose lines stay as they are."""
    lines = [f"  {PACKAGE} {example}" for example in verb.examples]
    return "\n".join(["\b", f"Example{'s' if len(lines) > 1 else ''}:", *lines])


CODES = "; ".join(f"{code.value} {code.meaning}" for code in Exit)

app = _new_typer(cls=Verbs, no_args_is_help=True, name=PACKAGE, context_settings=HELP)


def _print_version(wanted: bool) -> None:
    if wanted:
        # It may ask git, and no verb needs it.
        from slipway.infra.version import version  # noqa: PLC0415

        typer.echo(f"{PACKAGE} {version()}")
        raise typer.Exit


@app.callback(
    epilog=f"Exit codes: {CODES}.\n\n`{PACKAGE} VERB --help` has the options of a verb, and examples.\n\n"
    # A path that is not broken.
    f"\b\nThe pages, first of all:\n  {page('index.md')}"
)
def describe(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print which version this is, and exit."
        ),
    ] = False,
) -> None:
    """From an empty cloud project to a prediction: clusters, GPU node pools, storage, and the Jobs on them."""
