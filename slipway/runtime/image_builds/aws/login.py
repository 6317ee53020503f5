"""A login of ECR, made of the identity that EKS Pod Identity gives a pod."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from slipway.infra.container_registry import LoginError

SECONDS = 30
"""For each answer."""

HELPER = ""
"""A login lives longer than any build, so that nobody has to make another one."""


def login(region: str, environment: Mapping[str, str] = os.environ, endpoint: str = "") -> tuple[str, str]:
    """User and password for the private registries of ``region``. They are valid for 12 hours
    (docs.aws.amazon.com/AmazonECR/latest/APIReference/API_GetAuthorizationToken.html, seen November 2026).

    ``environment`` says where EKS Pod Identity gives the pod its credentials
    (docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html, seen November 2026).
    """
    try:
        identity = Path(environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
        source = environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        request = urllib.request.Request(source, headers={"Authorization": identity})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            keys = json.load(answer)
        token = _authorization_token(region, keys, endpoint)
        user, _, password = base64.b64decode(token).decode().partition(":")
    except KeyError as error:
        raise LoginError(f"EKS Pod Identity gave the pod no {error}") from error
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace")
        raise LoginError(f"{error.url} answered {error.code}: {said}") from error
    except (OSError, ValueError) as error:
        raise LoginError(f"there is no login for the registries of {region}: {error}") from error
    return user, password


def _authorization_token(region: str, keys: Mapping[str, str], endpoint: str) -> str:
    host = f"api.ecr.{region}.amazonaws.com"
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": host,
        "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        "x-amz-security-token": keys["Token"],
        "x-amz-target": "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
    }
    body = b"{}"
    headers["authorization"] = signature(
        ("POST", "/", ""), headers, body, (region, "ecr"), (keys["AccessKeyId"], keys["SecretAccessKey"])
    )
    request = urllib.request.Request(endpoint or f"https://{host}/", data=body, headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)["authorizationData"][0]["authorizationToken"]


def signature(
    request: tuple[str, str, str],
    headers: Mapping[str, str],
    body: bytes,
    service: tuple[str, str],
    key: tuple[str, str],
) -> str:
    """The header `Authorization` of a request to AWS, signed with version 4
    (docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html, seen November 2026).

    ``request`` are the method, the path and the query in its canonical form, ``headers`` those that are signed, by
    their names in small letters; ``service`` are the region and the service, ``key`` the access key and its
    secret.
    """
    names = sorted(headers)
    canonical = "\n".join(
        [
            *request,
            *(f"{name}:{headers[name].strip()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
    )
    moment = headers["x-amz-date"]
    scope = "/".join([moment[:8], *service, "aws4_request"])
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashed])
    signing = f"AWS4{key[1]}".encode()
    for part in scope.split("/"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    signed = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
    return f"AWS4-HMAC-SHA256 Credential={key[0]}/{scope}, SignedHeaders={';'.join(names)}, Signature={signed}"
