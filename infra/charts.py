"""The Helm charts that stacks declare, each pinned to one version."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from slipway.infra.schema.base import ChartSettings
from slipway.infra.schema.problems import Finding
from slipway.infra.schema.problems import Path as Place

DATA = Path(__file__).parent / "data" / "charts.toml"

SCHEMES = ("oci", "https", "http")
"""Of the URLs that Helm fetches charts from without a plug-in of its own (helm.sh/helm/v3, pkg/getter, 3.20)."""


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

    def place(self, copy: str | None) -> str:
        """What Helm is told to take: the name in the repository, or a ``copy`` of one's own."""
        if copy is None:
            return f"{self.repository}/{self.name}@{self.manifest}" if self.manifest else self.name
        # Helm does not expand it.
        return str(Path(copy).expanduser()) if copy.startswith("~") else copy


@cache
def charts() -> Mapping[str, Chart]:
    """Every pinned chart by its name."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return MappingProxyType({name: Chart(name=name, **facts) for name, facts in data.items()})


def copy_problem(name: str, place: str, version: str | None) -> str | None:
    """Why the copy at ``place`` cannot stand in for the pinned chart ``name``; None where it can.

    Only what is on this machine is looked at: whatever is no URL. An archive of the pinned version has to have the
    pinned digest. An unpacked chart, or another ``version``, is the user's own.
    """
    if "://" in place:
        scheme = place.partition("://")[0]
        return None if scheme in SCHEMES else f"Helm fetches from no `{scheme}://`, only from {', '.join(SCHEMES)}"
    path = Path(place).expanduser()
    if path.is_dir():
        return None if (path / "Chart.yaml").is_file() else "it is a folder without a Chart.yaml"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    chart = charts()[name]
    if version in (None, chart.version) and digest != chart.digest:
        return f"its SHA-256 is {digest}, and that of {name} {chart.version} is {chart.digest}"
    return None


def chart_findings(at: Place, name: str, release: ChartSettings, read: Sequence[Place] = ()) -> Iterator[Finding]:
    """Findings about the place and the version that the section ``at`` names of the pinned chart ``name``.

    Those about the place rest on ``read``, too.
    """
    if release.chart and (why := copy_problem(name, release.chart, release.version)):
        fix = "fetch it again, or name its `version`"
        yield Finding((*at, "chart"), release.chart, why, fix, read=tuple(read))
    if release.version and not release.chart:
        yield Finding(
            (*at, "version"),
            release.version,
            "the version of a chart of your own, and which is not said; the public one's is pinned",
            "remove it, or name its `chart`",
            read=((*at, "chart"),),
        )
