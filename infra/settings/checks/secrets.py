"""The secrets of a stack."""

from collections.abc import Iterator

from infra.schema.kubernetes_names import name_findings
from infra.schema.problems import Finding, Path, key_of, nearest
from infra.schema.secret_values import InClear
from infra.settings.parsing import Reading
from infra.settings.pipelines import apps_if_any, steps_if_any

KEY = "secrets"


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the name of each secret, values that are empty or in clear, and secrets that steps lack."""
    yield from _lacking(reading)
    for name, value in reading.draft.secrets.items():
        at: Path = (KEY, name)
        command = _command(name)
        yield from name_findings(at, name)
        if not value.get_secret_value():
            yield Finding(at, value, "empty", f"set it with {command}, or remove the key")
        elif isinstance(value, InClear):
            yield Finding(
                at,
                value,
                "a secret stands in clear in the stack file, and so in every clone",
                f"withdraw it where it is valid, and set the new one with {command}",
            )


def _command(name: str) -> str:
    """The command that sets a secret."""
    return f"`pulumi config set --secret --path '{key_of((KEY, name))}'`"


def _lacking(reading: Reading) -> Iterator[Finding]:
    """The secrets that the stack's pipelines need, and that nothing sets."""
    there = reading.draft.secrets
    needed: dict[str, str] = {}
    for pipeline, settings in reading.draft.pipelines.items():
        for step in steps_if_any(pipeline, settings):
            name = step.variant.of if step.variant else step.name
            for variable, secret in step.secrets.items():
                needed.setdefault(secret, f"step `{name}` of pipeline `{pipeline}` needs it for `{variable}`")
        for app in apps_if_any(pipeline, settings):
            for variable, secret in app.secrets.items():
                needed.setdefault(secret, f"app `{app.name}` of pipeline `{pipeline}` needs it for `{variable}`")
        notify = settings.schedule and settings.schedule.notify
        if notify and notify.secret:
            needed.setdefault(notify.secret, f"the schedule of pipeline `{pipeline}` needs it for `notify`")
    for secret, reason in needed.items():
        if secret not in there:
            near = nearest(secret, there)
            known = f"the stack has `{near}`; correct one of the names, or " if near else ""
            fix = f"{known}set it with {_command(secret)}"
            yield Finding((KEY, secret), None, f"{reason}, and it is not set", fix)
