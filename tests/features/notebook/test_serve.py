"""The notebook's server, as the app starts it: who comes in, and what is kept."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.notebook.servers import TOKEN, Lab, lab, until
from tests.support.steps import only_error, run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("kept") / "data") as jupyter:
        yield jupyter


@pytest.mark.parametrize("token", ["", "   ", "short"])
def test_without_a_token_nothing_is_served(token: str, tmp_path: Path) -> None:
    output = run("slipway.features.notebook.pod.serve", "--folder", tmp_path / "data", code=2, JUPYTER_TOKEN=token)
    assert "JUPYTER_TOKEN has no token of 16 characters" in only_error(output)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("path", ["/api/status", "/api/contents", "/api/kernels", "/api/terminals", "/api/me"])
@pytest.mark.slow
def test_only_the_token_opens_it(server: Lab, path: str) -> None:
    refused, _, _ = server.ask(path, token=None)
    assert refused in {302, 401, 403}, path
    assert server.ask(path, token="another-token-of-the-same-length")[0] in {302, 401, 403}
    assert server.ask(path)[0] == 200


@pytest.mark.slow
def test_what_lies_in_the_kept_folder_opens_nothing_and_is_for_kernels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had the folder once would else decide who comes in later: with a package that `pip` put there."""
    local = tmp_path / ".local"
    packages = local / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for folder in (local / "etc" / "jupyter", packages):
        folder.mkdir(parents=True)
    said = {"IdentityProvider": {"token": ""}, "ServerApp": {"allow_unauthenticated_access": True}}
    for folder in (local / "etc" / "jupyter", tmp_path):
        (folder / "jupyter_server_config.json").write_text(json.dumps(said))
    (packages / "usercustomize.py").write_text(
        f"import sys; open({str(tmp_path / 'ran')!r}, 'a').write(' '.join(sys.orig_argv) + '\\n')"
    )
    # As in a pod: a Python with packages of its users, and JupyterLab beside it.
    monkeypatch.setattr(sys, "executable", sys._base_executable)
    installed = next(path for path in sys.path if (Path(path) / "jupyterlab").is_dir())
    with lab(tmp_path, PYTHONPATH=installed) as server:
        for path in ("/api/contents", "/api/kernels"):
            assert server.ask(path, token=None)[0] in {302, 401, 403}, path
        assert server.ask("/api/contents")[0] == 200
        assert not (tmp_path / "ran").exists() or "jupyterlab" not in (tmp_path / "ran").read_text()
        server.json("/api/kernels", "POST", {})
        until(lambda: "ipykernel" in ((tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""))


@pytest.mark.slow
def test_what_the_kubelet_asks_needs_no_token(server: Lab) -> None:
    assert server.ask("/api", token=None)[0] == 200


@pytest.mark.slow
def test_the_page_of_a_stranger_leads_to_the_login(server: Lab) -> None:
    status, headers, _ = server.ask("/lab", token=None)
    assert status == 302
    assert headers["Location"].endswith("/login?next=%2Flab")
    status, _, content = server.ask("/lab")
    assert status == 200
    assert b"JupyterLab" in content


@pytest.mark.slow
def test_other_origins_and_forged_requests_are_refused(server: Lab) -> None:
    status, headers, _ = server.ask(f"/lab?token={TOKEN}", token=None)
    assert status == 200
    cookie = headers["Set-Cookie"].partition(";")[0]
    # With the cookie that a browser sends by itself, and no token.
    status, headers, _ = server.ask("/api/kernels", "POST", token=None, body={}, Cookie=cookie)
    assert status == 403
    status, headers, _ = server.ask("/api/status", token=None, Cookie=cookie, Origin="https://example.org")
    assert not headers.get("Access-Control-Allow-Origin")
    assert "frame-ancestors 'self'" in server.ask("/lab")[1]["Content-Security-Policy"]


@pytest.mark.slow
def test_no_password_can_be_set(server: Lab) -> None:
    server.ask(f"/login?next=%2Flab&token={TOKEN}", "POST", token=None)
    assert b"new_password" not in server.ask("/login", token=None)[2]


@pytest.mark.slow
def test_the_terminal_is_there(server: Lab) -> None:
    name = server.json("/api/terminals", "POST", {})["name"]
    assert server.ask(f"/api/terminals/{name}", "DELETE")[0] == 204


@pytest.mark.slow
def test_a_kernel_that_nobody_uses_is_ended_and_the_server_stays(tmp_path: Path) -> None:
    with lab(tmp_path, idle=3) as server:
        server.json("/api/kernels", "POST", {})
        assert len(server.json("/api/kernels")) == 1
        until(lambda: server.json("/api/kernels") == [])
        assert server.ask("/api/status")[0] == 200


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = run(
        "slipway.features.notebook.pod.serve", "--folder", tmp_path / "file" / "data", code=5, JUPYTER_TOKEN=TOKEN
    )
    assert str(tmp_path / "file") in only_error(output)
