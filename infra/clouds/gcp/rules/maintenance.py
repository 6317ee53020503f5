"""Maintenance windows: how long they are, and how many hours of them GKE wants."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from dateutil.rrule import rrulestr

from infra.clouds.gcp.catalogue import maintenance_limits
from infra.clouds.gcp.cluster_settings import Maintenance
from infra.clouds.gcp.settings import GcpCluster
from infra.schema.problems import Finding, Path
from infra.schema.request import Request

RULE = re.compile(r"FREQ=(DAILY|WEEKLY|MONTHLY)(;[A-Z]+=[A-Z0-9,+-]+)*")
BY_DAY = re.compile(r"([+-]?[1-5])?(MO|TU|WE|TH|FR|SA|SU)")

YEAR = timedelta(days=366)
"""How long a rule is followed. What has a longer period comes too seldom anyway."""

Opening = tuple[datetime, datetime]
"""When a window opens and closes."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about each cluster's window."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        yield from _window(("clusters", name, "maintenance"), cluster.maintenance)


def _window(place: Path, window: Maintenance) -> Iterator[Finding]:
    limits = maintenance_limits()
    start, end = (datetime.fromisoformat(time) for time in (window.start, window.end))
    long_enough = end - start >= timedelta(hours=limits.window_hours)
    if not long_enough:
        hours = limits.window_hours
        yield Finding(
            (*place, "end"),
            window.end,
            f"{'before' if end < start else f'less than {hours} hours after'} the window's start, {window.start}",
            f"make it {hours} hours or more after the start",
            read=((*place, "start"),),
        )
    try:
        openings = _openings(window.recurrence, start, end)
    except (ValueError, OverflowError) as error:
        yield Finding(
            (*place, "recurrence"),
            window.recurrence,
            f"not a recurrence rule of RFC 5545 with a daily, weekly or monthly frequency: {error}",
            "write for example `FREQ=WEEKLY;BYDAY=SA,SU`",
        )
        return
    hours = _fewest_hours(openings, start, timedelta(days=limits.days))
    if long_enough and hours < limits.least_hours:
        yield Finding(
            (*place, "recurrence"),
            window.recurrence,
            f"with {(end - start) / timedelta(hours=1):g} hours each time, there are {limits.days} days with only "
            f"{hours:g} hours of maintenance, and GKE wants {limits.least_hours} in any {limits.days} days",
            "let it come more often, for example `FREQ=WEEKLY;BYDAY=SA,SU`, or move `end`",
            read=((*place, "start"), (*place, "end")),
        )


def _openings(rule: str, start: datetime, end: datetime) -> list[Opening]:
    """The windows of a year and of the days that GKE looks at after it, those that touch as one.

    Raises:
        ValueError: the rule cannot be read.
        OverflowError: the window is in a year past 9999.
    """
    if not RULE.fullmatch(rule):
        raise ValueError(
            "it has to begin with `FREQ=DAILY`, `FREQ=WEEKLY` or `FREQ=MONTHLY`, and to have no spaces"
        )
    names, values = zip(*(part.split("=") for part in rule.split(";")), strict=True)
    parts = dict(zip(names, values, strict=True))
    # What dateutil reads, although it means nothing.
    if len(parts) < len(names):
        raise ValueError("a part stands there twice")
    if "BYDAY" in parts and not all(BY_DAY.fullmatch(day) for day in parts["BYDAY"].split(",")):
        raise ValueError("`BYDAY` has days such as `SA` or `1SA`")
    if not re.fullmatch(r"0*[1-9][0-9]{0,2}", parts.get("INTERVAL", "1")):
        raise ValueError("`INTERVAL` is a number from 1 to 999")
    last = start + YEAR + timedelta(days=maintenance_limits().days)
    openings: list[Opening] = []
    for opens in takewhile(lambda time: time <= last, rrulestr(rule, dtstart=start)):
        closes = opens + (end - start)
        if openings and opens <= openings[-1][1]:
            openings[-1] = (openings[-1][0], closes)
        else:
            openings.append((opens, closes))
    return openings


def _fewest_hours(openings: Sequence[Opening], start: datetime, span: timedelta) -> float:
    """The fewest hours of maintenance in any ``span`` of the year; there are the fewest right after a window."""
    # A last window begins it, too, after which the rule has ended.
    hours = [_hours(openings, start, start + span)]
    for index, (_, closes) in enumerate(openings):
        if closes < start + YEAR:
            hours.append(_hours(openings[index + 1 :], closes, closes + span))
    return round(min(hours), 2)


def _hours(openings: Sequence[Opening], start: datetime, end: datetime) -> float:
    coming = takewhile(lambda opening: opening[0] < end, openings)
    return sum((min(closes, end) - max(opens, start)) / timedelta(hours=1) for opens, closes in coming)
