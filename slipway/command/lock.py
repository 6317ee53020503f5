"""`slipway lock`: pins what the programs of a pipeline import, by digests."""

from pathlib import Path

from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.pipelines.discovery import WORKLOADS
from slipway.infra.places import PROJECT
from slipway.infra.schema.requirement_files import REQUIREMENTS
from slipway.infra.schema.uv import BY_DIGESTS, FOR_ALL_PLATFORMS, UvError, compile_pins
from slipway.infra.terminal import new_console

PACKAGES = "requirements.in"


def compile_lock(pipeline: str) -> Exit:
    """Compiles the lock file of a pipeline."""
    folder = f"{WORKLOADS}/{pipeline}"
    if not pipeline or not (PROJECT / folder / PACKAGES).is_file():
        fix = "write into it what the pipeline's programs import, a package on each line"
        reason = f"there is no {folder}/{PACKAGES}: {fix}" if pipeline else "name the pipeline"
        report_error(f"{reason}; {command('lock', pipeline=pipeline or 'churn')}")
        return Exit.REFUSED
    shown = ("--custom-compile-command", command("lock", pipeline=pipeline))
    options = (*FOR_ALL_PLATFORMS, BY_DIGESTS, *shown, "--output-file", f"{folder}/{REQUIREMENTS}")
    try:
        compile_pins(Path(folder, PACKAGES), *options, folder=PROJECT)
    except UvError as error:
        report_error(error)
        return Exit.FAILED
    new_console().print(f"Wrote {folder}/{REQUIREMENTS}", markup=False, soft_wrap=True)
    return Exit.DONE
