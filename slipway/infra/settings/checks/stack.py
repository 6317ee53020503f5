"""What a stack file says beside its clusters and pipelines: names, registry, secrets and metrics."""

from collections.abc import Collection, Iterator
from typing import Any

from slipway.infra.commands import page
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.placed import GATES_FOLDER
from slipway.infra.schema.names import label_findings, name_findings
from slipway.infra.schema.problems import Finding, Path, key_of, listed, nearest
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.rules import Section
from slipway.infra.schema.secret_values import NAME_OF_SECRET, InClear
from slipway.infra.settings.checks.pipelines import RULES
from slipway.infra.settings.checks.steps import targets
from slipway.infra.settings.model import KEY, MetricsSettings, RegistrySettings
from slipway.infra.settings.parsing import Draft, Reading
from slipway.infra.settings.pipelines import KEY as PIPELINES
from slipway.infra.settings.pipelines import apps_if_any, services_if_any, steps_if_any

STACK = Section(RULES["stack"], (), None)


def check_names(reading: Reading) -> Iterator[Finding]:
    """Findings about the namespace, the service account, and every cluster's and pool's name."""
    draft = reading.draft
    yield from name_findings(("namespace",), draft.namespace)
    if draft.namespace == "default" or draft.namespace.startswith("kube-"):
        yield STACK.found("namespace", shown=draft.namespace)
    yield from name_findings(("service_account",), draft.service_account)
    if draft.service_account == "default":
        yield STACK.found("account", shown=draft.service_account)
    for name, cluster in draft.clusters.items():
        yield from name_findings(("clusters", name), name)
        for pool in cluster.pools:
            yield from name_findings(("clusters", name, "pools", pool), pool)


def same_pool_names(reading: Reading) -> Iterator[Finding]:
    """A step names a pool alone, so two clusters may not both have one of that name."""
    first: dict[str, str] = {}
    for cluster, pool in sorted(reading.names):
        if pool in first and first[pool] != cluster:
            yield STACK.found("pool-name", cluster, "pools", pool, shown=pool, first=first[pool])
        first.setdefault(pool, cluster)


def same_resource_names(reading: Reading) -> Iterator[Finding]:
    """Pulumi tells node pools apart by ``<cluster>-<pool>``: `b-c` of `a` and `c` of `a-b` would be one."""
    first: dict[str, tuple[str, str]] = {}
    for cluster, pool in sorted(reading.names):
        taken, of = first.setdefault(f"{cluster}-{pool}", (pool, cluster))
        if of != cluster:
            yield STACK.found(
                "resource-name", cluster, "pools", pool, shown=pool, cluster=cluster, pool=pool, taken=taken, of=of
            )


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about builds without a registry, and about a registry that cannot have them."""
    registry = reading.draft.registry
    if registry is None:
        yield from _lacking(reading)
        return
    yield from _logins(reading, registry)
    target = targets(reading.draft).get(registry.pool)
    if target is None:
        return
    cluster = reading.draft.clusters[str(target.at[1])]
    at: Path = ("clusters", str(target.at[1]))
    if why := cluster.builds_problem:
        reason = f"pods that build images are refused there: {why}"
        fix = "take a pool of another cluster, or name images by digest in place of `build`"
        yield Finding((KEY, "pool"), registry.pool, reason, fix, read=(at,))
    elif registry.repository is None and not cluster.has_registry:
        reason = "the cluster brings no registry of its own"
        fix = "name the repository that images are pushed to: `registry.example.org/team/slipway`"
        yield Finding((KEY, "repository"), None, reason, fix, read=(at, (KEY, "pool")))


def _lacking(reading: Reading) -> Iterator[Finding]:
    """The programs of the first pipeline that has images built, where the stack has no registry."""
    for name, settings in reading.draft.pipelines.items():
        declared = (
            *steps_if_any(name, settings),
            *services_if_any(name, settings),
            *apps_if_any(name, settings),
        )
        building = [program.name for program in declared if program.build]
        if building:
            pools = [pool for pool, target in targets(reading.draft).items() if not target.pool.has_gpus]
            what = f"pipeline `{name}` builds the image of {listed(building[:3], 'and')}"
            example = f"`slipway:{KEY}: {{pool: {pools[0] if pools else '<a pool without GPUs>'}}}`"
            fix = f"write {example}, with `repository` for a registry that is not the cloud's own"
            yield Finding((KEY,), None, f"{what}, and nothing says where", fix, read=((PIPELINES, name),))
            return


def _logins(reading: Reading, registry: RegistrySettings) -> Iterator[Finding]:
    """Logins that nothing sets, or that no registry wants."""
    secrets = reading.draft.secrets
    for key in ("login", "pull_login"):
        secret: str | None = getattr(registry, key)
        if secret is None:
            continue
        if registry.repository is None:
            reason = "the cloud's own registry takes the identity of the pods, and no login"
            yield Finding((KEY, key), secret, reason, "remove it, or name a `repository`")
        elif secret not in secrets:
            yield missing_secret(secret, f"`{KEY}.{key}` needs it", secrets, read=((KEY, key),))


SECRET_KEY = "secrets"


def check_secrets(reading: Reading) -> Iterator[Finding]:
    """Findings about the name of each secret, values that are empty or in clear, and secrets that steps lack."""
    yield from _missing_secrets(reading)
    for name, value in reading.draft.secrets.items():
        at: Path = (SECRET_KEY, name)
        command = _command(name)
        yield from name_findings(at, name)
        if not value.get_secret_value():
            yield Finding(at, value, "empty", f"set it with {command}, or remove the key")
        elif isinstance(value, InClear):
            yield STACK.found("clear-secret", name, shown=value, command=command)


def _command(name: str) -> str:
    """The command that sets a secret."""
    return f"`pulumi config set --secret --path '{key_of((SECRET_KEY, name))}'`"


def missing_secret(name: str, reason: str, secrets: Collection[str], read: tuple[Path, ...] = ()) -> Finding:
    """The finding about a secret that is not one of ``secrets``; ``reason`` says what needs it."""
    if not NAME_OF_SECRET.fullmatch(name):
        rest = "and what it names is no name of a secret: it may be the secret itself"
        fix = f"withdraw it where it is one; write a name like `api-key`, and set it with {_command('api-key')}"
        return Finding((SECRET_KEY,), None, f"{reason}, {rest}", fix, read=read)
    near = nearest(name, secrets)
    known = f"the stack has `{near}`; correct one of the names, or " if near else ""
    fix = f"{known}set it with {_command(name)}"
    return Finding((SECRET_KEY, name), None, f"{reason}, and it is not set", fix, read=read)


def _missing_secrets(reading: Reading) -> Iterator[Finding]:
    """The secrets that the stack's pipelines need, and that nothing sets."""
    secrets = reading.draft.secrets
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
        if secret not in secrets:
            yield missing_secret(secret, reason, secrets)


METRIC_KEY = "metrics"

LEAST_INTERVAL, MOST_INTERVAL = 5, 120
"""Seconds between two readings. After five minutes without one Prometheus takes a series for ended, and two may be
missed
(prometheus.io/docs/prometheus/latest/querying/basics, "Staleness", seen November 2026)."""


def check_metrics(reading: Reading) -> Iterator[Finding]:
    """Findings about the section."""
    metrics, draft = reading.draft.metrics, reading.draft
    if metrics is None:
        return
    yield from _of_all(metrics)
    if not metrics.collect:
        yield from _not_collected(metrics)
        return
    yield from _of_teams(draft)
    yield from _prometheus(metrics, draft)


def _of_all(metrics: MetricsSettings) -> Iterator[Finding]:
    if metrics.collect and not LEAST_INTERVAL <= seconds(metrics.interval) <= MOST_INTERVAL:
        yield Section(RULES["metrics"], (METRIC_KEY,), metrics).found(
            "interval", least=LEAST_INTERVAL, most=MOST_INTERVAL
        )


def _not_collected(metrics: MetricsSettings) -> Iterator[Finding]:
    for key in ("interval", "prometheus"):
        if key in metrics.model_fields_set:
            shown = None if key == "prometheus" else metrics.interval
            yield Section(RULES["metrics"], (METRIC_KEY,), metrics).found("uncollected", key, shown=shown)


def _of_teams(draft: Draft) -> Iterator[Finding]:
    others = {cluster.other_stack for cluster in draft.clusters.values()} - {None}
    if others:
        names = listed(sorted(map(str, others)), "and")
        yield Section(RULES["metrics"], (METRIC_KEY,), None).found(
            "teams", shown=True, read=(("clusters",),), others=names
        )


def _prometheus(metrics: MetricsSettings, draft: Draft) -> Iterator[Finding]:
    """Findings about what reads metrics on clusters whose cloud does not, of which the stack installs nothing."""
    at: Path = (METRIC_KEY, "prometheus")
    here = Section(RULES["metrics"], (METRIC_KEY,), metrics)
    prometheus = metrics.prometheus
    own_clusters = {name: cluster for name, cluster in draft.clusters.items() if not cluster.other_stack}
    unread = [name for name, cluster in own_clusters.items() if not cluster.collects_metrics]
    if prometheus is None:
        if unread:
            words: dict[str, Any] = {"clusters": listed(unread, "and"), "page": page("metrics.md")}
            yield here.found("unread", read=(("clusters",),), **words)
        return
    if own_clusters and not unread:
        yield here.found("collected", shown=None, read=(("clusters",),))
        return
    yield from name_findings((*at, "namespace"), prometheus.namespace)
    yield from label_findings((*at, "pod_labels"), prometheus.pod_labels)
    yield from label_findings((*at, "labels"), prometheus.labels)
    if not prometheus.pod_labels:
        yield here.found("labels", shown=None)


TEAMS = "teams"

NAME_LIMIT = 30
"""Characters of a team's name, of which names of service accounts, volumes and folders are made."""


def check_teams(reading: Reading) -> Iterator[Finding]:
    """Findings about the teams' names, and about namespaces that two would share."""
    draft = reading.draft
    if not draft.teams:
        return
    taken = {
        **dict.fromkeys(draft.pipelines, "a pipeline of this stack has a folder of that name in the store"),
        **dict.fromkeys((GATES_FOLDER, *SUPPLEMENTS), "gates and supplements have that folder of the store"),
    }
    first: dict[str, str] = {}
    for name, team in draft.teams.items():
        at: Path = (TEAMS, name)
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
                read=((TEAMS, first[team.namespace], "namespace"),),
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
