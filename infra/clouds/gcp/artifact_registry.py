"""Artifact Registry: a repository for images that the stack builds, and one for what builds keep for the next."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.identity import IMPERSONATION_ANNOTATION, workload_pool
from infra.clouds.gcp.network import SERVICE_ACCOUNT_LIMIT, resource_name
from infra.platform import BUILDER, Registry

REPOSITORY_LIMIT = 63
"""Longest name of a repository (cloud.google.com/artifact-registry/docs/reference/rest/v1/projects.locations.
repositories, seen November 2026)."""

CACHE_DAYS = 14
"""Days after which a layer of the cache is deleted that no tag names any more."""

WRITER = "roles/artifactregistry.writer"
"""May push and pull, and delete nothing (cloud.google.com/artifact-registry/docs/access-control, November 2026).
"""

LOGIN, LOGIN_FILES = "workloads.images.gcp.login", ("workloads/images/gcp/login.sh",)
"""What makes a login of the pod's identity, and what ships beside it."""

IMAGE = "images"
"""The image in the repository whose tags all images are: Artifact Registry's repositories have a level more."""


@dataclass(frozen=True)
class ArtifactRegistryArgs:
    """``region`` is where images are built; ``namespace`` is that of the pods that may push.

    ``protect`` keeps Pulumi from deleting the images. ``after`` are the services, and the clusters: the project's
    Workload Identity pool comes with its first cluster.
    """

    project: str
    region: str
    namespace: str
    protect: bool
    after: Sequence[pulumi.Resource]


def artifact_registry(args: ArtifactRegistryArgs) -> Registry:
    """Declares both repositories, and lets only pods of the namespace's builder push to them."""
    images = _repository("images", args, immutable=True)
    cache = _repository("image-cache", args, immutable=False)
    account = gcp.serviceaccount.Account(
        "image-builds",
        account_id=resource_name(SERVICE_ACCOUNT_LIMIT, "images"),
        project=args.project,
        display_name=f"Image builds of {pulumi.get_project()} {pulumi.get_stack()}",
        opts=pulumi.ResourceOptions(depends_on=args.after),
    )
    grants: list[pulumi.Resource] = [
        gcp.serviceaccount.IAMMember(
            "image-builds",
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=f"serviceAccount:{workload_pool(args.project)}[{args.namespace}/{BUILDER}]",
            opts=pulumi.ResourceOptions(depends_on=args.after),
        )
    ]
    for name, repository in (("images", images), ("image-cache", cache)):
        grants.append(
            gcp.artifactregistry.RepositoryIamMember(
                f"{name}-writer",
                project=args.project,
                location=args.region,
                repository=repository.repository_id,
                role=WRITER,
                member=account.member,
            )
        )
    host = f"{args.region}-docker.pkg.dev/{args.project}"

    def digest(tag: str, after: pulumi.CustomResource) -> pulumi.Output[str]:
        found = gcp.artifactregistry.get_docker_image_output(
            project=args.project,
            location=args.region,
            repository_id=images.repository_id,
            image_name=f"{IMAGE}:{tag}",
            opts=pulumi.InvokeOutputOptions(depends_on=[after]),
        )
        # `…/images@sha256:…` (the data source's `self_link`, pulumi-gcp 9.35).
        return found.self_link.apply(lambda link: link.rpartition("@")[2])

    return Registry(
        repository=pulumi.Output.concat(host, "/", images.repository_id, f"/{IMAGE}"),
        cache=pulumi.Output.concat(host, "/", cache.repository_id, f"/{IMAGE}"),
        login=LOGIN,
        files=LOGIN_FILES,
        digest=digest,
        annotations={IMPERSONATION_ANNOTATION: account.email},
        ready=grants,
    )


def _repository(name: str, args: ArtifactRegistryArgs, *, immutable: bool) -> gcp.artifactregistry.Repository:
    unused = gcp.artifactregistry.RepositoryCleanupPolicyArgs(
        id="unused-layers",
        action="DELETE",
        condition=gcp.artifactregistry.RepositoryCleanupPolicyConditionArgs(
            tag_state="UNTAGGED", older_than=f"{CACHE_DAYS * 24 * 3600}s"
        ),
    )
    return gcp.artifactregistry.Repository(
        name,
        project=args.project,
        location=args.region,
        repository_id=resource_name(REPOSITORY_LIMIT, name),
        format="DOCKER",
        description="Images that the stack builds" if immutable else "What builds of images keep of one another",
        # A tag is a context's digest, and means one image for ever.
        docker_config=gcp.artifactregistry.RepositoryDockerConfigArgs(immutable_tags=True) if immutable else None,
        cleanup_policies=None if immutable else [unused],
        opts=pulumi.ResourceOptions(depends_on=args.after, protect=args.protect and immutable),
    )
