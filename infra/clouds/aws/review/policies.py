"""Policies about resources of AWS."""

import json
import re
from collections.abc import Iterator

from slipway.infra.clouds.aws.nodes import CLUSTER, LAUNCH_TEMPLATE, NODE_GROUP, template
from slipway.infra.review.contract import Harm, Policy, Severity, Violation
from slipway.infra.review.stack import (
    PROTECT,
    UNKNOWN,
    Properties,
    Resource,
    Stack,
    at,
    is_true,
    mapping,
    mappings,
    text,
    texts,
    whole_internet,
)

# Ways in from the Internet: endpoints of clusters, security groups, load balancers, and nodes with addresses.


SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOAD_BALANCERS = (
    "aws:lb/loadBalancer:LoadBalancer",
    "aws:alb/loadBalancer:LoadBalancer",
    "aws:elb/loadBalancer:LoadBalancer",
)


def _endpoints(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.of_type(CLUSTER):
        public = at(cluster.properties, "vpcConfig", "endpointPublicAccess")
        blocks = at(cluster.properties, "vpcConfig", "publicAccessCidrs")
        if public is False or UNKNOWN in (public, blocks):
            continue
        # EKS takes an empty list for the whole Internet.
        if not blocks or whole_internet(texts(blocks)):
            yield Violation(
                cluster.urn,
                "its public endpoint is open to the whole Internet",
                "name the networks that need it under control_plane.authorized_networks of the cluster "
                "(vpcConfig.publicAccessCidrs), or set public_endpoint: false",
            )


def _nodes(stack: Stack) -> Iterator[Violation]:
    for group in stack.of_type(NODE_GROUP):
        subnets = (stack.resources.get(urn) for urn in sorted(group.property_dependencies.get("subnetIds", ())))
        public = [
            subnet.name for subnet in subnets if subnet and is_true(subnet.properties.get("mapPublicIpOnLaunch"))
        ]
        interfaces = mappings(template(stack, group).get("networkInterfaces"))
        if public or any(is_true(interface.get("associatePublicIpAddress")) for interface in interfaces):
            where = f", as all machines in {', '.join(public)}" if public else ""
            yield Violation(
                group.urn,
                f"its nodes have public addresses{where}",
                "use subnets without mapPublicIpOnLaunch, with a NAT gateway as their way out",
            )


def _groups(stack: Stack) -> Iterator[Violation]:
    for resource in stack.of_type(SECURITY_GROUP, DEFAULT_GROUP, OLD_RULE, RULE):
        if whole_internet(_sources(resource)):
            yield Violation(
                resource.urn,
                "it lets the whole Internet in",
                "name the security groups or the ranges that have to come in",
            )


def _sources(resource: Resource) -> list[str]:
    """From which blocks it lets traffic in."""
    properties = resource.properties
    if resource.type == RULE:
        return [text(properties.get("cidrIpv4")), text(properties.get("cidrIpv6"))]
    if resource.type == OLD_RULE:
        rules = [properties] if properties.get("type") == "ingress" else []
    else:
        rules = mappings(properties.get("ingress"))
    return [block for rule in rules for key in ("cidrBlocks", "ipv6CidrBlocks") for block in texts(rule.get(key))]


def _load_balancers(stack: Stack) -> Iterator[Violation]:
    for balancer in stack.of_type(*LOAD_BALANCERS):
        internal = balancer.properties.get("internal")
        if internal != UNKNOWN and not is_true(internal):
            yield Violation(balancer.urn, "it has public addresses", "set internal: true")


def _metadata(stack: Stack) -> Iterator[Violation]:
    for machines in stack.of_type(LAUNCH_TEMPLATE):
        tokens = at(machines.properties, "metadataOptions", "httpTokens")
        off = at(machines.properties, "metadataOptions", "httpEndpoint") == "disabled"
        if tokens not in ("required", UNKNOWN) and not off:
            yield Violation(
                machines.urn,
                "its machines give their role's credentials to any request for them, also to one that an attacker "
                "has a server send",
                "set metadataOptions.httpTokens: required, and httpPutResponseHopLimit: 1",
            )


NETWORK_POLICIES = (
    Policy(
        "aws-public-endpoint",
        Severity.ERROR,
        "The public endpoint of an EKS cluster is off, or open to named networks only.",
        _endpoints,
        "Name the networks that need it.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-public-nodes",
        Severity.WARNING,
        "EKS nodes have no public addresses.",
        _nodes,
        "Put them into private subnets.",
    ),
    Policy(
        "aws-open-security-group",
        Severity.ERROR,
        "No security group lets the whole Internet in.",
        _groups,
        "Name the security groups or the ranges that have to come in.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-public-load-balancer",
        Severity.ERROR,
        "Load balancers are internal.",
        _load_balancers,
        "Set internal: true.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-instance-metadata",
        Severity.WARNING,
        "Machines ask for a token before their metadata service tells anything (IMDSv2).",
        _metadata,
        "Set metadataOptions.httpTokens: required.",
    ),
)


# Deletion protection in production stacks.


FIX = f"set `{PROTECT}: true` in the stack file"

EMPTIES = ("forceDestroy", "forceDelete")
"""Of buckets and of image repositories."""


def _deletable(stack: Stack) -> Iterator[Violation]:
    # What the one switch of a stack file leaves open is said once, of the switch.
    if not stack.production or stack.switched_off:
        return
    for cluster in stack.of_type(CLUSTER):
        protected = cluster.properties.get("deletionProtection")
        if protected != UNKNOWN and not is_true(protected):
            yield Violation(
                cluster.urn,
                "EKS would delete it when asked: it has no deletion protection",
                f"{FIX} (deletionProtection: true)",
            )
    for resource in stack.resources.values():
        if resource.package == "aws" and not resource.read:
            for key in EMPTIES:
                if is_true(resource.properties.get(key)):
                    yield Violation(
                        resource.urn, "a destroy deletes it with everything in it", f"{FIX} ({key}: false)"
                    )


PROTECTION_POLICIES = (
    Policy(
        "aws-deletable-in-production",
        Severity.ERROR,
        "In a production stack AWS refuses to delete clusters, and buckets and repositories that are in use.",
        _deletable,
        f"Set `{PROTECT}: true`.",
    ),
)


# Reads the IAM policy documents of resources: JSON, which may be unknown before an update.


LIMITS = (
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceip",
    "aws:sourceorgid",
    "aws:sourceorgpaths",
    "aws:sourceowner",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "kms:calleraccount",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
)
"""Condition keys that limit a statement for every principal to some of them.

Source: "The meaning of public",
https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html, 2026-11-20.
"""


def statements_of(document: object) -> list[Properties]:
    """The statements of a document; none where it is not known or no JSON."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            return []
    content = mapping(document).get("Statement")
    return mappings(content) or ([mapping(content)] if mapping(content) else [])


def allowing(document: object) -> list[Properties]:
    """The statements of a document that allow something."""
    return [statement for statement in statements_of(document) if statement.get("Effect") == "Allow"]


def for_everybody(statement: Properties) -> bool:
    """Whether the statement is for every AWS account, without a condition that limits it to some."""
    principal = statement.get("Principal")
    named = texts(principal) or texts(mapping(principal).get("AWS"))
    return "*" in named and not any(key in LIMITS for key in condition_keys(statement))


def condition_keys(statement: Properties) -> Iterator[str]:
    """The keys of its conditions, in lower case: IAM takes them in any."""
    for tested in mapping(statement.get("Condition")).values():
        yield from (text(key).lower() for key in mapping(tested))


# Buckets that strangers can read, and storage that is not encrypted.


BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
ACCOUNT_BLOCK = "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock"
ACLS = ("aws:s3/bucketAcl:BucketAcl", "aws:s3/bucketAclV2:BucketAclV2", "aws:s3/bucketObject:BucketObject")
POLICY = "aws:s3/bucketPolicy:BucketPolicy"
FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"

FLAGS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")

PUBLIC_ACLS = frozenset({"public-read", "public-read-write", "authenticated-read"})
"""Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/acl-overview.html#canned-acl, 2026-11-20."""

GROUPS = "http://acs.amazonaws.com/groups/global/"
"""What the groups AllUsers and AuthenticatedUsers begin with (same page)."""


def _public(stack: Stack) -> Iterator[Violation]:
    blocks = stack.of_type(BLOCK)
    for block in [*blocks, *stack.of_type(ACCOUNT_BLOCK)]:
        off = [flag for flag in FLAGS if block.properties.get(flag) != UNKNOWN]
        off = [flag for flag in off if not is_true(block.properties.get(flag))]
        if off:
            yield Violation(
                block.urn,
                f"{', '.join(off)} {'is' if len(off) == 1 else 'are'} off, so everybody could be let in",
                "set all four of them",
            )
    for bucket in stack.of_type(*BUCKETS):
        if not stack.of_type(ACCOUNT_BLOCK) and not any(_is_of(stack, block, bucket) for block in blocks):
            yield Violation(
                bucket.urn,
                "no BucketPublicAccessBlock is declared for it, so that nobody notices when it is opened",
                "declare one for it, with all four of its flags",
            )
    for resource in stack.of_type(*BUCKETS, *ACLS):
        if acl := _open_acl(resource):
            yield Violation(resource.urn, f"its ACL {acl} lets everybody in", "remove it: buckets need no ACLs")
    for policy in stack.of_type(POLICY, *BUCKETS):
        if any(for_everybody(statement) for statement in allowing(policy.properties.get("policy"))):
            yield Violation(
                policy.urn,
                "a statement of its policy allows everybody something, on no condition that says who",
                "name the accounts or roles that need it as the Principal",
            )


def _is_of(stack: Stack, block: Resource, bucket: Resource) -> bool:
    if any(stack.source(block, "bucket", type_) is bucket for type_ in BUCKETS):
        return True
    name = text(block.properties.get("bucket"))
    return bool(name) and name == bucket.properties.get("bucket")


def _open_acl(resource: Resource) -> str:
    canned = text(resource.properties.get("acl"))
    grants = [
        *mappings(resource.properties.get("grants")),
        *mappings(at(resource.properties, "accessControlPolicy", "grants")),
    ]
    groups = (text(at(grant, "grantee", "uri") or grant.get("uri")) for grant in grants)
    open_to = next((uri.removeprefix(GROUPS) for uri in groups if uri.startswith(GROUPS)), "")
    return canned if canned in PUBLIC_ACLS else open_to


def _unencrypted(stack: Stack) -> Iterator[Violation]:
    for system in stack.of_type(FILE_SYSTEM):
        if system.properties.get("encrypted") != UNKNOWN and not is_true(system.properties.get("encrypted")):
            yield Violation(system.urn, "its files are not encrypted at rest", "set encrypted: true")
    for launch_template in stack.of_type(LAUNCH_TEMPLATE):
        for disk in mappings(launch_template.properties.get("blockDeviceMappings")):
            encrypted = at(disk, "ebs", "encrypted")
            if disk.get("ebs") and encrypted != UNKNOWN and not is_true(encrypted):
                name = text(disk.get("deviceName")) or "a disk"
                yield Violation(
                    launch_template.urn, f"{name} of its machines is not encrypted", "set ebs.encrypted: true"
                )


POLICIES = (
    Policy(
        "aws-public-bucket",
        Severity.ERROR,
        "Every bucket blocks public access, and neither policy nor ACL is for everybody.",
        _public,
        "Declare a BucketPublicAccessBlock with all four flags, and name who needs access.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-unencrypted-storage",
        Severity.WARNING,
        "File systems and the disks of nodes are encrypted at rest.",
        _unencrypted,
        "Set encrypted: true.",
    ),
)


# IAM policies that give more than anyone needs, and roles that anybody can take on.


ROLE = "aws:iam/role:Role"

IDENTITY_POLICIES = (
    "aws:iam/policy:Policy",
    "aws:iam/rolePolicy:RolePolicy",
    "aws:iam/userPolicy:UserPolicy",
    "aws:iam/groupPolicy:GroupPolicy",
)

ATTACHMENTS = (
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    "aws:iam/userPolicyAttachment:UserPolicyAttachment",
    "aws:iam/groupPolicyAttachment:GroupPolicyAttachment",
    "aws:iam/policyAttachment:PolicyAttachment",
)

ADMINISTERS = frozenset({"AdministratorAccess", "PowerUserAccess", "IAMFullAccess"})
"""Policies of AWS's own with which everything can be had.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_job-functions.html, 2026-11-20.
"""

SENSITIVE = ("iam:PassRole", "kms:Decrypt", "s3:GetObject", "secretsmanager:GetSecretValue", "sts:AssumeRole")
"""Actions that on every resource give away every role, key, object or secret of the account, but can be limited to
one. Others take no resource at all (``ec2:Describe*``), so `*` alone says nothing.

Source: https://docs.aws.amazon.com/service-authorization/latest/reference/, 2026-11-20.
"""

EVERYTHING = re.compile(r"\*|arn:[^:]*:[^:]*:[^:]*:[^:]*:\*(/\*)?")
"""Resources: all there are, or all of a service."""

FEDERATION = ("AssumeRoleWithWebIdentity", "sts:AssumeRoleWithWebIdentity")


def managed(arn: str) -> str:
    """The name of a policy of AWS's own; empty for others."""
    prefix, _, name = arn.partition(":iam::aws:policy/")
    return name.rpartition("/")[2] if prefix.startswith("arn:aws") else ""


def attached(resource: Resource) -> list[str]:
    """The names of AWS's own policies that it attaches."""
    properties = resource.properties
    return [managed(arn) for key in ("policyArn", "managedPolicyArns") for arn in texts(properties.get(key))]


def too_much(resource: Resource) -> str:
    """Why a policy, an attachment or a role grants too much; empty where it does not, or that is not known."""
    if administering := sorted(ADMINISTERS & set(attached(resource))):
        return f"{' and '.join(administering)}: whoever has it can change everything, or give itself the right to"
    if full := sorted(name for name in attached(resource) if name.endswith("FullAccess")):
        return f"{' and '.join(full)} allows every action of a service on every resource"
    documents = [resource.properties.get("policy")] if resource.type in IDENTITY_POLICIES else []
    documents += [policy.get("policy") for policy in mappings(resource.properties.get("inlinePolicies"))]
    statements = (statement for document in documents for statement in allowing(document))
    return next((why for statement in statements if (why := _wildcard(statement))), "")


def _wildcard(statement: Properties) -> str:
    if "NotAction" in statement:
        return "a statement allows everything but some actions, and so whatever AWS adds"
    actions = texts(statement.get("Action"))
    if any(action in ("*", "*:*") for action in actions):
        return "a statement allows every action"
    everywhere = "NotResource" in statement or any(map(EVERYTHING.fullmatch, texts(statement.get("Resource"))))
    if not everywhere or statement.get("Condition"):
        return ""
    for action in actions:
        service, _, what = action.partition(":")
        if what == "*":
            return f"a statement allows every action of {service} on every resource"
        if hit := next((sensitive for sensitive in SENSITIVE if _matches(action, sensitive)), ""):
            return f"a statement allows {hit} on every resource of the account"
    return ""


def _matches(pattern: str, action: str) -> bool:
    begin, star, _ = pattern.lower().partition("*")
    return action.lower().startswith(begin) if star else pattern.lower() == action.lower()


def _wildcards(stack: Stack) -> Iterator[Violation]:
    # What the nodes have is a policy of its own.
    nodes = {grant.urn for _, grant in node_grants(stack)}
    for resource in stack.of_type(ROLE, *IDENTITY_POLICIES, *ATTACHMENTS):
        if resource.urn not in nodes and (why := too_much(resource)):
            yield Violation(
                resource.urn, why, "list the actions that are needed, and the ARNs that they are needed on"
            )


def node_grants(stack: Stack) -> Iterator[tuple[Resource, Resource]]:
    """Each node group with what gives its role rights: the role itself, its policies and its attachments."""
    told = set[str]()
    for group in stack.of_type("aws:eks/nodeGroup:NodeGroup"):
        role = stack.source(group, "nodeRoleArn", ROLE)
        if role is None:
            continue
        for resource in (role, *stack.of_type(*IDENTITY_POLICIES, *ATTACHMENTS)):
            if resource.urn not in told and (resource is role or _grant_is_of(stack, resource, role)):
                told.add(resource.urn)
                yield group, resource


def _grant_is_of(stack: Stack, grant: Resource, role: Resource) -> bool:
    if any(stack.source(grant, key, ROLE) is role for key in ("role", "roles")):
        return True
    name = role.properties.get("name")
    named = [*texts(grant.properties.get("role")), *texts(grant.properties.get("roles"))]
    return isinstance(name, str) and name in named


def _trust(stack: Stack) -> Iterator[Violation]:
    for role in stack.of_type(ROLE):
        for statement in allowing(role.properties.get("assumeRolePolicy")):
            if for_everybody(statement):
                reason = "any AWS account can take it on"
            elif _any_subject(statement):
                reason = (
                    "whoever has a token of the identity provider can take it on: no condition names the subject"
                )
            else:
                continue
            yield Violation(
                role.urn,
                reason,
                "name the account, service or role as the Principal, and the subject of tokens in a Condition",
            )


def _any_subject(statement: Properties) -> bool:
    federated = texts(mapping(statement.get("Principal")).get("Federated"))
    by_token = any(action in FEDERATION for action in texts(statement.get("Action")))
    return bool(federated) and by_token and not any(key.endswith(":sub") for key in condition_keys(statement))


def _node_role(stack: Stack) -> Iterator[Violation]:
    for group, grant in node_grants(stack):
        if why := too_much(grant):
            yield Violation(
                grant.urn,
                f"{why}; it is for the nodes of {group.name}, and whoever breaks out of a pod has it",
                "leave nodes AmazonEKSWorkerNodePolicy and AmazonEC2ContainerRegistryPullOnly, and give pods "
                "theirs by Pod Identity",
            )


GRANT_POLICIES = (
    Policy(
        "aws-iam-wildcard",
        Severity.ERROR,
        "No IAM policy allows every action, all of a service, or all secrets, keys or roles.",
        _wildcards,
        "List the actions that are needed, and the ARNs that they are needed on.",
    ),
    Policy(
        "aws-open-trust",
        Severity.ERROR,
        "No role can be taken on by any account, or with any token of an identity provider.",
        _trust,
        "Name who may take it on.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-node-role",
        Severity.ERROR,
        "The role of nodes administers nothing, and has full access to no service.",
        _node_role,
        "Leave nodes what EKS asks for, and give pods what they need by Pod Identity.",
    ),
)
