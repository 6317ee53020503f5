"""The API servers of a stack's clusters, through the kubeconfigs that the stack file or the stack's state has."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infra.api_server import ApiServer, UnreachableError
from infra.review.properties import at, mapping, mappings, text
from infra.review.stack import KUBERNETES_PROVIDER
from tools import pulumi_cli
from tools.watch.plan import Place

TIMEOUTS = (5, 15)
"""Seconds to wait for a connection and for an answer."""


class AccessError(Exception):
    """A cluster cannot be reached. The text says why, and what to do about it."""


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
            self._servers[cluster] = self._made(self.places[cluster])
        return self._servers[cluster]

    def forget(self, cluster: str) -> None:
        """Looks the cluster's kubeconfig up anew the next time: a replaced cluster has another address."""
        self._servers.pop(cluster, None)

    def _made(self, place: Place) -> ApiServer:
        if self.kubeconfig is not None:
            return _server(str(self.kubeconfig.expanduser()), self._context(place))
        if place.kubeconfig:
            return _server(str(Path(place.kubeconfig).expanduser()), place.context)
        return _server(*self._of_state(place))

    def _context(self, place: Place) -> str | None:
        """The context of a given kubeconfig: the one that is named, else the cluster's, else the current one."""
        assert self.kubeconfig is not None
        names = {text(each.get("name")) for each in mappings(_loaded(str(self.kubeconfig)).get("contexts"))}
        if self.context:
            return self.context
        if place.name in names:
            return place.name
        if len(self.places) > 1:
            raise AccessError(
                f"the stack has the clusters {', '.join(self.places)}, and {self.kubeconfig} has no context "
                f"{place.name!r}: give it contexts with their names"
            )
        return None

    def _of_state(self, place: Place) -> tuple[str, str | None]:
        try:
            resources = pulumi_cli.resources_of(self.stack)
        except pulumi_cli.CliError as error:
            raise AccessError(f"{error}; or name a kubeconfig: KUBECONFIG_FILE=…") from error
        for each in resources:
            if each.get("type") != KUBERNETES_PROVIDER or each.get("delete"):
                continue
            if text(each.get("urn")).rpartition("::")[2] == place.name:
                inputs = mapping(each.get("inputs"))
                found = pulumi_cli.opened(inputs.get("kubeconfig"))
                if isinstance(found, str) and found:
                    return found, text(pulumi_cli.opened(inputs.get("context"))) or None
        raise AccessError("`pulumi up` has not made it yet")


def _server(kubeconfig: str, context: str | None) -> ApiServer:
    loaded = _loaded(kubeconfig)
    names = [text(each.get("name")) for each in mappings(loaded.get("contexts"))]
    if (wanted := context or text(loaded.get("current-context"))) not in names:
        which = "its kubeconfig" if _is_text(kubeconfig) else kubeconfig
        raise AccessError(
            f"{which} has no context {wanted!r}; its contexts: {', '.join(names) or 'none'}. Name one of them: "
            "`context` of the cluster in the stack file, or KUBECONFIG_FILE=… KUBE_CONTEXT=…"
        )
    for command, hint in _plugins(loaded, context):
        if shutil.which(command) is None:
            # The client would ask without a token, and be refused for a reason that is none.
            raise AccessError(f"{command} is not on PATH, which signs in to it. {hint}".strip())
    return ApiServer(kubeconfig, context, TIMEOUTS)


def _is_text(kubeconfig: str) -> bool:
    """Whether it is the kubeconfig itself, not the path of one."""
    return "\n" in kubeconfig or kubeconfig.lstrip().startswith("{")


def _loaded(kubeconfig: str) -> dict[str, Any]:
    whole = _is_text(kubeconfig)
    try:
        found: Any = yaml.safe_load(
            kubeconfig if whole else Path(kubeconfig).expanduser().read_text(encoding="utf-8")
        )
    except OSError as error:
        raise AccessError(f"{kubeconfig} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AccessError(f"{'its kubeconfig' if whole else kubeconfig} is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise AccessError(f"{'its kubeconfig' if whole else kubeconfig} is no kubeconfig")
    return dict(mapping(found))  # pyright: ignore[reportUnknownArgumentType]


def _plugins(loaded: dict[str, Any], context: str | None) -> Iterator[tuple[str, str]]:
    """The commands that sign in as the context's user, and how each is installed."""
    wanted = context or text(loaded.get("current-context"))
    users = {
        text(at(each, "context", "user"))
        for each in mappings(loaded.get("contexts"))
        if each.get("name") == wanted
    }
    for each in mappings(loaded.get("users")):
        command = text(at(each, "user", "exec", "command"))
        if each.get("name") in users and command:
            yield command, text(at(each, "user", "exec", "installHint"))


def plain(error: Exception) -> str:
    """Why a cluster could not be read, as one sentence with what to do."""
    said = " ".join(str(error).split())
    if isinstance(error, AccessError):
        return said
    if re.search(r"\b401\b|Unauthorized", said):
        return f"it does not know this login any more ({said}): sign in again"
    if re.search(r"forbidden|cannot (?:list|get)|\b403\b", said, re.IGNORECASE):
        return f"this login may not read it: {said}"
    if re.search(r"timed out|Timeout", said):
        return f"it does not answer: {said}"
    if isinstance(error, UnreachableError):
        return f"it cannot be reached: {said}"
    return said
