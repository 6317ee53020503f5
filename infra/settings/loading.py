"""From the plain values of a stack file to `Settings`, or one error that lists everything wrong with them."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from infra.settings.errors import Problem, SettingsError
from infra.settings.model import Settings


def load(raw: Mapping[str, Any]) -> Settings:
    """The settings in ``raw``: the ``slipway:`` keys without their prefix, as plain Python values.

    Raises SettingsError with every problem found.
    """
    try:
        return Settings.model_validate(dict(raw))
    except ValidationError as error:
        raise SettingsError(
            [
                Problem("slipway:" + ".".join(str(part) for part in e["loc"]), e["input"], e["msg"], "correct it")
                for e in error.errors()
            ]
        ) from error
