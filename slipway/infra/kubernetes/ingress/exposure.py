"""How people outside the cluster reach an app: an Ingress with TLS, a login, and who may connect.

The controller connects to a proxy, which passes on the requests of people who have logged in; nothing else
connects to the app.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
from pydantic import SecretStr

from slipway.infra.kubernetes.cluster.network_policy import allow_from, allow_to, network_policy, peer, select
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.ingress.login_proxy import CALLBACK, PORT, LoginProxyArgs, login_proxy, proxy_labels
from slipway.infra.kubernetes.labels import app_labels, step_labels
from slipway.infra.objects import wait_for
from slipway.infra.placed import App
from slipway.infra.platform import IngressController
from slipway.infra.schema.ingress import IngressSettings
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

PROXIES = 2
"""The last entries of `X-Forwarded-For` when a request reaches an app, which no visitor writes: the controller and
the proxy each append whom they talk to (oauth2-proxy v7.15, pkg/upstream/http.go, seen November 2026)."""


def leads_to(status: pulumi.Output[Any], otherwise: pulumi.Input[str]) -> pulumi.Output[str]:
    """What a DNS record of the host of an Ingress has to have, as its ``status`` says; else ``otherwise``.

    The status is as Pulumi saw it last: a controller that writes it later is seen after `pulumi refresh`.
    """
    return pulumi.Output.all(status, otherwise).apply(lambda both: _record(_addresses(both[0])) or both[1])


def _addresses(status: object) -> Sequence[Mapping[str, Any]]:
    """The SDK hands the status over as mappings that its own types are, with the keys as it writes them."""
    value: object = status
    for key in ("load_balancer", "ingress"):
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
    return cast("Sequence[Mapping[str, Any]]", value or ())


def _record(addresses: Sequence[Mapping[str, Any]]) -> str:
    names = [f"CNAME {address['hostname']}" for address in addresses if address.get("hostname")]
    return ", ".join(names or [f"A {address['ip']}" for address in addresses if address.get("ip")])


@dataclass(frozen=True)
class ExposureArgs:
    """``app`` with what opens it; ``service`` is its Service, and ``secrets`` are the stack's by name."""

    app: App
    workspace: Workspace
    service: k8s.core.v1.Service
    ingress: IngressSettings
    controller: IngressController
    secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])


class Exposure(pulumi.ComponentResource):
    """What lets people outside the cluster reach an app.

    ``ready`` are the resources behind which people reach it, ``url`` is the address at which they do, and
    ``to_do`` what is left for a person before they can: the DNS record first.
    """

    def __init__(self, name: str, args: ExposureArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:Exposure", name, {}, opts)
        workspace = args.workspace
        on_cluster = pulumi.ResourceOptions(
            parent=self,
            provider=workspace.platform.provider,
            depends_on=[*workspace.ready, args.service],
        )
        policies = _policies(name, args, on_cluster)
        behind = wait_for(on_cluster, *policies)
        secret = pulumi.Output.secret(args.secrets[args.ingress.login.oidc.client_secret].get_secret_value())
        proxy = login_proxy(name, LoginProxyArgs(args.app, workspace, args.ingress, secret), behind)
        opened = _ingress(name, args, proxy.service, wait_for(behind, *proxy.ready))
        self.ready: tuple[pulumi.Resource, ...] = (*policies, *proxy.ready, opened)
        self.url = f"https://{args.ingress.host}{args.app.declared.path}"
        self.to_do = _to_do(args, opened)
        self.register_outputs({"url": self.url})


def expose(
    name: str,
    app: App,
    workspace: Workspace,
    service: k8s.core.v1.Service,
    opts: pulumi.ResourceOptions | None = None,
    *,
    secrets: Mapping[str, SecretStr] = MappingProxyType({}),
) -> Exposure | None:
    """Declares what opens ``app`` to people outside the cluster; None where its settings name no ``ingress``.

    ``secrets`` are the stack's by name. Raises ValueError on a cluster without an Ingress controller, which the
    settings' own checks refuse before.
    """
    ingress = app.declared.placed_by.ingress
    if ingress is None:
        return None
    controller = workspace.platform.ingress_controller
    if controller is None:
        raise ValueError(f"cluster {workspace.platform.name} has no Ingress controller for {name}")
    args = ExposureArgs(app, workspace, service, ingress, controller, secrets)
    return Exposure(f"{name}-ingress", args, opts)


def _ingress(
    name: str, args: ExposureArgs, service: str, opts: pulumi.ResourceOptions
) -> k8s.networking.v1.Ingress:
    """All paths of the host lead to ``service``, the proxy's."""
    app, ingress = args.app, args.ingress
    backend = k8s.networking.v1.IngressBackendArgs(
        service=k8s.networking.v1.IngressServiceBackendArgs(
            name=service, port=k8s.networking.v1.ServiceBackendPortArgs(number=PORT)
        )
    )
    path = k8s.networking.v1.HTTPIngressPathArgs(path="/", path_type="Prefix", backend=backend)
    return k8s.networking.v1.Ingress(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=app.object_name,
            namespace=args.workspace.namespace,
            labels=step_labels(app.pipeline, app.name),
            annotations={
                # For a controller that does not write its address into the Ingress `pulumi up` would wait ten
                # minutes, and fail.
                "pulumi.com/skipAwait": "true",
                **({"cert-manager.io/cluster-issuer": ingress.tls.issuer} if ingress.tls.issuer else {}),
            },
        ),
        spec=k8s.networking.v1.IngressSpecArgs(
            ingress_class_name=args.controller.class_name,
            tls=[
                k8s.networking.v1.IngressTLSArgs(
                    hosts=[ingress.host], secret_name=ingress.tls.secret or f"{app.object_name}-tls"
                )
            ],
            rules=[
                k8s.networking.v1.IngressRuleArgs(
                    host=ingress.host, http=k8s.networking.v1.HTTPIngressRuleValueArgs(paths=[path])
                )
            ],
        ),
        opts=opts,
    )


def _to_do(args: ExposureArgs, opened: k8s.networking.v1.Ingress) -> list[pulumi.Input[str]]:
    """What the stack cannot do for people to get in."""
    host, tls = args.ingress.host, args.ingress.tls
    record = leads_to(opened.status, f"the address of the controller of the class {args.controller.class_name}")
    certificate = (
        f"the Secret {tls.secret} of the type kubernetes.io/tls has to be in the namespace "
        f"{args.workspace.namespace}"
        if tls.secret
        else f"the ClusterIssuer {tls.issuer} issues it, once that record is there where its challenge is HTTP"
    )
    return [
        pulumi.Output.concat(f"the DNS record of {host}, which is for you to make: ", record),
        f"the certificate: {certificate}",
        "whoever asks for the login has to have this callback for the client "
        f"{args.ingress.login.oidc.client_id}: https://{host}{CALLBACK}",
    ]


def _policies(name: str, args: ExposureArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The controller may connect to the proxy, and that to the app; nothing else may."""
    app = args.app
    of_app, of_proxy, port = app_labels(app.pipeline, app.name), proxy_labels(app), app.declared.port
    policies: list[pulumi.Resource] = [
        network_policy(
            f"{name}-login",
            _metadata(args, "login", of_proxy),
            select(of_proxy),
            ["Ingress"],
            opts,
            ingress=[allow_from(_peers(args.controller), PORT)],
        ),
        network_policy(
            name,
            _metadata(args, "from-login", of_app),
            select(of_app),
            ["Ingress"],
            opts,
            ingress=[allow_from([peer(select(of_proxy))], port)],
        ),
    ]
    if args.workspace.limits_egress:
        # Where pods may connect to everything, a policy that allows this connection would forbid all others.
        policies.append(
            network_policy(
                f"{name}-to-app",
                _metadata(args, "to-app", of_proxy),
                select(of_proxy),
                ["Egress"],
                opts,
                egress=[allow_to([peer(select(of_app))], port)],
            )
        )
    return policies


def _metadata(args: ExposureArgs, word: str, labels: Mapping[str, str]) -> k8s.meta.v1.ObjectMetaArgs:
    name = fit(f"{args.app.object_name}-{word}", KUBERNETES_NAME_LIMIT)
    return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=args.workspace.namespace, labels=labels)


def _peers(controller: IngressController) -> list[k8s.networking.v1.NetworkPolicyPeerArgs]:
    """The controller, as a peer: its addresses, or all pods of its namespace.

    Raises ValueError where it has neither: a rule without peers lets everybody in.
    """
    peers = [
        k8s.networking.v1.NetworkPolicyPeerArgs(ip_block=k8s.networking.v1.IPBlockArgs(cidr=network))
        for network in controller.networks
    ]
    if controller.namespace:
        namespace = select({"kubernetes.io/metadata.name": controller.namespace})
        peers.append(k8s.networking.v1.NetworkPolicyPeerArgs(namespace_selector=namespace))
    if not peers:
        raise ValueError("the controller has neither networks nor a namespace")
    return peers
