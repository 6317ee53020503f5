"""Which digest a tag has in a registry that no provider of the stack knows.

The registry is asked by what the pod of a build asks it with, so that both mean the same image. That client is
standard library alone, as all that runs in pods.
"""

from workloads.images import registry
from workloads.images.errors import LoginError
from workloads.images.file_login import of_text
from workloads.images.registry import RegistryError

DOCKER_HUB = registry.DOCKER_HUB


def digest_of(reference: str, login: str = "") -> str:
    """The digest of ``<host>/<repository>:<tag>``; ``login`` is a Docker configuration, JSON, or empty.

    Raises RegistryError, also where there is no such image.
    """
    host, _, _ = registry.parts(reference)
    try:
        found = registry.digest_of(reference, of_text(login, host) if login else None)
    except LoginError as error:
        raise RegistryError(str(error)) from error
    if found is None:
        raise RegistryError(f"{host} has no image {reference}")
    return found
