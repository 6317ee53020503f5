"""Where a cluster's kubeconfig comes from, and what is said where there is none."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.command.clusters import AccessError, Clusters, NotCreatedError, Place, explain
from slipway.infra import pulumi_cli
from slipway.infra.api_server import UnreachableError, UnreadableError
from slipway.infra.pulumi_cli import unfinished_jobs
from slipway.infra.review.state import SIGNATURE
from tests.support.servers.api_server import kubeconfig

TEXT = json.dumps(kubeconfig(1))
EXEC = {
    **kubeconfig(1),
    "users": [{"name": "me", "user": {"exec": {"command": "no-such-plugin", "installHint": "Install it: here"}}}],
}


def provider(name: str, value: object, **more: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:gcp-dev::slipway::slipway:gcp:GkeCluster$pulumi:providers:kubernetes::{name}"
    return {"type": "pulumi:providers:kubernetes", "urn": urn, "inputs": {"kubeconfig": value}, **more}


@pytest.fixture(name="state")
def a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a `pulumi` on PATH that exports the resources that it is given."""

    def put(*resources: dict[str, Any], fails: str = "", hangs: bool = False) -> None:
        program, content = tmp_path / "bin" / "pulumi", tmp_path / "state.json"
        program.parent.mkdir(exist_ok=True)
        content.write_text(json.dumps({"version": 3, "deployment": {"resources": list(resources)}}))
        run = f"sys.exit({fails!r})" if fails else f"print(open({str(content)!r}).read())"
        run = "import time; time.sleep(60)" if hangs else run
        program.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1:3] == ['stack', 'export']\n{run}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))

    return put


def clusters(*places: Place, **more: Any) -> Clusters:
    return Clusters("gcp-dev", {place.name: place for place in places}, **more)


def test_a_kubeconfig_that_the_stack_file_names_needs_no_cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "config").write_text(TEXT)
    server = clusters(Place("local", str(tmp_path / "config"), "here")).server("local")
    assert (server.kubeconfig, server.context) == (str(tmp_path / "config"), "here")


def test_a_clouds_kubeconfig_is_read_from_the_state_in_clear(state: Callable[..., None]) -> None:
    secret = {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps(TEXT)}
    old = provider("dev", "old", delete=True)
    state(old, provider("other", "another"), provider("dev", secret))
    assert clusters(Place("dev")).server("dev").kubeconfig == TEXT


def test_jobs_that_no_up_saw_succeed_are_read_from_the_state(state: Callable[..., None]) -> None:
    given = "urn:pulumi:gcp-dev::slipway::slipway:gcp:GkeCluster$pulumi:providers:kubernetes::dev::1b47-0612"
    job = {"type": "kubernetes:batch/v1:Job", "provider": given}
    failed = {**job, "id": "slipway/mnist-train-1", "initErrors": ["Job has reached the specified backoff limit"]}
    state(provider("dev", "x"), {**job, "id": "slipway/mnist-prepare-1"}, failed, {**failed, "delete": True})
    assert unfinished_jobs("gcp-dev") == {("dev", "slipway", "mnist-train-1")}


def test_a_cluster_that_is_not_made_yet_is_told_so(state: Callable[..., None]) -> None:
    state(provider("other", TEXT))
    with pytest.raises(NotCreatedError):
        clusters(Place("dev")).server("dev")


@pytest.mark.parametrize(
    ("cli", "words"),
    [
        ({"fails": "error: no stack named 'gcp-dev' found"}, "no stack named 'gcp-dev' found"),
        ({"hangs": True}, "within 1 s"),
        (None, "not on PATH"),
    ],
    ids=["refuses", "hangs", "missing"],
)
def test_a_state_that_cannot_be_read_is_told_with_the_other_way(
    state: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any, words: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if cli == {"hangs": True}:
        monkeypatch.setattr(pulumi_cli, "ANSWER_WITHIN", 1)
    if cli is not None:
        state(**cli)
    with pytest.raises(AccessError, match=rf"{words}.*KUBECONFIG_FILE=") as error:
        clusters(Place("dev")).server("dev")
    assert not isinstance(error.value, NotCreatedError)


def test_a_given_kubeconfig_comes_first(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text(TEXT)
    assert clusters(Place("dev"), kubeconfig=given).server("dev").kubeconfig == str(given)
    two = clusters(Place("dev"), Place("here"), kubeconfig=given)
    assert two.server("here").context == "here"
    with pytest.raises(AccessError, match="give it contexts with their names"):
        two.server("dev")


@pytest.mark.parametrize(
    ("content", "context", "wanted"),
    [
        (kubeconfig(1), "prod", "prod"),
        ({**kubeconfig(1), "current-context": "gone"}, None, "gone"),
    ],
)
def test_a_context_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, content: dict[str, Any], context: str | None, wanted: str
) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    given = clusters(Place("dev"), kubeconfig=path, context=context)
    for access in (clusters(Place("dev", str(path), context)), given):
        with pytest.raises(AccessError, match=f"'{wanted}'.*: here.*KUBE_CONTEXT="):
            access.server("dev")


def test_a_missing_sign_in_plugin_is_told_with_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(yaml.safe_dump(EXEC))
    with pytest.raises(AccessError, match=r"no-such-plugin is not on PATH.*Install it: here"):
        clusters(Place("dev", str(tmp_path / "config"))).server("dev")


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read: No such file"), ("a: [", "is no YAML"), ("- 1", "is no kubeconfig")],
)
def test_a_kubeconfig_that_is_none_is_told_so(tmp_path: Path, content: str | None, says: str) -> None:
    if content:
        (tmp_path / "config").write_text(content)
    with pytest.raises(AccessError, match=says):
        clusters(Place("dev", str(tmp_path / "config"))).server("dev")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (AccessError("no kubeconfig"), "no kubeconfig"),
        (UnreadableError("401 Unauthorized"), "sign in again"),
        (UnreadableError('pods is forbidden: User "me"'), "may not read"),
        (UnreachableError("Read timed out. (read timeout=15)"), "does not answer"),
        (UnreachableError("Connection refused"), "cannot be reached"),
    ],
)
def test_an_error_is_one_sentence_with_its_own_words(error: Exception, says: str) -> None:
    assert says in explain(error)
    assert str(error) in explain(error)
