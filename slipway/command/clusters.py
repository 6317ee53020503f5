"""The API servers of a stack's clusters, by the kubeconfigs that its stack file or its state has."""

import contextlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from slipway.infra import pulumi_cli
from slipway.infra.api_server import ApiServer, Kubeconfig, KubeconfigError, UnreachableError, read_kubeconfig
from slipway.infra.commands import option

TIMEOUTS = (5, 15)
"""Seconds to wait for a connection and for an answer."""


class AccessError(Exception):
    """A cluster cannot be reached. The text says why, and what to do about it."""


class NotCreatedError(AccessError):
    """The stack has not created the cluster yet."""


@dataclass(frozen=True)
class Place:
    """A cluster of the stack. ``kubeconfig`` is the path of its kubeconfig, where the stack file names one."""

    name: str
    kubeconfig: str = ""
    context: str | None = None


@dataclass
class Clusters:
    """The clusters of ``stack``. ``kubeconfig`` names a file that is used in place of what the stack has."""

    stack: str
    places: dict[str, Place]
    kubeconfig: Path | None = None
    context: str | None = None
    _servers: dict[str, ApiServer] = field(default_factory=dict[str, ApiServer])

    def server(self, cluster: str) -> ApiServer:
        """The API server of the cluster. Raises AccessError, also where the cluster is not there yet."""
        if cluster not in self._servers:
            self._servers[cluster] = self._connect(self.places[cluster])
        return self._servers[cluster]

    def _connect(self, place: Place) -> ApiServer:
        if self.kubeconfig is not None:
            return _server(str(self.kubeconfig.expanduser()), self._context(place, self.kubeconfig))
        if place.kubeconfig:
            return _server(str(Path(place.kubeconfig).expanduser()), place.context)
        return _server(*self._from_state(place))

    def _context(self, place: Place, kubeconfig: Path) -> str | None:
        """The context of a given kubeconfig: the one that is named, else the cluster's, else the current one."""
        if self.context:
            return self.context
        if place.name in _read(str(kubeconfig)).logins:
            return place.name
        if len(self.places) > 1:
            raise AccessError(
                f"the stack has the clusters {', '.join(self.places)}, and {kubeconfig} has no context "
                f"{place.name!r}: give it contexts with their names"
            )
        return None

    def _from_state(self, place: Place) -> tuple[str, str | None]:
        try:
            resources = pulumi_cli.resources_of(self.stack)
        except pulumi_cli.CliError as error:
            raise AccessError(f"{error}; or name a kubeconfig: {option('kubeconfig', '…')}") from error
        kubeconfig, context = pulumi_cli.kubeconfig_of(resources, place.name)
        if kubeconfig:
            return kubeconfig, context
        raise NotCreatedError("`pulumi up` has not made it yet")


def _server(kubeconfig: str, context: str | None) -> ApiServer:
    known = _read(kubeconfig)
    try:
        command, hint = known.logins[known.context(context)]
    except KubeconfigError as error:
        fix = (
            f"`context` of the cluster in the stack file, or {option('kubeconfig', '…')} {option('context', '…')}"
        )
        raise AccessError(f"{error}. Name one of them: {fix}") from error
    if command and shutil.which(command) is None:
        # The client would ask without a token, and be refused for a reason that is none.
        raise AccessError(f"{command} is not on PATH, which signs in to it. {hint}".strip())
    return ApiServer(kubeconfig, context, TIMEOUTS)


def _read(kubeconfig: str) -> Kubeconfig:
    try:
        return read_kubeconfig(kubeconfig)
    except KubeconfigError as error:
        raise AccessError(str(error)) from error


def explain(error: Exception) -> str:
    """Why a cluster could not be read, as one sentence with what to do."""
    words = " ".join(str(error).split())
    if isinstance(error, AccessError):
        return words
    if re.search(r"\b401\b|Unauthorized", words):
        return f"it does not know this login any more ({words}): sign in again"
    if re.search(r"forbidden|cannot (?:list|get)|\b403\b", words, re.IGNORECASE):
        return f"this login may not read it: {words}"
    if re.search(r"timed out|Timeout", words):
        return f"it does not answer: {words}"
    return f"it cannot be reached: {words}" if isinstance(error, UnreachableError) else words


def kubectl(kubeconfig: str, context: str | None, folder: Path) -> list[str]:
    """The words with which kubectl reaches a cluster; a kubeconfig that is no file becomes one in ``folder``.

    Only this user can read that file. Where ``kubeconfig`` is empty, kubectl takes its own.
    """
    words = ["--context", context] if context else []
    with contextlib.suppress(OSError):
        if not kubeconfig or Path(kubeconfig).expanduser().is_file():
            file = ["--kubeconfig", str(Path(kubeconfig).expanduser())] if kubeconfig else []
            return ["kubectl", *file, *words]
    descriptor, name = tempfile.mkstemp(".kubeconfig", dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(kubeconfig)
    return ["kubectl", "--kubeconfig", name, *words]
