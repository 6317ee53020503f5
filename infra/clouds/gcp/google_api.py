"""Google Cloud's APIs over plain HTTPS, as whoever `pulumi up` would sign in as.

The SDK of the Pulumi provider cannot ask anything outside an update. Credentials are looked for where the provider
does (github.com/hashicorp/terraform-provider-google, website/docs/guides/provider_reference.html.markdown, seen
November 2026), without any call of the gcloud CLI.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# google-auth and requests have no types of their own.

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.review.properties import items, mapping, text

ADDRESS = "https://{host}/{path}"
METADATA = "http://metadata.google.internal"
"""The server that gives machines on Google Cloud their credentials."""

TIMEOUTS = (3, 15)
"""Seconds to wait for a connection and for an answer."""

METADATA_TIMEOUT = 1

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

TOKENS = ("GOOGLE_OAUTH_ACCESS_TOKEN",)
KEYS = ("GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON")
DEFAULT = "GOOGLE_APPLICATION_CREDENTIALS"
"""Environment variables with credentials, in the order in which the provider takes them."""


class NoCredentialsError(Exception):
    """There are no credentials, or they cannot be used; the text says why."""


class UnreachableError(Exception):
    """Google cannot be asked from this machine; the text says why."""


class RefusedError(Exception):
    """An answer other than 200.

    ``status`` is that of HTTP, ``reason`` what Google calls it (``SERVICE_DISABLED``, empty without one), and
    ``service`` the API that it is about.
    """

    def __init__(self, status: int, words: str, reason: str = "", service: str = "") -> None:
        super().__init__(words)
        self.status, self.reason, self.service = status, reason, service


@dataclass(frozen=True)
class Google:
    """Asks Google's APIs. ``session`` signs in; ``source`` says with what, for people."""

    session: Any
    source: str

    def sign_in(self) -> None:
        """Gets a token where there is none that holds. Raises NoCredentialsError, UnreachableError."""
        from google.auth import exceptions  # noqa: PLC0415
        from google.auth.transport.requests import Request  # noqa: PLC0415

        credentials = self.session.credentials
        if credentials.valid:
            return
        try:
            credentials.refresh(Request())
        except (exceptions.RefreshError, exceptions.MalformedError) as error:
            raise _not_signed_in(error, self.source) from error
        except (exceptions.GoogleAuthError, OSError) as error:
            raise UnreachableError(f"Google's sign-in cannot be reached ({type(error).__name__})") from error

    def get(self, host: str, path: str, **query: str) -> Mapping[str, Any]:
        """The answer to a GET. Raises NoCredentialsError, UnreachableError, RefusedError."""
        return self._ask("GET", host, path, params=query)

    def post(self, host: str, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to a POST, of those that change nothing. Raises as `get`."""
        return self._ask("POST", host, path, json=body)

    def _ask(self, method: str, host: str, path: str, **options: Any) -> Mapping[str, Any]:
        from google.auth import exceptions  # noqa: PLC0415
        from requests import RequestException  # noqa: PLC0415

        try:
            answer = self.session.request(
                method, ADDRESS.format(host=host, path=path), timeout=TIMEOUTS, **options
            )
        except (exceptions.RefreshError, exceptions.MalformedError) as error:
            raise _not_signed_in(error, self.source) from error
        except (exceptions.GoogleAuthError, RequestException) as error:
            raise UnreachableError(f"{host} cannot be reached ({type(error).__name__})") from error
        try:
            content = mapping(answer.json())
        except ValueError:
            content = {}
        if answer.status_code != 200:
            raise _refused(answer.status_code, mapping(content.get("error")))
        return content


def _refused(status: int, error: Mapping[str, Any]) -> RefusedError:
    """As https://google.aip.dev/193 has errors."""
    info = next((each for each in map(mapping, items(error.get("details"))) if each.get("reason")), {})
    service = text(mapping(info.get("metadata")).get("service"))
    return RefusedError(status, text(error.get("message")) or str(status), text(info.get("reason")), service)


def signed_in(configuration: Mapping[str, Any]) -> Google:
    """Google as ``configuration`` and this machine sign in. Raises NoCredentialsError, UnreachableError."""
    # Imported here: it takes a third of a second, and only stacks on Google Cloud need it.
    from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

    credentials, source = _credentials(configuration)
    return Google(AuthorizedSession(credentials, refresh_timeout=TIMEOUTS[1]), source)


def _credentials(configuration: Mapping[str, Any]) -> tuple[Any, str]:
    from google.oauth2.credentials import Credentials  # noqa: PLC0415

    for name in ("gcp:accessToken", "gcp:credentials"):
        if configuration.get(name) and not isinstance(configuration[name], str):
            raise NoCredentialsError(f"{name} is encrypted, and only the Pulumi CLI opens it")
    for name in TOKENS:
        if token := text(configuration.get("gcp:accessToken")) or os.environ.get(name):
            return Credentials(token), name
    for name in KEYS:
        if key := text(configuration.get("gcp:credentials")) or os.environ.get(name):
            return _of_key(key, name), name
    if named := os.environ.get(DEFAULT):
        return _of_file(Path(named), f"{DEFAULT}={named}"), named
    if (file := gcloud_folder() / "application_default_credentials.json").is_file():
        return _of_file(file, str(file)), str(file)
    if _on_google_cloud():
        from google.auth import compute_engine  # noqa: PLC0415

        return compute_engine.Credentials(scopes=[SCOPE]), "the machine's service account"
    raise NoCredentialsError(f"there is no {_home(file)}, no {DEFAULT}, and this is no machine on Google Cloud")


def _of_key(key: str, name: str) -> Any:
    """Credentials from the text of a key, or the path of its file."""
    if not key.lstrip().startswith("{"):
        return _of_file(Path(key).expanduser(), name)
    from google.auth import load_credentials_from_dict  # noqa: PLC0415
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    try:
        return load_credentials_from_dict(json.loads(key), scopes=[SCOPE])[0]
    except (GoogleAuthError, ValueError) as error:
        raise _not_signed_in(error, name) from error


def _of_file(file: Path, name: str) -> Any:
    from google.auth import load_credentials_from_file  # noqa: PLC0415
    from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415

    try:
        return load_credentials_from_file(str(file), scopes=[SCOPE])[0]
    except (GoogleAuthError, ValueError, OSError) as error:
        raise _not_signed_in(error, name) from error


def gcloud_folder() -> Path:
    """Where the gcloud CLI keeps what it knows."""
    return Path(os.environ.get("CLOUDSDK_CONFIG") or Path("~/.config/gcloud").expanduser())


def _on_google_cloud() -> bool:
    import requests  # noqa: PLC0415

    try:
        answer = requests.get(METADATA, timeout=METADATA_TIMEOUT)
    except requests.RequestException:
        return False
    return answer.headers.get("Metadata-Flavor") == "Google"


def _not_signed_in(error: BaseException, source: str) -> Exception:
    """Why a sign-in failed: google-auth tells some that never reached Google as if Google had refused them."""
    from google.auth.exceptions import TransportError  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TransportError | RequestException):
            return UnreachableError(f"Google's sign-in cannot be reached ({type(cause).__name__})")
        cause = cause.__cause__ or cause.__context__
    return NoCredentialsError(f"{source}: {_first(error)}")


def _first(error: BaseException) -> str:
    """The first words of an error: google-auth adds the whole answer as a second argument."""
    return " ".join(str(error.args[0] if error.args else error).split())


def _home(file: Path) -> str:
    return str(file).replace(str(Path.home()), "~", 1)
