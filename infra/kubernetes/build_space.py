"""The namespace in which images are built, and what guards it.

BuildKit without root makes a user namespace of its own, mounts file systems in it, and maps more than one user by
setuid programs. The *baseline* Pod Security Standard forbids what that takes, so these pods have a namespace of
their own, with no store, no secret of a step, and no token of the Kubernetes API.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.kubernetes.labels import NAME, PART_OF
from infra.kubernetes.network_policy import PRIVATE, NetworkPoliciesArgs, network_policies
from infra.kubernetes.workspace import POD_SECURITY_VERSION, quota_of
from infra.platform import BUILDER, Egress, Platform, Registry
from infra.step import IMAGE_BUILD

PUBLIC_WEB = Egress("0.0.0.0/0", (80, 443), excepted=PRIVATE)
"""What base images and packages are fetched from. Debian's package mirrors speak HTTP, with signed indexes
(wiki.debian.org/SecureApt, seen November 2026)."""

LOGIN_KEY = "config.json"
"""The key of the Secret with the registry's login."""

LOGIN_NAME = "registry-login"
"""The Secret with the login of a registry that is named."""


@dataclass(frozen=True)
class BuildSpaceArgs:
    """``platform`` is the cluster; ``egress`` is where pods may connect to beyond the public web, None leaves that
    open.

    ``login`` is the Docker configuration with the registry's login, where it has one.
    """

    platform: Platform
    registry: Registry
    namespace: str
    egress: Sequence[Egress] | None = ()
    login: pulumi.Output[str] | None = None


class BuildSpace(pulumi.ComponentResource):
    """A namespace for builds alone, with an identity that may push images and nothing else.

    ``ready`` are the resources to wait for before the first pod. ``has_login`` says that the Secret `LOGIN_NAME`
    is there.
    """

    def __init__(self, name: str, args: BuildSpaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:BuildSpace", name, {}, opts)
        self.platform, self.registry, self.namespace = args.platform, args.registry, args.namespace
        self.has_login = args.login is not None
        on_cluster = pulumi.ResourceOptions(parent=self, provider=args.platform.provider)
        labels = {**PART_OF, NAME: IMAGE_BUILD}
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=args.namespace, labels={**labels, **_standard()}),
            opts=on_cluster,
        )
        inside = pulumi.ResourceOptions.merge(on_cluster, pulumi.ResourceOptions(depends_on=[namespace]))
        quota = k8s.core.v1.ResourceQuota(
            f"{name}-quota",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="pools", namespace=args.namespace, labels=labels),
            spec=k8s.core.v1.ResourceQuotaSpecArgs(hard=quota_of(args.platform)),
            opts=inside,
        )
        account = k8s.core.v1.ServiceAccount(
            f"{name}-service-account",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=BUILDER, namespace=args.namespace, labels=labels, annotations=dict(args.registry.annotations)
            ),
            automount_service_account_token=False,
            opts=inside,
        )
        egress = None if args.egress is None else [*args.platform.egress, PUBLIC_WEB, *args.egress]
        policies = network_policies(name, NetworkPoliciesArgs(args.namespace, egress), inside)
        self.ready: list[pulumi.Resource] = [namespace, quota, account, *policies, *args.registry.ready]
        if args.login is not None:
            self.ready.append(_login(name, args.namespace, args.login, labels, inside))
        self.register_outputs({"namespace": args.namespace})


def _standard() -> Mapping[str, str]:
    """Labels that enforce *privileged*, since *baseline* takes no pod without a seccomp profile, and that record
    what is not *restricted*."""
    return {
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/enforce-version": POD_SECURITY_VERSION,
        "pod-security.kubernetes.io/audit": "restricted",
        "pod-security.kubernetes.io/audit-version": POD_SECURITY_VERSION,
    }


def _login(
    name: str, namespace: str, login: pulumi.Output[str], labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> k8s.core.v1.Secret:
    return k8s.core.v1.Secret(
        f"{name}-login",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=LOGIN_NAME, namespace=namespace, labels=dict(labels)),
        type="Opaque",
        string_data={LOGIN_KEY: login},
        opts=opts,
    )
