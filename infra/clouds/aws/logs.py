"""What is logged of traffic and accesses: the VPC's flow logs, and who reads and writes the bucket's objects."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.iam_policies import allow, deny, document, trust
from infra.clouds.aws.names import log_bucket_name, named, resource_name
from infra.clouds.aws.roles import RoleArgs, role
from infra.clouds.aws.settings import AwsCluster

LOG_GROUP_LIMIT = 512
"""https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html, 2026-11-22."""

DELIVERY = "logging.s3.amazonaws.com"
"""Who writes S3's access logs."""


@dataclass(frozen=True)
class AccessLogsArgs:
    """The bucket whose accesses are logged, and for how many ``days`` the logs are kept.

    With ``protect`` neither Pulumi nor a destroy deletes them.
    """

    bucket: aws.s3.Bucket
    cluster: AwsCluster
    account: pulumi.Output[str]
    days: int
    protect: bool


@dataclass(frozen=True)
class FlowLogsArgs:
    """The VPC whose connections are logged. With ``protect`` Pulumi does not delete the logs."""

    vpc: aws.ec2.Vpc
    cluster: AwsCluster
    account: pulumi.Output[str]
    protect: bool


def flow_logs(name: str, args: FlowLogsArgs, parent: pulumi.Resource) -> None:
    """Logs all connections of the VPC to a log group of CloudWatch, which goes with the stack.

    Source of the role's rights: https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-iam-role.html,
    2026-11-22.
    """
    cluster, account = args.cluster, args.account
    region = cluster.region
    child = pulumi.ResourceOptions(parent=parent)
    called = resource_name(LOG_GROUP_LIMIT, name, "flow-logs")
    group = aws.cloudwatch.LogGroup(
        f"{name}-flow-logs",
        region=region,
        name=called,
        retention_in_days=cluster.flow_log_days,
        tags=named(cluster.tags, called),
        opts=pulumi.ResourceOptions(parent=parent, protect=args.protect),
    )
    writer = role(
        f"{name}-flow-logs",
        RoleArgs(
            description="Flow logs of the VPC",
            trust=trust(
                "vpc-flow-logs.amazonaws.com",
                {
                    "StringEquals": {"aws:SourceAccount": account},
                    "ArnLike": {
                        "aws:SourceArn": pulumi.Output.concat(f"arn:aws:ec2:{region}:", account, ":vpc-flow-log/*")
                    },
                },
            ),
            tags=cluster.tags,
            statements=[
                allow(
                    ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                    [group.arn, pulumi.Output.concat(group.arn, ":*")],
                ),
                allow(
                    ["logs:DescribeLogGroups"], [pulumi.Output.concat(f"arn:aws:logs:{region}:", account, ":*")]
                ),
            ],
        ),
        child,
    )
    aws.ec2.FlowLog(
        f"{name}-flow-logs",
        region=region,
        vpc_id=args.vpc.id,
        traffic_type="ALL",
        iam_role_arn=writer.role.arn,
        log_destination_type="cloud-watch-logs",
        log_destination=group.arn,
        max_aggregation_interval=600,
        tags=named(cluster.tags, called),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=writer.grants),
    )


def access_logs(name: str, args: AccessLogsArgs) -> None:
    """Logs each access to the bucket to a bucket of its own, from which S3 deletes them after some days.

    It is encrypted with S3's own keys, which is all that the delivery of access logs takes. Source:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-server-access-logging.html, 2026-11-22.
    """
    region = args.cluster.region
    logs = aws.s3.Bucket(
        f"{name}-logs",
        region=region,
        bucket=log_bucket_name(args.account, region),
        force_destroy=not args.protect,
        tags=named(args.cluster.tags, f"{name}-logs"),
        opts=pulumi.ResourceOptions(protect=args.protect),
    )
    child = pulumi.ResourceOptions(parent=logs)
    private = aws.s3.BucketPublicAccessBlock(
        f"{name}-logs",
        region=region,
        bucket=logs.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=child,
    )
    aws.s3.BucketOwnershipControls(
        f"{name}-logs",
        region=region,
        bucket=logs.bucket,
        rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
        opts=child,
    )
    aws.s3.BucketLifecycleConfiguration(
        f"{name}-logs",
        region=region,
        bucket=logs.bucket,
        rules=[
            aws.s3.BucketLifecycleConfigurationRuleArgs(
                id="old-logs",
                status="Enabled",
                filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
                expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=args.days),
                abort_incomplete_multipart_upload=(
                    aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                        days_after_initiation=1
                    )
                ),
            )
        ],
        opts=child,
    )
    everything = pulumi.Output.concat(logs.arn, "/*")
    delivered = {
        **allow(
            ["s3:PutObject"],
            [everything],
            {
                "ArnLike": {"aws:SourceArn": args.bucket.arn},
                "StringEquals": {"aws:SourceAccount": args.account},
            },
        ),
        "Principal": {"Service": DELIVERY},
    }
    policy = aws.s3.BucketPolicy(
        f"{name}-logs",
        region=region,
        bucket=logs.bucket,
        policy=document(
            delivered, deny(["s3:*"], [logs.arn, everything], {"Bool": {"aws:SecureTransport": "false"}})
        ),
        # Both change who may do what to the bucket, and S3 refuses two such changes at once.
        opts=pulumi.ResourceOptions(parent=logs, depends_on=[private]),
    )
    aws.s3.BucketLogging(
        name,
        region=region,
        bucket=args.bucket.bucket,
        target_bucket=logs.bucket,
        target_prefix=f"{name}/",
        opts=pulumi.ResourceOptions(parent=args.bucket, depends_on=[policy]),
    )
