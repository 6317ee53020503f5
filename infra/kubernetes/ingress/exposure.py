"""How people outside the cluster reach an app: a load balancer or a router, TLS, a login, and who may connect.

Where the login is the load balancer's own, that connects to the app. Else it connects to a proxy, which passes on
the requests of people who have logged in; nothing else connects to the app.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from slipway.infra.platform import Backend, IngressController, Opened
from slipway.infra.schema.ingress import IngressSettings
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

# Where a load balancer or a controller says that an Ingress is reached.


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
    """``app`` with what opens it; ``service`` is its Service, and ``secrets`` are the stack's by name. ``alone``:
    nobody waits for the app.
    """

    app: App
    workspace: Workspace
    service: k8s.core.v1.Service
    ingress: IngressSettings
    controller: IngressController
    secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])
    alone: bool = False

    @property
    def by_proxy(self) -> bool:
        """Whether a proxy in the cluster asks people to log in."""
        return self.ingress.host not in self.controller.asks


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
            depends_on=[*workspace.ready, *args.controller.ready, args.service],
        )
        policies = _policies(name, args, on_cluster)
        behind = wait_for(on_cluster, *policies)
        backend, before = _backend(name, args, behind)
        after = wait_for(behind, *before)
        opened = args.controller.open(backend, after)
        self.ready: tuple[pulumi.Resource, ...] = (*policies, *before, *opened.resources)
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
    alone: bool = False,
) -> Exposure | None:
    """Declares what opens ``app`` to people outside the cluster; None where its settings name no ``ingress``.

    ``secrets`` are the stack's by name. ``alone``: nobody waits for the app. Raises ValueError on a cluster
    without an Ingress controller, which the settings' own checks refuse before.
    """
    ingress = app.declared.placed_by.ingress
    if ingress is None:
        return None
    controller = workspace.platform.ingress_controller
    if controller is None:
        raise ValueError(f"cluster {workspace.platform.name} has no Ingress controller for {name}")
    args = ExposureArgs(app, workspace, service, ingress, controller, secrets, alone)
    return Exposure(f"{name}-ingress", args, opts)


def proxied(app: App) -> bool:
    """Whether a proxy with a Service of its own asks people to log in to ``app``."""
    ingress, controller = app.declared.placed_by.ingress, app.platform.ingress_controller
    return ingress is not None and controller is not None and ingress.host not in controller.asks


def proxies(app: App) -> int:
    """The entries that stand at the end of `X-Forwarded-For` when a request reaches ``app``: none are a visitor's
    own. The proxy appends whom it talks to (oauth2-proxy v7.15, pkg/upstream/http.go, seen November 2026).
    """
    ingress, controller = app.declared.placed_by.ingress, app.platform.ingress_controller
    return controller.entries + int(proxied(app)) if ingress and controller else 0


def _to_do(args: ExposureArgs, opened: Opened) -> list[pulumi.Input[str]]:
    """What the stack cannot do for people to get in."""
    host, login = args.ingress.host, args.ingress.login
    record = opened.leads_to if opened.status is None else leads_to(opened.status, opened.leads_to)
    lines: list[pulumi.Input[str]] = [
        pulumi.Output.concat(f"the DNS record of {host}, which is for you to make: ", record),
    ]
    if opened.certificate:
        lines.append(f"the certificate: {opened.certificate}")
    callback = f"https://{host}{CALLBACK}" if args.by_proxy else opened.callback
    if callback:
        known_as = login.oidc or login.cognito or login.iap
        client = f"the client {known_as.client_id}" if known_as and known_as.client_id else "the client"
        lines.append(f"whoever asks for the login has to have this callback for {client}: {callback}")
    return lines


def _secret(args: ExposureArgs) -> pulumi.Output[str] | None:
    name = args.ingress.login.secret
    return pulumi.Output.secret(args.secrets[name].get_secret_value()) if name else None


def _backend(
    name: str, args: ExposureArgs, opts: pulumi.ResourceOptions
) -> tuple[Backend, Sequence[pulumi.Resource]]:
    """What people are led to, and the resources behind it: the app, or the proxy in front of it."""
    app, host, login = args.app, args.ingress.host, args.ingress.login.oidc
    labels, secret = step_labels(app.pipeline, app.name), _secret(args)
    backend = Backend(
        name=name,
        object_name=app.object_name,
        namespace=args.workspace.namespace,
        labels=labels,
        host=host,
        path=app.declared.path,
        service=app.object_name,
        port=app.declared.port,
        probe=app.declared.probe.path,
        proxied=args.by_proxy,
        secret=secret,
        alone=args.alone,
    )
    if not args.by_proxy:
        return backend, []
    if login is None or secret is None:
        raise ValueError(f"nothing asks people to log in at {host}")
    made = login_proxy(name, LoginProxyArgs(app, args.workspace, args.ingress, login, secret), opts)
    return replace(backend, service=made.service, port=PORT, probe="/ping"), made.ready


def _policies(name: str, args: ExposureArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The controller may connect to what asks for the login, and that to the app; nothing else may."""
    app, controller = args.app, _peers(args.controller)
    of_app, port = app_labels(app.pipeline, app.name), app.declared.port
    if not args.by_proxy:
        inwards = [allow_from(controller, port)]
        return [
            network_policy(
                name, _metadata(args, "ingress", of_app), select(of_app), ["Ingress"], opts, ingress=inwards
            )
        ]
    of_proxy = proxy_labels(app)
    policies: list[pulumi.Resource] = [
        network_policy(
            f"{name}-login",
            _metadata(args, "login", of_proxy),
            select(of_proxy),
            ["Ingress"],
            opts,
            ingress=[allow_from(controller, PORT)],
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
        peers.append(k8s.networking.v1.NetworkPolicyPeerArgs(namespace_selector=select(controller.namespace)))
    if not peers:
        raise ValueError("the controller has neither networks nor a namespace")
    return peers
