"""The emulators of the clouds that a stack uses."""

from infra.platform import Emulator
from infra.settings import Settings


def emulators(settings: Settings) -> list[Emulator]:
    """One emulator for each cloud of the stack's clusters. A cloud's package is only imported where it is used."""
    found: list[Emulator] = []
    clouds = {cluster.cloud for cluster in settings.clusters.values()}
    if "gcp" in clouds:
        from infra.gcp.emulator import GcpEmulator  # noqa: PLC0415

        found.append(GcpEmulator(settings))
    if "existing" in clouds:
        from infra.existing.emulator import ExistingEmulator  # noqa: PLC0415

        found.append(ExistingEmulator(settings))
    return found
