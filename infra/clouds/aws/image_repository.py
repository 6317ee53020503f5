"""An ECR repository for prebuilt images of the steps."""

import json
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.roles import REPOSITORY_LIMIT, PodIdentityArgs, allow, named, pod_identity, resource_name
from infra.clouds.aws.settings import AwsCluster
from infra.platform import BUILDER, Registry

LOGIN = "workloads.images.aws.login"
"""What makes a login of the pod's identity."""

UNTAGGED_DAYS = 14
"""Days after which an image without a tag is deleted: layers of a build that went on under another name."""


@dataclass(frozen=True)
class BuildsArgs:
    """Which pods push to the registry: those of the builder in ``identity``'s namespace."""

    cluster: AwsCluster
    identity: PodIdentityArgs


def registry(images: aws.ecr.Repository, args: BuildsArgs) -> Registry:
    """``images`` for images that the stack builds, with a second repository for what builds keep of one another.

    Its tags move: a cache has one tag, which each build writes anew.
    """
    name = resource_name(REPOSITORY_LIMIT, "cache")
    cache = aws.ecr.Repository(
        "image-cache",
        region=args.cluster.region,
        name=name,
        image_tag_mutability="MUTABLE",
        encryption_configurations=[aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="AES256")],
        force_delete=True,
        tags=named(args.cluster.tags, name),
        opts=pulumi.ResourceOptions(delete_before_replace=True),
    )
    _without_untagged("image-cache", args.cluster, cache)
    statements = [
        # It has no resource
        # (docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelasticcontainer registry.html,
        # seen November 2026).
        allow(["ecr:GetAuthorizationToken"], ["*"]),
        allow([f"ecr:{action}" for action in PUSHING], [images.arn, cache.arn]),
    ]
    identity = pod_identity("image-builds", replace(args.identity, service_account=BUILDER, statements=statements))

    def digest(tag: str, after: pulumi.CustomResource) -> pulumi.Output[str]:
        found = aws.ecr.get_image_output(
            repository_name=images.name,
            image_tag=tag,
            region=args.cluster.region,
            opts=pulumi.InvokeOutputOptions(depends_on=[after]),
        )
        return found.image_digest

    return Registry(
        repository=images.repository_url,
        cache=cache.repository_url,
        login=LOGIN,
        digest=digest,
        ready=identity.ready,
        region=args.cluster.region,
    )


PUSHING = (
    "BatchCheckLayerAvailability",
    "BatchGetImage",
    "CompleteLayerUpload",
    "GetDownloadUrlForLayer",
    "InitiateLayerUpload",
    "PutImage",
    "UploadLayerPart",
)
"""What pushes to a repository and pulls from it
(docs.aws.amazon.com/AmazonECR/latest/userguide/image-push-iam.html, seen November 2026), and deletes nothing."""


def image_repository(name: str, cluster: AwsCluster, protect: bool) -> aws.ecr.Repository:
    """A repository whose tags never move, and whose images are scanned when they are pushed."""
    repository = aws.ecr.Repository(
        name,
        region=cluster.region,
        name=resource_name(REPOSITORY_LIMIT),
        image_tag_mutability="IMMUTABLE",
        image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
        encryption_configurations=[aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="AES256")],
        force_delete=not protect,
        tags=named(cluster.tags, resource_name(REPOSITORY_LIMIT)),
        opts=pulumi.ResourceOptions(protect=protect, delete_before_replace=True),
    )
    _without_untagged(name, cluster, repository)
    return repository


def _without_untagged(name: str, cluster: AwsCluster, repository: aws.ecr.Repository) -> None:
    aws.ecr.LifecyclePolicy(
        name,
        region=cluster.region,
        repository=repository.name,
        policy=json.dumps(
            {
                "rules": [
                    {
                        "rulePriority": 1,
                        "description": "Untagged images",
                        "selection": {
                            "tagStatus": "untagged",
                            "countType": "sinceImagePushed",
                            "countUnit": "days",
                            "countNumber": UNTAGGED_DAYS,
                        },
                        "action": {"type": "expire"},
                    }
                ]
            }
        ),
        opts=pulumi.ResourceOptions(parent=repository),
    )
