"""An ECR repository for prebuilt images of the steps."""

import json

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.names import REPOSITORY_LIMIT, named, resource_name
from infra.clouds.aws.settings import AwsCluster

UNTAGGED_DAYS = 14
"""Days after which an image without a tag is deleted: layers of a build that went on under another name."""


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
    return repository
