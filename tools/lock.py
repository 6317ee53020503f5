"""``slipway lock --pipeline churn``: pins what the programs of a pipeline import, by digests."""

import subprocess
import sys
from typing import Annotated

import typer

from slipway.infra.commands import command
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.places import PROJECT

PACKAGES, LOCK = "requirements.in", "requirements.txt"


def main(pipeline: Annotated[str, typer.Option(help="The pipeline: a folder below workloads/.")] = "") -> None:
    """Compile the lock file of a pipeline, requirements.txt, from the list of packages in its requirements.in.

    A version that the lock file has stays until its line is deleted or the list asks for another one. Exits with
    2 where there is no such list, else with the code of `uv pip compile`.
    """
    folder = f"{WORKLOADS}/{pipeline}"
    if not pipeline or not (PROJECT / folder / PACKAGES).is_file():
        fix = "write into it what the pipeline's programs import, a package on each line"
        reason = f"there is no {folder}/{PACKAGES}: {fix}" if pipeline else "name the pipeline"
        print(f"error: {reason}; {command('lock', pipeline=pipeline or 'churn')}", file=sys.stderr)
        raise typer.Exit(2)
    words = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
        *("--generate-hashes", "--no-annotate", "--custom-compile-command", command("lock", pipeline=pipeline)),
        *(f"{folder}/{PACKAGES}", "-o", f"{folder}/{LOCK}"),
    ]
    raise typer.Exit(subprocess.run(words, cwd=PROJECT, check=False).returncode)
