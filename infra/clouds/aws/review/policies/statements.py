"""Reads the IAM policy documents of resources: JSON, which may be unknown before an update."""

import json
from collections.abc import Iterator

from infra.review.properties import Properties, mapping, mappings, text, texts

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


def allowing(document: object) -> list[Properties]:
    """The statements of a document that allow something; none where it is not known or no JSON."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            return []
    found = mapping(document).get("Statement")
    statements = mappings(found) or ([mapping(found)] if mapping(found) else [])
    return [each for each in statements if each.get("Effect") == "Allow"]


def for_everybody(statement: Properties) -> bool:
    """Whether the statement is for every AWS account, without a condition that limits it to some."""
    principal = statement.get("Principal")
    named = texts(principal) or texts(mapping(principal).get("AWS"))
    return "*" in named and not any(key in LIMITS for key in condition_keys(statement))


def condition_keys(statement: Properties) -> Iterator[str]:
    """The keys of its conditions, in lower case: IAM takes them in any."""
    for tested in mapping(statement.get("Condition")).values():
        yield from (text(key).lower() for key in mapping(tested))
