"""Look once whether anybody uses an app; where nobody did for long enough, stop it, or warn.

The pod of a CronJob starts this. An app that is to be stopped is scaled to no pod, so that its node, and a GPU
there, are free. It cannot do so itself: it has no access to the Kubernetes API.

`python -m slipway.workloads.runtime.apps.idle` takes what an app counts for Prometheus as its use. A program that
knows the use otherwise calls `look` with a function of its own. What a look knows of use it keeps in a ConfigMap,
since each look has a new pod. Probes, scrapes and looks are no use: the app must not count them.
Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from slipway.workloads.runtime.exits import OK, UNEXPECTED, StepError, run
from slipway.workloads.runtime.kubernetes_api import ANSWER, Api, add_options, api_of

KEY = "use"
"""The key of the ConfigMap that has the `Notes`, as JSON."""


@dataclass(frozen=True)
class Use:
    """What a pod of an app says of its use: when it was used ``last`` or, where that is None, a ``count`` that
    changes with each use, such as that of requests since it started.
    """

    last: datetime | None = None
    count: float = 0.0


Ask = Callable[[str, datetime], "Use | None"]
"""Asks the pod at an address, host and port, for its use; None where it does not answer. A StepError where it
answers something else than its use: the app then goes on."""


@dataclass(frozen=True)
class Notes:
    """What a look leaves for the next one, and for who watches. ``used`` is when the app was used last, or first
    answered, in ISO 8601; empty while no pod answers. ``counts`` are by the pods' addresses. ``idle`` says that it
    was unused for long enough, and ``stopped`` that it was stopped for that.
    """

    used: str = ""
    counts: Mapping[str, float] = field(default_factory=dict[str, float])
    idle: bool = False
    stopped: bool = False

    @classmethod
    def parse(cls, text: str) -> Notes:
        """The notes in ``text``; what is no such is as if there were none: the time begins anew."""
        try:
            content = json.loads(text)
            if content["used"]:
                datetime.fromisoformat(content["used"])
            counts = {address: float(count) for address, count in content["counts"].items()}
            return cls(content["used"], counts, bool(content["idle"]), bool(content["stopped"]))
        except (ValueError, LookupError, TypeError, AttributeError):
            return cls()


def look(ask: Ask, options: argparse.Namespace) -> int:
    """Look once, and stop the app or warn where it was unused for long enough; returns the exit code.

    ``options`` are those of `add_look_options`.

    Raises:
        StepError: with UNEXPECTED where a pod or the Kubernetes API refuses. The app then goes on.
    """
    now = datetime.now(UTC)
    api = api_of(options)
    path = f"/api/v1/namespaces/{options.namespace}/configmaps/{options.notes}"
    try:
        data: dict[str, str] = api.get(path).get("data") or {}
    except OSError as error:
        raise StepError(UNEXPECTED, f"{error} ({path})") from error
    before = Notes.parse(data.get(KEY, ""))
    uses = {address: use for address in _addresses(options.app) if (use := ask(address, now)) is not None}
    notes = _notes(before, uses, now)
    if not uses:
        print(f"{options.app} does not answer: stopped, or starting")
    else:
        seconds = (now - datetime.fromisoformat(notes.used)).total_seconds()
        if seconds < options.after:
            print(f"Unused for {seconds:.0f} s of {options.after}")
        else:
            notes = replace(notes, idle=True, stopped=options.then == "stop")
            _end(options, api, notes, seconds)
    try:
        api.patch(path, {"data": {KEY: json.dumps(asdict(notes))}})
    except OSError as error:
        raise StepError(UNEXPECTED, f"{error} ({path})") from error
    return OK


def _notes(before: Notes, uses: Mapping[str, Use], now: datetime) -> Notes:
    """What is known after this look of pods that answered with ``uses``."""
    if not uses:
        # One that starts again is not stopped for the time before.
        return Notes(used=before.used if before.stopped else "", idle=before.stopped, stopped=before.stopped)
    counts = {address: use.count for address, use in uses.items() if use.last is None}
    times = [use.last for use in uses.values() if use.last is not None]
    if counts:
        # A count that fell is that of a program which started anew. A pod that is new has counted from 0.
        used = any(count != before.counts.get(address, 0.0) for address, count in counts.items())
        fresh = before.stopped or not before.used
        times.append(now if used or fresh else datetime.fromisoformat(before.used))
    return Notes(used=min(max(times), now).isoformat(), counts=counts)


def _end(options: argparse.Namespace, api: Api, notes: Notes, seconds: float) -> None:
    since = f"No use since {notes.used[:16]} ({seconds:.0f} s)"
    if options.then != "stop":
        print(f"{since}: it goes on{f', and holds {options.holds}' if options.holds else ''}")
        return
    path = f"/apis/apps/v1/namespaces/{options.namespace}/{options.kind}s/{options.scale}/scale"
    try:
        api.patch(path, {"spec": {"replicas": 0}})
    except OSError as error:
        raise StepError(UNEXPECTED, f"{error} ({path})") from error
    saved = f". Unless other pods need it, this goes: {options.holds}" if options.holds else ""
    print(f"{since}: stopped{saved}. What starts it again:")
    scaled = f"{options.kind}/{options.scale} --replicas={options.replicas}"
    print(f"  kubectl --namespace {options.namespace} scale {scaled}")


def _addresses(app: str) -> Sequence[str]:
    """Where the pods behind ``app``, host and port, are asked; none while its name stands for none."""
    host, _, port = app.rpartition(":")
    try:
        entries = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError:
        return []
    hosts = dict.fromkeys(str(address[0]) for *_, address in entries)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts]


def read(address: str, path: str, headers: Mapping[str, str] | None = None) -> bytes | None:
    """What the pod at ``address`` answers to GET; None where it does not answer.

    Raises:
        StepError: with UNEXPECTED where it answers an error.
    """
    request = urllib.request.Request(f"http://{address}{path}", headers=dict(headers or {}))
    try:
        # A proxy of the pod's environment is for the way out of the cluster.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=ANSWER) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        raise StepError(UNEXPECTED, f"{address} answered {error.code} ({path})") from error
    except (OSError, http.client.HTTPException):
        return None


_SAMPLE = re.compile(r"(?P<name>[^\s{#]+)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s}]+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'(?P<name>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')


def counted(text: str, counter: str, labels: Mapping[str, Sequence[str]]) -> float:
    """The sum of ``counter`` in what Prometheus reads, of the samples whose labels have one of these values each.

    Values are compared without regard to case. The format is that of
    prometheus.io/docs/instrumenting/exposition_formats (version 0.0.4, seen November 2026).

    Raises:
        StepError: with UNEXPECTED where there is no such metric, or none of its samples has a label of that name:
            its count would say that nobody uses the app.
    """
    samples = list(_samples(text, counter))
    types = [["TYPE", name] for name in (counter, counter.removesuffix("_count"), counter.removesuffix("_total"))]
    if not samples and not any(line.split()[1:3] in types for line in text.splitlines()):
        raise StepError(UNEXPECTED, f"there is no metric {counter} in what it tells Prometheus")
    for label in labels:
        if samples and all(label not in of_sample for of_sample, _ in samples):
            raise StepError(UNEXPECTED, f"no sample of the metric {counter} has the label {label}")
    wanted = {name: {value.lower() for value in values} for name, values in labels.items()}
    return sum(
        value
        for of_sample, value in samples
        if all(of_sample.get(name, "").lower() in values for name, values in wanted.items())
    )


def _samples(text: str, counter: str) -> Iterator[tuple[Mapping[str, str], float]]:
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line) if line.startswith(counter) else None
        if match and match["name"] == counter:
            labels = {
                label["name"]: re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], label["value"])
                for label in _LABEL.finditer(match["labels"] or "")
            }
            yield labels, float(match["value"])


def _ask_counter(
    path: str, counter: str, labels: Mapping[str, Sequence[str]], address: str, _: datetime
) -> Use | None:
    content = read(address, path)
    return None if content is None else Use(count=counted(content.decode(errors="replace"), counter, labels))


def add_look_options(parser: argparse.ArgumentParser) -> None:
    """The options that `look` reads."""
    parser.add_argument("--app", required=True, metavar="HOST:PORT", help="where its pods are asked")
    parser.add_argument("--after", type=int, required=True, help="seconds of no use")
    parser.add_argument("--then", choices=("warn", "stop"), default="stop", help="what follows")
    parser.add_argument("--kind", choices=("deployment", "statefulset"), required=True, help="what runs its pods")
    parser.add_argument("--scale", required=True, metavar="NAME", help="the name of that")
    parser.add_argument("--replicas", type=int, default=1, help="the pods that it starts again with")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--notes", required=True, metavar="NAME", help="the ConfigMap that keeps what looks know")
    parser.add_argument("--holds", default="", metavar="WORDS", help="what it holds, with the price")
    add_options(parser)


def main(arguments: list[str] | None = None) -> int:
    """Look at an app that counts its use for Prometheus; returns the exit code. Raises StepError, see `look`."""
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.runtime.apps.idle", description=__doc__)
    add_look_options(parser)
    parser.add_argument("--path", default="/metrics", help="where it answers Prometheus")
    parser.add_argument("--counter", required=True, metavar="METRIC", help="what grows with each use")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="which samples count")
    options = parser.parse_args(arguments)
    labels: dict[str, list[str]] = {}
    for text in options.label:
        name, _, value = text.partition("=")
        labels.setdefault(name, []).append(value)
    return look(partial(_ask_counter, options.path, options.counter, labels), options)


if __name__ == "__main__":
    run(main)
