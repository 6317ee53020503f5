"""`slipway lock`: pins what the programs of a pipeline import, by digests."""

import subprocess
import sys

from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.places import PROJECT

PACKAGES, LOCK = "requirements.in", "requirements.txt"


def compile_lock(pipeline: str) -> int:
    """Compiles the lock file of a pipeline; the exit code is that of `uv pip compile`."""
    folder = f"{WORKLOADS}/{pipeline}"
    if not pipeline or not (PROJECT / folder / PACKAGES).is_file():
        fix = "write into it what the pipeline's programs import, a package on each line"
        reason = f"there is no {folder}/{PACKAGES}: {fix}" if pipeline else "name the pipeline"
        report_error(f"{reason}; {command('lock', pipeline=pipeline or 'churn')}")
        return Exit.REFUSED
    words = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
        *("--generate-hashes", "--no-annotate", "--custom-compile-command", command("lock", pipeline=pipeline)),
        *(f"{folder}/{PACKAGES}", "-o", f"{folder}/{LOCK}"),
    ]
    return subprocess.run(words, cwd=PROJECT, check=False).returncode
