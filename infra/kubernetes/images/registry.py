"""A registry that a stack file names: nothing of it is declared, and its digests are read by its own API."""

import hashlib

import pulumi

from infra.platform import Registry
from infra.schema.images import UNREAD
from workloads.images import registry
from workloads.images.errors import LoginError
from workloads.images.file_login import of_text
from workloads.images.registry import RegistryError

# Which digest a tag has in a registry that no provider of the stack knows.
#
# The registry is asked by what the pod of a build asks it with, so that both mean the same image. That client is
# standard library alone, as all that runs in pods.


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


def named_registry(repository: str, login: pulumi.Output[str] | None) -> Registry:
    """The registry of ``repository``, ``<host>/<path>``; ``login`` is a Docker configuration with its login.

    A cache is a tag of the same repository, which has to let that one move.
    """

    def digest(tag: str, after: pulumi.CustomResource) -> pulumi.Output[str]:
        def read(known: list[str]) -> str:
            _, configuration = known
            if UNREAD.get():
                return f"sha256:{hashlib.sha256(tag.encode()).hexdigest()}"
            try:
                return digest_of(f"{repository}:{tag}", configuration)
            except RegistryError as error:
                fix = (
                    "let this machine reach the registry; where the image is gone from it, delete the Job that "
                    "built it, then `pulumi refresh` and `pulumi up`"
                )
                raise pulumi.RunError(f"slipway:registry.repository: {error}; {fix}") from error

        # Not known before the Job is there, and so asked only then.
        # What the login is, it does not show.
        return pulumi.Output.unsecret(pulumi.Output.all(after.id, login or "").apply(read))

    return Registry(repository, repository, "file" if login else "none", digest)
