"""An image that is built in the cluster: the Job that builds it, and the digest by which pods name it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra import container_registry
from slipway.infra.container_registry import RegistryError, digest_of
from slipway.infra.kubernetes.cluster.network_policy import PRIVATE, NetworkPoliciesArgs, network_policies
from slipway.infra.kubernetes.cluster.workspace import POD_SECURITY_VERSION, quota_of
from slipway.infra.kubernetes.image_builds.context import Context, context_of
from slipway.infra.kubernetes.job import PATIENCE, disruptions_ignored
from slipway.infra.kubernetes.labels import COMPONENT, IMAGE_ANNOTATION, NAME, PART_OF
from slipway.infra.kubernetes.pods.pod import (
    container_security,
    empty,
    home,
    limits,
    of_pool,
    pod_security,
    requests,
)
from slipway.infra.kubernetes.shipping.bundle import Files, collect, config_map, config_map_name, volume
from slipway.infra.placed import IMAGE_BUILD
from slipway.infra.platform import BUILDER, Egress, Platform, Pool, Registry, Resources
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, UNREAD, fit, short_digest, spell

# The namespace in which images are built, and what guards it.
#
# BuildKit without root makes a user namespace of its own, mounts file systems in it, and maps more than one user
# by
# setuid programs. The *baseline* Pod Security Standard forbids what that takes, so these pods have a namespace of
# their own, with no store, no secret of a step, and no token of the Kubernetes API.


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


MODULE = "slipway.runtime.image_builds.prepare"
"""What the pod runs before BuildKit: the context with its modes, the registry's login, whether the image is there.
"""

SCRIPT = "slipway/runtime/image_builds/build.sh"
"""What starts BuildKit."""

BUNDLE, CONTEXT, WORK, LOGIN = "/bundle", "/context", "/work", "/login"
"""Where the pod has the program, the files of the context, what both containers share, and the registry's login.
"""

OWN_LOGINS = ("file", "none")
"""The logins of registries that no module makes."""

BUILDKIT_USER = 1000
"""The user that BuildKit's rootless image is made for: its table of subordinate users names it
(github.com/moby/buildkit, docs/rootless.md, v0.33.0)."""

STATE = "/home/user/.local/share/buildkit"
"""Where it keeps layers. On an image's own volume, its mounts fail on Container-Optimized OS (the same page)."""

TRIES = 60
"""How often the script asks whether BuildKit is there. The default of 10 is a few seconds in all, too short for a
node that is busy (examples/buildctl-daemonless/buildctl-daemonless.sh, v0.33.0)."""

TAG_LIMIT = 128
"""Longest tag (github.com/opencontainers/distribution-spec, 1.1.1)."""

PREPARED = Resources(cpu=100, memory=256, ephemeral_storage=256)
"""What the pod's first container asks for; BuildKit's, which comes after it, asks for more."""


@dataclass(frozen=True)
class Built:
    """An image that steps run in: its ``context``, and what it is called.

    ``name`` is ``<pipeline>`` or ``<pipeline>-<step>``. ``folder`` is how people name the context.
    """

    name: str
    context: Context
    folder: str

    @property
    def tag(self) -> str:
        """The image's tag, which no registry may ever give another image.

        It has no name in it: whichever program asks for it first, in whichever stack, it is found by its context.
        """
        return f"context-{self.context.digest}"

    @property
    def identity(self) -> str:
        """What stands for the image wherever it has to be known before it is built, as in the digests of runs.

        It names no registry, and nobody who asked for it: the same context is the same image, wherever it is
        pushed, and whichever of several programs is declared first.
        """
        return f"{IMAGE_BUILD}:{self.context.digest}"


class Declared(Protocol):
    """What a pipeline says of an image: `slipway.infra.pipelines.images.ImageBuild`."""

    @property
    def name(self) -> str:
        """What tells it from others of the pipeline; empty for the one of all steps."""
        ...

    @property
    def context(self) -> str:
        """Its folder, relative to the repository, or absolute."""
        ...

    @property
    def dockerfile(self) -> str:
        """The Dockerfile's path in the folder."""
        ...

    @property
    def arguments(self) -> Mapping[str, str]:
        """Values of its ``ARG``."""
        ...


@dataclass
class Images:
    """The images of a stack that are built: ``built`` by what stands for them, each once."""

    built: dict[str, Built] = field(default_factory=dict[str, Built])
    _known: dict[object, Built] = field(default_factory=dict[object, Built])

    def for_pipeline(self, pipeline: str, root: Path, build: Declared) -> str:
        """What stands for an image of ``pipeline``, whose folder is below ``root``. Raises ShippingError."""
        name = f"{pipeline}-{build.name}" if build.name else pipeline
        folder = (root / build.context).resolve()
        return self.of(name, folder, build.context, build.dockerfile, build.arguments).identity

    def of(self, name: str, folder: Path, shown: str, dockerfile: str, arguments: Mapping[str, str]) -> Built:
        """The image of a context, under the name of whoever asked for it first. Raises ShippingError."""
        key = (folder, dockerfile, tuple(sorted(arguments.items())))
        if key not in self._known:
            self._known[key] = Built(name, context_of(folder, dockerfile, arguments), shown)
        built = self._known[key]
        return self.built.setdefault(built.identity, built)


@dataclass(frozen=True)
class ImageJobArgs:
    """``pool`` is where BuildKit runs, with ``resources`` for at most ``time_limit`` seconds.

    ``prepared_by`` is the image of the first container, which has Python; ``buildkit`` BuildKit's. ``bundle`` is
    the program, as `bundle` collects it.
    """

    built: Built
    space: BuildSpace
    pool: Pool
    resources: Resources
    time_limit: int
    prepared_by: str
    buildkit: str
    bundle: Files


def bundle(root: Path, registry: Registry) -> Files:
    """The program that builds for ``registry``, from the repository at ``root``. Raises ShippingError."""
    login = [] if registry.login in OWN_LOGINS else [registry.login]
    # The client of registries is the program's, and collected as one that a module of pods imports.
    return collect([MODULE, container_registry.__name__, *login], root, [SCRIPT, *registry.files])


class ImageJob(pulumi.ComponentResource):
    """The Job that builds one image, unless the registry has it. ``reference`` is the image by its digest.

    ``job`` is there once the image is.
    """

    def __init__(self, name: str, args: ImageJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:ImageBuild", name, {}, opts)
        space, built = args.space, args.built
        registry = space.registry
        labels = {**PART_OF, NAME: IMAGE_BUILD, COMPONENT: spell(KUBERNETES_NAME_LIMIT, built.name)}
        on_cluster = pulumi.ResourceOptions(parent=self, provider=space.platform.provider, depends_on=space.ready)
        maps = [
            config_map(f"{name}-bundle", args.bundle, space.namespace, labels, on_cluster),
            config_map(f"{name}-context", built.context.files, space.namespace, labels, on_cluster),
        ]
        limit = f"{args.time_limit + PATIENCE}s"
        self.job = k8s.batch.v1.Job(
            name,
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=fit(f"{name}-{short_digest(built.context.digest)}", KUBERNETES_NAME_LIMIT),
                namespace=space.namespace,
                labels=labels,
                annotations={"pulumi.com/replaceUnready": "true", IMAGE_ANNOTATION: _description(built)},
            ),
            spec=k8s.batch.v1.JobSpecArgs(
                backoff_limit=0,
                pod_failure_policy=disruptions_ignored(),
                pod_replacement_policy="Failed",
                active_deadline_seconds=args.time_limit,
                template=_template(name, args, labels),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                provider=space.platform.provider,
                depends_on=[*space.ready, *args.pool.resources, *maps],
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit),
            ),
        )
        # With the tag, so that people see what it is; container runtimes go by the digest alone.
        self.reference: pulumi.Output[str] = pulumi.Output.concat(
            registry.repository, ":", built.tag, "@", registry.digest(built.tag, self.job)
        )
        self.register_outputs({"tag": built.tag})


def _description(built: Built) -> str:
    sizes = built.context.files.sizes
    context = {
        "name": built.name,
        "tag": built.tag,
        "context": built.folder,
        "dockerfile": built.context.dockerfile,
        "files": len(sizes),
        "bytes": sum(sizes.values()),
    }
    return json.dumps(context)


def _template(name: str, args: ImageJobArgs, labels: Mapping[str, str]) -> k8s.core.v1.PodTemplateSpecArgs:
    space, context = args.space, args.built.context
    scratch = args.resources.ephemeral_storage
    secret = k8s.core.v1.SecretVolumeSourceArgs(secret_name=LOGIN_NAME, default_mode=0o440)
    login = [k8s.core.v1.VolumeArgs(name="login", secret=secret)] if space.has_login else []
    return k8s.core.v1.PodTemplateSpecArgs(
        metadata=k8s.meta.v1.ObjectMetaArgs(
            labels=dict(labels),
            annotations={} if args.pool.movable else {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        ),
        spec=k8s.core.v1.PodSpecArgs(
            restart_policy="Never",
            service_account_name=BUILDER,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security(space.platform),
            **of_pool(args.pool),
            init_containers=[_preparing(args)],
            containers=[_building(args)],
            volumes=[
                volume("bundle", config_map_name(f"{name}-bundle", args.bundle), args.bundle),
                volume("context", config_map_name(f"{name}-context", context.files), context.files),
                empty("work", args.resources.ephemeral_storage),
                empty("tmp", scratch),
                empty("state", scratch),
                *login,
            ],
        ),
    )


def _preparing(args: ImageJobArgs) -> k8s.core.v1.ContainerArgs:
    """The container that has the registry's login, in which no line of a Dockerfile runs."""
    registry = args.space.registry
    secret = ["--secret", f"{LOGIN}/{LOGIN_KEY}"] if args.space.has_login else []
    mounts = {"bundle": BUNDLE, "context": CONTEXT, **({"login": LOGIN} if args.space.has_login else {})}
    return k8s.core.v1.ContainerArgs(
        name="prepare",
        image=args.prepared_by,
        image_pull_policy="IfNotPresent",
        command=["python3", "-m", MODULE],
        args=[
            *("--context", CONTEXT, "--work", WORK, "--reference", "$(REFERENCE)"),
            *("--login", registry.login),
            *(["--region", registry.region] if registry.region else []),
            *secret,
            *(_literal(f"--executable={path}") for path in args.built.context.executable),
        ],
        working_dir=BUNDLE,
        env=_environment({**home(), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **_names(args)}),
        resources=_resources(PREPARED),
        security_context=container_security(),
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=[
            *(
                k8s.core.v1.VolumeMountArgs(name=key, mount_path=path, read_only=True)
                for key, path in mounts.items()
            ),
            k8s.core.v1.VolumeMountArgs(name="work", mount_path=WORK),
            k8s.core.v1.VolumeMountArgs(name="tmp", mount_path="/tmp"),
        ],
    )


def _building(args: ImageJobArgs) -> k8s.core.v1.ContainerArgs:
    """BuildKit's container, in which the commands of the Dockerfile run.

    It has no root, no device and nothing of the host; what it has beyond *restricted* is named by `unguarded`.
    """
    return k8s.core.v1.ContainerArgs(
        name="buildkit",
        image=args.buildkit,
        image_pull_policy="IfNotPresent",
        command=["sh", f"{BUNDLE}/{SCRIPT}"],
        args=[WORK, *options(args.built.context)],
        env=_environment(
            {
                "BUILDKITD_FLAGS": "--oci-worker-no-process-sandbox",
                "BUILDCTL_CONNECT_RETRIES_MAX": str(TRIES),
                **_names(args),
            }
        ),
        resources=_resources(args.resources),
        security_context=unguarded(),
        termination_message_policy="FallbackToLogsOnError",
        volume_mounts=[
            k8s.core.v1.VolumeMountArgs(name="bundle", mount_path=BUNDLE, read_only=True),
            k8s.core.v1.VolumeMountArgs(name="work", mount_path=WORK),
            k8s.core.v1.VolumeMountArgs(name="tmp", mount_path="/tmp"),
            k8s.core.v1.VolumeMountArgs(name="state", mount_path=STATE),
        ],
    )


def unguarded() -> k8s.core.v1.SecurityContextArgs:
    """The least with which BuildKit's rootless image runs (github.com/moby/buildkit, docs/rootless.md and
    examples/ kubernetes/job.rootless.yaml, v0.33.0): no seccomp profile, since runc unshares namespaces and the
    snapshotter mounts; no AppArmor profile, since both forbid mounts; setuid programs that map its subordinate
    users, for which it has two capabilities. A user namespace of the pod (``hostUsers: false``) does not take the
    place of these: BuildKit is then root and privileged in it (examples/kubernetes/job.userns.yaml, v0.33.0).
    """
    return k8s.core.v1.SecurityContextArgs(
        run_as_non_root=True,
        run_as_user=BUILDKIT_USER,
        run_as_group=BUILDKIT_USER,
        allow_privilege_escalation=True,
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="Unconfined"),
        app_armor_profile=k8s.core.v1.AppArmorProfileArgs(type="Unconfined"),
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"], add=["SETGID", "SETUID"]),
    )


def options(context: Context) -> Sequence[str]:
    """The options of ``buildctl build`` beside those that the script has. ``$(…)`` are variables of the container.

    The cache is another image: of each stage, what the next build of the same pipeline can begin with. A cache
    that cannot be written fails no build.
    """
    cache = "type=registry,ref=$(CACHE)"
    return [
        *("--opt", _literal(f"filename={context.dockerfile}")),
        *(
            word
            for key, value in context.arguments.items()
            for word in ("--opt", _literal(f"build-arg:{key}={value}"))
        ),
        *("--output", "type=image,name=$(REFERENCE),push=true,oci-mediatypes=true"),
        *("--import-cache", cache),
        *("--export-cache", f"{cache},mode=max,image-manifest=true,oci-mediatypes=true,ignore-error=true"),
    ]


def _literal(word: str) -> str:
    """``word`` as a container's argument, in which ``$(NAME)`` would mean a variable."""
    return word.replace("$", "$$")


def _names(args: ImageJobArgs) -> dict[str, pulumi.Input[str]]:
    registry, built = args.space.registry, args.built
    cache = f":cache-{spell(TAG_LIMIT - len('cache-'), built.name)}"
    return {
        "REFERENCE": pulumi.Output.concat(registry.repository, ":", built.tag),
        "CACHE": pulumi.Output.concat(registry.cache, cache),
    }


def _environment(variables: Mapping[str, pulumi.Input[str]]) -> list[k8s.core.v1.EnvVarArgs]:
    return [k8s.core.v1.EnvVarArgs(name=key, value=value) for key, value in variables.items()]


def _resources(resources: Resources) -> k8s.core.v1.ResourceRequirementsArgs:
    return k8s.core.v1.ResourceRequirementsArgs(requests=requests(resources), limits=limits(resources))


def named_registry(repository: str, login: pulumi.Output[str] | None) -> Registry:
    """The registry of ``repository``, ``<host>/<path>``, that a stack file names: nothing of it is declared.

    ``login`` is a Docker configuration with its login.

    A cache is a tag of the same repository, which has to let that one move.
    """

    def digest(tag: str, after: pulumi.CustomResource) -> pulumi.Output[str]:
        def read(values: list[str]) -> str:
            _, configuration = values
            if UNREAD.get():
                return f"sha256:{hashlib.sha256(tag.encode()).hexdigest()}"
            try:
                return digest_of(f"{repository}:{tag}", configuration)
            except RegistryError as error:
                fix = (
                    "let this machine reach the registry; where the image is gone from it, delete the Job that "
                    "built it, then `pulumi refresh` and `pulumi up`"
                )
                raise pulumi.RunError(f"slipway:registry.repository: {error}; {fix}") from error

        # Not known before the Job is there, and so asked only then.
        # What the login is, it does not show.
        return pulumi.Output.unsecret(pulumi.Output.all(after.id, login or "").apply(read))

    return Registry(repository, repository, "file" if login else "none", digest)
