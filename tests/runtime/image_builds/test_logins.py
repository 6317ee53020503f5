"""How a build logs in to a registry by the identity of its pod, and asks it for an image."""

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from slipway.infra import container_registry
from slipway.infra.container_registry import LoginError, login_of
from slipway.runtime.exits import BAD_INPUT, StepError
from slipway.runtime.image_builds import prepare
from slipway.runtime.image_builds.aws import login as aws
from slipway.runtime.image_builds.gcp import login as gcp

DIGEST = "sha256:" + "2" * 64


@contextmanager
def server(answers: dict[str, tuple[int, dict[str, str], bytes]], requests: list[Any]) -> Generator[str]:
    """An HTTP server with an answer by path, which notes the headers of requests."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            requests.append((self.path, self.headers))
            status, headers, body = answers[self.path.partition("?")[0]]
            if "Authorization" in self.headers and status == 401:
                status, headers, body = answers["/authorized"]
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_a_request_is_signed_as_the_documented_example_is() -> None:
    """The example of AWS's documentation of Signature Version 4: `ListUsers` on 30 August 2015."""
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": "iam.amazonaws.com",
        "x-amz-date": "20150830T123600Z",
    }
    signature = aws.signature(
        ("GET", "/", "Action=ListUsers&Version=2010-05-08"),
        headers,
        b"",
        ("us-east-1", "iam"),
        ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    )
    assert signature.endswith("Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")


@pytest.mark.slow
def test_pod_identity_becomes_a_login_of_ecr(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod's token\n")
    keys = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T"}
    token = base64.b64encode(b"AWS:password").decode()
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {
        "/credentials": (200, {}, json.dumps(keys).encode()),
        "/": (200, {}, json.dumps({"authorizationData": [{"authorizationToken": token}]}).encode()),
    }
    requests: list[Any] = []
    with server(answers, requests) as host:
        environment = {
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{host}/credentials",
        }
        assert aws.login("eu-west-1", environment, f"http://{host}/") == ("AWS", "password")
    assert requests[0][1]["Authorization"] == "pod's token"
    assert requests[1][1]["X-amz-security-token"] == "T"
    with pytest.raises(LoginError, match="gave the pod no 'AWS_CONTAINER"):
        aws.login("eu-west-1", {})


@pytest.mark.slow
def test_the_metadata_server_gives_a_token() -> None:
    requests: list[Any] = []
    with server({"/token": (200, {}, b'{"access_token": "t", "expires_in": 3599}')}, requests) as host:
        assert gcp.login(url=f"http://{host}/token") == ("oauth2accesstoken", "t")
    assert requests[0][1]["Metadata-flavor"] == "Google"


def test_a_registry_is_asked_with_the_token_that_it_names() -> None:
    requests: list[Any] = []
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {
        "/token": (200, {}, b'{"token": "bearer\'s"}'),
        "/authorized": (200, {"Docker-Content-Digest": DIGEST}, b""),
        "/v2/team/app/manifests/gone": (404, {}, b""),
    }
    with server(answers, requests) as host:
        challenge = {"WWW-Authenticate": f'Bearer realm="http://{host}/token",service="s"'}
        answers["/v2/team/app/manifests/here"] = (401, challenge, b"")
        assert container_registry.find_digest(f"{host}/team/app:here", ("user", "password")) == DIGEST
        assert container_registry.find_digest(f"{host}/team/app:gone") is None
    token = next(headers for path, headers in requests if path.startswith("/token?"))
    assert token["Authorization"] == "Basic " + base64.b64encode(b"user:password").decode()
    assert any("scope=repository%3Ateam%2Fapp%3Apull&service=s" in path for path, _ in requests)


@pytest.mark.slow
def test_a_login_goes_nowhere_but_to_its_registry() -> None:
    elsewhere: list[Any] = []
    requests: list[Any] = []
    digest: dict[str, tuple[int, dict[str, str], bytes]] = {
        "/v2/a/manifests/t": (200, {"Docker-Content-Digest": DIGEST}, b"")
    }
    with server(digest, elsewhere) as other_host:
        # `server` answers at this path once there is a login.
        on = (307, {"Location": f"http://{other_host}/v2/a/manifests/t"}, b"")
        answers: dict[str, tuple[int, dict[str, str], bytes]] = {
            "/v2/a/manifests/t": (401, {"WWW-Authenticate": 'Basic realm="r"'}, b""),
            "/authorized": on,
        }
        with server(answers, requests) as host:
            assert container_registry.find_digest(f"{host}/a:t", ("user", "password")) == DIGEST
    assert any("Authorization" in headers for _, headers in requests)
    assert [path for path, _ in elsewhere] == ["/v2/a/manifests/t"]
    assert "Authorization" not in elsewhere[0][1]


def test_no_login_is_given_without_tls_where_the_registry_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a registry answers whose tokens come from a place without TLS."""
    opened: list[str] = []

    def refuse(request: urllib.request.Request, timeout: float) -> Any:
        opened.append(request.full_url)
        headers = Message()
        headers["WWW-Authenticate"] = 'Bearer realm="http://tokens.example.org/token"'
        raise urllib.error.HTTPError(request.full_url, 401, "no", headers, None)

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(container_registry.RegistryError, match="which is not HTTPS"):
        container_registry.find_digest("registry.example.org/a:t", ("user", "password"))
    assert opened == ["https://registry.example.org/v2/a/manifests/t"]


@pytest.mark.slow
def test_an_answer_without_a_digest_is_no_answer() -> None:
    with (
        server({"/v2/a/manifests/t": (200, {}, b"")}, []) as host,
        pytest.raises(container_registry.RegistryError, match="digest"),
    ):
        container_registry.find_digest(f"{host}/a:t")


def test_a_login_that_is_no_docker_configuration_ends_the_build_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("password")
    words = ["--context", str(tmp_path), "--work", str(tmp_path / "work"), "--reference", "127.0.0.1:9/a:t"]
    with pytest.raises(StepError, match="no configuration of Docker's") as caught:
        prepare.main([*words, "--login", "file", "--secret", str(tmp_path / "config.json")])
    assert caught.value.code == BAD_INPUT


def test_the_login_of_a_docker_configuration_is_that_of_its_host() -> None:
    auth = base64.b64encode(b"user:pass:word").decode()
    configuration = json.dumps({"auths": {"https://index.docker.io/v1/": {"auth": auth}}})
    assert login_of(configuration, "docker.io") == ("user", "pass:word")
    assert login_of(configuration, "registry.example.org") is None


def test_files_of_a_mounted_configmap_are_laid_out_with_their_modes(tmp_path: Path) -> None:
    mounted, target = tmp_path / "mounted", tmp_path / "context"
    data = mounted / "..2026_11_22" / "bin"
    data.mkdir(parents=True)
    (data / "tool").write_text("#!/bin/sh\n")
    (mounted / "..data").symlink_to("..2026_11_22")
    (mounted / "bin").symlink_to("..data/bin")
    (mounted / "plain").write_text("x")
    prepare.lay_out(mounted, target, ["bin/tool"])
    assert (target / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert not (target / "bin" / "tool").is_symlink()
    assert (target / "plain").stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in target.iterdir()) == ["bin", "plain"]
    # Another pod's copy makes the same layers: nothing in them is of the time of the copy.
    assert {path.stat().st_mtime for path in (target, *target.rglob("*"))} == {0}
    assert (target / "bin").stat().st_mode & 0o777 == 0o755


@pytest.mark.slow
def test_a_file_that_is_called_like_an_option_may_be_executable(tmp_path: Path) -> None:
    """As the Job's command line has it."""
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "--login").write_text("#!/bin/sh\n")
    words = ["--context", str(tmp_path / "mounted"), "--work", str(tmp_path / "work"), "--executable=--login"]
    with server({"/v2/a/manifests/t": (500, {}, b"")}, []) as host, pytest.raises(StepError):
        prepare.main([*words, "--reference", f"{host}/a:t", "--patience", "0"])
    assert (tmp_path / "work" / "context" / "--login").stat().st_mode & 0o777 == 0o755
