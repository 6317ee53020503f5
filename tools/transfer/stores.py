"""The store of a stack that is up: where it is, and how it is seen where only pods can."""

import contextlib
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from slipway.infra import pulumi_cli
from slipway.infra.review.stack import text
from slipway.tools.history.live import places_of
from slipway.tools.show import reader_pod
from slipway.tools.transfer.files import TransferError
from slipway.tools.transfer.pods import MountedStore

SECONDS = 6 * 3600
"""After which the cluster itself ends a pod that copies."""


def url_of(stack: str, outputs: Mapping[str, Any]) -> str:
    """The URL of the store of a stack with these outputs. Raises TransferError."""
    if url := text(outputs.get("store")):
        return url
    raise TransferError(f"the stack {stack} has no store: `pulumi up -s {stack}` has not ended well yet")


@contextlib.contextmanager
def mounted(stack: str) -> Generator[MountedStore]:
    """The store as a pod has it mounted, which goes again. Raises HistoryError, ShowError, CliError."""
    with tempfile.TemporaryDirectory(prefix="slipway-transfer-") as temporary:
        reader, _ = places_of(stack, pulumi_cli.resources_of(stack), Path(temporary))
        with reader_pod(reader, SECONDS) as (pod, mount):
            yield MountedStore([*reader.kubectl, "exec", "-i", pod, "--"], mount)
