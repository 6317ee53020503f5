"""Publish the CUDA libraries that this image's TensorFlow lacks, for the steps that run on GPUs.

Runs in the GPU steps' image but on a node without a GPU, so that nothing is downloaded while a GPU waits. Where
the image has all it needs, or TensorFlow is built without CUDA, the result is empty. Run as `python -m
slipway.runtime.cuda.install --requirements slipway/runtime/cuda/requirements.txt --output DIR`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from slipway.runtime.exits import INSTALL_FAILED, OK, StepError, run, stop_on_sigterm
from slipway.runtime.steps.packages import install, read_requirements
from slipway.runtime.store import finished, publish, staging
from slipway.runtime.supplied import SONAMES, lacking

STEP = "cuda.install"


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT for a requirements file that cannot be used, INSTALL_FAILED, STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("the same command starts over")
    settings = {"packages": read_requirements(options.requirements)}
    earlier = finished(options.output, STEP, {}, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds {len(earlier.files)} libraries")
        return OK
    wanted = lacking()
    with staging() as staged, staging() as target:
        if wanted:
            print(
                f"This image lacks {', '.join(wanted)}; installing {', '.join(settings['packages'])}", flush=True
            )
            install(options.requirements, target)
            _pick(target, staged, wanted)
        else:
            print(f"Nothing is lacking: TensorFlow finds {', '.join(SONAMES)} here, or is built without CUDA")
        summary = {"lacking": wanted}
        manifest = publish(staged, options.output, step=STEP, inputs={}, settings=settings, summary=summary)
    print(f"Published {len(manifest.files)} libraries: {options.output}")
    return OK


def _pick(target: Path, staged: Path, wanted: list[str]) -> None:
    """Move the packages' libraries side by side, where each finds the others by its $ORIGIN."""
    for library in sorted(target.rglob("nvidia/*/lib/*.so.*")):
        library.replace(staged / library.name)
    absent = [soname for soname in wanted if not (staged / soname).exists()]
    if absent:
        raise StepError(INSTALL_FAILED, f"the packages do not have {', '.join(absent)}")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.cuda.install", description=__doc__)
    parser.add_argument("--requirements", type=Path, required=True, help="pinned and hashed: requirements.txt")
    parser.add_argument("--output", type=Path, required=True, help="where to publish the libraries")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
