"""IAM policies that give more than anyone needs, and roles that anybody can take on."""

import re
from collections.abc import Iterator

from infra.clouds.aws.review.policies.statements import allowing, condition_keys, for_everybody
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import Properties, mapping, mappings, texts
from infra.review.stack import Resource, Stack

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
    if found := sorted(ADMINISTERS & set(attached(resource))):
        return f"{' and '.join(found)}: whoever has it can change everything, or give itself the right to"
    if full := sorted(name for name in attached(resource) if name.endswith("FullAccess")):
        return f"{' and '.join(full)} allows every action of a service on every resource"
    documents = [resource.properties.get("policy")] if resource.type in IDENTITY_POLICIES else []
    documents += [each.get("policy") for each in mappings(resource.properties.get("inlinePolicies"))]
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
        if hit := next((each for each in SENSITIVE if _matches(action, each)), ""):
            return f"a statement allows {hit} on every resource of the account"
    return ""


def _matches(pattern: str, action: str) -> bool:
    begin, star, _ = pattern.lower().partition("*")
    return action.lower().startswith(begin) if star else pattern.lower() == action.lower()


def _wildcards(stack: Stack) -> Iterator[Violation]:
    # What the nodes have is a policy of its own.
    nodes = {each.urn for _, each in node_grants(stack)}
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
            if resource.urn not in told and (resource is role or _is_of(stack, resource, role)):
                told.add(resource.urn)
                yield group, resource


def _is_of(stack: Stack, grant: Resource, role: Resource) -> bool:
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


POLICIES = (
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
