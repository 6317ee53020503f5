"""A Filestore instance by itself, and as the store of GKE clusters."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infra.clouds.gcp.catalogue import is_zone, region_of, regions
from infra.clouds.gcp.settings import FilestoreStore, GcpCluster
from infra.schema.problems import Finding, did_you_mean, listed
from infra.schema.quantities import mebibytes
from infra.schema.request import Request

DATA = Path(__file__).parents[1] / "data" / "filestore.toml"

GIB = 1024
"""MiB."""


@dataclass(frozen=True)
class Tier:
    """``place`` is whether its instances are in a zone or a region; ``sizes`` are (least, most, unit) in GiB."""

    place: str
    sizes: Sequence[tuple[int, int, int]]
    shrinks: bool


@cache
def tiers() -> Mapping[str, Tier]:
    """The tiers by the name that Google's API has for them."""
    content = tomllib.loads(DATA.read_text(encoding="utf-8"))["tiers"]
    return {
        name: Tier(each["place"], [(least, most, unit) for least, most, unit in each["sizes"]], each["shrinks"])
        for name, each in content.items()
    }


def check(request: Request) -> Iterator[Finding]:
    """Findings about the instance's place and size, and about clusters that are far from it."""
    store = request.store
    if not isinstance(store, FilestoreStore):
        return
    tier = tiers()[store.tier]
    yield from _place(store, tier)
    yield from _size(store, tier)
    for name, cluster in request.clusters_of(GcpCluster).items():
        if region_of(cluster.location) != region_of(store.location):
            yield Finding(
                ("store", "location"),
                store.location,
                f"cluster `{name}` is in {region_of(cluster.location)}: its nodes would read and write files "
                "across regions, which is slow and billed",
                f"write {_example(tier, region_of(cluster.location))}, or `kind: gcs`, which regions can share",
                read=(("clusters", name, "location"),),
            )
    for team in request.teams:
        yield Finding(
            ("teams", team),
            None,
            "a file share cannot be mounted by its folders, so every team's Jobs would read and write all files",
            "remove `teams`, or write `kind: gcs`",
            read=(("store", "kind"),),
        )


def _place(store: FilestoreStore, tier: Tier) -> Iterator[Finding]:
    region = region_of(store.location)
    if region not in regions():
        fix = did_you_mean(region, regions(), f"write {_example(tier, 'us-central1')}")
        yield Finding(("store", "location"), store.location, "not in a region of the catalogue", fix)
    elif is_zone(store.location) != (tier.place == "zone"):
        yield Finding(
            ("store", "location"),
            store.location,
            f"a {'zone' if is_zone(store.location) else 'region'}, and an instance of tier {store.tier} is in a "
            f"{tier.place}",
            f"write {_example(tier, region)}, or another `tier`",
            read=(("store", "tier"),),
        )


def _example(tier: Tier, region: str) -> str:
    return f"`{region}-a` or another of its zones" if tier.place == "zone" else f"`{region}`"


def _size(store: FilestoreStore, tier: Tier) -> Iterator[Finding]:
    wanted = mebibytes(store.size) / GIB
    if any(least <= wanted <= most and (wanted - least) % unit == 0 for least, most, unit in tier.sizes):
        return
    ranges = [
        f"{_spelt(least)} to {_spelt(most)}" + (f" in steps of {_spelt(unit)}" if unit > 1 else "")
        for least, most, unit in tier.sizes
    ]
    yield Finding(
        ("store", "size"),
        store.size,
        f"an instance of tier {store.tier} has {listed(ranges)}",
        f"write `{_spelt(_next(tier, wanted))}`",
        read=(("store", "tier"),),
    )


def _next(tier: Tier, wanted: float) -> int:
    """The smallest size in GiB that is not below ``wanted``; the largest where there is none."""
    for least, most, unit in tier.sizes:
        if wanted <= most:
            steps = max(0, -int((least - wanted) // unit)) if wanted > least else 0
            return min(least + steps * unit, most)
    return tier.sizes[-1][1]


def _spelt(gib: int) -> str:
    return f"{gib // 1024}Ti" if gib % 1024 == 0 else f"{gib}Gi"
