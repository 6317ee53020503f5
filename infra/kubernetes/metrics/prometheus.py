"""The Helm release of Prometheus, its operator and Grafana, for clusters whose cloud does not collect metrics.

Its chart is kube-prometheus-stack, from which most clusters with an operator have it. What watches the cluster
itself (node exporter, kube-state-metrics, Alertmanager and their rules) is left out: who wants that installs it.
An operator that somebody else installs later finds its own objects left alone: this one looks at the stack's
namespaces only.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi_random import RandomPassword

from slipway.infra.charts import charts
from slipway.infra.kubernetes.cluster.kueue import host_pool
from slipway.infra.kubernetes.cluster.network_policy import allow_from, network_policy, peer, select
from slipway.infra.kubernetes.cluster.workspace import NAMESPACE_NAME
from slipway.infra.kubernetes.labels import PART_OF
from slipway.infra.objects import source, wait_for
from slipway.infra.platform import Platform, Pool
from slipway.infra.schema.names import fit
from slipway.infra.schema.quantities import mebibytes

CHART = "kube-prometheus-stack"

RELEASE_LIMIT = 26
"""Longest name of the release: the chart cuts off what is longer (templates/_helpers.tpl)."""

DASHBOARD_LABEL = {"grafana_dashboard": "1"}
"""The label of ConfigMaps that Grafana's sidecar takes dashboards from (values.yaml,
`grafana.sidecar.dashboards`)."""

ADMIN_SECRET = "grafana-admin"

GRAFANA_PORT, PROMETHEUS_PORT = 80, 9090

STORAGE_SHARE = 0.85
"""How much of its volume Prometheus fills before it drops the oldest. The rest is for what it has not packed into
blocks yet (prometheus.io/docs/prometheus/latest/storage, "Right-Sizing Retention Size", seen November 2026)."""

GRAFANA_LIMIT = 1024
"""MiB that Grafana may take. Version 13 takes 300 to 750 with few dashboards, more while it starts, and was killed
at limits of 192 to 512 in several clusters (github.com/siutsin/otaru pull request 3284,
github.com/teutonet/teutonet-helm-charts pull request 2392, both of September 2026)."""

_LEFT_OUT = (
    *("kubeApiServer", "kubelet", "kubeControllerManager", "coreDns", "kubeDns", "kubeEtcd", "kubeScheduler"),
    *("kubeProxy", "kubeStateMetrics", "nodeExporter", "alertmanager"),
)


@dataclass(frozen=True)
class PrometheusArgs:
    """``namespace`` is its own, ``namespaces`` are those whose PodMonitors it looks at. ``interval`` is in
    seconds, ``retention`` a duration, ``storage`` a size. ``chart`` and ``version`` are a copy in place of the
    pinned chart.
    """

    namespace: str
    namespaces: Sequence[str]
    interval: int
    retention: str
    storage: str
    chart: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Prometheus:
    """The release as it was declared: ``ready`` are resources to wait for before a PodMonitor, ``grafana`` and
    ``prometheus`` the names of Services, ``password`` Grafana's for the user ``admin``.
    """

    ready: Sequence[pulumi.Resource]
    grafana: str
    prometheus: str
    password: pulumi.Output[str]


def prometheus_release(
    name: str, args: PrometheusArgs, platform: Platform, opts: pulumi.ResourceOptions
) -> Prometheus:
    """Declares the release in a namespace of its own, which nobody else's pods reach."""
    chart = charts()[CHART]
    pool = host_pool(platform)
    namespace = k8s.core.v1.Namespace(
        f"{name}-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=args.namespace, labels={**PART_OF, "pod-security.kubernetes.io/enforce": "restricted"}
        ),
        # What makes its volume, and deletes it with the namespace, comes before and goes after.
        opts=wait_for(opts, *(pool.resources if pool else ()), *platform.ready),
    )
    inside = wait_for(opts, namespace)
    password = RandomPassword(
        f"{name}-grafana", length=32, special=False, opts=pulumi.ResourceOptions(parent=opts.parent)
    )
    secret = k8s.core.v1.Secret(
        f"{name}-grafana",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=ADMIN_SECRET, namespace=args.namespace, labels=PART_OF),
        string_data={"admin-user": "admin", "admin-password": pulumi.Output.secret(password.result)},
        opts=inside,
    )
    policy = network_policy(
        f"{name}-own-pods",
        k8s.meta.v1.ObjectMetaArgs(name="own-pods", namespace=args.namespace, labels=PART_OF),
        select(None),
        ["Ingress"],
        inside,
        ingress=[allow_from([peer(select(None))])],
    )
    release = release_name(args.namespace)
    made = k8s.helm.v3.Release(
        f"{name}-prometheus",
        name=release,
        namespace=args.namespace,
        **source(chart, args.chart, args.version),
        values=values(args, pool, platform.volume_class),
        # A first node may have to come.
        timeout=900,
        opts=wait_for(inside, secret, policy),
    )
    return Prometheus([made], f"{release}-grafana", f"{release}-prometheus", pulumi.Output.secret(password.result))


def release_name(namespace: str) -> str:
    """The release has objects outside of namespaces, which two releases of one name would share."""
    return fit(namespace, RELEASE_LIMIT)


def values(args: PrometheusArgs, pool: Pool | None, volume_class: pulumi.Input[str] | None) -> dict[str, Any]:
    """The chart's values (charts/kube-prometheus-stack/values.yaml). Prometheus's volume is of ``volume_class``;
    None: of the cluster's default class."""
    chart = charts()[CHART]
    pinned = args.version in (None, chart.version)
    place: dict[str, Any] = {}
    if pool:
        place = {
            "nodeSelector": dict(pool.selector),
            "tolerations": [
                {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
                for taint in pool.taints
            ],
        }
    looked_at = {
        "matchExpressions": [
            {"key": NAMESPACE_NAME, "operator": "In", "values": sorted({*args.namespaces, args.namespace})}
        ]
    }
    operator: dict[str, Any] = {
        # Otherwise it carries out the objects of all namespaces, those of another operator too.
        "namespaces": {"releaseNamespace": True, "additional": sorted({*args.namespaces} - {args.namespace})},
        # It checks objects of its own kinds, and would have to be there whenever one changes.
        "admissionWebhooks": {"enabled": False},
        "tls": {"enabled": False},
        "kubeletService": {"enabled": False},
        "serviceMonitor": {"selfMonitor": False},
        "resources": _resources(50, 128),
        **place,
    }
    reloader: dict[str, Any] = {"resources": _resources(10, 64)}
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": args.storage}},
        **({"storageClassName": volume_class} if volume_class is not None else {}),
    }
    prometheus: dict[str, Any] = {
        "retention": args.retention,
        # A full volume would end it, and it would not start again.
        "retentionSize": f"{int(STORAGE_SHARE * mebibytes(args.storage))}MiB",
        "scrapeInterval": f"{args.interval}s",
        "podMonitorSelectorNilUsesHelmValues": False,
        "serviceMonitorSelectorNilUsesHelmValues": False,
        "podMonitorNamespaceSelector": looked_at,
        "serviceMonitorNamespaceSelector": looked_at,
        "resources": _resources(250, 1024),
        "storageSpec": {"volumeClaimTemplate": {"spec": claim}},
        **place,
    }
    if pinned:
        operator["image"] = _image(chart.images["operator"])
        reloader["image"] = _image(chart.images["reloader"])
        prometheus["image"] = _image(chart.image)
    return {
        "fullnameOverride": release_name(args.namespace),
        "cleanPrometheusOperatorObjectNames": True,
        **{part: {"enabled": False} for part in _LEFT_OUT},
        "defaultRules": {"create": False},
        "prometheusOperator": {**operator, "prometheusConfigReloader": reloader},
        "prometheus": {
            "serviceMonitor": {"selfMonitor": False},
            # From 90.0.0 on the chart would make a token that never ends, for monitors that are left out.
            "serviceAccount": {"createTokenSecret": False},
            "prometheusSpec": prometheus,
        },
        "grafana": {
            "fullnameOverride": f"{release_name(args.namespace)}-grafana",
            "admin": {"existingSecret": ADMIN_SECRET},
            "defaultDashboardsEnabled": False,
            # Of the whole cluster it would otherwise read all ConfigMaps and Secrets.
            "rbac": {"namespaced": True},
            "sidecar": {
                "dashboards": {"searchNamespace": args.namespace},
                "datasources": {"searchNamespace": args.namespace, "alertmanager": {"enabled": False}},
                "resources": _resources(10, 128),
            },
            "serviceMonitor": {"enabled": False},
            "testFramework": {"enabled": False},
            "grafana.ini": {
                "analytics": {
                    "reporting_enabled": False,
                    "check_for_updates": False,
                    "check_for_plugin_updates": False,
                },
                # Its source of Prometheus is a plugin from 13.2 on. At each start it would fetch the newest,
                # fail to put it in the place of the image's, which is read-only, and have none
                # (github.com/grafana-community/helm-charts issue 787, github.com/Tanguille/cluster pull request
                # 5048, both of September 2026; pkg/setting/setting_plugins.go of Grafana).
                "plugins": {"preinstall_disabled": True},
            },
            "resources": _resources(100, 512, GRAFANA_LIMIT),
            **place,
        },
    }


def _resources(cpu: int, memory: int, limit: int | None = None) -> dict[str, Any]:
    """Requests in millicores and MiB, and a limit of memory: what is asked for where it is not another."""
    return {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}, "limits": {"memory": f"{limit or memory}Mi"}}


def _image(reference: str) -> dict[str, str]:
    """An image in the chart's spelling, its digest without the algorithm."""
    name, _, digest = reference.partition("@sha256:")
    place, _, tag = name.rpartition(":")
    registry, _, repository = place.partition("/")
    return {"registry": registry, "repository": repository, "tag": tag, "sha": digest}


# The dashboards that `slipway.tools.dashboards` wrote, as Grafana's sidecar takes them up.


FOLDER = Path(__file__).parents[2] / "data" / "dashboards"
"""A file for each, of the name of its ``uid``."""


@cache
def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards by their ``uid``, in Grafana's JSON model."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def config_maps(name: str, namespace: str, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Declares a ConfigMap for each dashboard."""
    return [
        k8s.core.v1.ConfigMap(
            f"{name}-dashboard-{uid}",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=uid, namespace=namespace, labels={**PART_OF, **DASHBOARD_LABEL}
            ),
            data={f"{uid}.json": json.dumps(content, sort_keys=True)},
            opts=opts,
        )
        for uid, content in dashboards().items()
    ]
