"""Let the Jobs of a stack run that `pulumi up` created suspended, each once those before it are complete.

The pod of a Job starts it. It remembers nothing: what is complete, runs or failed stands in the cluster, so a pod
that takes the place of a lost one goes on with the Jobs as they are. Run as
`python -m slipway.runtime.schedule.release --namespace slipway --jobs cluster-run --attempts
cluster-run-attempts`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.runtime.exits import OK, run, stop_on_sigterm
from slipway.runtime.kubernetes_api import add_options, api_of
from slipway.runtime.schedule.run import PAUSE, Cluster, JobsFailedError, limits_in, reached_by
from slipway.runtime.usage.limits import IDLE, RUN, Limits, Reached

SPENT = "spent"
"""The key of the ConfigMap of attempts with the budget of a run that was spent."""


@dataclass(frozen=True)
class Planned:
    """A Job to let run: `name` is its own, `step` what people call it, `after` the names of those before it.

    `attempt` counts from 1: the Job is made anew after a failure. `uid` is what it has since then.
    """

    step: str
    name: str
    after: Sequence[str]
    attempt: int
    uid: str | None = None


@dataclass
class HeldJobs(Cluster):
    """The suspended Jobs of a namespace, and the ConfigMap `attempts` in which their failures are noted.

    `limits` is the ConfigMap with what the stack may spend, empty where that has no limit. All methods raise
    StepError with NO_API.
    """

    attempts: str = ""
    limits: str = ""

    def spent_before(self) -> Reached | None:
        """The budget that is spent before anything runs, as far as that was noted or a pod says it."""
        if not self.limits:
            return None
        limits = limits_in(self, self.limits)
        noted: dict[str, Any] = json.loads(self._notes().get(SPENT, "{}"))
        # What the results of other digests cost is no part of this run.
        if noted and noted.pop("runs") == _digest(limits) and (reached := Reached(**noted)).holds(limits, ""):
            return reached
        return self.month_spent(limits)

    def budget_of(self, name: str) -> Reached | None:
        """The budget that ended the failed Job, which is noted: its pods go when it is made anew."""
        reached = reached_by(self.pods(name)) if self.limits else None
        if reached is None or reached.kind == IDLE:
            return None
        if reached.kind == RUN:
            content = {"runs": _digest(limits_in(self, self.limits)), **reached.record()}
            self._persist(lambda: self.api.patch(self._attempts, {"data": {SPENT: json.dumps(content)}}))
        return reached

    def release(self, name: str) -> None:
        """Let the Job run. Raises StepError with NO_API."""
        self._persist(lambda: self.api.patch(f"{self._jobs}/{name}", {"spec": {"suspend": False}}))

    def note(self, due: Mapping[str, int]) -> None:
        """Note the number of the attempt that is due of each Job; of a first one nothing is noted.

        The next `pulumi up` makes those Jobs anew of which it is another one. Raises StepError with NO_API.
        """
        noted = self._notes()
        wanted = {name: str(number) if number > 1 else None for name, number in due.items()}
        changes = {name: number for name, number in wanted.items() if noted.get(name) != number}
        if changes:
            self._persist(lambda: self.api.patch(self._attempts, {"data": changes}))

    def _notes(self) -> dict[str, str]:
        return self._persist(lambda: self.api.get(self._attempts)).get("data") or {}

    @property
    def _attempts(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{self.attempts}"


def _digest(limits: Limits) -> str:
    """What tells the run of the limits from others."""
    return hashlib.sha256("\n".join(sorted(limits.runs)).encode()).hexdigest()[:16]


def main(arguments: list[str] | None = None) -> int:
    """Let the Jobs run; returns the exit code.

    Raises:
        StepError: with JOB_FAILED where a Job failed, BUDGET_SPENT where the budget is spent, NO_API where the API
            refuses.
    """
    options = _parse(arguments)
    stop_on_sigterm("the next pod goes on where this one was")
    cluster = HeldJobs(api_of(options), options.namespace, attempts=options.attempts, limits=options.limits)
    planned = read(cluster.config_map(options.jobs))
    cluster.note({job.name: job.attempt for job in planned})
    return follow(cluster, planned)


def read(config_map: Mapping[str, Any]) -> list[Planned]:
    """The Jobs, in an order in which those come first that others wait for."""
    return [Planned(**entry) for entry in json.loads(config_map["data"]["jobs.json"])]


def follow(cluster: HeldJobs, planned: Sequence[Planned]) -> int:
    """Let each Job run when those before it are complete, until all are, or all that are left need a failed one.

    Once the budget is spent, no further one is let run: it would end as soon as its node is there.

    Raises:
        StepError: with JOB_FAILED where a Job failed, BUDGET_SPENT where the budget is spent, NO_API where the API
            refuses.
    """
    done: set[str] = set()
    lost: dict[str, str] = {}
    started: set[str] = set()
    withheld: set[str] = set()
    spent = cluster.spent_before()
    ended = None
    while True:
        skipped = needing(planned, set(lost) | withheld) | withheld
        held: list[Planned] = []
        for job in planned:
            if job.name in done | lost.keys() | skipped or not done.issuperset(job.after):
                continue
            live = cluster.job(job.name)
            outcome = verdict(live)
            if outcome == "":
                done.add(job.name)
                print(f"{job.step}: done", flush=True)
            elif outcome is not None:
                lost[job.name] = outcome
                cluster.note({job.name: job.attempt + 1})
                print(f"{job.step}: failed: {outcome}", flush=True)
                ended = cluster.budget_of(job.name) or ended
            elif live.get("spec", {}).get("suspend"):
                held.append(job)
                continue
            elif job.name not in started:
                print(f"{job.step}: runs as {job.name}", flush=True)
            started.add(job.name)
        for job in held:
            if spent or ended:
                withheld.add(job.name)
                print(f"{job.step}: not started: the budget is spent", flush=True)
            else:
                cluster.release(job.name)
                started.add(job.name)
                print(f"{job.step}: started as {job.name}", flush=True)
        skipped = needing(planned, set(lost) | withheld) | withheld
        if len(done | lost.keys() | skipped) == len(planned):
            if lost or withheld:
                # Else the list stays the same, and an update with a higher budget leaves the runner as it is.
                cluster.note({job.name: job.attempt + 1 for job in planned if job.name in withheld and not lost})
                raise _failure(planned, lost, skipped, ended or (spent if withheld else None))
            return OK
        cluster.sleep(PAUSE)


def needing(planned: Sequence[Planned], lost: set[str]) -> set[str]:
    """The names of the Jobs that need one of `lost`, themselves or through others."""
    skipped: set[str] = set()
    for job in planned:
        if (lost | skipped).intersection(job.after):
            skipped.add(job.name)
    return skipped


def verdict(job: Mapping[str, Any]) -> str | None:
    """Empty for a Job that is complete, the reason for one that failed, None for one that has not ended."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition.get("status") == "True" and condition["type"] in ("Complete", "Failed"):
            words = f"{condition.get('reason', 'Failed')}: {condition.get('message', '')}".rstrip(": ")
            return "" if condition["type"] == "Complete" else words
    return None


def _failure(
    planned: Sequence[Planned], lost: Mapping[str, str], skipped: set[str], spent: Reached | None
) -> JobsFailedError:
    steps = {job.name: job.step for job in planned}
    what = "; ".join(f"{steps[name]}: {reason}" for name, reason in lost.items())
    left = ", ".join(steps[job.name] for job in planned if job.name in skipped)
    words = "; ".join(filter(None, [what, f"not started: {left}" if left else ""]))
    return JobsFailedError(words, lost, spent)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.schedule.release", description=__doc__)
    add_options(parser)
    parser.add_argument("--namespace", required=True, help="where the Jobs are")
    parser.add_argument("--jobs", required=True, metavar="NAME", help="the ConfigMap with the list of the Jobs")
    parser.add_argument(
        "--attempts", required=True, metavar="NAME", help="the ConfigMap that failures are noted in"
    )
    parser.add_argument("--limits", default="", metavar="NAME", help="the ConfigMap with what the stack may spend")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
