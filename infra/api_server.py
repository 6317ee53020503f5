"""Reads the objects of a cluster over its API server, as whoever a kubeconfig names."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# The Kubernetes client has no types.

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

TIMEOUTS = (5, 20)
"""Seconds to wait for a connection and for an answer: a cluster that is switched off must not hold up previews."""


class UnreadableError(Exception):
    """The API server refused to answer; the text says why."""


class UnreachableError(UnreadableError):
    """The API server could not be asked anything."""


@dataclass
class ApiServer:
    """The API server that ``kubeconfig``, the text or the path of one, and ``context`` lead to.

    ``context`` None is the kubeconfig's current one. ``timeouts`` are as `TIMEOUTS`; it tries twice. Reads only.
    Usable from several threads.
    """

    kubeconfig: str
    context: str | None = None
    timeouts: tuple[int, int] = TIMEOUTS
    _client: Any = None
    _kinds: dict[str, Mapping[str, tuple[str, bool]]] = field(
        default_factory=dict[str, Mapping[str, tuple[str, bool]]]
    )
    """By API version: the name in URLs, and whether it is in a namespace, of each kind."""

    def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """One object, or None where there is none. Raises UnreadableError."""
        path = self._path(api_version, kind, namespace)
        return None if path is None else self._get(f"{path}/{name}")

    def all_of(self, api_version: str, kind: str) -> Sequence[Mapping[str, Any]]:
        """All objects of a kind, of every namespace. Raises UnreadableError."""
        path = self._path(api_version, kind, "")
        found = (self._get(path) if path else None) or {}
        return cast("Sequence[Mapping[str, Any]]", found.get("items") or [])

    def _path(self, api_version: str, kind: str, namespace: str) -> str | None:
        """The URL's path of a kind's list; None where the cluster does not know the kind."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if api_version not in self._kinds:
            listing = self._get(root) or {}
            self._kinds[api_version] = {
                each["kind"]: (each["name"], bool(each["namespaced"]))
                for each in listing.get("resources") or []
                if "/" not in each["name"]
            }
        if kind not in self._kinds[api_version]:
            return None
        plural, namespaced = self._kinds[api_version][kind]
        return f"{root}/namespaces/{namespace}/{plural}" if namespaced and namespace else f"{root}/{plural}"

    def _get(self, path: str) -> dict[str, Any] | None:
        # Imported here: it takes about two seconds, and most evaluations ask no cluster.
        from kubernetes.client import ApiException  # noqa: PLC0415
        from kubernetes.config import ConfigException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            if self._client is None:
                self._client = self._connect()
            answer = self._client.call_api(
                path,
                "GET",
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                response_types_map={200: "object"},
                _return_http_data_only=True,
                _request_timeout=self.timeouts,
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise UnreadableError(_words(error.body) or f"{error.status} {error.reason}") from error
        except (ConfigException, HTTPError, OSError, ValueError, yaml.YAMLError) as error:
            # What urllib3 gave up on is the reason within its error.
            raise UnreachableError(str(getattr(error, "reason", None) or error)) from error
        return cast("dict[str, Any]", answer)

    def _connect(self) -> Any:
        from kubernetes import client, config  # noqa: PLC0415

        configuration: Any = client.Configuration()
        configuration.retries = 1
        if "\n" in self.kubeconfig or self.kubeconfig.lstrip().startswith("{"):
            config.load_kube_config_from_dict(
                yaml.safe_load(self.kubeconfig), self.context, configuration, persist_config=False
            )
        else:
            config.load_kube_config(self.kubeconfig, self.context, configuration, persist_config=False)
        return client.ApiClient(configuration)


def _words(body: Any) -> str:
    """The message of a ``Status``, which is how the API server refuses."""
    try:
        return str(json.loads(body)["message"])
    except (KeyError, TypeError, ValueError):
        return ""
