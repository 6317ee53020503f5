"""Apps of pipelines: whom they connect to, who reaches them by an Ingress, and whether they fit."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from slipway.infra.pipelines.apps import NEWEST, AppDeclaration, object_name
from slipway.infra.pipelines.contract import PipelineSettings, ServiceDeclaration, StepDeclaration
from slipway.infra.pipelines.residents import room_for, take
from slipway.infra.platform import AMOUNTS, Resources
from slipway.infra.schema.ingress import OidcSettings, ReachableCluster, TlsSettings
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.rules import Section
from slipway.infra.settings.checks.pipelines import RENAME, RULES, pools_of
from slipway.infra.settings.checks.stack import missing_secret
from slipway.infra.settings.checks.steps import Target, in_words, staying, targets
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import (
    KEY,
    Exposed,
    apps_if_any,
    exposed,
    place_of,
    services_if_any,
    steps_if_any,
)


@dataclass(frozen=True)
class _Placed:
    """An app of a section of `pipelines`, and where its own section stands."""

    pipeline: str
    app: AppDeclaration
    at: Path

    @property
    def pods(self) -> int:
        """Pods that it has at all times."""
        return self.app.placed_by.replicas


def check_apps(reading: Reading) -> Iterator[Finding]:
    """Findings about apps that connect to others, about their pods, and about pools that have no room for them."""
    draft = reading.draft
    clusters = {name: str(at[1]) for name, (at, _) in pools_of(draft).items()}
    apps: list[_Placed] = []
    for name, settings in draft.pipelines.items():
        of_pipeline = list(_placed(name, settings))
        for placed in of_pipeline:
            yield from _connects(placed, of_pipeline, settings)
            yield from _reach(placed, of_pipeline, clusters)
            yield from _pods(placed)
            yield from _account(placed, draft)
            yield from _follows(placed, of_pipeline, settings)
        apps += of_pipeline
    if apps:
        yield from _room(apps, draft)


def _placed(name: str, settings: PipelineSettings) -> Iterator[_Placed]:
    for app in apps_if_any(name, settings):
        yield _Placed(name, app, place_of(name, settings, app))


def _here(placed: _Placed) -> Section:
    return Section(RULES["app"], placed.at, placed.app.placed_by)


def _connects(placed: _Placed, beside: Sequence[_Placed], settings: PipelineSettings) -> Iterator[Finding]:
    """The apps that it connects to and that the stack leaves out."""
    names = {other.app.name for other in beside}
    section = placed.at[:-1]
    apps: object = getattr(settings, "apps", None)
    known = type(apps).model_fields if isinstance(apps, BaseModel) else {}
    for name in dict.fromkeys(placed.app.connects):
        if name in names:
            continue
        if name in known:
            reason = f"it connects to the app `{name}`, which the stack leaves out"
            fix = f"add `{name}: {{pool: …}}` beside it, or remove `{placed.app.name}`"
        else:
            reason = f"it connects to the app `{name}`, which the pipeline does not have"
            fix = "correct the pipeline's declaration"
        yield Finding(placed.at, None, reason, fix, read=((*section, name),))


def _reach(placed: _Placed, beside: Sequence[_Placed], clusters: Mapping[str, str]) -> Iterator[Finding]:
    """The apps that it connects to on another cluster, where their names mean nothing."""
    here = clusters.get(placed.app.placed_by.pool)
    for other in beside:
        other_cluster = clusters.get(other.app.placed_by.pool, here)
        if other.app.name not in placed.app.connects or here is None or other_cluster == here:
            continue
        pools = [name for name, cluster in clusters.items() if cluster == other_cluster]
        yield _here(placed).found(
            "reach",
            read=((*other.at, "pool"),),
            here=here,
            other=other,
            other_cluster=other_cluster,
            pools=listed(pools),
        )


def _pods(placed: _Placed) -> Iterator[Finding]:
    placed_by = placed.app.placed_by
    autoscale = placed_by.autoscale
    if placed.app.keeps_data:
        if placed_by.replicas > 1:
            yield _here(placed).found("keeps-data")
        if autoscale:
            yield _here(placed).found("keeps-data-alone")
    elif autoscale and autoscale.most <= placed_by.replicas:
        yield _here(placed).found("autoscale", least=placed_by.replicas, more=placed_by.replicas + 1)


def _account(placed: _Placed, draft: Draft) -> Iterator[Finding]:
    name = object_name(placed.pipeline, placed.app.name)
    if name == draft.service_account:
        reason = (
            f"with its name, the service account of the app `{placed.app.name}` is called `{name}`, like the Jobs'"
        )
        yield Finding((KEY, placed.pipeline), placed.pipeline, reason, RENAME, read=(("service_account",),))


def _follows(placed: _Placed, beside: Sequence[_Placed], settings: PipelineSettings) -> Iterator[Finding]:
    """What an app cannot follow, and what has the name of the step that notes the runs."""
    follow = placed.app.placed_by.follow
    if follow is None:
        return
    at = (*placed.at, "follow")
    if not placed.app.inputs:
        yield _here(placed).found("follow")
        return
    names = {
        **{step.name: "step" for step in steps_if_any(placed.pipeline, settings)},
        **{other.app.name: "app" for other in beside},
    }
    if kind := names.get(NEWEST):
        reason = f"the step that notes the runs is called `{NEWEST}`, like the {kind} of the pipeline"
        yield Finding(at, follow, reason, f"give the {kind} another name")


def _room(apps: Sequence[_Placed], draft: Draft) -> Iterator[Finding]:
    """Apps that would wait for a node for ever, beside all else that stays on their pool."""
    pools = targets(draft)
    for name in dict.fromkeys(placed.app.placed_by.pool for placed in apps):
        target = pools.get(name)
        if target and target.node and target.most_nodes:
            on_pool = [placed for placed in apps if placed.app.placed_by.pool == name]
            yield from _room_on(target, target.node, target.most_nodes, on_pool, draft)


def _room_on(
    target: Target, node: Resources, most: int, apps: Sequence[_Placed], draft: Draft
) -> Iterator[Finding]:
    others = [resident for resident in staying(draft) if resident.pool == target.name and resident.kind != "app"]
    nodes = [node] * min(most, sum(placed.pods for placed in apps) + sum(len(other.pods) for other in others))
    for pod in (pod for other in others for pod in other.pods):
        take(nodes, pod)
    beside = [f"{in_words(other)} ({_amounts(other.least)})" for other in others]
    for placed in sorted(apps, key=lambda placed: -_share(placed.app.placed_by.asked, node)):
        pod = placed.app.placed_by.asked
        if not room_for(node, pod):
            # What is too large for a node is a finding about everything that asks for one.
            continue
        pods = sum(take(nodes, pod) for _ in range(placed.pods))
        if pods < placed.pods:
            yield _no_room(placed, pods, target, beside)
        beside.append(f"{placed.pods} x " * (placed.pods > 1) + f"`{placed.app.name}` ({_amounts(pod)})")


def _no_room(placed: _Placed, pods: int, target: Target, beside: Sequence[str]) -> Finding:
    """The finding about an app of which only ``pods`` have room on ``target``, beside what ``beside`` says."""
    pod, node, most = placed.app.placed_by.asked, target.node, target.most_nodes
    assert node is not None
    nodes = f"{most} nodes at most, each" if most != 1 else "one node"
    others = f" beside {', '.join(beside)}" if beside else ""
    return Finding(
        (*placed.at, "replicas") if placed.pods > 1 else (*placed.at, "pool"),
        placed.pods if placed.pods > 1 else target.name,
        f"pool `{target.name}` ({nodes} with {_amounts(node)}) has room for {pods} of {placed.pods} "
        f"pod{'s' * (placed.pods != 1)} of it ({_amounts(pod)}){others}: "
        "all of these stay there, so the others would wait for ever",
        "ask for less, let the pool have more nodes, or take another pool",
        read=((*placed.at, "pool"), *([target.nodes_key] if target.nodes_key else ())),
    )


def _amounts(resources: Resources) -> str:
    """``resources`` in words: `500m of CPU, 1024Mi of memory, 4096Mi of scratch space`."""
    gpus = f", {resources.gpus} GPU{'s' * (resources.gpus != 1)}" if resources.gpus else ""
    scratch = f"{resources.ephemeral_storage}Mi of scratch space"
    return f"{resources.cpu}m of CPU, {resources.memory}Mi of memory, {scratch}{gpus}"


def _share(wanted: Resources, node: Resources) -> float:
    """The largest share of a node that a pod asks for of any resource."""
    return max(getattr(wanted, key) / (getattr(node, key) or 1) for key in AMOUNTS)


@dataclass(frozen=True)
class _Section:
    """A pipeline's section, and what the pipeline declares with it."""

    name: str
    settings: PipelineSettings
    services: tuple[ServiceDeclaration, ...]
    steps: tuple[StepDeclaration, ...]
    apps: tuple[AppDeclaration, ...]

    @property
    def at(self) -> Path:
        """Its place."""
        return (KEY, self.name)

    @property
    def named(self) -> list[tuple[str, str]]:
        """What has a Service of its own, as text and by its name: services, apps, and steps on several nodes."""
        services = [(f"service `{service.name}`", service.name) for service in self.services]
        services += [(f"app `{app.name}`", app.name) for app in self.apps]
        return [*services, *((f"step `{step.name}`", step.name) for step in self.steps if step.is_group)]


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about names of services, and about those that no step can reach."""
    clusters = {name: str(at[1]) for name, (at, _) in pools_of(reading.draft).items()}
    first: dict[str, tuple[str, str]] = {}
    for section in _sections(reading):
        yield from _name(section, first)
        for service in section.services:
            yield from _service_reach(section, service, clusters)


def _sections(reading: Reading) -> Iterator[_Section]:
    for name, settings in reading.draft.pipelines.items():
        section = _Section(
            name,
            settings,
            tuple(services_if_any(name, settings)),
            tuple(steps_if_any(name, settings)),
            tuple(apps_if_any(name, settings)),
        )
        if section.named:
            yield section


def _name(section: _Section, first: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    """What keeps the pipeline's name from being that of its Services, ``<pipeline>-<service or step>``.

    ``first`` has what each name so far is that of, and the pipeline.
    """
    name = section.name
    if name[:1].isdigit():
        # https://kubernetes.io/docs/concepts/overview/working-with-objects/names: RFC 1035 (seen November 2026).
        what, program = section.named[0]
        reason = f"the Service of {what} would be called `{name}-{program}`, and such names begin with a letter"
        yield Finding(section.at, name, reason, RENAME)
        return
    for what, program in section.named:
        other, of = first.setdefault(f"{name}-{program}", (what, name))
        if of != name:
            like = f"that of {other} of pipeline `{of}`"
            reason = f"with its name, the Service of {what} is called `{name}-{program}`, like {like}"
            yield Finding(section.at, name, reason, RENAME)
            return


def _service_reach(
    section: _Section, service: ServiceDeclaration, clusters: Mapping[str, str]
) -> Iterator[Finding]:
    """The steps that run on another cluster than the service: its address means nothing there."""
    cluster = clusters.get(service.placed_by.pool)
    away = [
        (step, clusters[step.placed_by.pool])
        for step in section.steps
        if service.name in step.connects and clusters.get(step.placed_by.pool, cluster) != cluster
    ]
    if cluster is None or not away:
        return
    names = listed((step.name for step, _ in away), "and")
    pools = [name for name, cluster in clusters.items() if cluster == away[0][1]]
    here = Section(RULES["app"], place_of(section.name, section.settings, service), service.placed_by)
    yield here.found(
        "service-reach",
        read=((*section.at, "steps", step.variant.of if step.variant else step.name) for step, _ in away),
        cluster=cluster,
        names=names,
        verb="s" * (len(away) == 1),
        other=away[0][1],
        pools=listed(pools),
    )


def check_ingress(reading: Reading) -> Iterator[Finding]:
    """Findings about the `ingress` of each app by itself, about two with one host, and about their clusters."""
    first: dict[str, str] = {}
    draft = reading.draft
    clusters = {name: str(at[1]) for name, (at, _) in pools_of(draft).items()}
    for name, cluster in draft.clusters.items():
        said = cluster.ingress if isinstance(cluster, ReachableCluster) else None
        if said and not (said.namespace or said.networks):
            yield Section(RULES["ingress"], ("clusters", name, "ingress"), None).found("unreachable", shown=None)
    for app in exposed(draft.pipelines):
        yield from _tls((*app.at, "tls"), app.ingress.tls)
        yield from _oidc((*app.at, "login", "oidc"), app.ingress.login.oidc)
        yield from _secret(app, draft.secrets)
        yield from _host(app, first)
        yield from _way_in(app, reading, clusters.get(app.pool))
    yield from _names(reading)


def _tls(at: Path, tls: TlsSettings) -> Iterator[Finding]:
    here = Section(RULES["ingress"], at, tls)
    if not (tls.secret or tls.issuer):
        yield here.found("no-certificate", shown=None)
    elif tls.secret and tls.issuer:
        yield here.found("two-certificates", shown=None)


def _oidc(at: Path, oidc: OidcSettings) -> Iterator[Finding]:
    here = Section(RULES["ingress"], at, oidc)
    if oidc.everyone and oidc.public:
        yield here.found("public", oidc=oidc)
    elif oidc.everyone and oidc.limited:
        yield here.found("limited")
    elif not oidc.everyone and not oidc.limited:
        yield here.found("nobody", shown=None)


def _secret(app: Exposed, secrets: Collection[str]) -> Iterator[Finding]:
    secret = app.ingress.login.oidc.client_secret
    if secret not in secrets:
        read = ((*app.at, "login", "oidc", "client_secret"),)
        yield missing_secret(secret, f"the login of `{app.name}` needs it", secrets, read=read)


def _host(app: Exposed, first: dict[str, str]) -> Iterator[Finding]:
    host = app.ingress.host
    other = first.setdefault(host, app.name)
    if other != app.name:
        yield Section(RULES["ingress"], app.at, app.ingress).found("host", other=other)


def _names(reading: Reading) -> Iterator[Finding]:
    """Apps, services and steps on several nodes whose objects would have the names of what stands beside an app.

    The cluster takes the last of two objects of one name, so that people could be led past the login.
    """
    draft = reading.draft
    owners: dict[str, str] = {}
    for name, settings in draft.pipelines.items():
        groups = [step for step in steps_if_any(name, settings) if step.is_group]
        named = (apps_if_any(name, settings), services_if_any(name, settings), groups)
        for what, programs in zip(("app", "service", "step"), named, strict=True):
            owners.update(
                {f"{name}-{program.name}": f"{what} `{program.name}` of pipeline `{name}`" for program in programs}
            )
    for name, settings in draft.pipelines.items():
        for app in apps_if_any(name, settings):
            login = f"{name}-{app.name}-login"
            if app.placed_by.ingress and (other := owners.get(login)):
                reason = f"the proxy that asks for the login of app `{app.name}` has objects called `{login}`"
                yield Finding((KEY, name), None, f"{reason}, like {other}", "give one of the two another name")


def _way_in(app: Exposed, reading: Reading, name: str | None) -> Iterator[Finding]:
    cluster, here = reading.draft.clusters.get(name) if name else None, Section(RULES["ingress"], app.at, None)
    if cluster is not None and cluster.other_stack:
        yield here.found(
            "other-stack", shown=None, read=(("clusters", str(name), "cloud"),), name=name, cluster=cluster
        )
    elif isinstance(cluster, ReachableCluster) and cluster.ingress is None:
        place = ("clusters", str(name), "ingress")
        yield here.found("no-ingress", shown=None, read=(place,), place=".".join(place))
