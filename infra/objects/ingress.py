"""What every Ingress says alike: the host, and the Service to which all of its paths lead."""

import pulumi_kubernetes as k8s

from infra.platform import Door


def rule(door: Door) -> k8s.networking.v1.IngressRuleArgs:
    """All paths of the host of ``door`` lead to its Service."""
    backend = k8s.networking.v1.IngressBackendArgs(
        service=k8s.networking.v1.IngressServiceBackendArgs(
            name=door.service, port=k8s.networking.v1.ServiceBackendPortArgs(number=door.port)
        )
    )
    path = k8s.networking.v1.HTTPIngressPathArgs(path="/", path_type="Prefix", backend=backend)
    return k8s.networking.v1.IngressRuleArgs(
        host=door.host, http=k8s.networking.v1.HTTPIngressRuleValueArgs(paths=[path])
    )
