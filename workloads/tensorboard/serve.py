"""Become TensorBoard, which reads the runs in the store by itself and needs no TensorFlow for it.

Run as `python -m workloads.tensorboard.serve --logdir DIR --host 0.0.0.0 --port 6006`. Other options are handed
on.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

WITHOUT_TENSORFLOW = "tensorboard.compat.notf"
"""The module that makes TensorBoard use its own reader of events where TensorFlow is installed, too. Importing
TensorFlow takes seconds and 400 MB (github.com/tensorflow/tensorboard, tensorboard/compat/__init__.py, 2.21)."""

FRUGAL = (
    # Another look at the store's files. On a bucket each one costs requests.
    *("--reload_interval", "15"),
    # A run that goes on after an eviction writes to a new file beside the old one.
    *("--reload_multifile", "true"),
    *("--reload_multifile_inactive_secs", "3600"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Turn into TensorBoard's own program. Does not return."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.modules[WITHOUT_TENSORFLOW] = ModuleType(WITHOUT_TENSORFLOW)
    sys.argv = ["tensorboard", *FRUGAL, *given]
    runpy.run_module("tensorboard.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
