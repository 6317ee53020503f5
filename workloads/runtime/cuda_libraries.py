"""Which CUDA libraries TensorFlow looks for in vain, and how they get into its process.

TensorFlow's GPU images from 2.18 on bring cuDNN 8.9 where TensorFlow loads 9, and no NCCL, which it needs for more
than one GPU; it then finds no GPU at all. (github.com/tensorflow/build, tensorflow_runtime_dockerfiles/
gpu.packages.txt of February 2026 and issue 221; read November 2026.) Standard library only.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from workloads.runtime.exits import BAD_INPUT, StepError
from workloads.runtime.store import NotWholeError, digest_of, load_manifest, store_errors

SONAMES = ("libcudnn.so.9", "libnccl.so.2")
"""What TensorFlow 2.21 loads by name and its image lacks."""


def lacking() -> list[str]:
    """Those of `SONAMES` that the loader does not find here; empty where TensorFlow is built without CUDA."""
    return [soname for soname in SONAMES if not _loads(soname)] if _built_for_cuda() else []


def preload(directory: Path | None) -> None:
    """Load the libraries that `workloads.cuda.install` published in `directory`, before TensorFlow asks for them.

    The loader then gives TensorFlow the ones that are in the process already, whatever lies on its search path.
    They are copied to the local disk first: each copy is checked on the way, and a page of a library that the
    store cannot deliver would end the process. Does nothing without a directory, or where nothing was lacking.

    Raises:
        StepError: with BAD_INPUT where a library is missing, altered or cannot be loaded; StoreError.
    """
    if directory is None:
        return
    manifest = load_manifest(directory)
    if not manifest.files:
        return
    # Never removed by name: the loader may still open a part of cuDNN; the pod's scratch space goes with the pod.
    local = Path(tempfile.mkdtemp(prefix="slipway-cuda-"))
    with store_errors(directory):
        for name, entry in manifest.files.items():
            copy = local / Path(name).name
            try:
                shutil.copyfile(directory / name, copy)
            except FileNotFoundError:
                raise NotWholeError(directory, f"{name} is missing") from None
            if digest_of(copy) != entry:
                raise NotWholeError(directory, f"{name} was altered: its SHA-256 is not the manifest's")
    published = [soname for soname in SONAMES if (local / soname).exists()]
    for soname in published:
        try:
            ctypes.CDLL(str(local / soname), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        except OSError as error:
            raise StepError(BAD_INPUT, f"{soname} of {directory} cannot be loaded: {error}") from error
    print(f"Loaded {', '.join(published)} from {directory}", flush=True)


def _built_for_cuda() -> bool:
    """Read from TensorFlow's build record, since importing TensorFlow takes seconds."""
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.origin is None or sys.platform != "linux":
        return False
    record = Path(found.origin).parent / "python" / "platform" / "build_info.py"
    return bool(runpy.run_path(str(record))["build_info"].get("is_cuda_build"))


def _loads(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True
