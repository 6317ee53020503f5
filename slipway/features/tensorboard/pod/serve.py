"""Serve TensorBoard, which reads the runs in the store by itself and needs no TensorFlow for it.

Run as `python -m slipway.features.tensorboard.pod.serve --logdir DIR --host 0.0.0.0 --port 6006`. Of several
steps it shows each by its name: `--below DIR --step train-1 --step train-2`. Other options are handed on.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from slipway.runtime.hosts import KnownHosts, configured

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
    """Serve until the process is ended. Raises SystemExit for options that TensorBoard refuses."""
    words = command(sys.argv[1:] if arguments is None else arguments)
    sys.modules[WITHOUT_TENSORFLOW] = ModuleType(WITHOUT_TENSORFLOW)
    sys.argv = words
    # Only now, without TensorFlow.
    modules = ("absl.app", "default", "main_lib", "program", "plugins.base_plugin")
    app, default, main_lib, program, base_plugin = map(_module, modules)

    def server(wsgi_app: Any, flags: Any) -> Any:
        return program.create_port_scanning_werkzeug_server(KnownHosts(wsgi_app, configured()), flags)

    main_lib.global_init()
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=server)
    try:
        app.run(board.main, flags_parser=board.configure)
    except base_plugin.FlagsError as error:
        sys.exit(f"Error: {error}")


def command(arguments: Sequence[str]) -> list[str]:
    """TensorBoard's own command line."""
    return ["tensorboard", *FRUGAL, *_with_one_folder(arguments)]


def _module(name: str) -> Any:
    return importlib.import_module(name if name.startswith("absl") else f"tensorboard.{name}")


def _with_one_folder(arguments: Sequence[str]) -> list[str]:
    """`arguments` with a folder of links in place of several steps, whose folders may come later.

    TensorBoard asks for a tree of links rather than `--logdir_spec`, which lacks features (its help, 2.21).
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--below", type=Path)
    parser.add_argument("--step", dest="steps", action="append", default=[])
    options, rest = parser.parse_known_args(arguments)
    if options.below is None:
        return list(arguments)
    folder = Path(tempfile.mkdtemp(prefix="slipway-runs-"))
    for step in options.steps:
        (folder / step).symlink_to(options.below / step)
    return ["--logdir", str(folder), *rest]


if __name__ == "__main__":
    main()
