"""Policies about resources that only this place to run has."""

from collections.abc import Sequence

from infra.review import Policy

POLICIES: Sequence[Policy] = ()
