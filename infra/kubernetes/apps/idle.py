"""What looks at an app whether anybody uses it: a CronJob whose pod asks it, and scales it to no pod, or warns.

The app's own pod could do so, too, but whoever uses a notebook runs what they like there, and with all rights that
the pod has.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.apps.pod import TOKEN, token_secret_name
from slipway.infra.kubernetes.cluster.api_access import api_step, identity
from slipway.infra.kubernetes.cluster.network_policy import allow_from, network_policy, peer, select
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.labels import IDLE_ANNOTATION, TAKEN_OVER, app_labels, step_labels
from slipway.infra.kubernetes.pods.pod import bundle_map, from_secret, template
from slipway.infra.kubernetes.run import plan
from slipway.infra.kubernetes.schedules.schedule import CRON_JOB_NAME_LIMIT
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.pipelines.apps import Idle
from slipway.infra.pipelines.contract import literal
from slipway.infra.placed import IDLE_WATCH, App, Step
from slipway.infra.schema.names import fit

APP_TOKEN = "APP_TOKEN"
"""The environment variable that has the app's token."""

EVERY = "*/10 * * * *"
"""When it looks: every ten minutes, so that an app goes at most that much later than it says."""

LIMIT = 300
"""Seconds for one look, the start of a node included."""

ABOUT = "What is known of the use of an app, written by each look at it."


@dataclass(frozen=True)
class IdleWatchArgs:
    """``app`` runs in ``workspace``. ``root`` is the repository, and ``image`` one with Python. ``ready`` are the
    resources of the app to wait for.
    """

    app: App
    idle: Idle
    workspace: Workspace
    image: str
    root: Path
    ready: tuple[pulumi.Resource, ...] = ()

    @property
    def called(self) -> str:
        """The name of what looks at the app, and of its notes."""
        return fit(f"{self.app.object_name}-idle", CRON_JOB_NAME_LIMIT)


class IdleWatch(pulumi.ComponentResource):
    """Looks at an app every ten minutes, and scales it to no pod, or warns, once nobody used it for long enough.

    Its pod may change how many pods the app has, where it is to stop it, and its own notes, and nothing else in
    the cluster. It talks to the Kubernetes API, which no policy can name, and so may connect to everything.
    ``start`` is the command that brings the app back; None where nothing stops it.
    """

    def __init__(self, name: str, args: IdleWatchArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:IdleWatch", name, {}, opts)
        app, workspace = args.app, args.workspace
        labels = step_labels(IDLE_WATCH, app.object_name)
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready, *args.ready]
        )
        run = plan(_step(args), args.root)
        before = [
            identity(name, args.called, workspace.namespace, labels=labels, rules=_rules(args), opts=on_cluster),
            config_map(bundle_map(run), run.bundle, workspace.namespace, labels, on_cluster),
            _notes(name, args, labels, on_cluster),
            *_policies(name, args, labels, on_cluster),
            *_all_pods(name, args, labels, on_cluster),
        ]
        tokens = [from_secret(token_secret_name(app), TOKEN, APP_TOKEN)] if app.declared.token else []
        k8s.batch.v1.CronJob(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.called,
                namespace=workspace.namespace,
                labels=labels,
                annotations={IDLE_ANNOTATION: _described(args)},
            ),
            spec=k8s.batch.v1.CronJobSpecArgs(
                schedule=EVERY,
                concurrency_policy="Forbid",
                # A look that came too late is made by the next one.
                starting_deadline_seconds=LIMIT,
                successful_jobs_history_limit=1,
                failed_jobs_history_limit=1,
                job_template=k8s.batch.v1.JobTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
                    spec=k8s.batch.v1.JobSpecArgs(
                        backoff_limit=0,
                        active_deadline_seconds=LIMIT,
                        template=template(run, args.called, tokens),
                    ),
                ),
            ),
            opts=wait_for(on_cluster, *before),
        )
        self.start: pulumi.Output[str] | None = None
        if app.start:
            self.start = pulumi.Output.concat(
                workspace.platform.kubectl, f" --namespace {workspace.namespace} {app.start}"
            )
        self.register_outputs({"cronJob": args.called})


def _described(args: IdleWatchArgs) -> str:
    """What `IDLE_ANNOTATION` has."""
    app, idle = args.app, args.idle
    return json.dumps(
        {
            "app": f"{app.pipeline}.{app.name}",
            "object": app.object_name,
            "after": idle.after,
            "then": idle.then,
            "notes": args.called,
            "holds": _holds(app),
            "start": app.start,
        }
    )


def _holds(app: App) -> str:
    """What a pod of the app holds, with its price; empty where no price is known, or its node stays anyway."""
    rate = app.rate
    if rate is None or (app.pool.min_nodes and not rate.by_pod):
        return ""
    return f"a {'pod' if rate.by_pod else 'node'} of pool {app.pool.name}, ${rate.dollars:.2f} an hour"


def _rules(args: IdleWatchArgs) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    notes = k8s.rbac.v1.PolicyRuleArgs(
        api_groups=[""], resources=["configmaps"], resource_names=[args.called], verbs=["get", "patch"]
    )
    scale = k8s.rbac.v1.PolicyRuleArgs(
        api_groups=["apps"],
        resources=[f"{args.app.controller}s/scale"],
        resource_names=[args.app.object_name],
        verbs=["patch"],
    )
    return [*([scale] if args.idle.stops else []), notes]


def _notes(
    name: str, args: IdleWatchArgs, labels: dict[str, str], opts: pulumi.ResourceOptions
) -> k8s.core.v1.ConfigMap:
    """The ConfigMap of what looks know: one key is Pulumi's, the other is the pod's."""
    metadata = k8s.meta.v1.ObjectMetaArgs(
        name=args.called, namespace=args.workspace.namespace, labels=labels, annotations=TAKEN_OVER
    )
    return k8s.core.v1.ConfigMap(f"{name}-notes", metadata=metadata, data={"about": ABOUT}, opts=opts)


def _step(args: IdleWatchArgs) -> Step:
    """What the CronJob's pod runs."""
    platform, app, idle = args.workspace.platform, args.app, args.idle
    # Each pod counts for itself, and the name of the Service leads to one of them.
    host = args.called if app.most > 1 else app.object_name
    return api_step(
        IDLE_WATCH,
        app.object_name,
        idle.module,
        [
            *("--app", f"{host}:{app.all_ports[idle.port]}", "--after", str(idle.after), "--then", idle.then),
            *("--kind", app.controller, "--scale", app.object_name),
            *("--replicas", str(app.declared.placed_by.replicas)),
            *("--namespace", args.workspace.namespace, "--notes", args.called),
            *(["--holds", literal(holds)] if (holds := _holds(app)) else []),
            *map(literal, idle.arguments),
        ],
        image=args.image,
        platform=platform,
        time_limit=LIMIT,
    )


def _policies(
    name: str, args: IdleWatchArgs, labels: dict[str, str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Lets the pod that looks connect to the app and to the Kubernetes API. Policies add up."""
    app, namespace, pods = args.app, args.workspace.namespace, select(labels)
    to_app = network_policy(
        f"{name}-asked",
        k8s.meta.v1.ObjectMetaArgs(name=f"{app.object_name}-idle", namespace=namespace, labels=labels),
        select(app_labels(app.pipeline, app.name)),
        ["Ingress"],
        opts,
        ingress=[allow_from([peer(pods)], app.all_ports[args.idle.port])],
    )
    called = f"{app.object_name}-idle-egress"
    return [to_app, *args.workspace.api_egress(f"{name}-asks", called, labels, opts)]


def _all_pods(
    name: str, args: IdleWatchArgs, labels: dict[str, str], opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """The Service whose name stands for the addresses of all pods of the app, where it may have several."""
    app = args.app
    if app.most == 1:
        return []
    port = app.all_ports[args.idle.port]
    return [
        k8s.core.v1.Service(
            f"{name}-pods",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.called, namespace=args.workspace.namespace, labels=labels
            ),
            spec=k8s.core.v1.ServiceSpecArgs(
                cluster_ip="None",
                selector=app_labels(app.pipeline, app.name),
                ports=[k8s.core.v1.ServicePortArgs(name="use", port=port, target_port=port, protocol="TCP")],
            ),
            opts=opts,
        )
    ]
