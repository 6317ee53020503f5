"""The proxy that asks people to log in, in front of an app: oauth2-proxy, in a pod of its own.

Options of github.com/oauth2-proxy/oauth2-proxy, docs/docs/configuration/overview.md at v7.15, seen November 2026.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s
from pulumi_random import RandomPassword

from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.labels import LOGIN, step_labels
from slipway.infra.kubernetes.pods.pod import (
    TEMPORARY,
    container_security,
    empty,
    from_secret,
    home,
    limits,
    of_pool,
    pod_security,
    requests,
)
from slipway.infra.objects import wait_for
from slipway.infra.placed import App
from slipway.infra.platform import Resources
from slipway.infra.schema.ingress import IngressSettings
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

DRAINING = 5
"""Seconds for which a pod that is to go still answers: until every node has learnt to send requests elsewhere
(kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle, "Pod termination flow", seen November 2026)."""


def lifecycle() -> k8s.core.v1.LifecycleArgs:
    """Keeps a container from SIGTERM meanwhile; the grace period has to be longer (Kubernetes 1.30)."""
    sleep = k8s.core.v1.SleepActionArgs(seconds=DRAINING)
    return k8s.core.v1.LifecycleArgs(pre_stop=k8s.core.v1.LifecycleHandlerArgs(sleep=sleep))


DATA = Path(__file__).parents[2] / "data" / "login-proxy.toml"

PORT = 4180
"""Where it listens, as in its documentation."""

CALLBACK = "/oauth2/callback"
"""The path to which the provider sends people back."""

CLIENT_SECRET, COOKIE_SECRET = "client-secret", "cookie-secret"
"""The keys of its Secret."""

SIZE = Resources(cpu=50, memory=64, ephemeral_storage=64)
"""What each of its pods asks for."""

COOKIE_SECRET_LENGTH = 32
"""Bytes of an AES-256 key, the longest that it takes."""

SESSION = "12h0m0s"
"""After so long a person logs in again, so that one who is taken out of a group does not stay in for days."""

SECRETS_ANNOTATION = "slipway/secrets"
"""The annotation of its pods with a hash of what its Secret has: a new value starts new pods."""

GRACE_PERIOD = 30
"""Seconds between SIGTERM and SIGKILL, for the requests that it passes on."""

PATIENCE = 600


@dataclass(frozen=True)
class LoginProxyArgs:
    """``client_secret`` is what the provider knows the client by."""

    app: App
    workspace: Workspace
    ingress: IngressSettings
    client_secret: pulumi.Input[str]


@dataclass(frozen=True)
class LoginProxy:
    """The proxy's Service, and what to wait for before anybody is sent there."""

    service: str
    ready: tuple[pulumi.Resource, ...]


@cache
def image() -> str:
    """Its image, by tag and digest."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return f"{data['repository']}:{data['version']}@{data['digest']}"


def proxy_name(app: App) -> str:
    """The name of its objects: ``<pipeline>-<app>-login``."""
    return fit(f"{app.object_name}-login", KUBERNETES_NAME_LIMIT)


def proxy_labels(app: App) -> dict[str, str]:
    """Labels that only its pods have: a step of the pipeline may be called ``<app>-login``, too."""
    return {**step_labels(app.pipeline, fit(f"{app.name}-login", KUBERNETES_NAME_LIMIT)), LOGIN: app.name}


def pods_of_proxy(app: App) -> int:
    """How many pods it has: two in front of an app with several."""
    return 2 if app.declared.placed_by.replicas > 1 else 1


def login_proxy(name: str, args: LoginProxyArgs, opts: pulumi.ResourceOptions) -> LoginProxy:
    """Declares the proxy with its Secret and its Service. Who may connect to it is for others to say."""
    app, namespace = args.app, args.workspace.namespace
    labels = proxy_labels(app)
    metadata = k8s.meta.v1.ObjectMetaArgs(name=proxy_name(app), namespace=namespace, labels=labels)
    cookies = RandomPassword(
        f"{name}-cookies",
        length=COOKIE_SECRET_LENGTH,
        special=False,
        opts=pulumi.ResourceOptions(parent=opts.parent),
    )
    secret = k8s.core.v1.Secret(
        f"{name}-login",
        metadata=metadata,
        type="Opaque",
        string_data={
            CLIENT_SECRET: pulumi.Output.secret(args.client_secret),
            COOKIE_SECRET: pulumi.Output.secret(cookies.result),
        },
        opts=opts,
    )
    # The cookies' key is in it, so that nobody finds the client's secret by trying.
    mark = pulumi.Output.unsecret(
        pulumi.Output.all(args.client_secret, cookies.result).apply(
            lambda both: sha256(f"{both[0]}\n{both[1]}".encode()).hexdigest()[:16]
        )
    )
    pods = k8s.apps.v1.Deployment(
        f"{name}-login",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=proxy_name(app),
            namespace=namespace,
            labels=labels,
        ),
        spec=k8s.apps.v1.DeploymentSpecArgs(
            replicas=pods_of_proxy(app),
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
            strategy=k8s.apps.v1.DeploymentStrategyArgs(
                type="RollingUpdate",
                rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
            ),
            revision_history_limit=2,
            template=k8s.core.v1.PodTemplateSpecArgs(
                metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels, annotations={SECRETS_ANNOTATION: mark}),
                spec=_pod(args),
            ),
        ),
        opts=wait_for(
            opts, secret, custom_timeouts=pulumi.CustomTimeouts(create=f"{PATIENCE}s", update=f"{PATIENCE}s")
        ),
    )
    service = k8s.core.v1.Service(
        f"{name}-login",
        metadata=metadata,
        spec=k8s.core.v1.ServiceSpecArgs(
            type="ClusterIP",
            selector=labels,
            ports=[k8s.core.v1.ServicePortArgs(name="http", port=PORT, target_port="http", protocol="TCP")],
        ),
        opts=wait_for(opts, pods),
    )
    return LoginProxy(proxy_name(app), (pods, service))


def _pod(args: LoginProxyArgs) -> k8s.core.v1.PodSpecArgs:
    platform = args.app.platform
    pool = platform.cheapest_pool
    size = pool.admitted(SIZE)
    return k8s.core.v1.PodSpecArgs(
        # The namespace's service account `default`, which has no identity in any cloud.
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=GRACE_PERIOD + DRAINING,
        security_context=pod_security(platform),
        **of_pool(pool),
        containers=[
            k8s.core.v1.ContainerArgs(
                name="login",
                image=image(),
                image_pull_policy="IfNotPresent",
                args=options(args.app, args.ingress),
                env=[
                    *(k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in home().items()),
                    from_secret(proxy_name(args.app), CLIENT_SECRET, "OAUTH2_PROXY_CLIENT_SECRET"),
                    from_secret(proxy_name(args.app), COOKIE_SECRET, "OAUTH2_PROXY_COOKIE_SECRET"),
                ],
                ports=[k8s.core.v1.ContainerPortArgs(name="http", container_port=PORT, protocol="TCP")],
                readiness_probe=k8s.core.v1.ProbeArgs(
                    http_get=k8s.core.v1.HTTPGetActionArgs(path="/ready", port="http"),
                    period_seconds=5,
                    timeout_seconds=5,
                ),
                liveness_probe=k8s.core.v1.ProbeArgs(
                    http_get=k8s.core.v1.HTTPGetActionArgs(path="/ping", port="http"),
                    period_seconds=10,
                    timeout_seconds=5,
                    failure_threshold=6,
                ),
                lifecycle=lifecycle(),
                resources=k8s.core.v1.ResourceRequirementsArgs(requests=requests(size), limits=limits(size)),
                security_context=container_security(),
                # `pulumi up` shows the message of a pod that does not become ready: with this, its last lines.
                termination_message_policy="FallbackToLogsOnError",
                volume_mounts=[k8s.core.v1.VolumeMountArgs(name="tmp", mount_path=TEMPORARY)],
            )
        ],
        volumes=[empty("tmp", size.ephemeral_storage)],
    )


def options(app: App, ingress: IngressSettings) -> list[str]:
    """Its command line: who logs in where, who of them gets in, and to what."""
    login = ingress.login.oidc
    return [
        "--provider=oidc",
        f"--oidc-issuer-url={login.issuer}",
        f"--client-id={login.client_id}",
        f"--redirect-url=https://{ingress.host}{CALLBACK}",
        "--code-challenge-method=S256",
        "--skip-provider-button=true",
        # Whoever is in one of the groups gets in, whatever the address: without a domain it lets nobody in.
        *(f"--email-domain={domain}" for domain in login.email_domains or ["*"]),
        *(f"--allowed-group={group}" for group in login.groups),
        f"--http-address=0.0.0.0:{PORT}",
        f"--upstream=http://{app.address}/",
        "--reverse-proxy=true",
        # Browsers take a cookie whose name begins with `__Host-` by HTTPS alone, and send it to this host alone.
        "--cookie-name=__Host-slipway",
        "--cookie-secure=true",
        "--cookie-httponly=true",
        "--cookie-samesite=lax",
        f"--cookie-expire={SESSION}",
        # With it the proxy sends an `Authorization` header of its own, which an app with a token refuses.
        "--pass-basic-auth=false",
        "--pass-access-token=false",
        "--silence-ping-logging=true",
    ]
