"""Paid over useful of GPU steps on GKE and EKS: as of commit d17bbb83, and as the stacks are now.

Nothing is measured here. It is the figure of a preview (`slipway.offline.evaluated.paid`) for the shipped stacks
`gcp-dev` and `aws-dev`, with times of steps that are given below: now from the schedule of the evaluated stack, so
with the dated times and settings that the code has; before, from the same sum with what these were on 26 November
2026. Run as `python -m benchmarks.paid`; it prints two tables in Markdown.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from slipway.infra.clouds.registry import emulators, reviews
from slipway.infra.program import declare
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import JOB, Stack
from slipway.infra.schema.problems import PREFIX, without_prefix
from slipway.infra.settings.loading import load
from slipway.offline.engine.evaluate import evaluate
from slipway.offline.engine.stack_config import stack_config
from slipway.offline.evaluated.cost import cost
from slipway.offline.evaluated.model import Outcome, Paid
from slipway.offline.evaluated.timeline import JobDuration

ROOT = Path(__file__).resolve().parents[1]

STACKS = {"GKE": "gcp-dev", "EKS": "aws-dev"}

WITH: Mapping[str, Mapping[str, Any]] = {"GKE": {"consolidation_delay": "1m"}}
"""By cloud, settings of its GPU pools that the shipped stacks do not have, for a column of their own."""

TEST, TEST_AGAIN, NETWORK_TEST = 2.48, 0.11, 10.0
"""Seconds of the test of a pod's GPUs, of the same where the node was tested before (`benchmarks.gpu_test`, 26
November 2026, on a CPU), and of the sum over two nodes: an assumption, for nobody measured it."""

LIBRARIES = 3.2
"""Seconds for 650 MiB of CUDA's libraries from a local disk (docs/performance.md, 26 November 2026)."""


@dataclass(frozen=True)
class Row:
    """Steps, each on a GPU pool of its own, with the seconds of their programs; ``nodes`` is that of each."""

    title: str
    programs: Mapping[str, float]
    nodes: int = 1


MNIST = Row("MNIST, `train` and `predict`", {"train": 29, "predict": 2.1})
"""12 epochs of 60,000 images at 28,466 a second, import, checkpoints and export, and the prediction, on a CPU
(docs/performance.md, November 2026): a GPU may be faster."""

ROWS = (
    MNIST,
    Row("five minutes", {"train": 300}),
    Row("one hour", {"train": 3600}),
    Row("eight hours", {"train": 28_800}),
    Row("one hour on two nodes", {"train": 3600}, 2),
)


@dataclass(frozen=True)
class Before:
    """Seconds as of commit d17bbb83.

    Those of boot and image are today's, which are better known: with its own, of 2020 to 2022, a gain would be
    shown that is none. ``kept`` is of its `times.toml`, ``test`` and ``libraries`` were measured with its code.
    A gate was a Job before the step, on the step's node, and copied CUDA's libraries, too.
    """

    boot: float = 90
    image: float = 140
    test: float = 2.85
    libraries: float = 3.5
    kept: float = 600

    def seconds(self, row: Row) -> dict[str, float]:
        """Node seconds by cause."""
        sums: dict[str, float] = {}
        for program in row.programs.values():
            parts = {
                "boot": self.boot * row.nodes,
                "image": self.image * row.nodes,
                "gate": self.test + self.libraries,
                "packages": self.libraries * row.nodes,
                "program": program * row.nodes,
                "kept": self.kept * row.nodes,
            }
            if row.nodes > 1:
                # The gate of the network ran after that of the first node, which waited for the others to boot.
                parts["gate"] += (NETWORK_TEST + self.libraries) * row.nodes
                parts["kept"] += self.boot + self.image
            for cause, seconds in parts.items():
                sums[cause] = sums.get(cause, 0.0) + seconds
        return sums


BEFORE = {"GKE": Before(), "EKS": Before()}


def now(stack: Stack, row: Row) -> dict[str, float]:
    """Node seconds by cause, as the preview of the evaluated stack has them."""
    times: dict[str, JobDuration] = {}
    jobs: dict[str, Outcome] = {}
    for job in stack.of_type(JOB):
        pipeline, _, step = job.name.partition("-")
        if job.name.startswith("network-gate"):
            parts = {"gate": NETWORK_TEST, "packages": LIBRARIES}
        elif pipeline == "mnist" and step in row.programs:
            # After the gate of the network, the nodes have been tested.
            test = TEST_AGAIN if row.nodes > 1 else TEST
            parts = {"gate": test, "packages": LIBRARIES, "program": row.programs[step]}
        else:
            continue
        jobs[job.urn] = Outcome.RUNS
        times[job.name] = JobDuration(sum(parts.values()), "rehearsed", parts)
    run = cost(stack, today=date.today(), jobs=jobs, measured=times).run
    assert run is not None
    assert run.paid is not None
    return seconds_of(run.paid)


def seconds_of(paid: Paid) -> dict[str, float]:
    """Its parts."""
    return {part.cause: part.seconds for part in paid.parts}


def evaluated(name: str, nodes: int, changes: Mapping[str, Any]) -> Stack:
    """The shipped stack with MNIST alone, trained on so many nodes, and ``changes`` of its GPU pools."""
    config = stack_config(name, ROOT)
    raw = deepcopy(without_prefix(config))
    raw["pipelines"] = {"mnist": raw["pipelines"]["mnist"]}
    (cluster,) = raw["clusters"].values()
    for pool in ("train", "predict"):
        cluster["pools"][pool].update(changes)
    if nodes > 1:
        raw["pipelines"]["mnist"]["steps"]["train"]["nodes"] = nodes
        size: dict[str, Any] = cluster["pools"]["train"]["nodes"]
        size["total_max" if "total_max" in size else "max"] = nodes
    stand_ins = emulators(load(raw).request)
    for emulator in stand_ins:
        config = {**emulator.configuration, **config}
    config |= {f"{PREFIX}{key}": value for key, value in raw.items()}
    evaluation = evaluate(
        partial(declare, ROOT), project="slipway", stack=name, config=config, emulators=stand_ins, preview=True
    )
    return reviewed(Stack(name, evaluation.resources, configuration=config), reviews())


def ratio(seconds: Mapping[str, float]) -> str:
    """Paid over useful."""
    value = sum(seconds.values()) / seconds["program"]
    return f"{value:.{2 if value < 10 else 0}f}"


def parts(seconds: Mapping[str, float]) -> str:
    """The parts in words, without those below a second."""
    return ", ".join(f"{amount:,.0f} {cause}" for cause, amount in seconds.items() if round(amount))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the figures, and the seconds that they are made of."""
    figures: list[list[str]] = [[row.title] for row in ROWS]
    sums: list[list[str]] = []
    headings: list[str] = []
    for cloud, name in STACKS.items():
        settings = {"now": {}, **{f"`{key}: {value}`": {key: value} for key, value in WITH.get(cloud, {}).items()}}
        stacks = {
            (when, nodes): evaluated(name, nodes, changes)
            for when, changes in settings.items()
            for nodes in (1, 2)
        }
        headings += [f"{cloud}, {when}" for when in ("before", *settings)]
        for row, cells in zip(ROWS, figures, strict=True):
            known = {"before": BEFORE[cloud].seconds(row)}
            known |= {when: now(stacks[when, row.nodes], row) for when in settings}
            cells += [ratio(seconds) for seconds in known.values()]
            sums += [[row.title, cloud, when, parts(seconds)] for when, seconds in known.items()]
    print(table(["paid ÷ useful", *headings], figures), end="\n\n")
    print(table(["node seconds", "", "", "of which"], sums))


if __name__ == "__main__":
    main()
