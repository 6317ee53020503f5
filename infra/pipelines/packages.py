"""The steps that install what the images of commands lack: one for each lock file and image of a stack."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from infra.kubernetes.gates import Gates
from infra.pipelines.images import CPU_IMAGE, GPU_IMAGE
from infra.pipelines.node_room import NOTHING, Kept, at_most, left
from infra.platform import Platform, Pool, Resources
from infra.schema.names import KUBERNETES_NAME_LIMIT, spell
from infra.step import PACKAGES, Step

MODULE = "workloads.runtime.environment"

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
