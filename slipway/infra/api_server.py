"""Reads the objects of a cluster over its API server, as whoever a kubeconfig names."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# The Kubernetes client has no types.

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

TIMEOUTS = (5, 20)
"""Seconds to wait for a connection and for an answer: a cluster that is switched off must not hold up previews."""


MERGE = "application/merge-patch+json"
"""The content type of changes that are merged with what is there."""


class UnreadableError(Exception):
    """The API server refused to answer; the text says why."""


class RefusedError(UnreadableError):
    """The user may not do that."""


class UnreachableError(UnreadableError):
    """The API server could not be asked anything."""


class KubeconfigError(Exception):
    """A kubeconfig that cannot be used; the text says which and why."""


@dataclass(frozen=True)
class Kubeconfig:
    """What a kubeconfig says of its contexts: the command of each that signs in, and how that is installed.

    ``name`` is what messages call it, ``current`` its current context. Without a command no program signs in.
    """

    name: str
    current: str
    logins: Mapping[str, tuple[str, str]]

    def context(self, context: str | None = None) -> str:
        """``context``, or else the current one. Raises KubeconfigError where that is not there."""
        chosen = context or self.current
        if chosen not in self.logins:
            known = ", ".join(self.logins) or "none"
            raise KubeconfigError(f"{self.name} has no context {chosen!r}; its contexts: {known}")
        return chosen


def read_kubeconfig(kubeconfig: str) -> Kubeconfig:
    """Reads ``kubeconfig``, the text or the path of one. Raises KubeconfigError."""
    name = "its kubeconfig" if is_text(kubeconfig) else kubeconfig
    try:
        text = kubeconfig if is_text(kubeconfig) else Path(kubeconfig).expanduser().read_text(encoding="utf-8")
        content: Any = yaml.safe_load(text)
    except OSError as error:
        raise KubeconfigError(f"{name} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{name} is no YAML: {error}") from error
    if not isinstance(content, dict):
        raise KubeconfigError(f"{name} is no kubeconfig")
    users, logins = _entries(content, "user"), dict[str, tuple[str, str]]()
    for context, entry in _entries(content, "context").items():
        login = users.get(str(entry.get("user")), {}).get("exec") or {}
        hint = " ".join(str(login.get("installHint") or "").split())
        logins[context] = (str(login.get("command") or ""), hint)
    return Kubeconfig(name, str(content.get("current-context") or ""), logins)


def _entries(content: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    """The contexts or users of a kubeconfig, by name."""
    entries = [entry for entry in content.get(f"{kind}s") or () if isinstance(entry, dict)]
    return {str(entry.get("name")): entry.get(kind) or {} for entry in entries}


def is_text(kubeconfig: str) -> bool:
    """Whether it is the kubeconfig itself, not the path of one."""
    return "\n" in kubeconfig or kubeconfig.lstrip().startswith("{")


@dataclass(eq=False)
class ApiServer:
    """The API server that ``kubeconfig``, the text or the path of one, and ``context`` lead to.

    ``context`` None is the kubeconfig's current one. ``timeouts`` are as `TIMEOUTS`; it tries twice. Only `send`
    changes anything. It is usable from several threads.
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
        content = (self._get(path) if path else None) or {}
        return cast("Sequence[Mapping[str, Any]]", content.get("items") or [])

    def get(self, path: str, **query: str) -> Mapping[str, Any] | None:
        """What the API answers at ``path``, or None where there is nothing. Raises UnreadableError."""
        return self._get(path, query)

    def lines(self, path: str, **query: str) -> Iterator[str] | None:
        """The lines of the text at ``path``, such as a log, as they come; None where there is nothing.

        A line has no line break at its end. Raises UnreadableError, also while lines are taken.
        """
        answer = self._ask(lambda: self._call(path, query, _preload_content=False, _request_timeout=self.timeouts))
        return None if answer is None else self._lines(answer)

    def _lines(self, answer: Any) -> Iterator[str]:
        left = b""
        while True:
            chunk = self._ask(lambda: answer.read1(1 << 16))
            if not chunk:
                break
            *whole, left = (left + chunk).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
        answer.release_conn()
        if left:
            yield left.decode("utf-8", "replace")

    def send(
        self, method: str, path: str, body: Mapping[str, Any], content_type: str = "application/json"
    ) -> Mapping[str, Any] | None:
        """Changes what is at ``path``. Returns what the API answers, None where there is nothing.

        Raises UnreadableError.
        """

        def send() -> Any:
            return self._call(
                path,
                {},
                body,
                method,
                content_type,
                response_types_map=dict.fromkeys((200, 201, 202), "object"),
                _request_timeout=self.timeouts,
            )

        return cast("dict[str, Any] | None", self._ask(send))

    def try_out(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """An object as the cluster would create it; nothing is created. Raises UnreadableError."""
        path = self._path(item["apiVersion"], item["kind"], item["metadata"]["namespace"])
        tried = self.send("POST", f"{path}?dryRun=All", item)
        if tried is None:
            raise UnreadableError(f"namespace {item['metadata']['namespace']} is not there")
        return tried

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> None:
        """Deletes an object, and what it owns after it. Raises UnreadableError."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        self.send("DELETE", f"{self._path(api_version, kind, namespace)}/{name}", options)

    def version(self) -> str:
        """The server's version: ``v1.36.1``. Raises UnreadableError."""
        return str((self._get("/version") or {}).get("gitVersion") or "")

    def may(self, verb: str, api_version: str, kind: str, namespace: str = "") -> bool | None:
        """Whether the user may do that; None where the cluster does not know the kind.

        Asks as `kubectl auth can-i` does (kubernetes.io/docs/reference/access-authn-authz/authorization, seen
        November 2026). Raises UnreadableError.
        """
        path = self._path(api_version, kind, "")
        if path is None:
            return None
        attributes = {
            "verb": verb,
            "group": api_version.rpartition("/")[0],
            "resource": path.rpartition("/")[2],
            "namespace": namespace if self._kinds[api_version][kind][1] else "",
        }
        answer = self._post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
        )
        return bool((answer.get("status") or {}).get("allowed"))

    def _path(self, api_version: str, kind: str, namespace: str) -> str | None:
        """The URL's path of a kind's list; None where the cluster does not know the kind."""
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if api_version not in self._kinds:
            listing = self._get(root) or {}
            self._kinds[api_version] = {
                resource["kind"]: (resource["name"], bool(resource["namespaced"]))
                for resource in listing.get("resources") or []
                if "/" not in resource["name"]
            }
        if kind not in self._kinds[api_version]:
            return None
        plural, namespaced = self._kinds[api_version][kind]
        return f"{root}/namespaces/{namespace}/{plural}" if namespaced and namespace else f"{root}/{plural}"

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        def get() -> Any:
            return self._call(
                path, query or {}, response_types_map={200: "object"}, _request_timeout=self.timeouts
            )

        return cast("dict[str, Any] | None", self._ask(get))

    def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API answers to ``body``: of what is not kept, such as a review."""

        def post() -> Any:
            return self._call(path, {}, body, response_types_map={201: "object"}, _request_timeout=self.timeouts)

        return cast("dict[str, Any] | None", self._ask(post)) or {}

    def _call(
        self,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        method: str = "",
        content_type: str = "application/json",
        **options: Any,
    ) -> Any:
        if self._client is None:
            self._client = self._connect()
        return self._client.call_api(
            path,
            method or ("GET" if body is None else "POST"),
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            **options,
        )

    def _ask(self, ask: Callable[[], Any]) -> Any:
        """What ``ask`` returns; None where the API has nothing there. Raises UnreadableError."""
        # Imported here: it takes about two seconds, and most evaluations ask no cluster.
        from kubernetes.client import ApiException  # noqa: PLC0415
        from kubernetes.config import ConfigException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            return ask()
        except ApiException as error:
            if error.status == 404:
                return None
            if error.status == 401:
                # Another login may be there by the next time.
                self._client = None
            refusal = RefusedError if error.status == 403 else UnreadableError
            raise refusal(_words(error.body) or f"{error.status} {error.reason}") from error
        except (ConfigException, HTTPError, OSError, ValueError, yaml.YAMLError) as error:
            # What urllib3 gave up on is the reason within its error.
            raise UnreachableError(str(getattr(error, "reason", None) or error)) from error

    def _connect(self) -> Any:
        from kubernetes import client, config  # noqa: PLC0415

        configuration: Any = client.Configuration()
        configuration.retries = 1
        if is_text(self.kubeconfig):
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
