"""``make put`` and ``make get``: into and out of a mounted store behind kubectl, and a bucket behind its tool."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# botocore has no types.

import base64
import json
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner, Result

from slipway.infra import pulumi_cli
from slipway.infra.clouds.aws import doctor
from slipway.infra.clouds.contract import StoredObject
from slipway.infra.clouds.gcp import google_api
from slipway.tools.command import app
from slipway.tools.transfer.buckets import bucket_of
from tests.tools.test_show import KUBECTL, READER

GATE = {
    "urn": "urn:pulumi:local::slipway::kubernetes:batch/v1:Job::store-gate-local",
    "type": "kubernetes:batch/v1:Job",
    "id": "slipway/store-gate-local-1",
    "provider": "urn:pulumi:local::slipway::pulumi:providers:kubernetes::local::1",
}


def answer(monkeypatch: pytest.MonkeyPatch, question: str, value: Any) -> None:
    """Lets the Pulumi CLI answer a question about whatever stack with ``value``."""

    def answered(_stack: str) -> Any:
        return value

    monkeypatch.setattr(pulumi_cli, question, answered)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with kubectl on PATH, behind which `store` is what pods have mounted."""
    (tmp_path / "store").mkdir()
    (tmp_path / "job.json").write_text(json.dumps(READER))
    programs = tmp_path / "bin"
    programs.mkdir()
    kubectl = KUBECTL.replace("words[3:]", "words[words.index('--') + 1 :]")
    (programs / "kubectl").write_text(kubectl.format(python=sys.executable, folder=str(tmp_path)))
    (programs / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    answer(monkeypatch, "outputs_of", {"store": "pvc://slipway/store-1", "mnist": {}})
    answer(monkeypatch, "resources_of", [GATE])
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--stack", "local"])


def put(source: Path, target: str, *more: str) -> Result:
    return run("put", "--from", str(source), "--to", target, *more)


def get(source: str, target: Path, *more: str) -> Result:
    return run("get", "--from", source, "--to", str(target), *more)


def folder_of(place: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return place


def test_a_folder_goes_into_the_store_and_comes_back_and_nothing_is_copied_twice(machine: Path) -> None:
    scans = folder_of(machine / "scans", {"a b.csv": "1", "deep/c.csv": "22"})
    assert put(scans, "data/scans").exit_code == 0
    stored = machine / "store" / "data" / "scans"
    assert {path.relative_to(stored).as_posix() for path in stored.rglob("*.csv")} == {"a b.csv", "deep/c.csv"}

    # A copy that was interrupted goes on: what is there stays, and half a file is no file.
    (stored / "deep" / "c.csv").rename(stored / "deep" / "c.csv.slipway-partial")
    inode = (stored / "a b.csv").stat().st_ino
    assert put(scans, "data/scans").exit_code == 0
    assert (stored / "deep" / "c.csv").read_text() == "22"
    assert (stored / "a b.csv").stat().st_ino == inode

    assert get("data/scans", machine / "back").exit_code == 0
    assert (machine / "back" / "deep" / "c.csv").read_text() == "22"
    assert get("data/scans/a b.csv", machine / "back", "--force").exit_code == 0
    # No pod is left behind.
    calls = [json.loads(line) for line in (machine / "calls").read_text().splitlines()]
    made, deleted = ([call for call in calls if verb in call] for verb in ("create", "delete"))
    assert len(made) == len(deleted) == 4


def test_a_file_goes_to_a_path_or_into_a_folder(machine: Path) -> None:
    file = folder_of(machine, {"one.csv": "1"}) / "one.csv"
    assert [put(file, target).exit_code for target in ("data/other.csv", "data/")] == [0, 0]
    names = {path.name for path in (machine / "store" / "data").iterdir()}
    assert names == {"other.csv", "one.csv"}


def test_files_with_another_content_are_overwritten_when_told_to(machine: Path) -> None:
    scans = folder_of(machine / "scans", {"a.csv": "new", "b.csv": "b"})
    stored = folder_of(machine / "store" / "data", {"a.csv": "what somebody else put there"})
    refused = put(scans, "data")
    assert refused.exit_code == 1
    assert "a.csv" in refused.output
    assert "FORCE=1" in refused.output
    assert not (stored / "b.csv").exists()
    assert put(scans, "data", "--force").exit_code == 0
    assert (stored / "a.csv").read_text() == "new"

    mine = folder_of(machine / "mine", {"a.csv": "my own work"})
    assert get("data", mine).exit_code == 1
    assert (mine / "a.csv").read_text() == "my own work"


@pytest.mark.parametrize("target", ["mnist/train/0123456789", "mnist", ".history", "fraud/x", "../x", "/x", "."])
def test_results_of_steps_are_not_written_by_hand(machine: Path, target: str) -> None:
    assert put(folder_of(machine / "scans", {"a.csv": "1"}), target).exit_code == 1
    assert not any((machine / "store").iterdir())


def test_a_pod_that_ends_in_the_middle_is_said_and_the_next_call_goes_on(machine: Path) -> None:
    scans = folder_of(machine / "scans", {"a.csv": "1", "b.csv": "2"})
    # A folder in the place of a file: the second one cannot be written.
    (machine / "store" / "data" / "b.csv").mkdir(parents=True)
    broken = put(scans, "data")
    assert broken.exit_code == 1
    (machine / "store" / "data" / "b.csv").rmdir()
    assert put(scans, "data").exit_code == 0
    assert (machine / "store" / "data" / "b.csv").read_text() == "2"


TOOL = """#!{python}
import json, pathlib, sys
with pathlib.Path({folder!r}, "tool").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
"""


@pytest.mark.parametrize(
    ("stack", "url", "tool", "folder", "file"),
    [
        ("gcp-dev", "gs://team", "gcloud", ["storage", "rsync"], ["storage", "cp"]),
        ("aws-dev", "s3://team/store", "aws", ["s3", "sync"], ["s3", "cp"]),
    ],
)
def test_a_bucket_is_copied_to_by_its_clouds_tool(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    stack: str,
    url: str,
    tool: str,
    folder: list[str],
    file: list[str],
) -> None:
    answer(monkeypatch, "outputs_of", {"store": url})
    there: dict[str, StoredObject] = {}

    def listing(*_of: Any) -> Mapping[str, StoredObject]:
        return there

    monkeypatch.setattr(google_api, "objects", listing)
    monkeypatch.setattr(doctor, "objects", listing)
    scans = folder_of(machine / "scans", {"a.csv": "1", "b.csv": "2"})
    words = ["put", "--from", str(scans), "--to", "data", "--stack", stack]
    monkeypatch.setenv("PATH", "/nowhere")
    missing = CliRunner().invoke(app, words)
    assert missing.exit_code == 1
    assert tool in missing.output

    monkeypatch.setenv("PATH", str(machine / "bin"))
    (machine / "bin" / tool).write_text(TOOL.format(python=sys.executable, folder=str(machine)))
    (machine / "bin" / tool).chmod(0o755)
    assert CliRunner().invoke(app, words).exit_code == 0
    words[2] = str(scans / "a.csv")
    assert CliRunner().invoke(app, words).exit_code == 0
    calls = [json.loads(line) for line in (machine / "tool").read_text().splitlines()]
    assert [call[: len(words)] for call, words in zip(calls, (folder, file), strict=True)] == [folder, file]
    assert [call[-2:] for call in calls] == [[str(scans), f"{url}/data"], [str(scans / "a.csv"), f"{url}/data"]]
    assert not any("delete" in word for call in calls for word in call)

    # A large object, sent in parts, has no digest: a second call does not take it for another file.
    size = (scans / "a.csv").stat().st_size
    root = url.partition("//")[2].partition("/")[2]
    name = f"{root}/data".lstrip("/")
    there[name] = StoredObject(size, int(time.time()) + 1)
    assert CliRunner().invoke(app, words).exit_code == 0
    assert len((machine / "tool").read_text().splitlines()) == 2
    there[name] = StoredObject(99, 0, "another")
    assert CliRunner().invoke(app, words).exit_code == 1
    assert len((machine / "tool").read_text().splitlines()) == 2


class Pages:
    """Google's answers to one listing, page by page."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def get(self, _host: str, _path: str, **query: str) -> Mapping[str, Any]:
        self.tokens.append(query.get("pageToken", ""))
        digest = base64.b64encode(bytes.fromhex("c4ca4238a0b923820dcc509a6f75849b")).decode()
        entry = {"size": "1", "md5Hash": digest, "updated": "2026-11-25T12:00:00.000Z", "generation": "1764"}
        if not self.tokens[-1]:
            return {"items": [{"name": "data/a.csv", **entry}, {"name": "data/", **entry}], "nextPageToken": "2"}
        return {"items": [{"name": "data-of-others/b.csv", **entry}, {"name": "data/d/c.csv", **entry}]}


def test_all_pages_of_a_listing_of_google_count_and_folders_with_a_longer_name_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = Pages()

    def signed_in(_configuration: Mapping[str, Any]) -> Pages:
        return pages

    monkeypatch.setattr(google_api, "signed_in", signed_in)
    bucket = bucket_of("gs://team", {})
    assert bucket is not None
    files = bucket.files("data")
    assert files.keys() == {"a.csv", "d/c.csv"}
    assert files["a.csv"].digest() == "c4ca4238a0b923820dcc509a6f75849b"
    assert files["a.csv"].version == "1764"
    assert pages.tokens == ["", "2"]
    assert bucket.files("").keys() == {"data/a.csv", "data/d/c.csv", "data-of-others/b.csv"}


def test_all_pages_of_a_listing_of_amazon_count(monkeypatch: pytest.MonkeyPatch) -> None:
    client = botocore.session.Session().create_client(
        "s3", region_name="us-east-2", aws_access_key_id="a", aws_secret_access_key="b"
    )
    written = datetime(2026, 11, 25, tzinfo=UTC)
    with Stubber(client) as stubs:
        asked = {"Bucket": "team", "Prefix": "store/data"}
        first = {"Key": "store/data/a.csv", "Size": 1, "ETag": '"c4ca"', "LastModified": written}
        more = {"IsTruncated": True, "NextContinuationToken": "2"}
        stubs.add_response("list_objects_v2", {"Contents": [first], **more}, asked)
        second = {"Key": "store/data/b.csv", "Size": 2, "ETag": '"c4ca-2"', "LastModified": written}
        stubs.add_response(
            "list_objects_v2", {"Contents": [second], "IsTruncated": False}, {**asked, "ContinuationToken": "2"}
        )

        def stand_in(_account: doctor.Account, _service: str, _region: str) -> Any:
            return client

        monkeypatch.setattr(doctor.Account, "_client", stand_in)
        bucket = bucket_of("s3://team/store", {"slipway:store": {"kind": "s3"}})
        assert bucket is not None
        files = bucket.files("data")
    # What was sent in several parts has no digest of the whole.
    assert {name: file.digest() for name, file in files.items()} == {"a.csv": "c4ca", "b.csv": ""}
    assert {name: file.version for name, file in files.items()} == {"a.csv": "c4ca", "b.csv": "c4ca-2"}


def test_a_bucket_of_another_server_than_amazons_is_reached_through_a_pod() -> None:
    assert bucket_of("s3://team", {"slipway:store": {"kind": "s3_compatible"}}) is None
