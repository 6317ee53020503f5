"""Writes docs/policies.md, the list of all policies, from the policies themselves.

python -m slipway.command.reference.policies            # write it
python -m slipway.command.reference.policies --check    # exit 1 where it is out of date
"""

import sys
from collections.abc import Sequence
from typing import Any

from slipway.files import write_or_check
from slipway.infra.places import LIBRARY
from slipway.infra.review.contract import Policy, Severity
from slipway.policies.check import ABOUT_FILES, CHANGE_POLICIES, EVERYWHERE, cloud_policies

PAGE = LIBRARY / "docs" / "policies.md"

EXAMPLE = "gcp-dev"

HEAD = f"""# Policies

A policy says what may not be in a stack, or what a change may not do unnoticed. It looks at the declared resources
and the stack file, and says nothing where only an update can tell. A finding names the resource or the key, the
reason, and what to do instead.

```sh
make check
```

evaluates every stack without an account, a cluster or the Pulumi CLI, and ends with 1 where one has an error;
`STACK=` names one, and `FAIL_ON=warning` counts warnings, too. A [preview](preview.md) says beside each finding
whether it is new, and the workflow that deploys makes no plan of a stack with an error. `pulumi up` by hand asks
no policy: run `make check STACK=…` before it.

## Live with a finding

A stack file suppresses a policy by its id, with a reason. `until` is the last day; `resources` are names of
resources or keys of the stack file. Without these it is for all, and for good.

```yaml {EXAMPLE}
config:
  slipway:policies:
    suppress:
      unpinned-image:
        reason: The nightly build is what this stack tests, agreed with ml-platform.
        until: "2027-03-31"
        resources: [nightly-train]
```

What is suppressed stays in the preview, with the reason. A suppression without a reason is refused, one of an
unknown policy is an error, and one that suppresses nothing is a warning.

A [policy of changes](#changes) is suppressed in the stack file that the change edits, by the name of the resource
that it is about. Without `until`, a suppression that the base has already was for an earlier change, and does not
count.

`python -m slipway.command.reference.policies` writes the tables from `slipway/policies/policies.toml` and
`data/policies.toml` of clouds and features. Where *Warning* does not stand before the rule, a
finding is an error.
"""

NEXT = """
## Next

- [Preview a change](preview.md)
- [Policies in CI](ci.md)
"""

PARTS = {
    "Every stack": "",
    "Changes": "Only a preview with a base has these: they look at what an update does to what exists.",
    "Stack files": "These cannot be suppressed.",
}
"""The headings of the tables that no cloud has, with what holds for all of their policies."""


def page() -> str:
    """The whole page."""
    every, change, file = PARTS
    tables: dict[str, list[tuple[str, Severity, str]]] = {every: [_cells(policy) for policy in EVERYWHERE]}
    for cloud, policy in cloud_policies():
        tables.setdefault(cloud, []).append(_cells(policy))
    tables[change] = [_cells(policy) for policy in CHANGE_POLICIES]
    tables[file] = [(name, Severity(row["severity"]), row["title"]) for name, row in ABOUT_FILES.items()]
    return HEAD + "".join(_table(heading, rows) for heading, rows in tables.items()) + NEXT


def _cells(policy: Policy[Any]) -> tuple[str, Severity, str]:
    return policy.id, policy.severity, policy.title


def _table(heading: str, rows: Sequence[tuple[str, Severity, str]]) -> str:
    said = f"{PARTS[heading]}\n\n" if PARTS.get(heading) else ""
    return f"\n## {heading}\n\n{said}| policy | rule |\n| --- | --- |\n" + "".join(
        f"| `{name}` | {_mark(severity)}{title.replace('|', chr(92) + '|')} |\n" for name, severity, title in rows
    )


def _mark(severity: Severity) -> str:
    return "" if severity is Severity.ERROR else f"*{severity.value.capitalize()}*: "


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.command.reference.policies", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
