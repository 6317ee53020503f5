"""Slipway: one Pulumi program from an empty cloud project to a prediction.

The whole program of a project (``__main__.py``)::

    from slipway import run

    run()

What it returns lets resources of any Pulumi provider stand beside it::

    import pulumi
    import pulumi_gcp as gcp

    from slipway import run

    declared = run()
    trained = gcp.pubsub.Topic("trained")
    gcp.pubsub.TopicIAMMember(
        "trained",
        topic=trained.name,
        role="roles/pubsub.publisher",
        member=declared.clusters["main"].identity,
    )
    pulumi.export("model", declared.results["mnist-train"])

What stands here is public: it keeps its meaning within a minor version. Everything else is the project's own
matter and may move.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipway.infra.declared import Cluster, Declared, Store
    from slipway.infra.platform import ClusterNetwork
    from slipway.infra.program import run

__all__ = ["Cluster", "ClusterNetwork", "Declared", "Store", "run"]


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: commands, and the modules of pods, import this package and not Pulumi.
    if name == "run":
        from slipway.infra.program import run  # noqa: PLC0415

        return run
    if name in __all__:
        from slipway.infra import declared  # noqa: PLC0415

        return getattr(declared, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
