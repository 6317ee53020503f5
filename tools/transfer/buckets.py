"""Copies files between this machine and a store that is a bucket, by the command line tool of its cloud.

The tools of the clouds send large files in parts and in parallel, go on where they stopped, and are signed in.
What is there already is asked for by the clouds' APIs, since what the tools print of it is for people.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from slipway.infra.clouds.contract import BucketTool, ListingError
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.review.stack import text
from slipway.tools.transfer.files import File, TransferError
from slipway.tools.transfer.in_pod import PARTIAL


@dataclass(frozen=True)
class Bucket:
    """A store by its URL, `gs://bucket` or `s3://bucket/folder`, and what copies to and from it."""

    url: str
    tool: BucketTool

    def at(self, path: str) -> str:
        """The URL of a file or folder of the store."""
        return f"{self.url}/{path}"

    def files(self, path: str) -> dict[str, File]:
        """The files below ``path`` by their path from there, or the one at ``path``. Raises TransferError."""
        parts = urlsplit(self.at(path))
        prefix = parts.path.strip("/")
        folder = f"{prefix}/" if prefix else ""
        try:
            listing = self.tool.objects(parts.netloc, prefix)
        except ListingError as error:
            raise TransferError(f"{self.url} could not be listed: {error}") from error
        return {
            name.removeprefix(prefix).lstrip("/"): File(
                entry.size, entry.time, entry.md5, uploaded=True, version=entry.version
            )
            for name, entry in listing.items()
            if (name == prefix or name.startswith(folder)) and not name.endswith(("/", PARTIAL))
        }

    def copy(self, source: str, target: str, *, folder: bool) -> None:
        """Runs the tool, which shows how far it is. Raises TransferError."""
        command = [*(self.tool.folder if folder else self.tool.file), source, target]
        try:
            code = subprocess.run(command, check=False).returncode
        except FileNotFoundError as error:
            raise TransferError(f"{command[0]}, which copies it, is not on PATH: {self.tool.install}") from error
        if code:
            again = "run the same command again: what is there already is not copied again"
            raise TransferError(f"{' '.join(command)} ended with exit code {code}; {again}")


def url_of(stack: str, outputs: Mapping[str, Any]) -> str:
    """The URL of the store of a stack with these outputs. Raises TransferError."""
    if url := text(outputs.get("store")):
        return url
    raise TransferError(f"the stack {stack} has no store: `pulumi up -s {stack}` has not ended well yet")


def bucket_of(url: str, configuration: Mapping[str, Any]) -> Bucket | None:
    """The bucket at ``url`` of a stack with that ``configuration``; None where the store is no cloud's bucket."""
    tools = [tool for cloud in CLOUDS.values() if (tool := cloud.bucket_tool(configuration)) is not None]
    scheme = urlsplit(url).scheme
    return next((Bucket(url, tool) for tool in tools if tool.scheme == scheme), None)
