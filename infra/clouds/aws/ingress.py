"""What leads people to an app on EKS: an Application Load Balancer, with a certificate of ACM and a login.

What the annotations mean: docs/guide/ingress/annotations.md of github.com/kubernetes-sigs/
aws-load-balancer-controller at the pinned version, read on 2026-11-22.
"""

import json
from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.clouds.aws.cluster import SYSTEM
from slipway.infra.objects import rule, wait_for
from slipway.infra.platform import DECLARED_ALONE, Backend, Opened
from slipway.infra.schema.ingress import CognitoSettings, IngressSettings, LoginSettings, OidcSettings

SERVICE_ACCOUNT = "aws-load-balancer-controller"
"""Of the pods of the controller; its other objects have the same name."""

CLASS = "alb"
"""Its IngressClass."""

ALB = "alb.ingress.kubernetes.io/"
"""What its annotations begin with."""

TLS_POLICY = "ELBSecurityPolicy-TLS13-1-2-2021-06"
"""TLS 1.3 and 1.2 (docs.aws.amazon.com/elasticloadbalancing/latest/application/describe-ssl-policies.html, seen
November 2026)."""

SESSION = 12 * 3600
"""Seconds after which a person logs in again; AWS's default is a week."""


def asks(login: LoginSettings) -> bool:
    """Whether the load balancer itself asks people to log in.

    It knows no more of an OpenID provider than whether somebody has an account there
    (docs.aws.amazon.com/elasticloadbalancing/latest/application/listener-authenticate-users.html, seen November
    2026).
    """
    return login.cognito is not None or (login.oidc is not None and login.oidc.everyone and login.oidc.endpoints)


def load_balancer(backend: Backend, ingress: IngressSettings, opts: pulumi.ResourceOptions) -> Opened:
    """An Application Load Balancer with a certificate of ACM, which asks for the login unless a proxy does."""
    before = _oidc_client(backend, ingress.login.oidc, opts)
    check = {f"{ALB}healthcheck-path": backend.probe, f"{ALB}success-codes": "200"}
    if backend.probe is None:
        # A load balancer always checks a path. A page that redirects people, to log in for example, is healthy.
        check = {f"{ALB}healthcheck-path": backend.path, f"{ALB}success-codes": "200-399"}
    annotations: dict[str, str | None] = {
        f"{ALB}scheme": "internet-facing",
        f"{ALB}target-type": "ip",
        f"{ALB}listen-ports": '[{"HTTPS":443}]',
        f"{ALB}certificate-arn": ingress.tls.certificate,
        f"{ALB}ssl-policy": TLS_POLICY,
        f"{ALB}load-balancer-attributes": "routing.http.drop_invalid_header_fields.enabled=true",
        **check,
        **_login(backend, ingress.login),
    }
    made = _ingress(
        backend,
        {key: value for key, value in annotations.items() if value is not None},
        wait_for(opts, *before),
    )
    return Opened(
        [*before, made],
        f"CNAME of the load balancer that `kubectl get ingress {backend.object_name}` shows",
        made.status,
        f"https://{backend.host}/oauth2/idpresponse",
    )


def _login(backend: Backend, login: LoginSettings) -> dict[str, str]:
    provider: dict[str, str] = {}
    if login.cognito:
        provider = {f"{ALB}auth-type": "cognito", f"{ALB}auth-idp-cognito": _cognito(login.cognito)}
    elif login.oidc and not backend.proxied:
        provider = {f"{ALB}auth-type": "oidc", f"{ALB}auth-idp-oidc": _oidc(login.oidc, _client_secret(backend))}
    if not provider:
        return {}
    return {
        **provider,
        f"{ALB}auth-on-unauthenticated-request": "authenticate",
        f"{ALB}auth-session-timeout": str(SESSION),
    }


def _cognito(login: CognitoSettings) -> str:
    return _json(
        {"userPoolARN": login.user_pool, "userPoolClientID": login.client_id, "userPoolDomain": login.domain}
    )


def _oidc(login: OidcSettings, secret: str) -> str:
    return _json(
        {
            "issuer": login.issuer,
            "authorizationEndpoint": login.authorization_endpoint,
            "tokenEndpoint": login.token_endpoint,
            "userInfoEndpoint": login.user_info_endpoint,
            "secretName": secret,
        }
    )


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _client_secret(backend: Backend) -> str:
    return f"{backend.object_name}-oidc"


def _oidc_client(
    backend: Backend, login: OidcSettings | None, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """The Secret of the load balancer's own login, and the controller's right to read that one and no other."""
    if login is None or backend.proxied or backend.secret is None:
        return []
    metadata, secret = k8s.meta.v1.ObjectMetaArgs(**backend.metadata("oidc")), _client_secret(backend)
    return [
        k8s.core.v1.Secret(
            f"{backend.name}-oidc",
            metadata=metadata,
            type="Opaque",
            string_data={"clientID": login.client_id, "clientSecret": backend.secret},
            opts=opts,
        ),
        k8s.rbac.v1.Role(
            f"{backend.name}-oidc",
            metadata=metadata,
            rules=[
                k8s.rbac.v1.PolicyRuleArgs(
                    api_groups=[""],
                    resources=["secrets"],
                    resource_names=[secret],
                    verbs=["get", "list", "watch"],
                )
            ],
            opts=opts,
        ),
        k8s.rbac.v1.RoleBinding(
            f"{backend.name}-oidc",
            metadata=metadata,
            role_ref=k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name=secret),
            subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=SERVICE_ACCOUNT, namespace=SYSTEM)],
            opts=opts,
        ),
    ]


def _ingress(
    backend: Backend, annotations: Mapping[str, str], opts: pulumi.ResourceOptions
) -> k8s.networking.v1.Ingress:
    return k8s.networking.v1.Ingress(
        backend.name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            **backend.metadata(annotations={**annotations, **(DECLARED_ALONE if backend.alone else {})})
        ),
        spec=k8s.networking.v1.IngressSpecArgs(ingress_class_name=CLASS, rules=[rule(backend)]),
        opts=opts,
    )
