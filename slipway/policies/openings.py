"""What people outside a cluster reach through an Ingress, a Gateway or a Route, with which TLS and login.

It reads the objects that the program declares, and those of others. An unknown login counts as none. Services with
an address of their own are the subject of `slipway.policies.security`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.evaluated.operations import GOES
from slipway.evaluated.workloads import PATCH, as_patched
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    Properties,
    Resource,
    Stack,
    at,
    is_true,
    json_document,
    known,
    mapping,
    mappings,
    strings,
    texts,
)
from slipway.policies.changes import Change
from slipway.policies.services import list_servers

INGRESS, ROUTE, GATEWAY = "Ingress", "Route", "Gateway"
BY_GATEWAY = ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")
"""The kinds of what leads from a Gateway to Services (gateway-api.sigs.k8s.io/api-types, seen November 2026)."""

GROUPS = {
    INGRESS: "networking.k8s.io",
    **dict.fromkeys((*BY_GATEWAY, GATEWAY), "gateway.networking.k8s.io"),
    ROUTE: "route.openshift.io",
}
"""The API group of each kind."""

BALANCER = "alb.ingress.kubernetes.io/"
"""What the annotations of an Ingress begin with by which a load balancer has a certificate and its own login."""

PROXIES = ("oauth2-proxy", "pomerium", "vouch-proxy", "authelia")
"""Parts of the names of images that ask people to log in before they pass a request on."""

AUTH_ANNOTATIONS = ("nginx.ingress.kubernetes.io/auth-url", "haproxy-ingress.github.io/auth-url")
"""Annotations by which a controller asks another program whether somebody has logged in (the controllers' pages,
seen November 2026)."""


@dataclass(frozen=True)
class Opening:
    """The access that one object opens. ``tls`` and ``login`` name their source; empty if there is none."""

    resource: Resource
    hosts: tuple[str, ...]
    tls: str
    login: str

    @property
    def exposure(self) -> tuple[tuple[str, ...], str, str]:
        """The hosts, the TLS and the login: what a finding names."""
        return self.hosts, self.tls, self.login

    @property
    def address(self) -> str:
        """Where people come to it."""
        scheme = "https" if self.tls else "http"
        return ", ".join(f"{scheme}://{host}" for host in self.hosts) or "every host name"

    @property
    def guard(self) -> str:
        """How it is guarded, in words."""
        return f"{self.login or 'WITHOUT A LOGIN'}; {self.tls or 'WITHOUT TLS'}"


def openings(stack: Stack) -> list[Opening]:
    """Everything in ``stack`` that leads people from outside to a Service."""
    return [
        *(_ingress(resource, stack) for resource in _objects_of_kind(stack, INGRESS)),
        *(_by_gateway(resource, stack) for kind in BY_GATEWAY for resource in _objects_of_kind(stack, kind)),
        *(_route(resource, stack) for resource in _objects_of_kind(stack, ROUTE)),
    ]


def _objects_of_kind(stack: Stack, kind: str) -> list[Resource]:
    """The objects of a kind with their patches, in whichever version of its API."""
    start, ends = f"kubernetes:{GROUPS[kind]}/", (f":{kind}", f":{kind}{PATCH}")
    declared = [resource.type for resource in stack.resources.values() if resource.type.startswith(start)]
    types = dict.fromkeys(type_.removesuffix(PATCH) for type_ in declared if type_.endswith(ends))
    return [*as_patched(stack, *types)]


def _ingress(resource: Resource, stack: Stack) -> Opening:
    spec = mapping(resource.properties.get("spec"))
    annotations = strings(at(resource.properties, "metadata", "annotations"))
    rules = mappings(spec.get("rules"))
    services = [
        at(path, "backend", "service", "name") for rule in rules for path in mappings(at(rule, "http", "paths"))
    ]
    services.append(at(spec, "defaultBackend", "service", "name"))
    login = _of_balancer(annotations) or next(
        (f"asks {annotations[annotation]}" for annotation in AUTH_ANNOTATIONS if annotations.get(annotation)),
        "",
    )
    return Opening(
        resource,
        tuple(str(rule["host"]) for rule in rules if isinstance(rule.get("host"), str)),
        _tls_of_ingress(spec, annotations),
        login or _proxy_guards(resource, services, stack),
    )


def _tls_of_ingress(spec: Properties, annotations: dict[str, str]) -> str:
    if certificate := annotations.get(f"{BALANCER}certificate-arn"):
        # Without the ports, it listens to HTTPS alone once it has a certificate.
        plain = '"HTTP"' in annotations.get(f"{BALANCER}listen-ports", "")
        return "" if plain and f"{BALANCER}ssl-redirect" not in annotations else f"TLS by {certificate}"
    secrets = [str(entry.get("secretName") or "the controller's own") for entry in mappings(spec.get("tls"))]
    return f"TLS by the Secret {', '.join(secrets)}" if secrets else ""


def _of_balancer(annotations: dict[str, str]) -> str:
    kind = annotations.get(f"{BALANCER}auth-type", "none")
    passes = annotations.get(f"{BALANCER}auth-on-unauthenticated-request") == "allow"
    if kind not in {"oidc", "cognito"} or passes:
        return ""
    provider = mapping(json_document(annotations.get(f"{BALANCER}auth-idp-{kind}")))
    by = str(provider.get("userPoolARN") or provider.get("issuer") or kind)
    client = provider.get("userPoolClientID") or provider.get("secretName")
    return f"people whom the load balancer lets in by {by}{f' as the client {client}' if client else ''}"


def _by_gateway(resource: Resource, stack: Stack) -> Opening:
    spec = mapping(resource.properties.get("spec"))
    namespace = at(resource.properties, "metadata", "namespace")
    parents = {str(parent_ref.get("name")) for parent_ref in mappings(spec.get("parentRefs"))}
    gateways = [
        other
        for other in _objects_of_kind(stack, GATEWAY)
        if other.provider == resource.provider and at(other.properties, "metadata", "name") in parents
    ]
    listeners = [
        listener for gateway in gateways for listener in mappings(at(gateway.properties, "spec", "listeners"))
    ]
    encrypted = bool(listeners) and all(listener.get("protocol") in {"HTTPS", "TLS"} for listener in listeners)
    services = [
        backend_ref.get("name")
        for rule in mappings(spec.get("rules"))
        for backend_ref in mappings(rule.get("backendRefs"))
    ]
    kind = resource.type.rpartition(":")[2].removesuffix(PATCH)
    before = {(kind, str(at(resource.properties, "metadata", "name"))), *((GATEWAY, parent) for parent in parents)}
    login = _policy_login(stack, resource, namespace, before)
    if not login and services:
        # One Service without a login is a way past that of the others.
        each_has = [_policy_login(stack, resource, namespace, {("Service", str(name))}) for name in services]
        login = ", ".join(dict.fromkeys(each_has)) if all(each_has) else ""
    return Opening(
        resource,
        tuple(texts(spec.get("hostnames"))),
        f"TLS by the Gateway {', '.join(sorted(parents))}" if encrypted else "",
        login or _proxy_guards(resource, services, stack),
    )


def _policy_login(stack: Stack, resource: Resource, namespace: object, targets: set[tuple[str, str]]) -> str:
    """The login of a policy that is attached to one of ``targets``: the route, its Gateway, or a Service."""
    types = dict.fromkeys(other.type for other in stack.resources.values() if not other.type.endswith(PATCH))
    for policy in as_patched(stack, *types):
        spec = mapping(policy.properties.get("spec"))
        refs = [mapping(spec.get("targetRef")), *mappings(spec.get("targetRefs"))]
        attached = any((str(ref.get("kind")), str(ref.get("name"))) in targets for ref in refs)
        same_namespace = (
            policy.provider == resource.provider and at(policy.properties, "metadata", "namespace") == namespace
        )
        if not attached or not same_namespace:
            continue
        if is_true(at(spec, "default", "iap", "enabled")):
            client = at(spec, "default", "iap", "clientID")
            return f"people whom Identity-Aware Proxy lets in{f' as the client {client}' if client else ''}"
        if provider := at(spec, "oidc", "provider", "issuer"):
            return f"people whom {provider} lets in"
        if mapping(spec.get("extAuth")):
            return "people whom an authorizing program lets in"
    return ""


def _route(resource: Resource, stack: Stack) -> Opening:
    spec = mapping(resource.properties.get("spec"))
    tls = mapping(spec.get("tls"))
    encrypted = bool(tls) and tls.get("insecureEdgeTerminationPolicy") != "Allow"
    host = spec.get("host")
    return Opening(
        resource,
        (host,) if isinstance(host, str) else (),
        f"TLS by the router ({tls.get('termination')})" if encrypted else "",
        _proxy_guards(resource, [at(spec, "to", "name")], stack),
    )


def _proxy_guards(resource: Resource, services: Sequence[object], stack: Stack) -> str:
    """The login of the proxy that all of these Services lead to; empty if one of them leads past it."""
    names = [service for service in services if service is not None]
    namespace = at(resource.properties, "metadata", "namespace") or "default"
    guards: list[str] = []
    for name in names:
        proxies = [
            _proxy(container)
            for service, workload in list_servers(stack)
            if at(service.properties, "metadata", "name") == name
            and service.provider == resource.provider
            and workload.namespace == namespace
            for container in workload.containers
        ]
        if not any(proxies):
            return ""
        guards += [proxy for proxy in proxies if proxy]
    return ", ".join(dict.fromkeys(guards))


def _proxy(container: Properties) -> str:
    image = container.get("image")
    if not isinstance(image, str) or not any(proxy in image for proxy in PROXIES):
        return ""
    options = dict.fromkeys(texts(container.get("args")))
    issuer = next((option.partition("=")[2] for option in options if option.startswith("--oidc-issuer-url=")), "")
    domains = [option.partition("=")[2] for option in options if option.startswith("--email-domain=")]
    groups = [option.partition("=")[2] for option in options if option.startswith("--allowed-group=")]
    who = [
        *(f"everybody @{domain}" for domain in domains if domain != "*"),
        *(f"group {group}" for group in groups),
    ]
    return f"{', '.join(who) or 'everybody with an account'} at {issuer or 'a login proxy'}"


def _find_unguarded(stack: Stack) -> Iterator[Violation]:
    for opening in openings(stack):
        missing = [*([] if opening.tls else ["TLS"]), *([] if opening.login else ["a login"])]
        if not missing or not known(opening.resource.properties.get("spec")):
            continue
        yield Violation(
            opening.resource.urn,
            f"{opening.address} is open without {' and without '.join(missing)}: anybody can find it and try",
            "write the app's `ingress`, which has both; or put a certificate and a login in front of it",
        )


def _find_opened(change: Change) -> Iterator[Violation]:
    before = {opening.resource.urn: opening for opening in openings(change.before)}
    now = {opening.resource.urn: opening for opening in openings(change.after)}
    for compared in change.compared:
        old = before.get(compared.before.urn) if compared.before else None
        new = now.get(compared.after.urn) if compared.after else None
        if new and (old is None or old.exposure != new.exposure):
            was = f"; until now it was {old.address} to {old.guard}" if old else ""
            yield Violation(
                new.resource.urn,
                f"opens {new.address} to {new.guard}{was}",
                "go on where these people are meant; else correct `ingress` of the app, or remove it",
            )
        elif old and new is None and compared.operation in GOES:
            yield Violation(
                old.resource.urn,
                f"takes {old.address} away from {old.guard}: nobody reaches it from outside any more",
                "leave `ingress` of the app where people still use it",
            )


TABLE = Path(__file__).with_name("policies.toml")

POLICIES = policies_of(TABLE, {"open-without-login": _find_unguarded})

CHANGE_POLICIES = policies_of(TABLE, {"opens-to-people": _find_opened})
