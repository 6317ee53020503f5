"""Writes docs/policies.md, the list of all policies, from the policies themselves.

python -m slipway.tools.reference.policies            # write it
python -m slipway.tools.reference.policies --check    # exit 1 where it is out of date
"""

import sys
from collections.abc import Iterator, Sequence

from slipway.infra.places import LIBRARY
from slipway.infra.review.contract import Severity
from slipway.offline.files import write_or_check
from slipway.offline.policies.check import ABOUT_FILES, CHANGE_POLICIES, EVERYWHERE, cloud_policies

PAGE = LIBRARY / "docs" / "policies.md"

EXAMPLE = "gcp-dev"

HEAD = f"""# Policies

What may not be in a stack. Each policy is a function over the declared resources and the stack file, and runs in
three places: in the preview of a change, over all stacks by itself, and in Pulumi's own engine.

```sh
make check
```

evaluates every stack, with no account, cluster or Pulumi CLI, and ends with 1 where one has an error; with
`STACK=` it looks at one, and with `FAIL_ON=warning` warnings count, too. A [preview](preview.md) says beside
each finding whether it is new. As a policy pack, errors stop a `pulumi preview` or `pulumi up`, and warnings are
shown:

```sh cloud
make setup
pulumi preview -s {EXAMPLE} --policy-pack policy-pack
```

The engine tells a pack less than the program tells a preview: it opens secrets, so that the pack cannot see
whether the data of a Secret came from one.

A finding names the resource or the key of the stack file, the reason, and what to do. Where a policy cannot
know, because only an update can tell a value or because the stack does not know the nodes of a cluster, it says
nothing.

## Live with a finding

A stack file suppresses a policy by its id, and has to say why. `until` is the last day on which that holds;
`resources` are the names of the resources, or the keys of the stack file, that it is for. Without these it is
for all, and for good.

```yaml {EXAMPLE}
config:
  slipway:policies:
    suppress:
      unpinned-image:
        reason: The nightly build is what this stack tests, agreed with ml-platform.
        until: "2027-03-31"
        resources: [nightly-train]
```

Those of `change` in the table below look at what an update does to what is there, so only a preview with a base
has them: `make check` and the policy pack see one stack, not a change. A change brings its own suppression, in the
stack file that it changes. One without `until` that the base has already was for an earlier change, and does not
count; none is ever called unused. A stack whose file is removed keeps its resources until `pulumi destroy`, so
nothing is said of those.

```yaml local
config:
  slipway:policies:
    suppress:
      deletes-data:
        reason: The models were copied to the new namespace by hand, agreed with ml-platform.
        until: "2027-03-31"
        resources: [local-store]
```

A suppression without a reason is refused, one of a policy that there is not is an error, and one that suppresses
nothing is a warning. After its last day the finding is back, and says so. What is suppressed stays in the
preview, with the reason.

## All policies

This table is written by `python -m slipway.tools.reference.policies` from the policies in `offline/policies` and
`infra/clouds/<cloud>/review`; change them there. Those of `stack file` cannot be suppressed.

| policy | severity | where | rule | fix |
| --- | --- | --- | --- | --- |
"""

EVERY_STACK = "everywhere"
CHANGE = "change"
STACK_FILE = "stack file"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_row(*cells) for cells in _rows())


def _rows() -> Iterator[tuple[str, Severity, str, str, str]]:
    for policy in EVERYWHERE:
        yield policy.id, policy.severity, EVERY_STACK, policy.title, policy.fix
    for cloud, policy in cloud_policies():
        yield policy.id, policy.severity, cloud, policy.title, policy.fix
    for policy in CHANGE_POLICIES:
        yield policy.id, policy.severity, CHANGE, policy.title, policy.fix
    for name, severity, title, fix in ABOUT_FILES:
        yield name, severity, STACK_FILE, title, fix


def _row(policy: str, severity: Severity, where: str, title: str, fix: str) -> str:
    cells = (f"`{policy}`", severity.value, where, title, fix)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.tools.reference.policies", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
