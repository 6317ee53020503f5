"""A login of Artifact Registry, made of the identity that a pod of GKE has."""

from __future__ import annotations

import json
import urllib.request

from slipway.infra.container_registry import LoginError

SECONDS = 30
"""For the answer of the metadata server."""

TOKEN = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
"""Where a pod has an access token of its identity
(cloud.google.com/kubernetes-engine/docs/concepts/workload-identity, seen November 2026)."""

USER = "oauth2accesstoken"
"""The user that goes with it (cloud.google.com/artifact-registry/docs/docker/authentication, November 2026)."""

HELPER = "login.sh"
"""The program beside this file that gives a fresh token: one lives an hour at most, and a build may take longer.
"""


def login(_region: str = "", url: str = TOKEN) -> tuple[str, str]:
    """User and password.

    Raises:
        LoginError: where the metadata server gives no token.
    """
    try:
        request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return USER, json.load(answer)["access_token"]
    except (OSError, ValueError, KeyError) as error:
        raise LoginError(f"the metadata server gives no token: {error}") from error
