"""What leads people to an app on a cluster that is already there: an Ingress of its class, or OpenShift's Route.

A proxy in the cluster asks people to log in: neither can do so itself.
"""

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from infra.clouds.existing.settings import ExistingCluster
from infra.objects import rule
from infra.platform import Backend, IngressController, Opened
from infra.schema.ingress import ControllerSettings, TlsSettings
from infra.schema.request import Exposed

ROUTERS = {"policy-group.network.openshift.io/ingress": ""}
"""Labels of the namespace of OpenShift's routers. The one that stands for the nodes' network has them too, so that
routers which use that get in as well (`PolicyGroupLabelIngress` in OVN-Kubernetes' code, seen November 2026)."""

ROUTE_API = "route.openshift.io/v1"


def ingress_controller(cluster: ExistingCluster, exposed: Mapping[str, Exposed]) -> IngressController | None:
    """How people outside reach its apps, ``exposed`` by host; None where nothing carries out Ingress objects."""
    said = cluster.ingress
    if said is None:
        return IngressController(route, namespace=ROUTERS) if cluster.openshift else None
    return IngressController(
        lambda backend, opts: by_class(backend, said, exposed[backend.host].ingress.tls, opts),
        networks=said.networks,
        namespace={"kubernetes.io/metadata.name": said.namespace} if said.namespace else {},
    )


def by_class(
    backend: Backend, controller: ControllerSettings, tls: TlsSettings, opts: pulumi.ResourceOptions
) -> Opened:
    """An Ingress of the class that the cluster has, with a Secret or an issuer for its certificate."""
    annotations = {
        # For a controller that does not write its address into the Ingress `pulumi up` would wait ten minutes,
        # and fail.
        "pulumi.com/skipAwait": "true",
        **({"cert-manager.io/cluster-issuer": tls.issuer} if tls.issuer else {}),
    }
    secret = tls.secret or f"{backend.object_name}-tls"
    made = k8s.networking.v1.Ingress(
        backend.name,
        metadata=k8s.meta.v1.ObjectMetaArgs(**backend.metadata(annotations=annotations)),
        spec=k8s.networking.v1.IngressSpecArgs(
            ingress_class_name=controller.class_name,
            tls=[k8s.networking.v1.IngressTLSArgs(hosts=[backend.host], secret_name=secret)],
            rules=[rule(backend)],
        ),
        opts=opts,
    )
    return Opened(
        [made],
        f"the address of the controller of the class {controller.class_name}",
        made.status,
        certificate=f"the Secret {tls.secret} of the type kubernetes.io/tls has to be in the namespace "
        f"{backend.namespace}"
        if tls.secret
        else f"the ClusterIssuer {tls.issuer} issues it, once that record is there where its challenge is HTTP",
    )


def route(backend: Backend, opts: pulumi.ResourceOptions) -> Opened:
    """A Route of OpenShift, whose router has the certificate and sends nobody on without TLS."""
    made = [
        k8s.apiextensions.CustomResource(
            backend.name,
            api_version=ROUTE_API,
            kind="Route",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                # As long as a WebSocket may be silent, as a notebook's is.
                **backend.metadata(annotations={"haproxy.router.openshift.io/timeout": "1h"})
            ),
            spec={
                "host": backend.host,
                "to": {"kind": "Service", "name": backend.service, "weight": 100},
                "port": {"targetPort": "http"},
                "tls": {"termination": "edge", "insecureEdgeTerminationPolicy": "Redirect"},
                "wildcardPolicy": "None",
            },
            opts=opts,
        )
    ]
    # The Python SDK has no way to the status of a custom resource (pulumi_kubernetes 4.32).
    where = (
        f"the address of the router (`kubectl get route {backend.object_name} -o jsonpath={{.status.ingress}}`)"
    )
    return Opened(made, where)
