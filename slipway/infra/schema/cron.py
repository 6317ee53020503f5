"""When something runs by itself: five fields as crontab has them, and the time zone that they are in.

What is accepted here is what the CronJobs of Kubernetes accept, which read it with github.com/robfig/cron 3.0.1
(seen November 2026): Sunday is 0 and not 7, and a range does not go past its end.
"""

import re
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Annotated

from pydantic import AfterValidator

from slipway.infra.schema.base import refuse
from slipway.infra.schema.problems import nearest

EXAMPLE = 'write for example `"0 3 * * *"`, every day at 03:00'

MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

PART = re.compile(
    r"(?:(?P<any>[*?])|(?P<first>[a-z0-9]{1,9})(?:-(?P<last>[a-z0-9]{1,9}))?)(?:/(?P<step>[0-9]{1,9}))?"
)

EVERY = re.compile(r"(?:^|,)[*?](?:/0*1)?(?:,|$)")
"""The part that makes a field stand for every day."""


@dataclass(frozen=True)
class Field:
    """One of the five: what it is called, and what it can be."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()

    @property
    def values(self) -> str:
        """What it can be, for people."""
        names = f", or `{self.names[0]}` to `{self.names[-1]}`" if self.names else ""
        return f"{self.low} to {self.high}{names}"


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31),
    Field("month", 1, 12, MONTH_NAMES),
    Field("day of the week", 0, 6, WEEKDAY_NAMES),
)


def _cron(value: str) -> str:
    words = value.split()
    if value.strip().lower() in DESCRIPTORS:
        raise refuse(
            "a name for a schedule, and not its five fields", f'write `"{DESCRIPTORS[words[0].lower()]}"`'
        )
    if words and words[0].startswith(("TZ=", "CRON_TZ=")):
        zone = words[0].partition("=")[2]
        raise refuse("Kubernetes refuses a time zone among the fields", f"write it beside: `time_zone: {zone}`")
    if len(words) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        raise refuse(f"{len(words)} fields, and there are five: {names}", EXAMPLE)
    if times_a_month(value) == 0:
        raise refuse("no month that it names has such a day, so it would never run", EXAMPLE)
    return " ".join(words)


def _values(word: str, of: Field) -> set[int]:
    """What ``word``, a list of numbers and ranges, stands for."""
    values: set[int] = set()
    for part in word.lower().split(","):
        match = PART.fullmatch(part)
        if match is None:
            fix = f"write `*`, or {of.values}; a list is `1,5`, a range `1-5`, a step `*/5`"
            raise refuse(f"`{part}` is no {of.name}", fix)
        first = of.low if match["any"] else _number(match["first"], of)
        last = _number(match["last"], of) if match["last"] else first
        if match["any"] or (match["step"] and not match["last"]):
            last = of.high
        if last < first:
            raise refuse(
                f"`{part}` ends before it begins", f"write two ranges: `{first}-{of.high},{of.low}-{last}`"
            )
        step = int(match["step"] or 1)
        if step == 0:
            raise refuse(f"`{part}` goes in steps of 0", "write a step of 1 or more")
        values.update(range(first, last + 1, step))
    return values


def _number(text: str, of: Field) -> int:
    if text in of.names:
        return of.low + of.names.index(text)
    number = int(text) if text.isdigit() else -1
    if not of.low <= number <= of.high:
        sunday = number == 7 and of.names is WEEKDAY_NAMES
        raise refuse(f"`{text}` is no {of.name}", "write `0` for Sunday" if sunday else f"write {of.values}")
    return number


Cron = Annotated[str, AfterValidator(_cron)]
"""Five fields as crontab has them."""

YEARS = 4
"""After so many years the calendar has as many days of each month as before, leap days included."""


def times_a_month(cron: str) -> float:
    """How often these five fields come up in a month, on average. Raises ValueError where they are wrong."""
    words = cron.split()
    if len(words) != len(FIELDS):
        raise ValueError(f"{cron!r} has not five fields")
    minutes, hours, days, months, weekdays = [
        _values(word, field) for word, field in zip(words, FIELDS, strict=True)
    ]
    # Where both kinds of days are named, either is enough. A `*` in steps names days, and one in a list does not.
    either = not any(EVERY.search(words[index]) for index in (2, 4))
    matching = sum(
        (day in days or weekday in weekdays) if either else (day in days and weekday in weekdays)
        for month, day, weekday in _calendar()
        if month in months
    )
    return matching * len(minutes) * len(hours) / (YEARS * 12)


@cache
def _calendar() -> list[tuple[int, int, int]]:
    """Month, day and day of the week of each day of `YEARS`."""
    first = date(2024, 1, 1)
    days = [first + timedelta(day) for day in range((date(first.year + YEARS, 1, 1) - first).days)]
    return [(day.month, day.day, day.isoweekday() % 7) for day in days]


@cache
def _zones() -> frozenset[str]:
    # Files of some machines' databases that are no zones of the cluster's.
    return frozenset(zoneinfo.available_timezones() - {"localtime", "Factory", "posixrules"})


def _time_zone(value: str) -> str:
    known = _zones()
    if not known:
        # A machine without the database; the cluster has one of its own.
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", value):
            raise refuse("not the name of a time zone", "write for example `Europe/Berlin`")
        return value
    if value not in known:
        reason, example = "not the name of a time zone in the IANA database", "write for example `Europe/Berlin`"
        if offset := re.fullmatch(r"(?i)(?:gmt|utc)?([+-])0?(\d{1,2})(?::?00)?", value):
            # There the sign is that of POSIX: west of Greenwich is positive.
            fixed = f"Etc/GMT{'-' if offset[1] == '+' else '+'}{offset[2]}"
            summer = f", or for the whole year, without summer time, `{fixed}`" if fixed in known else ""
            raise refuse(reason, f"{example}{summer}")
        same = next((zone for zone in sorted(known) if zone.lower() == value.lower()), None)
        # An abbreviation is near to those of other places: `PST` to `EST`.
        near = same or (None if re.fullmatch("[A-Z]{2,5}", value) else nearest(value, sorted(known)))
        raise refuse(reason, f"did you mean `{near}`?" if near else f"{example}, or `Etc/UTC`")
    return value


TimeZone = Annotated[str, AfterValidator(_time_zone)]
"""The name of a time zone in the IANA database."""
