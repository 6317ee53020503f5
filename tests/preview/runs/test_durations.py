"""Times of earlier runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.evaluated.schedule import JobDuration
from slipway.infra.platform import Resources
from slipway.preview.cli import TimesError, read_export, read_rehearsal
from slipway.rehearse.state import JobRecord, Phase, Place, State


def job(name: str, started: str | None, completed: str | None, **more: Any) -> dict[str, Any]:
    status = {"startTime": started, "completionTime": completed}
    return {
        "urn": f"urn:pulumi:dev::slipway::slipway:kubernetes:StepJob$kubernetes:batch/v1:Job::{name}",
        "type": "kubernetes:batch/v1:Job",
        "outputs": {"status": {key: value for key, value in status.items() if value}},
        **more,
    }


def export(tmp_path: Path, *resources: dict[str, Any]) -> Path:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"version": 3, "deployment": {"resources": resources}}), encoding="utf-8")
    return file


def test_a_stack_export_has_the_times_of_its_jobs(tmp_path: Path) -> None:
    file = export(
        tmp_path,
        job("mnist-train", "2026-11-20T10:00:00Z", "2026-11-20T10:12:30Z"),
        job("mnist-predict", "2026-11-20T10:13:00Z", None),
        job("old-train", "2026-11-20T10:00:00Z", "2026-11-20T10:12:30Z", delete=True),
        {"urn": "urn:pulumi:dev::slipway::gcp:storage/bucket:Bucket::store", "type": "gcp:storage/bucket:Bucket"},
    )
    assert read_export(file) == {"dev": {"mnist-train": JobDuration(750, "measured")}}


def test_times_in_an_export_are_by_stack(tmp_path: Path) -> None:
    train = job("mnist-train", "2026-11-20T10:00:00Z", "2026-11-20T10:12:30Z")
    other = {**train, "urn": train["urn"].replace("pulumi:dev", "pulumi:prod")}
    assert read_export(export(tmp_path, train, other)).keys() == {"dev", "prod"}


@pytest.mark.parametrize("content", ["{}", "[]", "no json", '{"deployment": null}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "times.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(TimesError, match=r"times\.json"):
        read_export(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TimesError, match="cannot be read"):
        read_export(tmp_path / "nowhere.json")


def test_a_rehearsal_records_the_times_of_successful_jobs(tmp_path: Path) -> None:
    records = [
        JobRecord("urn:1", "mnist-train", phase=Phase.SUCCEEDED, started=100.0, finished=142.5),
        JobRecord("urn:2", "mnist-predict", phase=Phase.FAILED, started=150.0, finished=151.0),
        JobRecord(
            "urn:3", "mnist-prepare", phase=Phase.UNCHANGED, started=10, finished=12, requested=Resources(1, 1)
        ),
        JobRecord("urn:4", "benchmark", phase=Phase.NOT_RUN),
    ]
    place = Place(tmp_path)
    place.create()
    State(tmp_path / "state.json", {record.urn: record for record in records}).save()
    assert read_rehearsal(tmp_path) == {
        "mnist-train": JobDuration(42.5, "rehearsed"),
        "mnist-prepare": JobDuration(2, "rehearsed"),
    }


def test_without_a_rehearsal_there_are_no_times(tmp_path: Path) -> None:
    assert read_rehearsal(tmp_path / "nowhere") == {}
    (tmp_path / "state.json").write_text("{", encoding="utf-8")
    assert read_rehearsal(tmp_path) == {}
