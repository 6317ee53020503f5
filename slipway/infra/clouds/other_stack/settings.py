"""What a stack file says of a cluster that another stack has, and what may be wrong with it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as File
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from slipway.infra.platform import Resources
from slipway.infra.platform_output import ClusterFacts, PoolFacts, TeamAccess
from slipway.infra.schema.base import ClusterSettings, Model, refuse
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section, rules_of

# As the Pulumi CLI takes names of organizations, projects and stacks
# (github.com/pulumi/pulumi v3.260, sdk/go/common/tokens/names.go).
STACK = re.compile(r"([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+/)?[A-Za-z0-9_.-]+")


def _stack_name(value: str) -> str:
    if not STACK.fullmatch(value):
        raise refuse(
            "not the name of a stack",
            "write it alone, such as `platform-dev`, or with organization and project: "
            "`acme/slipway/platform-dev`",
        )
    return value


StackName = Annotated[str, AfterValidator(_stack_name)]
"""The name of a stack of this project and organization, or one with both before it."""


class OtherStackCluster(ClusterSettings):
    """A cluster of another stack, whose file names this stack's team under `teams`. It has no `cloud`, and the
    stack no `store`: pools, store, identity and kubeconfig are those that the other stack's outputs have.
    """

    has_list_prices: ClassVar[bool] = False

    cloud: Literal["other_stack"] = Field(exclude=True)
    stack: StackName = Field(
        description="The stack that has the cluster: `platform-dev`, or with organization and project "
        "`acme/slipway/platform-dev`. All clusters of a stack are of one other stack."
    )
    cluster: str = Field(description="Name of the cluster in that stack's file.")
    kubeconfig: str | None = Field(
        default=None,
        description="Path of a kubeconfig file that reaches the cluster. Default: what the other stack has, "
        "which holds no credentials: you sign in as yourself.",
    )
    context: str | None = Field(
        default=None, description="Context in `kubeconfig`; default: its current context. Only with `kubeconfig`."
    )
    # What the other stack's output has; a stack file may not.
    pools: dict[str, PoolFacts] = Field(default_factory=dict[str, PoolFacts], exclude=True)
    facts: ClusterFacts | None = Field(default=None, exclude=True)
    team: str = Field(default="", exclude=True)

    @property
    def access(self) -> TeamAccess | None:
        """What the team has of the cluster; None where the other stack's output cannot be read."""
        return self.facts.teams[self.team] if self.facts else None

    @property
    def owns_namespace(self) -> bool:
        """Whether the stack creates the namespace, and deletes it."""
        return self.creates_namespace and (self.facts is None or self.facts.creates_namespace)

    @property
    def clouds(self) -> tuple[str, ...]:
        """The clouds whose behaviour its pods meet."""
        return (self.cloud, self.facts.cloud) if self.facts else (self.cloud,)

    @property
    def store_reader(self) -> Mapping[str, str] | None:
        """What the cloud's package needs to read the store."""
        return self.access.store.reader if self.access else None

    @property
    def sidecar(self) -> Resources | None:
        """What the store's mount adds to a pod's requests."""
        return self.access.store.sidecar if self.access else None

    @property
    def other_stack(self) -> str:
        """The stack that has the cluster, and whose file has its pools."""
        return self.stack


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters of another stack, and about what cannot stand beside them."""
    others = request.clusters_of(OtherStackCluster)
    if not others:
        return
    first, reference = next(iter(others.items()))
    words: dict[str, Any] = {"first": first, "stack": reference.stack}
    for name in request.clusters:
        if name not in others:
            yield _section(("clusters", name)).found("own-cluster", **words)
    for name, cluster in others.items():
        here = _section(("clusters", name), cluster)
        if cluster.stack != reference.stack:
            yield here.found("another-stack", read=(("clusters", first, "stack"),), **words)
        yield from here.exclusions()
    for name, cluster in others.items():
        yield from _apps(request, name, cluster)
    for team in request.teams:
        yield _section(("teams", team)).found("team", **words)


def _section(at: Path, values: Model | None = None) -> Section:
    return Section(rules_of(File(__file__).with_name("rules.toml"))["cluster"], at, values)


def _apps(request: Request, name: str, cluster: OtherStackCluster) -> Iterator[Finding]:
    """Apps that would mount the store as an identity that the other stack has not made.

    A volume that is claimed, its node mounts; one that a CSI driver mounts straight into a pod, the pod does.
    """
    access = cluster.access
    if access is None or access.store.volume.csi is None:
        return
    for exposed in request.apps_on(name):
        given = access.apps.get(exposed.service_account)
        if given and (given.writes or exposed.folder is None):
            continue
        does, rights = ("writes to", "write") if exposed.folder else ("reads", "read")
        kind = "may only read it" if given else "lets no app of that name at it"
        pipeline = str(exposed.at[1])
        app = exposed.name.removeprefix(f"{pipeline}-")
        yield _section(exposed.at).found(
            "app",
            read=(("clusters", name, "stack"),),
            does=does,
            cluster=cluster,
            kind=kind,
            app=f"{pipeline}.{app}",
            rights=rights,
        )


CHECKS = (check,)
