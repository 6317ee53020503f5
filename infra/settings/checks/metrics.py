"""What a stack file says of metrics, against its clusters."""

from collections.abc import Iterator

from infra.charts import copy_problem
from infra.schema.base import ChartSettings
from infra.schema.kubernetes_names import label_findings, name_findings
from infra.schema.problems import Finding, Path, listed
from infra.schema.quantities import seconds
from infra.settings.metrics import MetricsSettings
from infra.settings.parsing import Draft, Reading

KEY = "metrics"

PROMETHEUS = "kube-prometheus-stack"
EXPORTER = "dcgm-exporter"

LEAST_INTERVAL, MOST_INTERVAL = 5, 120
"""Seconds between two readings. The dashboards' rates are of five minutes, and need two readings in them even
where one was missed. After five minutes Prometheus takes a series for ended, too
(prometheus.io/docs/prometheus/latest/querying/basics, "Staleness", seen November 2026)."""

INSTALLATION = ("chart", "version", "retention", "storage")
"""Keys that say how Prometheus is installed, and `FOUND` what there is of one that is."""

FOUND = ("pod_labels", "labels")


def check(reading: Reading) -> Iterator[Finding]:
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
    yield from _exporter(metrics, draft)


def _of_all(metrics: MetricsSettings) -> Iterator[Finding]:
    if not metrics.usage and not metrics.collect:
        yield Finding((KEY,), None, "nothing is measured, and nothing read", "remove the section")
    if metrics.collect and not LEAST_INTERVAL <= seconds(metrics.interval) <= MOST_INTERVAL:
        yield Finding(
            (KEY, "interval"),
            metrics.interval,
            f"not between {LEAST_INTERVAL} s and {MOST_INTERVAL} s; of fewer readings the dashboards draw no line",
            "write for example `30s`",
        )
    if not metrics.usage:
        for key in ("idle", "port"):
            if key in metrics.model_fields_set:
                yield Finding(
                    (KEY, key),
                    None if key == "idle" else metrics.port,
                    "a setting of what measures steps, and `usage` is false",
                    "remove it, or write `usage: true`",
                    read=((KEY, "usage"),),
                )


def _not_collected(metrics: MetricsSettings) -> Iterator[Finding]:
    for key in ("interval", "dashboards", "prometheus", "gpus"):
        if key in metrics.model_fields_set and getattr(metrics, key) not in (False,):
            yield Finding(
                (KEY, key),
                None if key in {"prometheus", "gpus"} else getattr(metrics, key),
                "a setting of what reads metrics, and `collect` is false",
                "remove it, or write `collect: true`",
                read=((KEY, "collect"),),
            )


def _of_teams(draft: Draft) -> Iterator[Finding]:
    others = {each.other_stack for each in draft.clusters.values()} - {None}
    if others:
        yield Finding(
            (KEY, "collect"),
            True,
            f"the clusters are those of stack {listed(sorted(map(str, others)), 'and')}, which decides what runs "
            "there beside Jobs",
            "write `collect: false`; the use of CPU and GPUs is measured all the same",
            read=(("clusters",),),
        )


def _uncollected(draft: Draft) -> list[str]:
    """The clusters whose cloud does not collect metrics itself."""
    return [name for name, each in draft.clusters.items() if not each.collects_metrics]


def _prometheus(metrics: MetricsSettings, draft: Draft) -> Iterator[Finding]:
    at: Path = (KEY, "prometheus")
    own = metrics.prometheus
    where = _uncollected(draft)
    if "prometheus" in metrics.model_fields_set and draft.clusters and not where:
        yield Finding(
            at,
            None,
            "the cloud itself collects the metrics of all clusters of this stack",
            "remove it",
            read=(("clusters",),),
        )
        return
    yield from name_findings((*at, "namespace"), own.namespace)
    yield from label_findings((*at, "pod_labels"), own.pod_labels)
    yield from label_findings((*at, "labels"), own.labels)
    if not own.pod_labels:
        yield Finding(
            (*at, "pod_labels"),
            None,
            "every pod of the namespace would be let in",
            "name a label of Prometheus's own pods",
        )
    for key in FOUND if own.install else INSTALLATION:
        if key in own.model_fields_set:
            yield Finding(
                (*at, key),
                None if key in FOUND else getattr(own, key),
                "it is of a Prometheus that is there already"
                if own.install
                else "a setting of Prometheus's installation, and the stack does not install it",
                f"remove it, or write `install: {'false' if own.install else 'true'}`",
                read=((*at, "install"),),
            )
    if not own.install:
        return
    if own.namespace == draft.namespace:
        yield Finding(
            (*at, "namespace"),
            own.namespace,
            "the namespace of the Jobs, whose quota and policies are not made for Prometheus",
            "write another name",
            read=(("namespace",),),
        )
    yield from _namespaced(draft, at, "Prometheus's operator is one for a whole cluster")
    yield from _on_openshift(
        draft,
        at,
        "it has a Prometheus of its own, and its constraints take none of this one's pods",
        "write `install: false` and `namespace: openshift-user-workload-monitoring` in it",
    )
    yield from _copies(at, PROMETHEUS, own)


def _exporter(metrics: MetricsSettings, draft: Draft) -> Iterator[Finding]:
    at: Path = (KEY, "gpus")
    own = metrics.gpus
    if not own.install:
        for key in ("chart", "version"):
            if getattr(own, key):
                yield Finding(
                    (*at, key),
                    getattr(own, key),
                    "a setting of the exporter's installation, and the stack does not install it",
                    "remove it, or write `install: true`",
                    read=((*at, "install"),),
                )
        return
    if any(getattr(pool, "accelerator", None) for each in draft.clusters.values() for pool in each.pools.values()):
        yield from _namespaced(draft, at, "the exporter of GPUs runs on nodes, outside of the stack's namespace")
        yield from _on_openshift(
            draft,
            at,
            "its constraints take no pod that is root and mounts the kubelet's socket",
            "write `install: false` in it, and let NVIDIA's GPU Operator run the exporter",
        )
    yield from _copies(at, EXPORTER, own)


def _namespaced(draft: Draft, at: Path, why: str) -> Iterator[Finding]:
    for name, cluster in draft.clusters.items():
        if getattr(cluster, "access", None) == "namespace":
            yield Finding(
                at,
                None,
                f"{why}, and cluster `{name}` has `access: namespace`",
                "write `install: false` in it",
                read=(("clusters", name, "access"), (*at, "install")),
            )


def _on_openshift(draft: Draft, at: Path, why: str, fix: str) -> Iterator[Finding]:
    for name, cluster in draft.clusters.items():
        if getattr(cluster, "openshift", False):
            reason = f"cluster `{name}` is OpenShift: {why}"
            yield Finding(at, None, reason, fix, read=(("clusters", name, "openshift"), (*at, "install")))


def _copies(at: Path, chart: str, own: ChartSettings) -> Iterator[Finding]:
    if own.chart and (why := copy_problem(chart, own.chart, own.version)):
        yield Finding((*at, "chart"), own.chart, why, "fetch it again, or name its `version`")
    if own.version and not own.chart:
        yield Finding(
            (*at, "version"),
            own.version,
            "the version of a chart of your own, and which is not said; the public one's is pinned",
            "remove it, or name its `chart`",
            read=((*at, "chart"),),
        )
