"""A cluster that is there: its version, what the user may do in it, whose objects are in it, and Kueue."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from infra.api_server import ApiServer, UnreachableError, UnreadableError
from infra.charts import charts
from infra.kubernetes.labels import INSTANCE, PART_OF
from infra.kubernetes.workspace import KUEUE_API
from infra.review.facts import Observation, Probe, fine, unknown, wrong
from infra.review.stack import Resource, Stack, mapping, text
from tools.pulumi_cli import CliError, unfinished_jobs

OLDEST, NEWEST = 29, 36
"""Minor versions of Kubernetes: the oldest that has all that is declared (Jobs' ``podReplacementPolicy`` is on
since 1.29, kubernetes.io/docs/concepts/workloads/controllers/job), and the newest that is looked for; 1.34 is
the newest that this was run against."""

VERBS = ("get", "create", "patch", "delete")
"""What Pulumi's provider does to an object over its life: it applies on the server's side, which is a patch."""

WATCHED = ("v1", "Pod")
"""What the provider reads of a Job's pods while it waits, to say why one fails."""

SUBJECT_POLICY = "NetworkPolicies"

AT_ONCE = 8

Kind = tuple[str, str]


@dataclass(frozen=True)
class Cluster:
    """A cluster of ``stack`` by its name, and how to ask it."""

    stack: Stack
    name: str
    server: ApiServer

    @property
    def subject(self) -> str:
        """What it is called in a observation."""
        return f"cluster `{self.name}`"

    def declared(self) -> list[Resource]:
        """The Kubernetes objects that the stack declares in it."""
        return [
            resource
            for resource in self.stack.resources.values()
            if resource.custom
            and resource.package == "kubernetes"
            and self.stack.cluster_of(resource) == self.name
        ]


def probes(stack: Stack, servers: Mapping[str, ApiServer], installs_kueue: bool | None) -> list[Probe]:
    """The checks of the clusters that can be asked. ``installs_kueue`` is None where the stack has no Kueue."""
    return [
        Probe(f"cluster {name}", partial(_checked, Cluster(stack, name, server), installs_kueue))
        for name, server in servers.items()
    ]


def _checked(cluster: Cluster, installs_kueue: bool | None) -> Iterator[Observation]:
    try:
        yield _version(cluster)
    except UnreachableError as error:
        context = f" --context {cluster.server.context}" if cluster.server.context else ""
        yield wrong(
            cluster.subject,
            f"cannot be reached: {error}",
            f"kubectl --kubeconfig {cluster.server.kubeconfig}{context} cluster-info",
        )
        yield unknown(cluster.subject, "was not asked for permissions, objects that are there, and its add-ons")
        return
    except UnreadableError as error:
        yield unknown(cluster.subject, f"did not say its version: {error}")
    checks = [_permissions(cluster), _objects(cluster), _deleted_jobs(cluster)]
    if installs_kueue is not None:
        checks.append(_kueue(cluster, installs=installs_kueue))
    for check in checks:
        try:
            yield from check
        except UnreadableError as error:
            yield unknown(cluster.subject, f"could not be asked: {error}")
    if any(kind == ("networking.k8s.io/v1", "NetworkPolicy") for kind in map(kind_of, cluster.declared())):
        yield unknown(
            SUBJECT_POLICY,
            f"of {cluster.subject} may have no effect: whether its network plugin enforces them, no API says",
        )


def _version(cluster: Cluster) -> Observation:
    version = cluster.server.version()
    try:
        minor = int("".join(each for each in version.split(".")[1] if each.isdigit()))
    except (IndexError, ValueError):
        return unknown(cluster.subject, f"has the version {version!r}, which is none of Kubernetes")
    if minor < OLDEST:
        return wrong(
            cluster.subject, f"has Kubernetes {version}; 1.{OLDEST} is the oldest that will do", "kubectl version"
        )
    if minor > NEWEST:
        return unknown(
            cluster.subject, f"has Kubernetes {version}, which nobody has tried; the newest known is 1.{NEWEST}"
        )
    return fine(cluster.subject, f"answers, with Kubernetes {version}")


def kind_of(resource: Resource) -> Kind:
    """API version and kind of a Kubernetes object: ``("batch/v1", "Job")``; that of a patch is what it patches."""
    _, path, kind = resource.type.split(":")
    version = path.partition("/")[2] if path.startswith("core/") else path
    return version, kind.removesuffix("Patch")


def _permissions(cluster: Cluster) -> Iterator[Observation]:
    """Asks whether the user may do to each kind what `pulumi up` and `destroy` will."""
    asked: dict[tuple[str, Kind, str], None] = {}
    namespaces: set[str] = set()
    for each in cluster.declared():
        kind = kind_of(each)
        if kind[0].startswith("helm.sh/"):
            continue
        namespace = text(mapping(each.properties.get("metadata")).get("namespace"))
        namespaces.add(namespace)
        verbs = ("get",) if each.read else ("get", "patch") if each.type.endswith("Patch") else VERBS
        asked |= dict.fromkeys((verb, kind, namespace) for verb in verbs)
    asked |= dict.fromkeys(
        (verb, WATCHED, namespace) for verb in ("list", "watch") for namespace in namespaces - {""}
    )
    # The kinds of each API version are read once, by whoever comes first.
    for version in {kind[0] for _, kind, _ in asked}:
        cluster.server.may("get", version, "")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = [*pool.map(partial(_may, cluster), asked)]
    refused: dict[tuple[str, str], list[str]] = {}
    for (verb, (_, kind), namespace), allowed in zip(asked, answers, strict=True):
        if allowed is False:
            refused.setdefault((kind, namespace), []).append(verb)
    alike: dict[tuple[str, str], list[str]] = {}
    for (kind, namespace), verbs in refused.items():
        alike.setdefault((namespace, ", ".join(verbs)), []).append(kind)
    for (namespace, verbs), kinds in alike.items():
        yield wrong(
            f"permissions in {cluster.subject}",
            f"do not let you {verbs} {', '.join(kinds)}{f' in namespace `{namespace}`' if namespace else ''}",
            # An administrator of the cluster runs it.
            f"kubectl create rolebinding slipway-admin -n {namespace} --clusterrole=admin --user=<you>"
            if namespace
            else "kubectl create clusterrolebinding slipway-admin --clusterrole=cluster-admin --user=<you>",
        )
    if not refused:
        yield fine(f"permissions in {cluster.subject}", f"allow all {len(asked)} things asked about")
    if any(kind_of(each)[0].startswith("helm.sh/") for each in cluster.declared()):
        yield unknown(
            f"permissions in {cluster.subject}",
            "for the objects of Helm charts were not asked: the charts decide them",
        )


def _may(cluster: Cluster, question: tuple[str, Kind, str]) -> bool | None:
    verb, (version, kind), namespace = question
    return cluster.server.may(verb, version, kind, namespace)


def _objects(cluster: Cluster) -> Iterator[Observation]:
    """Objects outside namespaces that are there already and somebody else's: `pulumi up` refuses to take them."""
    wanted: dict[tuple[Kind, str], str] = {}
    for each in cluster.declared():
        metadata = mapping(each.properties.get("metadata"))
        name, kind = text(metadata.get("name")), kind_of(each)
        if each.read or each.type.endswith("Patch") or metadata.get("namespace") or not name:
            continue
        wanted[kind, name] = text(mapping(metadata.get("labels")).get(INSTANCE))
    for ((version, kind), name), owner in wanted.items():
        if version.startswith("helm.sh/"):
            continue
        found = cluster.server.find(version, kind, name)
        labels = mapping(mapping((found or {}).get("metadata")).get("labels"))
        if found is None or (PART_OF.items() <= labels.items() and _same(text(labels.get(INSTANCE)), owner)):
            continue
        other = f"kubectl get {kind.lower()} {name} --show-labels"
        if kind == "Namespace" and PART_OF.items() <= labels.items():
            # In one namespace two stacks would take each other's Jobs, Secrets and quota for their own.
            other = f"pulumi config set slipway:namespace {name}-{cluster.stack.name} -s {cluster.stack.name}"
        elif kind == "Namespace":
            key = f"slipway:clusters.{cluster.name}.creates_namespace"
            other = f"pulumi config set --path {key} false -s {cluster.stack.name}"
        whose = (
            text(labels.get(INSTANCE))
            or text(labels.get("app.kubernetes.io/managed-by"))
            or "nobody in its labels"
        )
        yield wrong(cluster.subject, f'has a {kind} "{name}" already; it belongs to {whose}', other)


def _deleted_jobs(cluster: Cluster) -> Iterator[Observation]:
    """Jobs that failed or were interrupted and were deleted by hand: every `pulumi up` stops at them."""
    # Without the CLI, or without a login, the backend's own checks say so.
    with contextlib.suppress(CliError):
        for there, namespace, name in sorted(unfinished_jobs(cluster.stack.name)):
            if there == cluster.name and cluster.server.find("batch/v1", "Job", name, namespace) is None:
                yield wrong(
                    cluster.subject,
                    f'has no Job "{name}" in namespace "{namespace}" any more, which failed or was interrupted: '
                    f"`pulumi preview` and `pulumi up` end with `not found`",
                    f"pulumi up --refresh -s {cluster.stack.name}",
                )


def _same(one: str, other: str) -> bool:
    """Whether two labels name one stack; the organization before it is known to the backend alone."""
    return bool(one) and one.rpartition(".")[2] == other.rpartition(".")[2]


def _kueue(cluster: Cluster, *, installs: bool) -> Iterator[Observation]:
    """Kueue's API where the stack expects it, and its absence where the stack installs it."""
    subject = f"Kueue in {cluster.subject}"
    there = cluster.server.may("get", KUEUE_API, "ClusterQueue") is not None
    version = charts()["kueue"].version
    if not installs and not there:
        manifest = f"https://github.com/kubernetes-sigs/kueue/releases/download/v{version}/manifests.yaml"
        yield wrong(
            subject,
            f"is not there ({KUEUE_API}), and the stack does not install it",
            f"kubectl apply --server-side -f {manifest}",
        )
    elif installs and there and not _ours(cluster):
        yield wrong(
            subject,
            "is there already, and the stack would install a second one",
            f"pulumi config set --path slipway:kueue.install false -s {cluster.stack.name}",
        )
    else:
        yield fine(subject, "is there" if there else "will be installed")


def _ours(cluster: Cluster) -> bool:
    """Whether the Kueue that is there is one that Helm installed for this stack, by its namespace's label."""
    names: Iterable[str] = {
        text(mapping(each.properties.get("metadata")).get("name"))
        for each in cluster.declared()
        if kind_of(each)[1] == "Namespace"
    }
    found = (cluster.server.find("v1", "Namespace", name) for name in names if name)
    return all(
        each is not None and PART_OF.items() <= mapping(mapping(each.get("metadata")).get("labels")).items()
        for each in found
    )
