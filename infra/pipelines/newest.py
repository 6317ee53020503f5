"""The step that notes a good run of a pipeline whose apps follow it."""

from collections.abc import Sequence

from infra.kubernetes.gates import cheapest_pool
from infra.pipelines.apps import NEWEST, runs_file
from infra.pipelines.images import CPU_IMAGE
from infra.platform import Resources
from infra.step import Step

MODULE = "workloads.runtime.newest"

RESOURCES = Resources(cpu=50, memory=128, ephemeral_storage=64)

TIME_LIMIT = 1800
"""Seconds, the start of a CPU node included."""


def noting(steps: Sequence[Step]) -> Step:
    """The step that notes the run of ``steps``, all those of a pipeline, once each of them has succeeded."""
    results = {each.name: each for each in steps if each.publishes}
    platform, pipeline = steps[0].platform, steps[0].pipeline
    return Step(
        pipeline=pipeline,
        name=NEWEST,
        module=MODULE,
        arguments=[
            *("--output", "{output}", "--runs", f"{{store}}/{runs_file(pipeline)}"),
            *(word for name in results for word in ("--step", f"{name}={{{name}}}")),
        ],
        image=CPU_IMAGE,
        platform=platform,
        pool=cheapest_pool(platform),
        resources=RESOURCES,
        time_limit=TIME_LIMIT,
        inputs=results,
        after=[each for each in steps if not each.publishes],
    )
