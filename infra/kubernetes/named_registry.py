"""A registry that a stack file names: nothing of it is declared, and its digests are read by its own API."""

import hashlib

import pulumi

from infra.kubernetes.registry_api import RegistryError, digest_of
from infra.platform import Registry
from infra.schema.unread import UNREAD


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
