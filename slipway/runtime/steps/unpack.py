"""Unpack the code of a step that is more than one ConfigMap holds. Standard library only, Python 3.9.

Run as `python -m slipway.runtime.steps.unpack --part /parts/0/part --part /parts/1/part --target /code`.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from pathlib import Path

from slipway.runtime.exits import BAD_INPUT, OK, StepError, run
from slipway.runtime.store import StoreError, explain


def main(arguments: list[str] | None = None) -> int:
    """Unpack the parts, which are one tar archive; returns the exit code.

    Raises:
        StepError: BAD_INPUT where the parts are no archive, STORE_TROUBLE where the target cannot be written.
    """
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.steps.unpack", description=__doc__)
    add = parser.add_argument
    add("--part", dest="parts", type=Path, action="append", required=True, help="a part, in their order")
    add("--target", type=Path, required=True, metavar="DIR", help="where the files are to be")
    add("--beside", type=Path, action="append", default=[], help="a file that is copied to the folder around DIR")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    target: Path = options.target
    try:
        content = b"".join(part.read_bytes() for part in options.parts)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            names = archive.getnames()
            if hasattr(tarfile, "data_filter"):
                archive.extractall(target, filter="data")
            else:
                archive.extractall(target)
        for file in options.beside:
            place = target.parent / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    except tarfile.TarError as error:
        raise StepError(BAD_INPUT, f"the code cannot be unpacked: {error}") from error
    except OSError as error:
        raise StoreError(f"{error.filename or target}: {explain(error)}") from error
    print(f"Unpacked {len(names)} files of code, {len(content)} bytes", flush=True)
    return OK


if __name__ == "__main__":
    run(main)
