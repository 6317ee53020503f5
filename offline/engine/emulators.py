"""The emulators of the clouds that a stack uses."""

from infra.clouds.registry import CLOUDS
from infra.platform import Emulator
from infra.settings.model import Settings


def emulators(settings: Settings) -> list[Emulator]:
    """One emulator for each cloud of the stack's clusters."""
    used = {cluster.cloud for cluster in settings.clusters.values()}
    return [cloud.emulator(settings.request) for name, cloud in CLOUDS.items() if name in used]
