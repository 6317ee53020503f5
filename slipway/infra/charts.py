"""The Helm charts that stacks declare, each pinned to one version."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from slipway.infra.features import data_files

DATA = Path(__file__).parent / "data" / "charts.toml"


@dataclass(frozen=True)
class Chart:
    """A chart of a public repository. ``digest`` is the SHA-256 of its archive; ``image`` has its tag, and
    its digest where that is published.

    ``images`` are the images for clusters of a Kubernetes version, where the chart's has to match it, or those
    beside ``image`` by what they are of the chart. ``manifest`` is the digest by which an OCI registry has the
    chart, and by which Helm then takes it.
    """

    name: str
    repository: str
    version: str
    digest: str
    image: str
    images: Mapping[str, str] = field(default_factory=dict[str, str])
    manifest: str = ""

    @property
    def place(self) -> str:
        """What Helm is told to take: the name in the repository, or the registry's address."""
        return f"{self.repository}/{self.name}@{self.manifest}" if self.manifest else self.name


@cache
def charts() -> Mapping[str, Chart]:
    """Every pinned chart by its name."""
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in (DATA, *data_files(DATA.name))]
    return MappingProxyType({name: Chart(name=name, **facts) for file in files for name, facts in file.items()})
