"""Slipway: one Pulumi program from an empty cloud project to a prediction.

The whole program of a project (``__main__.py``)::

    from slipway import run

    run()

What stands here is public: it keeps its meaning within a minor version. Everything else is the project's own
matter and may move.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipway.infra.program import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: commands, and the modules of pods, import this package and not Pulumi.
    if name == "run":
        from slipway.infra.program import run  # noqa: PLC0415

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
