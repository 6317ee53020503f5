"""What answers Prometheus for a service that does not itself: a pod beside it, so that switching metrics on or off
does not start the service anew."""

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.labels import service_labels
from infra.kubernetes.network_policy import rule
from infra.kubernetes.pod import (
    container_security,
    limits,
    password_secret_name,
    pod_security,
    requests,
    tolerations,
)
from infra.kubernetes.workspace import Workspace
from infra.schema.names import KUBERNETES_NAME_LIMIT, fit
from infra.service import ADDRESS, PASSWORD, Service

PORT_NAME = "metrics"

DNS = 53


def component(service: Service) -> str:
    """What the exporter of ``service`` is called in its pipeline."""
    return f"{service.name}-exporter"


def object_name(service: Service) -> str:
    """Name of its Kubernetes objects."""
    return fit(f"{service.object_name}-exporter", KUBERNETES_NAME_LIMIT)


def exporter_labels(service: Service) -> dict[str, str]:
    """Labels of its pods. They have the label of a service, so that the network policies for steps do not hold for
    them."""
    return service_labels(service.pipeline, component(service))


def declare_exporter(
    name: str, service: Service, workspace: Workspace, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares the exporter of ``service``, and that it connects to it and nothing else."""
    exporter, asked = service.exporter, service.exporter_requests
    assert exporter is not None
    assert asked is not None
    labels = exporter_labels(service)
    metadata = k8s.meta.v1.ObjectMetaArgs(name=object_name(service), namespace=workspace.namespace, labels=labels)
    of_service = k8s.meta.v1.LabelSelectorArgs(match_labels=service_labels(service.pipeline, service.name))
    port = k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=service.port)
    names = [rule(each) for each in service.platform.egress if each.namespace or DNS in each.ports]
    outward = k8s.networking.v1.NetworkPolicy(
        f"{name}-egress",
        metadata=metadata,
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
            policy_types=["Ingress", "Egress"],
            egress=[
                k8s.networking.v1.NetworkPolicyEgressRuleArgs(
                    to=[k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=of_service)], ports=[port]
                ),
                *names,
            ],
        ),
        opts=opts,
    )
    inward = k8s.networking.v1.NetworkPolicy(
        f"{name}-of-service",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=fit(f"{object_name(service)}-access", KUBERNETES_NAME_LIMIT),
            namespace=workspace.namespace,
            labels=labels,
        ),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=of_service,
            policy_types=["Ingress"],
            ingress=[
                k8s.networking.v1.NetworkPolicyIngressRuleArgs(
                    from_=[
                        k8s.networking.v1.NetworkPolicyPeerArgs(
                            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels)
                        )
                    ],
                    ports=[port],
                )
            ],
        ),
        opts=opts,
    )
    deployment = k8s.apps.v1.Deployment(
        name,
        metadata=metadata,
        spec=k8s.apps.v1.DeploymentSpecArgs(
            replicas=1,
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
            strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
            template=k8s.core.v1.PodTemplateSpecArgs(
                metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
                spec=k8s.core.v1.PodSpecArgs(
                    automount_service_account_token=False,
                    enable_service_links=False,
                    security_context=pod_security(service.platform),
                    node_selector=dict(service.pool.selector),
                    tolerations=tolerations(service.pool) or None,
                    containers=[
                        k8s.core.v1.ContainerArgs(
                            name="exporter",
                            image=exporter.image,
                            image_pull_policy="IfNotPresent",
                            args=[each.format_map({ADDRESS: service.address}) for each in exporter.arguments],
                            env=[
                                k8s.core.v1.EnvVarArgs(
                                    name=exporter.password_variable,
                                    value_from=k8s.core.v1.EnvVarSourceArgs(
                                        secret_key_ref=k8s.core.v1.SecretKeySelectorArgs(
                                            name=password_secret_name(service), key=PASSWORD
                                        )
                                    ),
                                )
                            ],
                            ports=[k8s.core.v1.ContainerPortArgs(name=PORT_NAME, container_port=exporter.port)],
                            readiness_probe=k8s.core.v1.ProbeArgs(
                                http_get=k8s.core.v1.HTTPGetActionArgs(path="/health", port=exporter.port)
                            ),
                            resources=k8s.core.v1.ResourceRequirementsArgs(
                                requests=requests(asked), limits=limits(asked)
                            ),
                            security_context=container_security(),
                        )
                    ],
                ),
            ),
        ),
        opts=pulumi.ResourceOptions.merge(
            opts,
            pulumi.ResourceOptions(
                depends_on=[outward, inward, *service.pool.resources],
                # Nothing of a run needs it: an image that does not come is no reason to hold up steps.
                custom_timeouts=pulumi.CustomTimeouts(create="20m", update="20m"),
            ),
        ),
    )
    return [deployment]
