"""The secrets of a stack."""

from collections.abc import Iterator

from infra.schema.kubernetes_names import name_findings
from infra.schema.problems import Finding, Path, key_of
from infra.schema.secret_values import InClear
from infra.settings.parsing import Reading

KEY = "secrets"


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the name of each secret, and about values that are empty or in clear."""
    for name, value in reading.draft.secrets.items():
        at: Path = (KEY, name)
        command = f"`pulumi config set --secret --path '{key_of(at)}'`"
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
