"""Names that fit: clouds and Kubernetes each limit how long a name may be."""

import hashlib
import re

KUBERNETES_NAME_LIMIT = 63
"""Longest DNS label (RFC 1123), and so the longest Job, Service or namespace name."""

DIGEST_LENGTH = 10
"""Hexadecimal digits of a digest that stand in a name: 40 bits, enough to tell the runs of one stack apart."""


def fit(name: str, limit: int) -> str:
    """The name itself where it has at most ``limit`` characters, else its beginning and a hash of the whole.

    Two long names that differ only past the limit stay different; the same name always gives the same result.
    """
    if len(name) <= limit:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:7]
    return f"{name[: limit - len(mark) - 1].rstrip('-')}-{mark}"


def spell(limit: int, *parts: str) -> str:
    """The parts as one name of lower-case letters, digits and hyphens, as all clouds allow, fit to ``limit``."""
    return fit(re.sub(r"[^a-z0-9-]+", "-", "-".join(parts).lower()).strip("-"), limit)


def short_digest(hexdigest: str) -> str:
    """The part of a SHA-256 hex digest that stands in resource names and store paths."""
    return hexdigest[:DIGEST_LENGTH]
