"""From an app of a pipeline to what runs it in a cluster: pods, a host name, an identity, and who may connect."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
from pulumi_random import RandomPassword
from pydantic import SecretStr

from slipway.infra.commands import command
from slipway.infra.kubernetes.apps.pod import (
    TOKEN,
    PlannedApp,
    app_secret_name,
    bundle_map,
    plan,
    template,
    token_secret_name,
)
from slipway.infra.kubernetes.apps.waiting import NO_DEADLINE, waits_of
from slipway.infra.kubernetes.cluster.network_policy import (
    allow_from,
    allow_to,
    name_servers,
    network_policy,
    peer,
    rule,
    select,
)
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.ingress.exposure import Exposure, expose
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.labels import APP, NAME, PART_OF, PEOPLE, TAKEN_OVER, app_labels
from slipway.infra.kubernetes.service import PASSWORD_LENGTH, PATIENCE
from slipway.infra.kubernetes.shipping.bundle import config_map
from slipway.infra.objects import wait_for
from slipway.infra.placed import DATA, App
from slipway.infra.platform import DECLARED_ALONE, Egress
from slipway.infra.schema.quantities import size_quantity


def declare_policies(
    name: str, app: App, namespace: str, *, egress: Sequence[Egress] | None, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares that only the apps that ask ``app`` may connect to it, and that it connects to those that it asks.

    Beside them it reaches the cluster's name servers; where it has the store mounted or installs packages,
    ``egress`` too, which is what steps may connect to. None stands for everything.
    """
    labels = app_labels(app.pipeline, app.name)
    return [
        network_policy(
            name,
            k8s.meta.v1.ObjectMetaArgs(name=app.object_name, namespace=namespace, labels=labels),
            select(labels),
            ["Ingress", "Egress"],
            opts,
            ingress=_ingress(app),
            egress=_egress(app, egress),
        )
    ]


def _ingress(app: App) -> list[k8s.networking.v1.NetworkPolicyIngressRuleArgs]:
    if not app.clients:
        return []
    clients = select(
        {**PART_OF, NAME: app.pipeline},
        k8s.meta.v1.LabelSelectorRequirementArgs(key=APP, operator="In", values=sorted(app.clients)),
    )
    return [allow_from([peer(clients)], *app.all_ports.values())]


def _egress(app: App, egress: Sequence[Egress] | None) -> list[k8s.networking.v1.NetworkPolicyEgressRuleArgs]:
    rules = [
        allow_to([peer(select(app_labels(server.pipeline, server.name)))], *server.all_ports.values())
        for server in app.connects.values()
    ]
    if not (app.uses_store or app.declared.requirements):
        return [*rules, *name_servers(app.platform)]
    if egress is None:
        return [*rules, k8s.networking.v1.NetworkPolicyEgressRuleArgs()]
    return [*rules, *map(rule, egress)]


@dataclass(frozen=True)
class PipelineAppArgs:
    """``workspace`` is where the app runs, ``after`` are the Jobs that have to succeed before it starts.

    ``image`` is one with Python. ``connected`` are the apps that it connects to, and
    ``secrets`` the values that it is given, by their names.
    """

    planned: PlannedApp
    workspace: Workspace
    image: str
    after: Sequence[StepJob] = ()
    connected: Sequence["PipelineApp"] = ()
    secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])


class PipelineApp(pulumi.ComponentResource):
    """An app with what it needs: its identity, a host name, what it ships, and who may connect to it.

    ``forward`` is the command that brings its port to a person's machine, and ``token`` what they log in with;
    each is None where the app has none. ``opened`` is the way in from outside, where it has one. ``ready`` are the
    resources to wait for before what connects to it. With ``waits`` nobody waits for its pods, which themselves
    wait for what they read.
    """

    def __init__(self, name: str, args: PipelineAppArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:PipelineApp", name, {}, opts)
        planned, workspace = args.planned, args.workspace
        app = planned.app
        self.app = app
        self.waits = planned.waits is not None
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        )
        before: list[pulumi.Resource] = [
            _service_account(name, args, on_cluster),
            *_maps(args, on_cluster),
            *_secret(name, args, on_cluster),
            *declare_policies(name, app, workspace.namespace, egress=workspace.egress, opts=on_cluster),
            *_data(name, args, on_cluster),
        ]
        token = self._token(name, args, on_cluster) if app.declared.token else None
        self.token: pulumi.Output[str] | None = pulumi.Output.secret(token.result) if token else None
        image = workspace.images.get(app.image)
        token_hash = pulumi.Output.unsecret(token.bcrypt_hash) if token else None
        spec = template(planned, token_hash, image, python=args.image)
        pods = _pods(
            name,
            args,
            spec,
            wait_for(
                on_cluster,
                *before,
                *([token] if token else []),
                *([image.built] if image else []),
                *app.pool.resources,
                *([workspace.devices[app.pool.name]] if _waits_for_devices(args) else []),
                *(step_job.job for step_job in args.after),
                *(resource for server in args.connected for resource in server.ready),
                # Both would have the same labels, and the Service would lead to either.
                delete_before_replace=True,
                # The claim of a store that is replaced goes once no pod holds it.
                replace_with=[*app.platform.store.replaced_with] if app.uses_store else None,
                custom_timeouts=pulumi.CustomTimeouts(create=f"{PATIENCE}s", update=f"{PATIENCE}s"),
            ),
        )
        host = _host(name, args, pods, on_cluster)
        self.opened: Exposure | None = expose(
            name,
            app,
            workspace,
            host,
            pulumi.ResourceOptions(parent=self),
            secrets=args.secrets,
        )
        _several(name, args, on_cluster)
        self.ready: tuple[pulumi.Resource, ...] = (pods, host)
        self.forward = ""
        if app.declared.people:
            self.forward = command("open", app=f"{app.pipeline}.{app.name}", stack=pulumi.get_stack())
        self.register_outputs({"address": app.address})

    def _token(self, name: str, args: PipelineAppArgs, opts: pulumi.ResourceOptions) -> RandomPassword:
        made = RandomPassword(
            f"{name}-{TOKEN}", length=PASSWORD_LENGTH, special=False, opts=pulumi.ResourceOptions(parent=self)
        )
        k8s.core.v1.Secret(
            f"{name}-{TOKEN}",
            metadata=_metadata(args, token_secret_name(self.app)),
            type="Opaque",
            string_data={TOKEN: pulumi.Output.secret(made.result)},
            opts=opts,
        )
        return made


def declare(
    apps: Sequence[App],
    workspaces: Mapping[str, Workspace],
    jobs: Mapping[str, StepJob],
    root: Path,
    secrets: Mapping[str, SecretStr],
    *,
    image: str,
) -> dict[str, PipelineApp]:
    """Declares ``apps``, each once, by ``<pipeline>-<app>``.

    ``workspaces`` are by platform, ``jobs`` by their steps, ``root`` is the repository whose files the apps ship,
    ``secrets`` are the stack's by name, and ``image`` is one with Python. Raises ShippingError.
    """
    runs = {name: job.run for name, job in jobs.items()}
    held = {name for name, job in jobs.items() if job.held}
    declared: dict[str, PipelineApp] = {}

    def declare_one(app: App) -> PipelineApp:
        connected = [declare_one(connect) for connect in app.connects.values()]
        waits = waits_of(app, runs, held, [server.app for server in connected if server.waits])
        planned = plan(app, root, runs, waits)
        if planned.name not in declared:
            before = {step.job: jobs[step.job] for step in (*app.inputs.values(), *app.after)}
            args = PipelineAppArgs(
                planned, workspaces[app.platform.name], image, list(before.values()), connected, secrets
            )
            declared[planned.name] = PipelineApp(planned.name, args)
        return declared[planned.name]

    for app in apps:
        declare_one(app)
    return declared


def _metadata(
    args: PipelineAppArgs, name: str, annotations: Mapping[str, pulumi.Input[str]] | None = None
) -> k8s.meta.v1.ObjectMetaArgs:
    app = args.planned.app
    return k8s.meta.v1.ObjectMetaArgs(
        name=name,
        namespace=args.workspace.namespace,
        labels=app_labels(app.pipeline, app.name),
        annotations=dict(annotations) if annotations else None,
    )


def _alone(args: PipelineAppArgs) -> Mapping[str, str]:
    return DECLARED_ALONE if args.planned.waits or not args.planned.app.most else {}


def _service_account(name: str, args: PipelineAppArgs, opts: pulumi.ResourceOptions) -> k8s.core.v1.ServiceAccount:
    app = args.planned.app
    return k8s.core.v1.ServiceAccount(
        name,
        metadata=_metadata(args, app.service_account, app.platform.app_annotations.get(app.service_account)),
        automount_service_account_token=False,
        opts=opts,
    )


def _maps(args: PipelineAppArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Declares the ConfigMaps that the app ships. Their names end in digests: until the update is through, earlier
    pods keep what they have mounted.
    """
    planned, namespace = args.planned, args.workspace.namespace
    labels = app_labels(planned.app.pipeline, planned.app.name)
    if planned.bundle is None:
        return []
    return [config_map(bundle_map(planned), planned.bundle, namespace, labels, opts)]


def _secret(name: str, args: PipelineAppArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The Secret with what the app is given of the stack's."""
    app = args.planned.app
    if not app.declared.secrets:
        return []
    values = {
        secret: pulumi.Output.secret(args.secrets[secret].get_secret_value())
        for secret in app.declared.secrets.values()
    }
    return [
        k8s.core.v1.Secret(
            f"{name}-given",
            metadata=_metadata(args, app_secret_name(app)),
            type="Opaque",
            string_data=dict(sorted(values.items())),
            opts=opts,
        )
    ]


def _waits_for_devices(args: PipelineAppArgs) -> bool:
    app = args.planned.app
    return bool(app.resources.gpus) and app.pool.name in args.workspace.devices


def _pods(
    name: str, args: PipelineAppArgs, pod: k8s.core.v1.PodTemplateSpecArgs, opts: pulumi.ResourceOptions
) -> k8s.apps.v1.Deployment | k8s.apps.v1.StatefulSet:
    app = args.planned.app
    # How many pods there are was an autoscaler's to say before.
    annotations = {**_alone(args), **({} if app.most else TAKEN_OVER)}
    selector = k8s.meta.v1.LabelSelectorArgs(match_labels=app_labels(app.pipeline, app.name))
    if app.declared.keeps_data:
        return k8s.apps.v1.StatefulSet(
            name,
            metadata=_metadata(args, app.object_name, annotations),
            spec=_stateful_set(app, selector, pod),
            opts=opts,
        )
    placed_by = app.declared.placed_by
    # A pod more than there are may find no room, above all no GPU: the update would wait for ever.
    spare = 1 if app.spare else 0
    return k8s.apps.v1.Deployment(
        name,
        metadata=_metadata(args, app.object_name, annotations),
        spec=k8s.apps.v1.DeploymentSpecArgs(
            # With an autoscaler the number is its own, and not set back by the next `up`.
            replicas=None if app.most > placed_by.replicas else placed_by.replicas,
            selector=selector,
            strategy=k8s.apps.v1.DeploymentStrategyArgs(
                type="RollingUpdate",
                rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=spare, max_unavailable=1 - spare),
            ),
            revision_history_limit=2,
            progress_deadline_seconds=NO_DEADLINE if args.planned.waits else PATIENCE - 60,
            template=pod,
        ),
        opts=opts,
    )


def _data(name: str, args: PipelineAppArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The claim of the volume with an app's data. It is not one of the StatefulSet's own templates, which cannot
    change: another size would replace the StatefulSet, and delete the data with it.
    """
    app = args.planned.app
    if not app.declared.keeps_data:
        return []
    return [
        k8s.core.v1.PersistentVolumeClaim(
            f"{name}-{DATA}",
            # Many storage classes make a volume only for the first pod that mounts it, and that pod is declared
            # after the claim: Pulumi would wait for both for ever.
            metadata=_metadata(args, app.object_name, {"pulumi.com/skipAwait": "true"}),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                storage_class_name=app.platform.volume_class,
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(
                    requests={"storage": size_quantity(app.storage)}
                ),
            ),
            opts=pulumi.ResourceOptions.merge(
                opts,
                pulumi.ResourceOptions(
                    protect=args.workspace.protect,
                    delete_before_replace=True,
                    deleted_with=args.workspace.goes_with,
                ),
            ),
        )
    ]


def _stateful_set(
    app: App, selector: k8s.meta.v1.LabelSelectorArgs, pod: k8s.core.v1.PodTemplateSpecArgs
) -> k8s.apps.v1.StatefulSetSpecArgs:
    return k8s.apps.v1.StatefulSetSpecArgs(
        replicas=app.most,
        service_name=app.object_name,
        selector=selector,
        # `OrderedReady` would keep a pod that never became ready (see `slipway.infra.kubernetes.service`).
        pod_management_policy="Parallel",
        update_strategy=k8s.apps.v1.StatefulSetUpdateStrategyArgs(type="RollingUpdate"),
        template=pod,
    )


def _host(
    name: str, args: PipelineAppArgs, pods: pulumi.Resource, opts: pulumi.ResourceOptions
) -> k8s.core.v1.Service:
    app = args.planned.app
    people = {PEOPLE: json.dumps({"title": app.declared.title, "path": app.declared.path})}
    annotations = {**(people if app.declared.people else {}), **_alone(args)}
    return k8s.core.v1.Service(
        name,
        metadata=_metadata(args, app.object_name, annotations),
        spec=k8s.core.v1.ServiceSpecArgs(
            type="ClusterIP",
            selector=app_labels(app.pipeline, app.name),
            ports=[
                k8s.core.v1.ServicePortArgs(name=name, port=port, target_port=name, protocol="TCP")
                for name, port in app.all_ports.items()
            ],
        ),
        # Pulumi waits until a ready pod stands behind it. Declared before its pods, it would wait in vain where
        # one resource is created at a time.
        opts=wait_for(opts, pods),
    )


def _several(name: str, args: PipelineAppArgs, opts: pulumi.ResourceOptions) -> None:
    """What keeps several pods several: one goes at a time, and more come while they are busy."""
    app = args.planned.app
    autoscale = app.declared.placed_by.autoscale
    if app.declared.placed_by.replicas > 1:
        k8s.policy.v1.PodDisruptionBudget(
            name,
            metadata=_metadata(args, app.object_name),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                max_unavailable=1,
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=app_labels(app.pipeline, app.name)),
            ),
            opts=opts,
        )
    if autoscale and app.most:
        k8s.autoscaling.v2.HorizontalPodAutoscaler(
            name,
            metadata=_metadata(args, app.object_name),
            spec=k8s.autoscaling.v2.HorizontalPodAutoscalerSpecArgs(
                scale_target_ref=k8s.autoscaling.v2.CrossVersionObjectReferenceArgs(
                    api_version="apps/v1", kind="Deployment", name=app.object_name
                ),
                min_replicas=app.declared.placed_by.replicas,
                max_replicas=autoscale.most,
                metrics=[
                    k8s.autoscaling.v2.MetricSpecArgs(
                        type="Resource",
                        resource=k8s.autoscaling.v2.ResourceMetricSourceArgs(
                            name="cpu",
                            target=k8s.autoscaling.v2.MetricTargetArgs(
                                type="Utilization", average_utilization=autoscale.cpu
                            ),
                        ),
                    )
                ],
            ),
            opts=opts,
        )
