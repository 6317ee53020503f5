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

from infra.kubernetes.ingress.login_proxy import CALLBACK, PORT, LoginProxyArgs, login_proxy, proxy_labels
from infra.kubernetes.labels import app_labels, step_labels
from infra.kubernetes.workspace import Workspace
from infra.placed import App
from infra.platform import Backend, IngressController, Opened
from infra.schema.ingress import IngressSettings
from infra.schema.names import KUBERNETES_NAME_LIMIT, fit

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
    """``app`` with what opens it; ``service`` is its Service, and ``secrets`` are the stack's by name."""

    app: App
    workspace: Workspace
    service: k8s.core.v1.Service
    ingress: IngressSettings
    controller: IngressController
    secrets: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])

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
        behind = pulumi.ResourceOptions.merge(on_cluster, pulumi.ResourceOptions(depends_on=policies))
        backend, before = _backend(name, args, behind)
        after = pulumi.ResourceOptions.merge(behind, pulumi.ResourceOptions(depends_on=before))
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
) -> Exposure | None:
    """Declares what opens ``app`` to people outside the cluster; None where its settings name no ``ingress``.

    ``secrets`` are the stack's by name. Raises ValueError on a cluster without an Ingress controller; the settings' own checks
    come first.
    """
    ingress = app.declared.placed_by.ingress
    if ingress is None:
        return None
    controller = workspace.platform.ingress_controller
    if controller is None:
        raise ValueError(f"cluster {workspace.platform.name} has no Ingress controller for {name}")
    args = ExposureArgs(app, workspace, service, ingress, controller, secrets)
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
    )
    if not args.by_proxy:
        return backend, []
    if login is None or secret is None:
        raise ValueError(f"nothing asks people to log in at {host}")
    made = login_proxy(name, LoginProxyArgs(app, args.workspace, args.ingress, login, secret), opts)
    return replace(backend, service=made.service, port=PORT, probe="/ping"), made.ready


def _policies(name: str, args: ExposureArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The controller may connect to what asks for the login, and that to the app; nothing else may."""
    app, way_in = args.app, _peers(args.controller)
    of_app, port = app_labels(app.pipeline, app.name), app.declared.port
    if not args.by_proxy:
        metadata = _metadata(args, "ingress", of_app)
        return [_way_in(name, metadata, of_app, peers=way_in, port=port, opts=opts)]
    of_proxy = proxy_labels(app)
    to_proxy, to_app = _metadata(args, "login", of_proxy), _metadata(args, "from-login", of_app)
    policies: list[pulumi.Resource] = [
        _way_in(f"{name}-login", to_proxy, of_proxy, peers=way_in, port=PORT, opts=opts),
        _way_in(name, to_app, of_app, peers=[_pods(of_proxy)], port=port, opts=opts),
    ]
    if args.workspace.limits_egress:
        # Where pods may connect to everything, a policy that allows this connection would forbid all others.
        policies.append(_way_out(name, args, of_proxy, _pods(of_app), opts))
    return policies


def _way_in(
    name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    pods: Mapping[str, str],
    *,
    peers: Sequence[k8s.networking.v1.NetworkPolicyPeerArgs],
    port: int,
    opts: pulumi.ResourceOptions,
) -> k8s.networking.v1.NetworkPolicy:
    """Lets ``peers`` connect to one port of ``pods``."""
    return k8s.networking.v1.NetworkPolicy(
        name,
        metadata=metadata,
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pods),
            policy_types=["Ingress"],
            ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=list(peers), ports=[_port(port)])],
        ),
        opts=opts,
    )


def _way_out(
    name: str,
    args: ExposureArgs,
    pods: Mapping[str, str],
    peer: k8s.networking.v1.NetworkPolicyPeerArgs,
    opts: pulumi.ResourceOptions,
) -> k8s.networking.v1.NetworkPolicy:
    """Lets ``pods`` connect to the app, beside what every pod may connect to."""
    return k8s.networking.v1.NetworkPolicy(
        f"{name}-to-app",
        metadata=_metadata(args, "to-app", pods),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pods),
            policy_types=["Egress"],
            egress=[
                k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=[peer], ports=[_port(args.app.declared.port)])
            ],
        ),
        opts=opts,
    )


def _metadata(args: ExposureArgs, word: str, labels: Mapping[str, str]) -> k8s.meta.v1.ObjectMetaArgs:
    name = fit(f"{args.app.object_name}-{word}", KUBERNETES_NAME_LIMIT)
    return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=args.workspace.namespace, labels=labels)


def _port(number: int) -> k8s.networking.v1.NetworkPolicyPortArgs:
    return k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=number)


def _pods(labels: Mapping[str, str]) -> k8s.networking.v1.NetworkPolicyPeerArgs:
    return k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels))


def _peers(controller: IngressController) -> list[k8s.networking.v1.NetworkPolicyPeerArgs]:
    """The controller, as a peer: its addresses, or all pods of its namespace.

    Raises ValueError where it has neither: a rule without peers lets everybody in.
    """
    peers = [
        k8s.networking.v1.NetworkPolicyPeerArgs(ip_block=k8s.networking.v1.IPBlockArgs(cidr=network))
        for network in controller.networks
    ]
    if controller.namespace:
        selector = k8s.meta.v1.LabelSelectorArgs(match_labels=controller.namespace)
        peers.append(k8s.networking.v1.NetworkPolicyPeerArgs(namespace_selector=selector))
    if not peers:
        raise ValueError("the controller has neither networks nor a namespace")
    return peers
