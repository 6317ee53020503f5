"""What leads people to an app on GKE: a Gateway of GKE's own controller, with Identity-Aware Proxy.

Chosen over an Ingress with BackendConfig and ManagedCertificate, which are older: GKE's policies name a Service,
so that an app's Service has no annotation of a cloud's, and certificates of Certificate Manager are there before
the load balancer is (docs.cloud.google.com/kubernetes-engine/docs/concepts/gateway-api, seen November 2026).
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from slipway.infra.clouds.gcp.network import resource_name
from slipway.infra.objects import wait_for
from slipway.infra.platform import Backend, IngressController, Opened
from slipway.infra.schema.ingress import IapSettings
from slipway.infra.schema.names import short_digest
from slipway.infra.schema.request import Exposed

GATEWAY_API = "gateway.networking.k8s.io/v1"
GKE_API = "networking.gke.io/v1"

GATEWAY_CLASS = "gke-l7-global-external-managed"
"""A global external Application Load Balancer: of GKE's classes one with Identity-Aware Proxy and certificate maps
(docs.cloud.google.com/kubernetes-engine/docs/how-to/gatewayclass-capabilities, seen November 2026)."""

CONNECTION = 3600
"""Seconds for which Google's load balancer keeps a WebSocket open, as a notebook has; its default is 30
(docs.cloud.google.com/load-balancing/docs/backend-service, "Backend service timeout", seen November 2026)."""


@dataclass(frozen=True)
class HostedParts:
    """What Google has for a host: names of an address, a certificate map and a TLS policy, and who gets in.

    ``number`` is the address itself. ``iap`` is None where a proxy in the cluster asks people to log in.
    """

    address: pulumi.Input[str]
    number: pulumi.Input[str]
    certificates: pulumi.Input[str]
    tls_policy: pulumi.Input[str]
    iap: IapSettings | None


def gateway(backend: Backend, made: HostedParts, opts: pulumi.ResourceOptions) -> Opened:
    """A Gateway of GKE with what Google has made for the host, and with Identity-Aware Proxy unless a proxy stands
    behind it.

    Nothing listens at port 80. The policies come before the route: a Service that is open for a moment is open.
    For the same reason those of the proxy have names of their own: where the login becomes another one, a policy
    that moved to the proxy's Service would leave the app's open, until the route has moved, too.
    """
    name, word = backend.name, "login" if backend.proxied else ""
    of = f"{name}-{word}" if word else name
    policies = [*_iap_client(backend, made, opts)]
    policies.append(
        _custom(
            f"{of}-backend",
            (GKE_API, "GCPBackendPolicy"),
            _metadata(backend.metadata(word)),
            {"default": {"timeoutSec": CONNECTION, **_iap(backend, made)}, "targetRef": _target(backend)},
            wait_for(opts, *policies),
        )
    )
    check = {"type": "HTTP", "httpHealthCheck": {"port": backend.port, "requestPath": backend.probe}}
    if backend.probe is None:
        check = {"type": "TCP", "tcpHealthCheck": {"port": backend.port}}
    health = _custom(
        f"{of}-health",
        (GKE_API, "HealthCheckPolicy"),
        _metadata(backend.metadata(word)),
        {"default": {"config": check}, "targetRef": _target(backend)},
        opts,
    )
    after = wait_for(opts, *policies, health)
    opened = _custom(
        name,
        (GATEWAY_API, "Gateway"),
        _metadata(backend.metadata(annotations={"networking.gke.io/certmap": made.certificates})),
        {
            "gatewayClassName": GATEWAY_CLASS,
            "addresses": [{"type": "NamedAddress", "value": made.address}],
            "listeners": [
                {
                    "name": "https",
                    "protocol": "HTTPS",
                    "port": 443,
                    "hostname": backend.host,
                    "allowedRoutes": {"namespaces": {"from": "Same"}},
                }
            ],
        },
        after,
    )
    tls = _custom(
        f"{name}-tls",
        (GKE_API, "GCPGatewayPolicy"),
        _metadata(backend.metadata()),
        {
            "default": {"sslPolicy": made.tls_policy},
            "targetRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": backend.object_name},
        },
        wait_for(after, opened),
    )
    route = _custom(
        f"{name}-route",
        (GATEWAY_API, "HTTPRoute"),
        _metadata(backend.metadata()),
        {
            "parentRefs": [{"name": backend.object_name}],
            "hostnames": [backend.host],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "backendRefs": [{"name": backend.service, "port": backend.port}],
                }
            ],
        },
        wait_for(after, opened, tls),
    )
    client = made.iap and made.iap.client_id
    return Opened(
        [*policies, health, opened, tls, route],
        pulumi.Output.concat("A ", made.number),
        callback=f"https://iap.googleapis.com/v1/oauth/clientIds/{client}:handleRedirect" if client else "",
        certificate="Google issues it once that record is there, which takes up to an hour",
    )


def _iap(backend: Backend, made: HostedParts) -> dict[str, object]:
    """Identity-Aware Proxy, with the OAuth client that Google manages or one of the stack's own.

    The ID stands in the policy, and the Secret has one key (ingress-gce's `GCPBackendPolicy`, seen November 2026).
    """
    iap = made.iap
    if iap is None:
        return {}
    if iap.client_id is None:
        return {"iap": {"enabled": True}}
    secret = {"name": f"{backend.object_name}-iap"}
    return {"iap": {"enabled": True, "clientID": iap.client_id, "oauth2ClientSecret": secret}}


def _iap_client(backend: Backend, made: HostedParts, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    iap = made.iap
    if iap is None or iap.client_id is None or backend.secret is None:
        return []
    return [
        k8s.core.v1.Secret(
            f"{backend.name}-iap",
            metadata=_metadata(backend.metadata("iap")),
            type="Opaque",
            string_data={"client_secret": backend.secret},
            opts=opts,
        )
    ]


def _target(backend: Backend) -> dict[str, str]:
    """The Service, as a policy of GKE refers to it."""
    return {"group": "", "kind": "Service", "name": backend.service}


def _metadata(values: Any) -> k8s.meta.v1.ObjectMetaArgs:
    return k8s.meta.v1.ObjectMetaArgs(**values)


def _custom(
    name: str,
    kind: tuple[str, str],
    metadata: k8s.meta.v1.ObjectMetaArgs,
    spec: Mapping[str, object],
    opts: pulumi.ResourceOptions,
) -> k8s.apiextensions.CustomResource:
    return k8s.apiextensions.CustomResource(
        name, api_version=kind[0], kind=kind[1], metadata=metadata, spec=dict(spec), opts=opts
    )


# What Google's load balancer has for an app that people reach: an address, a certificate, and who gets in.


DATA = Path(__file__).parent / "data" / "ingress.toml"

NAME_LIMIT = 63
"""Of addresses, certificates and TLS policies (RFC 1035, as each of their references says)."""

ENTRIES = 2
"""The visitor's address and that of the forwarding rule: "<unverified IP(s)>, <immediate client IP>, <global
forwarding rule external IP>" (Google's documentation, quoted at serverfault.com/questions/908724, seen November
2026)."""

ACCESS_ROLE = "roles/iap.httpsResourceAccessor"
"""Lets people through Identity-Aware Proxy."""


@dataclass(frozen=True)
class IngressArgs:
    """``exposed`` are the apps of one cluster that people reach; ``after`` is what has to be there first."""

    project: str
    exposed: Sequence[Exposed]
    after: Sequence[pulumi.Resource]


def ingress_controllers(clusters: Mapping[str, IngressArgs]) -> dict[str, IngressController]:
    """Declares, for the apps of each cluster that people reach, what Google's load balancers have for them.

    A cluster without such an app is not in the result.
    """
    open_ones = {name: args for name, args in clusters.items() if args.exposed}
    if not open_ones:
        return {}
    first = next(iter(open_ones.values()))
    policy = gcp.compute.SSLPolicy(
        "ingress",
        name=resource_name(NAME_LIMIT, "ingress"),
        project=first.project,
        profile="MODERN",
        min_tls_version="TLS_1_2",
        opts=pulumi.ResourceOptions(depends_on=first.after),
    )
    return {name: _ingress_controller(args, policy) for name, args in open_ones.items()}


def _ingress_controller(args: IngressArgs, policy: gcp.compute.SSLPolicy) -> IngressController:
    opts = pulumi.ResourceOptions(depends_on=args.after)
    parts: dict[str, HostedParts] = {}
    ready: list[pulumi.Resource] = [policy]
    for app in args.exposed:
        hosted, made = _hosted_parts(args, app, policy, opts)
        parts[app.ingress.host] = hosted
        ready += [*made, *_grants(args, app, opts)]
    networks = tomllib.loads(DATA.read_text(encoding="utf-8"))["networks"]
    return IngressController(
        lambda backend, opts: gateway(backend, parts[backend.host], opts),
        frozenset(host for host, hosted in parts.items() if hosted.iap),
        networks,
        outside=True,
        ready=ready,
        entries=ENTRIES,
    )


def _hosted_parts(
    args: IngressArgs, app: Exposed, policy: gcp.compute.SSLPolicy, opts: pulumi.ResourceOptions
) -> tuple[HostedParts, list[pulumi.Resource]]:
    name, called = f"ingress-{app.name}", resource_name(NAME_LIMIT, "ingress", app.name)
    address = gcp.compute.GlobalAddress(
        # Its description would replace it: nothing of it depends on the host, whose record it stands in.
        name,
        name=called,
        project=args.project,
        description=f"People reach {app.name} here",
        opts=opts,
    )
    # Of another host both are made anew, and Google takes no two of one name.
    mark = short_digest(sha256(app.ingress.host.encode()).hexdigest())
    host = resource_name(NAME_LIMIT, "ingress", app.name, mark)
    certificate = gcp.certificatemanager.Certificate(
        name,
        name=host,
        project=args.project,
        managed=gcp.certificatemanager.CertificateManagedArgs(domains=[app.ingress.host]),
        opts=opts,
    )
    certificates = gcp.certificatemanager.CertificateMap(name, name=called, project=args.project, opts=opts)
    entry = gcp.certificatemanager.CertificateMapEntry(
        name,
        name=host,
        project=args.project,
        map=certificates.name,
        certificates=[certificate.id],
        hostname=app.ingress.host,
        opts=opts,
    )
    hosted = HostedParts(address.name, address.address, certificates.name, policy.name, app.ingress.login.iap)
    return hosted, [address, entry]


def _grants(args: IngressArgs, app: Exposed, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Lets the members in at this host alone. A grant on the backend would be narrower, but its name is the
    controller's, and not known before.

    Identity-Aware Proxy knows conditions on a request's host (docs.cloud.google.com/iap/docs/
    cloud-iap-context-aware-access-howto, seen November 2026).
    """
    login = app.ingress.login.iap
    if login is None:
        return []
    condition = gcp.iap.WebIamMemberConditionArgs(
        title=f"slipway-{app.name}",
        description=f"The app {app.name}",
        expression=f'request.host == "{app.ingress.host}"',
    )
    return [
        gcp.iap.WebIamMember(
            f"ingress-{app.name}-{member}",
            project=args.project,
            role=ACCESS_ROLE,
            member=member,
            condition=condition,
            opts=opts,
        )
        for member in dict.fromkeys(login.members)
    ]
