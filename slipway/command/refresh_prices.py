"""``make refresh-prices``: writes what the clouds say today of accelerators' prices and zones into the data files.

What a cloud cannot be asked for is left as it is, and said. Where an answer is missing, no file changes.
"""

import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import requests
from rich.table import Table

from slipway import files
from slipway.infra.accelerators import AcceleratorFiles, RefreshError
from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.places import LIBRARY, PACKAGE
from slipway.infra.terminal import new_console


def main(root: Path = LIBRARY / PACKAGE) -> int:
    """Exits with 1, and changes nothing, where an answer is missing."""
    data = AcceleratorFiles(root)
    try:
        for cloud in CLOUDS.values():
            cloud.refresh(data, datetime.now(UTC).date())
    except (RefreshError, requests.RequestException, LookupError, ValueError, TypeError, StopIteration) as error:
        reason = str(error) if isinstance(error, RefreshError) else f"an answer is not as documented ({error!r})"
        if isinstance(error, requests.RequestException):
            url = str(error.request.url if error.request is not None else "a cloud")
            reason = f"{url.partition('?')[0]} cannot be asked ({type(error).__name__})"
        print(f"error: {reason}; no file was changed", file=sys.stderr)
        return 1
    for path, text in data.texts.items():
        tomllib.loads(text)
        if text != path.read_text(encoding="utf-8"):
            files.write(path, text)
    table = Table("fact", "before", "after", title=f"{len(data.changes)} facts about accelerators changed")
    for change in data.changes:
        table.add_row(*change)
    console = new_console()
    console.print(table)
    for sentence in data.left:
        console.print(f"left as it is: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
