"""Services of pipelines against the clusters that they run on, and the names of Services of all kinds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.pipelines.apps import AppDeclaration
from infra.pipelines.contract import PipelineSettings, ServiceDeclaration, StepDeclaration, placements
from infra.schema.problems import Finding, Path, listed
from infra.settings.checks.pipelines import RENAME, pools_of
from infra.settings.parsing import Reading
from infra.settings.pipelines import KEY, apps_if_any, services_if_any, steps_if_any


@dataclass(frozen=True)
class _Section:
    """A pipeline's section, and what the pipeline declares with it."""

    name: str
    settings: PipelineSettings
    services: tuple[ServiceDeclaration, ...]
    steps: tuple[StepDeclaration, ...]
    apps: tuple[AppDeclaration, ...]

    @property
    def at(self) -> Path:
        """Its place."""
        return (KEY, self.name)

    @property
    def named(self) -> list[tuple[str, str]]:
        """What has a Service of its own, as text and by its name: services, apps, and steps on several nodes."""
        services = [(f"service `{each.name}`", each.name) for each in self.services]
        services += [(f"app `{each.name}`", each.name) for each in self.apps]
        return [*services, *((f"step `{each.name}`", each.name) for each in self.steps if each.nodes)]

    def pool_key(self, service: ServiceDeclaration) -> Path:
        """The place of the name of the pool that ``service`` asks for."""
        places = (at for at, each in placements(self.settings, self.at) if each is service.placed_by)
        return (*next(places, self.at), "pool")


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about names of services, and about those that no step can reach."""
    clusters = {name: str(at[1]) for name, (at, _) in pools_of(reading.draft).items()}
    first: dict[str, tuple[str, str]] = {}
    for section in _sections(reading):
        yield from _name(section, first)
        for service in section.services:
            yield from _reach(section, service, clusters)


def _sections(reading: Reading) -> Iterator[_Section]:
    for name, settings in reading.draft.pipelines.items():
        section = _Section(
            name,
            settings,
            tuple(services_if_any(name, settings)),
            tuple(steps_if_any(name, settings)),
            tuple(apps_if_any(name, settings)),
        )
        if section.named:
            yield section


def _name(section: _Section, first: dict[str, tuple[str, str]]) -> Iterator[Finding]:
    """What keeps the pipeline's name from being that of its Services, ``<pipeline>-<service or step>``.

    ``first`` has what each name so far is that of, and the pipeline.
    """
    name = section.name
    if name[:1].isdigit():
        # https://kubernetes.io/docs/concepts/overview/working-with-objects/names: RFC 1035 (seen November 2026).
        what, own = section.named[0]
        reason = f"the Service of {what} would be called `{name}-{own}`, and such names begin with a letter"
        yield Finding(section.at, name, reason, RENAME)
        return
    for what, own in section.named:
        other, of = first.setdefault(f"{name}-{own}", (what, name))
        if of != name:
            like = f"that of {other} of pipeline `{of}`"
            reason = f"with its name, the Service of {what} is called `{name}-{own}`, like {like}"
            yield Finding(section.at, name, reason, RENAME)
            return


def _reach(section: _Section, service: ServiceDeclaration, clusters: Mapping[str, str]) -> Iterator[Finding]:
    """The steps that run on another cluster than the service: its address means nothing there."""
    there = clusters.get(service.placed_by.pool)
    away = [
        (step, clusters[step.placed_by.pool])
        for step in section.steps
        if service.name in step.connects and clusters.get(step.placed_by.pool, there) != there
    ]
    if there is None or not away:
        return
    names = listed((step.name for step, _ in away), "and")
    pools = [name for name, cluster in clusters.items() if cluster == away[0][1]]
    yield Finding(
        section.pool_key(service),
        service.placed_by.pool,
        f"a pool of cluster `{there}`, and {names}, which connect{'s' * (len(away) == 1)} to it, "
        f"run{'s' * (len(away) == 1)} on cluster `{away[0][1]}`: a service is reached in its cluster alone",
        f"take a pool of cluster `{away[0][1]}` ({listed(pools)}), or move the steps",
        read=tuple((*section.at, "steps", step.variant.of if step.variant else step.name) for step, _ in away),
    )
