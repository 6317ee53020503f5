"""What a stack file may not say of a cluster that another stack has."""

from collections.abc import Iterator

from infra.clouds.other_stack.settings import OtherStackCluster
from infra.schema.problems import Finding
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters of another stack, and about what cannot stand beside them."""
    others = request.clusters_of(OtherStackCluster)
    if not others:
        return
    first, reference = next(iter(others.items()))
    for name in request.clusters:
        if name not in others:
            yield Finding(
                ("clusters", name),
                None,
                f"`{first}` is a cluster of stack `{reference.stack}`, whose store a cluster of this stack's own "
                "cannot mount, and all clusters of a stack share one store",
                "give one of the two a stack of its own",
            )
    for name, cluster in others.items():
        if cluster.stack != reference.stack:
            yield Finding(
                ("clusters", name, "stack"),
                cluster.stack,
                f"`{first}` is a cluster of stack `{reference.stack}`, and clusters of one stack share one store",
                "give one of the two a stack of its own",
                read=(("clusters", first, "stack"),),
            )
        if cluster.context is not None and cluster.kubeconfig is None:
            yield Finding(
                ("clusters", name, "context"),
                cluster.context,
                "the context of a kubeconfig file, and none is named",
                "add `kubeconfig: <path>`, or remove it",
                read=(("clusters", name, "kubeconfig"),),
            )
    for name, cluster in others.items():
        yield from _apps(request, name, cluster)
    for team in request.teams:
        yield Finding(
            ("teams", team),
            None,
            f"`{first}` is a cluster of stack `{reference.stack}`, which alone says who may use it",
            f"remove it, and name the team in the file of `{reference.stack}`",
        )


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
        yield Finding(
            exposed.at,
            None,
            f"it {does} the store, as a service account of its own, and stack `{cluster.stack}` {kind}",
            f"write `slipway:teams.{cluster.team}.apps.{pipeline}.{app}: {rights}` into the file of "
            f"`{cluster.stack}`, and bring that stack up first; or leave the app out",
            read=(("clusters", name, "stack"),),
        )


CHECKS = (check,)
