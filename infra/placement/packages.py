"""The steps that install what the images of commands lack: one for each lock file and image of a stack."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from infra.kubernetes.gates import Gates, cheapest_pool
from infra.pipelines.apps import NEWEST, runs_file
from infra.pipelines.contract import Supplement
from infra.pipelines.images import CPU_IMAGE, GPU_IMAGE
from infra.placed import PACKAGES, Step
from infra.platform import Platform, Pool, Resources
from infra.schema.names import KUBERNETES_NAME_LIMIT, spell

# The step that notes a good run of a pipeline whose apps follow it.


NEWEST_MODULE = "workloads.runtime.apps.newest"

NEWEST_RESOURCES = Resources(cpu=50, memory=128, ephemeral_storage=64)

NEWEST_TIME_LIMIT = 1800
"""Seconds, the start of a CPU node included."""


def noting(steps: Sequence[Step]) -> Step:
    """The step that notes the run of ``steps``, all those of a pipeline, once each of them has succeeded."""
    results = {step.name: step for step in steps if step.publishes}
    platform, pipeline = steps[0].platform, steps[0].pipeline
    return Step(
        pipeline=pipeline,
        name=NEWEST,
        module=NEWEST_MODULE,
        arguments=[
            *("--output", "{output}", "--runs", f"{{store}}/{runs_file(pipeline)}"),
            *(word for name in results for word in ("--step", f"{name}={{{name}}}")),
        ],
        image=CPU_IMAGE,
        platform=platform,
        pool=cheapest_pool(platform),
        resources=NEWEST_RESOURCES,
        time_limit=NEWEST_TIME_LIMIT,
        inputs=results,
        after=[step for step in steps if not step.publishes],
    )


# What nodes of a pool have room for beside the store's mount and the services that stay there.


Kept = Mapping[str, Sequence[Resources]]
"""What services ask for, by the name of the pool on which they stay."""

NOTHING: Kept = MappingProxyType({})


def left(platform: Platform, pool: Pool, kept: Kept = NOTHING) -> Resources:
    """What one node of ``pool`` leaves to a pod's own containers, if the pod mounts the store. No GPUs.

    Of a pool with a single node, what is ``kept`` for services on it is taken.
    """
    taken = [platform.store.sidecar]
    if pool.max_nodes == 1:
        taken += kept.get(pool.name, ())
    there = pool.allocatable
    return Resources(
        cpu=max(0, there.cpu - sum(each.cpu for each in taken)),
        memory=max(0, there.memory - sum(each.memory for each in taken)),
        ephemeral_storage=max(0, there.ephemeral_storage - sum(each.ephemeral_storage for each in taken)),
    )


def at_most(asked: Resources, there: Resources) -> Resources:
    """The less of each resource. No GPUs."""
    return Resources(
        cpu=min(asked.cpu, there.cpu),
        memory=min(asked.memory, there.memory),
        ephemeral_storage=min(asked.ephemeral_storage, there.ephemeral_storage),
    )


def with_room(platform: Platform, pool: Pool, asked: Resources, kept: Kept = NOTHING) -> Pool:
    """``pool``; where that is too small for ``asked``, the first other pool without GPUs that is not, if any."""
    pools = [pool, *(each for each in platform.pools.values() if not each.accelerator)]
    return next((each for each in pools if at_most(asked, left(platform, each, kept)) == asked), pool)


MODULE = "workloads.runtime.steps.environment"

SHIPPED = "requirements.txt"
"""The lock file's path in the step's bundle, wherever it is on this machine."""

RESOURCES = Resources(cpu=2000, memory=4096, ephemeral_storage=32768)
"""The most that a step asks for. The packages are on its disk twice for a moment, unpacked and as an archive, and
those of a framework with CUDA take several GiB."""

TIME_LIMIT = 3600
"""Seconds, for the download and the start of a node."""

NAME_LIMIT = KUBERNETES_NAME_LIMIT - len(f"{PACKAGES}--0123456789")
"""Characters of a step's name: it stands in that of its Job, with a digest."""


@dataclass
class Packages:
    """The steps of a stack that publish packages, each once, however many pipelines read what it publishes."""

    gates: Gates
    _made: dict[tuple[str, str], Step] = field(default_factory=dict[tuple[str, str], Step])

    def publishing(self, lock: Path, image: str, platform: Platform, pool: Pool, kept: Kept = NOTHING) -> Step:
        """The step that installs what ``image`` lacks of the packages of ``lock``, as far as ``pool`` has room."""
        content = hashlib.sha256(lock.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        if (content, image) not in self._made:
            self._made[content, image] = self.gates.guard(
                Step(
                    pipeline=PACKAGES,
                    name=self._name(lock, content, image),
                    module=MODULE,
                    interpreter="python3",
                    arguments=["--requirements", SHIPPED, "--output", "{output}"],
                    image=image,
                    platform=platform,
                    pool=pool,
                    resources=at_most(RESOURCES, left(platform, pool, kept)),
                    time_limit=TIME_LIMIT,
                    attached={SHIPPED: lock},
                )
            )
        return self._made[content, image]

    def _name(self, lock: Path, content: str, image: str) -> str:
        """The folder's name, with that of the lock file and of the image where they are not the usual ones.

        It does not depend on the other steps of the stack, as long as no two have the same name.
        """
        file = re.sub(r"^requirements[-_.]?", "", lock.stem)
        repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        kind = {CPU_IMAGE: "", GPU_IMAGE: "gpu"}.get(image, repository)
        name = spell(NAME_LIMIT, *filter(None, (lock.parent.name, file, kind)))
        taken = {step.name for step in self._made.values()}
        if name not in taken:
            return name
        mark = hashlib.sha256(f"{content} {image}".encode()).hexdigest()[:6]
        return f"{spell(NAME_LIMIT - len(mark) - 1, name)}-{mark}"


# What the images of programs on GPUs lack: steps that publish it, for steps and apps alike.


def publishing(
    folder: str,
    supplement: Supplement,
    beside: tuple[Platform, Pool],
    kept: Mapping[str, Sequence[Resources]],
    gates: Gates,
) -> Step:
    """The step that publishes ``supplement``, which ``folder`` declares, on the pool ``beside``.

    Another pool is taken where that has no room; ``kept`` is what services and apps ask for, by pool.
    """
    platform, pool = beside
    pool = with_room(platform, pool, supplement.resources, kept)
    return gates.guard(
        Step(
            pipeline=folder,
            name=supplement.name,
            module=supplement.module,
            arguments=supplement.arguments,
            image=supplement.image,
            platform=platform,
            pool=pool,
            resources=at_most(supplement.resources, left(platform, pool, kept)),
            time_limit=supplement.time_limit,
            files=supplement.files,
            supplements=True,
        )
    )
