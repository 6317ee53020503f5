"""Code that is more than one ConfigMap holds: a tar archive in several, which the pod unpacks before its program.

The archive is not compressed: what compresses it may write other bytes on another machine, and the ConfigMaps of
one digest have to be the same everywhere.
"""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.shipping.bundle import Files, config_map, volume
from slipway.infra.placed import CODE, CODE_PART
from slipway.infra.schema.names import short_digest

PART = 900_000
"""Bytes in one ConfigMap, which leave a tenth of what it may hold."""

UNPACKED = "/unpacked"
"""Where the volume is mounted in which the code is unpacked."""

CODE_PATH = f"{UNPACKED}/{CODE}"
"""Where a pod finds the code that was unpacked. The folder is called as in the ConfigMap of a step."""

_PARTS_PATH = "/parts"


def part_volume(index: int) -> str:
    """The name of the pod's volume with a part."""
    return f"part-{index}"


@dataclass(frozen=True)
class Archive:
    """The files of a folder of code, by their path in it. Steps with the same files share its ConfigMaps."""

    files: Files

    @cached_property
    def parts(self) -> tuple[Files, ...]:
        """What the ConfigMaps hold, in their order."""
        content = _tar(self.files)
        pieces = [content[start : start + PART] for start in range(0, len(content), PART)]
        return tuple(Files({CODE_PART: piece}) for piece in pieces)

    @property
    def volumes(self) -> dict[str, k8s.core.v1.VolumeArgs]:
        """The volumes of the pod with the ConfigMaps, by the path at which they are mounted."""
        return {
            f"{_PARTS_PATH}/{index}": volume(part_volume(index), self._name(index), part)
            for index, part in enumerate(self.parts)
        }

    @property
    def arguments(self) -> list[str]:
        """The arguments of `slipway.runtime.steps.unpack`."""
        parts = [word for path in self.volumes for word in ("--part", f"{path}/{CODE_PART}")]
        return [*parts, "--target", CODE_PATH]

    def declare(
        self, platform: str, namespace: str, labels: Mapping[str, str], opts: pulumi.ResourceOptions
    ) -> list[k8s.core.v1.ConfigMap]:
        """Declares the ConfigMaps, in a cluster of ``platform``."""
        return [
            config_map(f"{platform}-{self._name(index)}", part, namespace, labels, opts, called=self._name(index))
            for index, part in enumerate(self.parts)
        ]

    def _name(self, index: int) -> str:
        return f"code-{short_digest(self.files.digest)}-{index}"


def _tar(files: Files) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.contents.items()):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            member.mode = files.mode(path)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()
