"""Become JupyterLab: for whoever has the token, and frugal with what it holds.

Run as `python -m slipway.features.notebook.pod.serve --folder DIR --listen '*' --port 8888 --idle 3600`, with
the token in JUPYTER_TOKEN. The folder is what is kept: notebooks, settings, and packages that a person installs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway.runtime.exits import STORE_TROUBLE, USAGE, StepError, run

TOKEN = "JUPYTER_TOKEN"
"""The environment variable that Jupyter reads the token from
(jupyter-server.readthedocs.io/en/latest/operators/security.html, seen November 2026)."""

SHORTEST_TOKEN = 16
"""Characters of a token that nobody guesses within the life of a server."""

OWN = ".jupyter"
"""The folder with a person's settings of JupyterLab, below the one that is kept."""

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

LOOK = 60
"""Seconds between two looks for kernels and terminals that nobody uses."""


def main(arguments: list[str] | None = None) -> int:
    """Write what JupyterLab needs, then become it.

    Raises:
        StepError: USAGE without a token or without JupyterLab, STORE_TROUBLE where the folder cannot be written.
    """
    options = _parse(arguments)
    if len(os.environ.get(TOKEN, "").strip()) < SHORTEST_TOKEN:
        raise StepError(
            USAGE,
            f"{TOKEN} has no token of {SHORTEST_TOKEN} characters or more, and a notebook runs whatever anybody "
            "sends it; set one, such as what `openssl rand -hex 24` prints",
        )
    installed = shared_files()
    try:
        (options.folder / OWN).mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="slipway-notebook-"))
    except OSError as error:
        raise StepError(STORE_TROUBLE, f"{error.filename or options.folder}: {error.strerror}") from error
    environment = {**os.environ, **surroundings(options.folder, scratch, installed)}
    # Without what is installed in the folder that is kept, which kernels have: it could bring a configuration of
    # the server, and code that runs in it.
    words = [sys.executable, "-s", "-m", "jupyterlab", *settings(options)]
    print(f"JupyterLab on port {options.port}, in {options.folder}", flush=True)
    os.execve(words[0], words, environment)


def shared_files() -> Path:
    """The folder that has `share/jupyter` and `etc/jupyter` of the JupyterLab that Python finds.

    `pip install --target DIR` puts them into DIR, where Jupyter does not look by itself.

    Raises:
        StepError: with USAGE where there is no JupyterLab.
    """
    lab = importlib.util.find_spec("jupyterlab")
    if lab is None or lab.origin is None:
        raise StepError(
            USAGE, "this Python has no JupyterLab; slipway/features/notebook/pod/requirements.txt pins one"
        )
    beside = Path(lab.origin).parents[1]
    places = (beside, Path(sys.prefix))
    return next((place for place in places if (place / "share" / "jupyter" / "lab").is_dir()), places[-1])


def surroundings(folder: Path, scratch: Path, installed: Path) -> dict[str, str]:
    """The environment of the server and its kernels: what is kept lies in `folder`, all else in `scratch`.

    The server's own configuration is none of what is kept: whoever had the folder once would else decide who may
    come in later.
    """
    return {
        "PYTHONUSERBASE": str(folder / ".local"),
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        "JUPYTER_DATA_DIR": str(scratch / "data"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "JUPYTER_PATH": str(installed / "share" / "jupyter"),
        "JUPYTER_CONFIG_PATH": str(installed / "etc" / "jupyter"),
        "JUPYTERLAB_DIR": str(installed / "share" / "jupyter" / "lab"),
        "IPYTHONDIR": str(folder / OWN / "ipython"),
        "MPLCONFIGDIR": str(scratch / "matplotlib"),
        "SHELL": os.environ.get("SHELL", "/bin/bash"),
    }


def settings(options: argparse.Namespace) -> Sequence[str]:
    """JupyterLab's command line. What stands there, no file of configuration overrides."""
    lab = options.folder / OWN / "lab"
    wanted: Mapping[str, object] = {
        "ServerApp.ip": options.listen,
        "ServerApp.port": options.port,
        # Where the port is taken, another one would be one that nobody finds.
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": options.folder,
        "ServerApp.default_url": "/lab",
        "ServerApp.open_browser": False,
        # Nobody comes in without the token: no password that is set later, no page of another origin, no endpoint
        # of an extension that forgot to ask.
        "PasswordIdentityProvider.allow_password_change": False,
        "PasswordIdentityProvider.hashed_password": "",
        # In a pod nobody is root. Elsewhere root may start it where only the same machine reaches it.
        "ServerApp.allow_root": options.listen in LOOPBACK,
        "ServerApp.allow_origin": "",
        "ServerApp.allow_unauthenticated_access": False,
        "ServerApp.disable_check_xsrf": False,
        "ServerApp.quit_button": False,
        # It would start a program for each language that somebody opens a file of.
        "ServerApp.jpserver_extensions": "{'jupyter_lsp': False}",
        # The page that asks whether to read Jupyter's news, and the index of extensions, are on other servers.
        "LabApp.check_for_updates_class": "jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "LabApp.news_url": "None",
        "LabApp.extension_manager": "readonly",
        "LabApp.user_settings_dir": lab / "user-settings",
        "LabApp.workspaces_dir": lab / "workspaces",
        # The trash would be scratch space, and gone with the pod.
        "FileContentsManager.delete_to_trash": False,
        # An unused kernel holds the GPU's memory. It counts as unused even while its page is open, not while it
        # computes. The server stays (`shutdown_no_activity_timeout` is 0): in a pod it would be started again.
        "MappingKernelManager.cull_idle_timeout": options.idle,
        "MappingKernelManager.cull_interval": min(LOOK, options.idle),
        "MappingKernelManager.cull_connected": True,
        "MappingKernelManager.cull_busy": False,
        "TerminalManager.cull_inactive_timeout": options.idle,
        "TerminalManager.cull_interval": min(LOOK, options.idle),
    }
    return [f"--{name}={value}" for name, value in wanted.items()]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.features.notebook.pod.serve", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="what is kept: the notebooks, and settings")
    parser.add_argument("--listen", default="127.0.0.1", help="address; `*` is all of this machine")
    parser.add_argument("--port", type=int, default=8888)
    parser.add_argument(
        "--idle", type=int, default=3600, help="seconds after which unused kernels and terminals are ended"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
