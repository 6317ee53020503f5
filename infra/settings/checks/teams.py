"""Teams whose own stacks run Jobs on this stack's clusters."""

from collections.abc import Iterator

from infra.pipelines.discovery import supplements
from infra.schema.kubernetes_names import name_findings
from infra.schema.problems import Finding, Path
from infra.settings.parsing import Reading
from infra.step import GATES_FOLDER

KEY = "teams"

NAME_LIMIT = 30
"""Characters of a team's name, of which names of service accounts, volumes and folders are made."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the teams' names, and about namespaces that two would share."""
    draft = reading.draft
    if not draft.teams:
        return
    taken = {
        **dict.fromkeys(draft.pipelines, "a pipeline of this stack has a folder of that name in the store"),
        **dict.fromkeys((GATES_FOLDER, *supplements()), "gates and supplements have that folder of the store"),
    }
    first: dict[str, str] = {}
    for name, team in draft.teams.items():
        at: Path = (KEY, name)
        if len(name) > NAME_LIMIT:
            yield Finding(
                at, name, f"{len(name)} characters, and a team's name has at most {NAME_LIMIT}", "shorten it"
            )
        else:
            yield from name_findings(at, name)
        if name in taken:
            yield Finding(at, name, taken[name], "choose another name", read=(("pipelines",),))
        yield from _own(at, team.namespace, team.service_account)
        for pipeline, apps in team.apps.items():
            yield from name_findings((*at, "apps", pipeline), pipeline)
            for app in apps:
                yield from name_findings((*at, "apps", pipeline, app), app)
        if team.namespace == draft.namespace:
            yield Finding(
                (*at, "namespace"),
                team.namespace,
                "the namespace of this stack's own Jobs, and each namespace has one stack that owns it",
                "name one for the team alone",
                read=(("namespace",),),
            )
        elif team.namespace in first:
            yield Finding(
                (*at, "namespace"),
                team.namespace,
                f"team `{first[team.namespace]}` has that namespace, and each has one stack that owns it",
                "name one for the team alone",
                read=((KEY, first[team.namespace], "namespace"),),
            )
        first.setdefault(team.namespace, name)


def _own(at: Path, namespace: str, account: str) -> Iterator[Finding]:
    """What can be neither a namespace nor a service account of a stack's own."""
    yield from name_findings((*at, "namespace"), namespace)
    yield from name_findings((*at, "service_account"), account)
    if namespace == "default" or namespace.startswith("kube-"):
        reason = "a namespace that every cluster has already, and the team's stack owns its own"
        yield Finding((*at, "namespace"), namespace, reason, "choose another name, such as the team's")
    if account == "default":
        reason = "Kubernetes makes a service account of that name in every namespace"
        yield Finding((*at, "service_account"), account, reason, "choose another name, such as `runner`")
