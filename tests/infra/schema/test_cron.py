"""Schedules that a CronJob of Kubernetes takes, and those that it would refuse or never run."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from slipway.infra.schema import cron
from slipway.infra.schema.cron import Cron, TimeZone


@pytest.mark.parametrize(
    "value",
    [
        "0 3 * * *",
        "*/5 1-5,22 1,15 jan-MAR Mon-fri",
        "0/15 * ? * ?",
        "0 0 29 2 *",
        "0 0 31 2,3 *",
        "0 0 30 2 1",
        "59 23 1-31/10 12 6",
        # The day of the week is one of its own: a step of 2 names some.
        "0 0 31 2 */2",
    ],
)
def test_schedules_of_kubernetes_are_taken(value: str) -> None:
    assert TypeAdapter(Cron).validate_python(value) == value


@pytest.mark.parametrize(
    ("value", "reason", "fix"),
    [
        ("0 3 * *", "4 fields, and there are five: minute, hour, day of the month", '`"0 3 * * *"`'),
        ("0 0 3 * * *", "6 fields", '`"0 3 * * *"`'),
        ("", "0 fields", '`"0 3 * * *"`'),
        ("@daily", "a name for a schedule", 'write `"0 0 * * *"`'),
        ("TZ=Europe/Berlin 0 3 * * *", "a time zone among the fields", "`time_zone: Europe/Berlin`"),
        ("60 * * * *", "`60` is no minute", "write 0 to 59"),
        ("0 24 * * *", "`24` is no hour", "write 0 to 23"),
        ("0 0 0 * *", "`0` is no day of the month", "write 1 to 31"),
        ("0 0 1 13 *", "`13` is no month", "write 1 to 12, or `jan` to `dec`"),
        ("0 0 * * 7", "`7` is no day of the week", "write `0` for Sunday"),
        ("0 0 * * mon-sonday", "`sonday` is no day of the week", "`sun` to `sat`"),
        ("0 22-3 * * *", "`22-3` ends before it begins", "`22-23,0-3`"),
        ("*/0 * * * *", "steps of 0", "a step of 1 or more"),
        ("0 0 L * *", "`l` is no day of the month", "write 1 to 31"),
        ("1,, * * * *", "`` is no minute", "0 to 59"),
        ("٣ * * * *", "`٣` is no minute", "0 to 59"),
        ("0 0 30 2 *", "it would never run", '`"0 3 * * *"`'),
        ("0 0 31 2 3,*", "it would never run", '`"0 3 * * *"`'),
        ("0 0 31 4,6,9,11 *", "it would never run", '`"0 3 * * *"`'),
    ],
)
def test_what_would_not_run_is_refused_in_words(value: str, reason: str, fix: str) -> None:
    said = _refusal(Cron, value)
    assert reason in said["reason"]
    assert fix in said["fix"]


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("Europe/berlin", "did you mean `Europe/Berlin`?"),
        ("Berlin", "did you mean `Europe/Berlin`?"),
        ("localtime", "Etc/UTC"),
        ("../etc/passwd", "Etc/UTC"),
        ("", "Etc/UTC"),
        # Of zones by an offset the sign is reversed, and abbreviations are near to those of other places.
        ("GMT+2", "`Etc/GMT-2`"),
        ("UTC-05:00", "`Etc/GMT+5`"),
        ("GMT+20", "write for example `Europe/Berlin`"),
        ("PST", "write for example `Europe/Berlin`"),
    ],
)
def test_a_time_zone_has_its_name_of_the_iana_database(value: str, fix: str) -> None:
    assert TypeAdapter(TimeZone).validate_python("Europe/Berlin") == "Europe/Berlin"
    assert fix in _refusal(TimeZone, value)["fix"]


def test_a_machine_without_the_database_takes_what_reads_like_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron, "_zones", frozenset)
    assert TypeAdapter(TimeZone).validate_python("Mars/Base_1") == "Mars/Base_1"
    assert "`Europe/Berlin`" in _refusal(TimeZone, "../etc/passwd")["fix"]


def _refusal(kind: Any, value: str) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    (error,) = caught.value.errors()
    return error.get("ctx", {})


@pytest.mark.parametrize(
    ("value", "times"),
    [
        ("0 3 * * *", 365.25 / 12),
        ("*/15 * * * *", 4 * 24 * 365.25 / 12),
        ("0 0 1 * *", 1),
        ("0 0 29 2 *", 1 / 48),
        ("0 6,18 * * 1-5", 2 * 365.25 / 7 * 5 / 12),
        # The first of a month, and every Monday.
        ("0 0 1 * mon", 365.25 / 7 / 12 + 1 - 1 / 7),
    ],
)
def test_a_schedule_comes_up_so_often_a_month(value: str, times: float) -> None:
    assert cron.times_a_month(value) == pytest.approx(times, rel=0.01)


def test_it_comes_up_as_often_as_for_the_library_of_kubernetes() -> None:
    """The file has 4,000 random schedules, and how often robfig/cron 3.0.1 has each in 2024 to 2027."""
    rows = [row.split("\t") for row in (Path(__file__).parent / "schedules.tsv").read_text().splitlines()]
    wrong = [row for row in rows if round(cron.times_a_month(row[1]) * 48) != int(row[0])]
    assert (len(rows), wrong) == (4000, [])


@pytest.mark.parametrize("value", ["", "@daily", "0 3 * * * *", "61 * * * *"])
def test_what_is_no_schedule_has_no_number(value: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        cron.times_a_month(value)
