"""What stops an app that nobody uses: a CronJob whose pod asks the app, and scales it to no pod.

The app's own pod could do so, too, but whoever uses a notebook runs what they like there, and with all rights that
the pod has.
"""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.app_pod import TOKEN, token_secret_name
from slipway.infra.kubernetes.bundle import config_map
from slipway.infra.kubernetes.gates import KUBERNETES_API, SERVICE_ACCOUNT, cheapest_pool
from slipway.infra.kubernetes.labels import app_labels, step_labels
from slipway.infra.kubernetes.network_policy import allow_from, everywhere, network_policy, peer, select
from slipway.infra.kubernetes.pod import bundle_map, from_secret, template
from slipway.infra.kubernetes.run import plan
from slipway.infra.kubernetes.schedule import CRON_JOB_NAME_LIMIT, RUNNER, identity
from slipway.infra.kubernetes.workspace import Workspace
from slipway.infra.objects import wait_for
from slipway.infra.pipelines.apps import Idle
from slipway.infra.placed import IDLE_WATCH, App, Step
from slipway.infra.schema.names import fit

APP_TOKEN = "APP_TOKEN"
"""The environment variable that has the app's token."""

EVERY = "*/10 * * * *"
"""When it looks: every ten minutes, so that an app goes at most that much later than it says."""

LIMIT = 300
"""Seconds for one look, the start of a node included."""


@dataclass(frozen=True)
class IdleWatchArgs:
    """``app`` runs as the StatefulSet ``stateful_set`` in ``workspace``. ``root`` is the repository, and ``image``
    one with Python. ``ready`` are the resources of the app to wait for.
    """

    app: App
    idle: Idle
    stateful_set: str
    workspace: Workspace
    image: str
    root: Path
    ready: tuple[pulumi.Resource, ...] = ()


class IdleWatch(pulumi.ComponentResource):
    """Looks at an app every ten minutes, and scales it to no pod once nobody used it for long enough.

    Its pod may change how many pods the app has, and nothing else in the cluster. It talks to the Kubernetes API,
    which no policy can name, and so may connect to everything. ``start`` is the command that brings the app back.
    """

    def __init__(self, name: str, args: IdleWatchArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:IdleWatch", name, {}, opts)
        app, workspace = args.app, args.workspace
        called = fit(f"{app.object_name}-idle", CRON_JOB_NAME_LIMIT)
        labels = step_labels(IDLE_WATCH, app.object_name)
        metadata = k8s.meta.v1.ObjectMetaArgs(name=called, namespace=workspace.namespace, labels=labels)
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready, *args.ready]
        )
        rule = k8s.rbac.v1.PolicyRuleArgs(
            api_groups=["apps"],
            resources=["statefulsets/scale"],
            resource_names=[args.stateful_set],
            verbs=["patch"],
        )
        binding = identity(name, called, workspace.namespace, labels=labels, rules=[rule], opts=on_cluster)
        run = plan(_step(args), args.root)
        before = [
            binding,
            config_map(bundle_map(run), run.bundle, workspace.namespace, labels, on_cluster),
            *_policies(name, args, labels, on_cluster),
        ]
        token = from_secret(token_secret_name(app), TOKEN, APP_TOKEN)
        k8s.batch.v1.CronJob(
            name,
            metadata=metadata,
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
                        backoff_limit=0, active_deadline_seconds=LIMIT, template=template(run, called, [token])
                    ),
                ),
            ),
            opts=wait_for(on_cluster, *before),
        )
        self.start = pulumi.Output.concat(
            workspace.platform.kubectl,
            f" --namespace {workspace.namespace} scale statefulset/{args.stateful_set} --replicas=1",
        )
        self.register_outputs({"cronJob": called})


def _step(args: IdleWatchArgs) -> Step:
    """What the CronJob's pod runs."""
    platform = args.workspace.platform
    return Step(
        pipeline=IDLE_WATCH,
        name=args.app.object_name,
        module=args.idle.module,
        arguments=[
            *("--app", args.app.address, "--after", str(args.idle.after)),
            *("--scale", args.stateful_set, "--namespace", args.workspace.namespace),
            *("--api", KUBERNETES_API, "--service-account", SERVICE_ACCOUNT),
        ],
        image=args.image,
        platform=platform,
        pool=cheapest_pool(platform),
        resources=RUNNER,
        time_limit=LIMIT,
        uses_store=False,
        reads_nodes=True,
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
        ingress=[allow_from([peer(pods)], app.declared.port)],
    )
    if not args.workspace.limits_egress:
        return [to_app]
    metadata = k8s.meta.v1.ObjectMetaArgs(
        name=f"{app.object_name}-idle-egress", namespace=namespace, labels=labels
    )
    return [to_app, everywhere(f"{name}-asks", metadata, labels, opts)]
