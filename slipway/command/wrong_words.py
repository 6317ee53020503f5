"""What is wrong with the words of a command line, said as every other error is."""

import typer
from pydantic import ValidationError

from slipway.infra.exits import report_error
from slipway.infra.schema.validation import BOUNDS, KINDS


def report(error: typer.TyperException) -> None:
    """Prints it in one line on standard error; without any words at all, the help."""
    context: typer.Context | None = getattr(error, "ctx", None)
    if context is not None and error.format_message() == context.get_help():
        typer.echo(error.format_message(), err=True)
        return
    # Typer reads values with Pydantic, and passes on its words.
    if isinstance(error.__cause__, ValidationError):
        error.message = _reason(error.__cause__)
    text = " ".join(error.format_message().split()).removesuffix(".")
    hint = f"`{context.command_path} --help` lists what there is" if context is not None else ""
    between = " " if text.endswith("?") else "; "
    report_error(between.join(filter(None, (f"{text[:1].lower()}{text[1:]}", hint))))


def _reason(error: ValidationError) -> str:
    """What a value was refused for, with the value."""
    wrong = error.errors(include_url=False)[0]
    kind, context = wrong["type"], wrong.get("ctx", {})
    if kind in BOUNDS:
        name, reason, _ = BOUNDS[kind]
        return f"{wrong['input']!r} is {reason.format(context[name])}"
    if kind in KINDS:
        return f"{wrong['input']!r} is {KINDS[kind][0]}"
    return str(context.get("error", wrong["msg"]))
