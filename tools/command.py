"""The command ``slipway``: each verb is the command line of a module, imported when the verb is called."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from slipway.infra.places import PACKAGE, PROJECT, PROJECT_FILE

OUTSIDE = 2
"""The exit code outside of a project."""


@dataclass(frozen=True)
class Verb:
    """A verb: the module whose ``main`` it calls, what it does in a line, and examples without the program's name.

    Of a module with several commands, ``function`` is another one's name. ``preset`` are words before the user's.
    ``one_stack``: it is for a single stack, which need not be named where the project has no other.
    """

    module: str
    summary: str
    examples: Sequence[str]
    function: str = "main"
    preset: Sequence[str] = ()
    one_stack: bool = False


VERBS: Mapping[str, Verb] = {
    "new": Verb(
        "slipway.tools.new.cli",
        "Write a project, a pipeline, or a stack that runs it.",
        ("new acme", "new --pipeline churn", "new --stack dev --cloud existing --uses churn"),
    ),
    "import": Verb(
        "slipway.tools.importing.cli",
        "Write a pipeline from a TFJob, a Job and the like.",
        ("import tfjob.yaml --name churn --code ../churn",),
    ),
    "rehearse": Verb(
        "slipway.offline.rehearsal.cli",
        "Run a stack on this machine, on the CPU.",
        ("rehearse", "rehearse --stack dev --fresh"),
        one_stack=True,
    ),
    "demo": Verb(
        "slipway.offline.rehearsal.demo",
        "Rehearse a stack, then keep its apps here until Ctrl-C.",
        ("demo", "demo --stack dev --for 60"),
        one_stack=True,
    ),
    "preview": Verb(
        "slipway.offline.preview.cli",
        "Say what a change does to each stack, what it costs, and what is wrong with it.",
        ("preview", "preview --base origin/main --stack prod", "preview --format json --output preview.json"),
    ),
    "check": Verb(
        "slipway.offline.preview.cli",
        "Hold every stack to the policies.",
        ("check", "check --stack prod --fail-on warning"),
        preset=("--check",),
    ),
    "lock": Verb(
        "slipway.tools.lock",
        "Compile the lock file of a pipeline.",
        ("lock --pipeline churn",),
    ),
    "pin-images": Verb(
        "slipway.tools.pin_images",
        "Name the default images by the digests that their registries have.",
        ("pin-images",),
        function="pin_images",
    ),
    "pin-inputs": Verb(
        "slipway.tools.pin_inputs",
        "Write into a stack file what the data is that pipelines read.",
        ("pin-inputs --stack dev", "pin-inputs --stack dev --check"),
        one_stack=True,
    ),
    "doctor": Verb(
        "slipway.tools.doctor.cli",
        "Say what is missing before the first `pulumi up`, and what mends it.",
        ("doctor --stack dev", "doctor --format json"),
    ),
    "watch": Verb(
        "slipway.tools.watch.cli",
        "Show what the Jobs of a stack do, and why they wait.",
        ("watch --stack dev", "watch --stack dev --once"),
        one_stack=True,
    ),
    "logs": Verb(
        "slipway.tools.watch.logs",
        "Print the logs of a step.",
        ("logs --stack dev --step train --follow",),
        one_stack=True,
    ),
    "show": Verb(
        "slipway.tools.show",
        "Show results of a stack that is up, the runs that its store has, or how two of them differ.",
        (
            "show --stack dev",
            "show --stack dev predictions",
            "show --stack dev runs",
            "show --stack dev compare 1a2b 3c4d",
        ),
        one_stack=True,
    ),
    "put": Verb(
        "slipway.tools.transfer.cli",
        "Copy files into the store of a stack that is up.",
        ("put --stack dev --from scans --to data/scans",),
        preset=("put",),
        one_stack=True,
    ),
    "get": Verb(
        "slipway.tools.transfer.cli",
        "Copy files out of the store of a stack that is up.",
        ("get --stack dev --from data/scans --to scans",),
        preset=("get",),
        one_stack=True,
    ),
    "run": Verb(
        "slipway.tools.runs",
        "Go on with a run that `pulumi up` does not wait for.",
        ("run --stack dev",),
        function="run",
        one_stack=True,
    ),
    "stop": Verb(
        "slipway.tools.runs",
        "Stop such a run; its pods end, and what they saved stays.",
        ("stop --stack dev",),
        function="stop",
        one_stack=True,
    ),
}
"""By its word, in the order of the help."""

HISTORY = Verb("slipway.tools.history.cli", VERBS["show"].summary, VERBS["show"].examples, one_stack=True)
OF_HISTORY = frozenset({"runs", "compare", "retention"})
"""What `show` has of the history of a stack, by the first of its words."""


class Verbs(TyperGroup):
    """The verbs as a group that imports the module of a verb only when that is called or completed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, verb in VERBS.items():
            self.add_command(TyperCommand(name, help=verb.summary, short_help=verb.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The name, the command and the words after it; ends the process outside of a project."""
        name, stub, rest = super().resolve_command(ctx, args)
        if stub is None or name is None:
            return name, stub, rest
        verb = HISTORY if name == "show" and OF_HISTORY & {*rest} else VERBS[name]
        if "--help" not in rest and not (name == "new" and begins_project(rest)):
            _enter_project(ctx, name, verb)
        return name, load(name, verb), [*verb.preset, *rest]


def begins_project(words: Sequence[str]) -> bool:
    """Whether the words after `new` are the name of a project, which is made where none is."""
    return bool(words) and not words[0].startswith("-")


def load(name: str, verb: Verb) -> Any:
    """The command of a verb, as its module declares it, with examples below its help."""
    module = importlib.import_module(verb.module)
    # Typer's own tracebacks print the values of variables, which include secrets.
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name, epilog=_examples(verb))(getattr(module, verb.function))
    return typer.main.get_command(app)


def _examples(verb: Verb) -> str:
    lines = [f"{PACKAGE} {example}" for example in verb.examples]
    return "\n\n".join([f"Example{'s' if len(lines) > 1 else ''}:", *lines])


def _enter_project(ctx: Any, name: str, verb: Verb) -> None:
    """Lets pipelines in Python be imported, and the only stack go without its name; ends outside of a project."""
    if not (PROJECT / PROJECT_FILE).is_file():
        print(f"error: neither here nor above is a {PROJECT_FILE}: go to the folder of a project", file=sys.stderr)
        raise typer.Exit(OUTSIDE)
    sys.path.insert(0, str(PROJECT))
    if verb.one_stack and len(names := _stack_names()) == 1:
        ctx.default_map = {**(ctx.default_map or {}), name: {"stack": names[0]}}


def _stack_names() -> list[str]:
    """The stacks of the project; none where its file cannot be read, which the verb tells."""
    # What the verb imports, too; the help of all verbs does without.
    from slipway.offline.engine.stack_config import ConfigError, stack_names  # noqa: PLC0415

    try:
        return stack_names(PROJECT)
    except ConfigError:
        return []


app = typer.Typer(cls=Verbs, no_args_is_help=True, pretty_exceptions_enable=False, name=PACKAGE)


def _print_version(wanted: bool) -> None:
    if wanted:
        # It may ask git, and no verb needs it.
        from slipway.infra.version import version  # noqa: PLC0415

        typer.echo(f"{PACKAGE} {version()}")
        raise typer.Exit


@app.callback(
    epilog="Exit codes: 0 done; 1 something failed or was found; 2 wrong words or settings; 130 interrupted."
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
