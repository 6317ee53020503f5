"""From a service of a pipeline to what runs it in a cluster: one pod, with a volume and a password of its own."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
from pulumi_random import RandomPassword

from slipway.infra.kubernetes.cluster.network_policy import service_policies
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.labels import service_labels
from slipway.infra.kubernetes.pods.pod import (
    TEMPORARY,
    container_security,
    empty,
    escaped,
    home,
    limits,
    of_pool,
    password,
    password_secret_name,
    pod_security,
    requests,
)
from slipway.infra.kubernetes.run import PodImage, inside, pulled_with
from slipway.infra.objects import wait_for
from slipway.infra.placed import DATA, PASSWORD, PORT, Service, Step
from slipway.infra.schema.names import fit, short_digest
from slipway.infra.schema.quantities import size_quantity

STATEFUL_SET_NAME_LIMIT = 52
"""Longest name of a StatefulSet: its pods have it in the label `controller-revision-hash`, a hyphen and ten
characters after it (github.com/kubernetes/kubernetes/issues/64023, seen November 2026)."""

DATA_PATH = "/data"
"""Where the volume of a service is mounted."""

PASSWORD_LENGTH = 32
"""Letters and digits, of which nothing has to be quoted anywhere: 190 bits."""

GRACE_PERIOD = 30
"""Seconds between SIGTERM and SIGKILL, in which a service writes what it still has in memory."""

PATIENCE = 1200
"""Seconds that Pulumi waits for a service: a node has to start, pull the image and attach the volume."""

PROBE_PERIOD = 2
LOADING = 600
"""Seconds between two probes, and seconds that a service may take to load its data before it is started anew."""

PASSWORD_ANNOTATION = "slipway/password"
"""The annotation of a service's pod with the bcrypt hash of its password: a new password starts a new pod."""


@dataclass(frozen=True)
class PipelineServiceArgs:
    """``workspace`` is where the service runs."""

    service: Service
    workspace: Workspace


class PipelineService(pulumi.ComponentResource):
    """A service with what it needs: a password, a host name, a volume, and who may connect to it.

    ``ready`` are the resources to wait for before the first pod that connects to it.
    """

    def __init__(self, name: str, args: PipelineServiceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:PipelineService", name, {}, opts)
        service, workspace = args.service, args.workspace
        on_cluster = pulumi.ResourceOptions(
            parent=self, provider=workspace.platform.provider, depends_on=[*workspace.ready]
        )
        made = RandomPassword(
            f"{name}-password",
            length=PASSWORD_LENGTH,
            special=False,
            opts=pulumi.ResourceOptions(parent=self),
        )
        secret = k8s.core.v1.Secret(
            f"{name}-password",
            metadata=_metadata(args, password_secret_name(service)),
            type="Opaque",
            string_data={PASSWORD: pulumi.Output.secret(made.result)},
            opts=on_cluster,
        )
        policies = service_policies(
            name, service, workspace.namespace, limited=workspace.limits_egress, opts=on_cluster
        )
        image, set_name = workspace.images.get(service.image), _stateful_set_name(service)
        stateful_set = k8s.apps.v1.StatefulSet(
            name,
            metadata=_metadata(args, set_name),
            spec=_stateful_set(service, pulumi.Output.unsecret(made.bcrypt_hash), image),
            opts=wait_for(
                on_cluster,
                secret,
                *policies,
                *([image.built] if image else []),
                *service.pool.resources,
                # Both would have the same labels, and the Service would lead to either.
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=f"{PATIENCE}s", update=f"{PATIENCE}s"),
            ),
        )
        host = k8s.core.v1.Service(
            name,
            metadata=_metadata(args, service.object_name),
            spec=k8s.core.v1.ServiceSpecArgs(
                type="ClusterIP",
                selector=service_labels(service.pipeline, service.name),
                ports=[k8s.core.v1.ServicePortArgs(port=service.port, target_port=service.port, protocol="TCP")],
            ),
            # Pulumi waits until a ready pod stands behind it. Declared before its pod, it would wait in vain where
            # one resource is created at a time.
            opts=wait_for(on_cluster, stateful_set),
        )
        k8s.policy.v1.PodDisruptionBudget(
            name,
            metadata=_metadata(args, service.object_name),
            spec=k8s.policy.v1.PodDisruptionBudgetSpecArgs(
                # Of one pod this refuses every eviction: a node is not drained for less money or a newer version
                # while all workers wait for the queue that ran there. A lost node takes it along all the same.
                min_available=1,
                selector=k8s.meta.v1.LabelSelectorArgs(
                    match_labels=service_labels(service.pipeline, service.name)
                ),
            ),
            opts=on_cluster,
        )
        self.ready: tuple[pulumi.Resource, ...] = (stateful_set, host)
        self.register_outputs({"address": service.address})


def _metadata(args: PipelineServiceArgs, name: str) -> k8s.meta.v1.ObjectMetaArgs:
    service = args.service
    return k8s.meta.v1.ObjectMetaArgs(
        name=name,
        namespace=args.workspace.namespace,
        labels=service_labels(service.pipeline, service.name),
    )


def _stateful_set_name(service: Service) -> str:
    """The name of the StatefulSet, which changes with what cannot be changed of one: its volume.

    Under the same name, Pulumi's preview of the change would fail: the provider, which adopts what is there, tries
    the new StatefulSet on the one that it is to replace (pulumi-kubernetes 4.32.0, seen November 2026).
    """
    class_ = service.platform.volume_class
    volume = f"{service.storage} {class_ if isinstance(class_, str) else ''}"
    mark = short_digest(hashlib.sha256(volume.encode()).hexdigest())
    return fit(f"{service.object_name}-{mark}", STATEFUL_SET_NAME_LIMIT)


def _stateful_set(
    service: Service, password_hash: pulumi.Input[str], image: PodImage | None
) -> k8s.apps.v1.StatefulSetSpecArgs:
    labels = service_labels(service.pipeline, service.name)
    return k8s.apps.v1.StatefulSetSpecArgs(
        replicas=1,
        service_name=service.object_name,
        selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
        # `OrderedReady` would keep a pod that never became ready: the next `up` then declares a corrected pod that
        # nobody starts (kubernetes.io/docs/concepts/workloads/controllers/statefulset, "Forced rollback").
        pod_management_policy="Parallel",
        update_strategy=k8s.apps.v1.StatefulSetUpdateStrategyArgs(type="RollingUpdate"),
        persistent_volume_claim_retention_policy=(
            k8s.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicyArgs(
                when_deleted="Delete", when_scaled="Retain"
            )
        ),
        template=k8s.core.v1.PodTemplateSpecArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels, annotations={PASSWORD_ANNOTATION: password_hash}),
            spec=_pod(service, image),
        ),
        volume_claim_templates=[
            k8s.core.v1.PersistentVolumeClaimArgs(
                metadata=k8s.meta.v1.ObjectMetaArgs(name=DATA, labels=labels),
                spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                    access_modes=["ReadWriteOnce"],
                    storage_class_name=service.platform.volume_class,
                    resources=k8s.core.v1.VolumeResourceRequirementsArgs(
                        requests={"storage": size_quantity(service.storage)}
                    ),
                ),
            )
        ],
    )


def _pod(service: Service, image: PodImage | None) -> k8s.core.v1.PodSpecArgs:
    return k8s.core.v1.PodSpecArgs(
        # The namespace's service account `default`, which has no identity in any cloud.
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=GRACE_PERIOD,
        security_context=pod_security(service.platform),
        **of_pool(service.pool),
        containers=inside(image, [_container(service)]),
        image_pull_secrets=pulled_with(image),
        volumes=[empty("tmp", service.resources.ephemeral_storage)],
    )


def _container(service: Service) -> k8s.core.v1.ContainerArgs:
    words = [word(argument, service.port, service.password_variable) for argument in service.arguments]
    return k8s.core.v1.ContainerArgs(
        name=service.name,
        image=service.image,
        image_pull_policy="IfNotPresent",
        command=words[:1],
        args=words[1:],
        working_dir=DATA_PATH,
        env=[
            *(k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in home().items()),
            password(service),
        ],
        ports=[k8s.core.v1.ContainerPortArgs(container_port=service.port, protocol="TCP")],
        # No liveness probe: a service that is only slow, since it rewrites its data or its node is busy, would be
        # killed with what it has not written yet. One that has ended is started again without a probe.
        startup_probe=_probe(service, LOADING // PROBE_PERIOD),
        readiness_probe=_probe(service, 3),
        resources=k8s.core.v1.ResourceRequirementsArgs(
            requests=requests(service.resources), limits=limits(service.resources)
        ),
        security_context=container_security(),
        # `pulumi up` shows the message of a pod that does not become ready: with this, the log's last lines.
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=[
            k8s.core.v1.VolumeMountArgs(name=DATA, mount_path=DATA_PATH),
            k8s.core.v1.VolumeMountArgs(name="tmp", mount_path=TEMPORARY),
        ],
    )


def _probe(service: Service, failures: int) -> k8s.core.v1.ProbeArgs:
    path = service.probe.path
    # The kubelet puts no variables in place of references here.
    command = [word.format_map({PORT: str(service.port)}) for word in service.probe.command]
    return k8s.core.v1.ProbeArgs(
        exec_=k8s.core.v1.ExecActionArgs(command=command) if command else None,
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=service.port) if path else None,
        tcp_socket=None if path or command else k8s.core.v1.TCPSocketActionArgs(port=service.port),
        period_seconds=PROBE_PERIOD,
        timeout_seconds=PROBE_PERIOD,
        failure_threshold=failures,
    )


def word(text: str, port: int, password_variable: str) -> str:
    """An argument of a service, as its pod template has it: the kubelet fills in the password."""
    mark = "\0"
    places = {DATA: DATA_PATH, PORT: str(port), PASSWORD: mark}
    *before, last = text.format_map(places).split(mark)
    variable = f"$({password_variable})"
    # A `$` in front of the variable is one in front of its parenthesis.
    return "".join(escaped(f"{part}(")[:-1] + variable for part in before) + escaped(last)


def services_of(steps: Iterable[Step]) -> list[Service]:
    """The services that ``steps`` connect to, each once."""
    spec = {
        (connect.platform.name, connect.object_name): connect
        for step in steps
        for connect in step.connects.values()
    }
    return list(spec.values())
