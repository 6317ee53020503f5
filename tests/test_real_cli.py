"""The real Pulumi CLI accepts the program: previews against a file backend, with nothing to log in to."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import yaml

from slipway.command.reference import shipped

PLUGINS = {
    "local": {"kubernetes"},
    "demo": {"kubernetes", "random"},
    "onprem": {"kubernetes"},
    "openshift": {"kubernetes"},
    "gcp-dev": {"kubernetes", "gcp"},
    "gcp-prod": {"kubernetes", "gcp"},
    "gcp-platform": {"kubernetes", "gcp"},
    "gcp-team": {"kubernetes", "gcp"},
    "gcp-anywhere": {"kubernetes", "gcp"},
    "gcp-distributed": {"kubernetes", "gcp"},
    "gcp-serving": {"kubernetes", "gcp", "random"},
    "aws-serving": {"kubernetes", "aws", "random"},
    "aws-dev": {"kubernetes", "aws"},
    "aws-prod": {"kubernetes", "aws"},
    "gcp-batch": {"kubernetes", "gcp", "random"},
    "aws-batch": {"kubernetes", "aws", "random"},
    "onprem-batch": {"kubernetes", "random"},
}
NEEDS_AN_ANSWER = {"onprem", "aws-dev", "aws-prod", "aws-batch", "aws-serving", "gcp-team"}
"""Stacks whose preview asks something of the real thing: the nodes that it labels, whose account it is, or what
the last update of another stack left."""

MNIST = frozenset({"mnist-prepare", "mnist-train", "mnist-predict"})
BATCH = frozenset({"fraud-prepare", "fraud-days", "fraud-evaluate"})
JOBS = {"gcp-platform": frozenset[str](), "gcp-batch": BATCH, "onprem-batch": BATCH}
"""Jobs of stacks that do not run MNIST."""

CHARTS = {
    "openshift": "nvidia.github.io",
    "gcp-distributed": "registry.k8s.io",
    "gcp-serving": "registry.k8s.io",
    "aws-serving": "registry.k8s.io",
}
"""Stacks whose preview fetches a chart, and from which host."""

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "clusters": [{"name": "nowhere", "cluster": {"server": "https://127.0.0.1:9"}}],
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
    "users": [{"name": "nobody", "user": {"token": "none"}}],
}


def installed_plugins() -> set[str]:
    listing = ["pulumi", "plugin", "ls", "--json"]
    done = subprocess.run(listing, check=False, capture_output=True, text=True)
    return {plugin["name"] for plugin in json.loads(done.stdout or "[]")}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "state").mkdir()
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG), encoding="utf-8")
    return {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        # The Google provider wants to see a token before it previews; it sends it nowhere.
        "GOOGLE_OAUTH_ACCESS_TOKEN": "none",
    }


def reachable(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False


def pulumi(checkout: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["pulumi", *arguments, "--non-interactive"]
    return subprocess.run(command, cwd=checkout, env=environment, check=False, capture_output=True, text=True)


@pytest.fixture
def stack(request: pytest.FixtureRequest, checkout: Path, environment: dict[str, str]) -> str:
    name = str(request.param)
    if shutil.which("pulumi") is None:
        pytest.skip("the Pulumi CLI is not on PATH")
    if missing := PLUGINS[name] - installed_plugins():
        pytest.skip(f"provider plugins are not installed: {', '.join(sorted(missing))}")
    if name in CHARTS and not reachable(CHARTS[name]):
        pytest.skip(f"{CHARTS[name]} cannot be reached")
    made = pulumi(checkout, environment, "stack", "init", name)
    assert made.returncode == 0, made.stderr
    if "gcp" in PLUGINS[name]:
        pulumi(checkout, environment, "config", "set", "gcp:project", "a-project", "-s", name)
    return name


@pytest.mark.long
@pytest.mark.parametrize("stack", sorted(PLUGINS.keys() - NEEDS_AN_ANSWER), indirect=True)
def test_preview(stack: str, checkout: Path, environment: dict[str, str]) -> None:
    done = pulumi(checkout, environment, "preview", "-s", stack, "--json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    created = [step["urn"] for step in json.loads(done.stdout)["steps"] if step["op"] == "create"]
    jobs = [urn.rsplit("::", 1)[1] for urn in created if "kubernetes:batch/v1:Job::" in urn]
    assert set(jobs) >= JOBS.get(stack, MNIST)


@pytest.mark.long
@pytest.mark.parametrize("stack", ["gcp-dev"], indirect=True)
def test_a_wrong_stack_file_is_one_plain_error(stack: str, checkout: Path, environment: dict[str, str]) -> None:
    path = checkout / "stacks" / f"Pulumi.{stack}.yaml"
    right = path.read_text(encoding="utf-8")
    path.write_text(right.replace("gpus: 1", "gpus: 3"), encoding="utf-8")
    try:
        done = pulumi(checkout, environment, "preview", "-s", stack)
    finally:
        path.write_text(right, encoding="utf-8")
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert "slipway:clusters.dev.pools.train.gpus: 3" in text
    assert "Traceback" not in text


def test_the_stacks_here_are_the_stacks_there_are() -> None:
    assert set(shipped.stacks()) == set(PLUGINS)
