"""What has to be right before anything is declared on existing clusters, beyond the shape of the settings."""

from infra.settings import Problem, Settings
from infra.settings.existing import ExistingCluster, PvcStore


def problems(settings: Settings) -> list[Problem]:
    """Everything that would keep the stack's existing clusters from using the store."""
    names = [name for name, cluster in settings.clusters.items() if isinstance(cluster, ExistingCluster)]
    if not names:
        return []
    if not isinstance(settings.store, PvcStore):
        return [
            Problem(
                "slipway:store.kind",
                settings.store.kind,
                f"cluster {names[0]} is not Google's and cannot mount a Cloud Storage bucket",
                "write kind: pvc",
            )
        ]
    if len(settings.clusters) > 1:
        return [
            Problem(
                "slipway:clusters",
                sorted(settings.clusters),
                "a PersistentVolumeClaim belongs to one cluster, so these clusters could not share the store",
                "keep one cluster, with several pools in it",
            )
        ]
    return []
