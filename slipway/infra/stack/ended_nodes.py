"""What an update ends: nodes of pools that go, are replaced or made anew, and Jobs that are made anew."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from slipway.infra.review.contract import Review
from slipway.infra.review.effects import Effects, Replacing
from slipway.infra.review.facts import Effect
from slipway.infra.review.property_diff import (
    Difference,
    covers,
    differences,
    parse_path,
    path_text,
    unknown_paths,
    without_indices,
)
from slipway.infra.review.stack import JOB, UNKNOWN, NodePool, Resource, Stack, at, text, unknown
from slipway.infra.review.tables import node_price


@dataclass(frozen=True)
class EndedNodes:
    """Nodes of ``cluster`` that an update ends: those of ``pool``, or all of them where that is empty.

    ``selector`` selects them by their labels, ``why`` is a sentence without a full stop. ``rate`` is what one of
    them costs for an hour, in US dollars; None where that is not known.
    """

    cluster: str
    pool: str
    selector: str
    why: str
    rate: float | None = None


@dataclass(frozen=True)
class EndedJob:
    """A Job of the stack that an update deletes, to make it anew or for good. ``why`` is as of `EndedNodes`."""

    cluster: str
    namespace: str
    name: str
    why: str


@dataclass
class Update:
    """An update of the stack that ``state`` describes, told one declared resource after the other.

    ``state`` is as `slipway.infra.review.state.stack_of_state` reads it. Declared properties are those that the
    program knows before an update: all others are unknown. What is unknown counts as another value only where the
    resource that it comes from is replaced, or of a kind whose every update changes it.

    ``unready`` are the URNs of Jobs that no update has seen succeed, which the next one makes anew.
    """

    state: Stack
    reviews: Sequence[Review]
    unready: frozenset[str] = frozenset()
    _declared: dict[tuple[str, str], Resource] = field(default_factory=dict[tuple[str, str], Resource])

    def __post_init__(self) -> None:
        self._replacing, self._effects = Replacing(self.reviews), Effects(self.reviews)
        self._labels = {type_: label for review in self.reviews for type_, label in review.node_labels.items()}
        self._pools: dict[str, list[NodePool]] = {}
        for pool in (pool for review in self.reviews for pool in review.pools(self.state)):
            self._pools.setdefault(pool.urn, []).append(pool)
        self._charges = [charge for review in self.reviews for charge in review.charges(self.state)]
        self._known = {
            (resource.type, resource.name): resource
            for resource in self.state.resources.values()
            if resource.custom and not resource.read
        }

    def declare(self, new: Resource) -> list[EndedNodes]:
        """The nodes that the update ends because the stack has ``new`` as it is now."""
        self._declared[new.type, new.name] = new
        old = self._known.get((new.type, new.name))
        if old is None or new.type not in self._labels:
            return []
        changes = self._changes(old, new)
        if forcing := self._forcing(old, new, changes):
            stays = (old.protect and new.protect) or old.retain_on_delete
            return [] if stays else [*self._nodes(old, f"another {_names(forcing)} replaces it")]
        consequences = self._effects.of(old, new, changes)
        effects = {consequence.fact.effect for consequence in consequences}
        if Effect.REFUSED in effects or Effect.ENDS_WORK not in effects:
            return []
        ending = next(known for known in consequences if known.fact.effect is Effect.ENDS_WORK)
        return [*self._nodes(old, f"another {_names(ending.differences)}: {ending.fact.note}")]

    def keeps_policy(self, new: Resource) -> bool:
        """As `Resource.keeps_policy`, of the resource that the stack has in place of ``new``."""
        old = self._known.get((new.type, new.name))
        return old is not None and old.keeps_policy(new)

    def removed(self) -> list[EndedNodes]:
        """The nodes that end because the stack no longer has what brings them. To be asked after `declare`.

        What the program declares itself, beside Slipway, may still come, so nothing is said of that.
        """
        return [
            nodes
            for key, old in self._known.items()
            if key not in self._declared and old.type in self._labels and old.is_of_slipway
            if not (old.protect or old.retain_on_delete)
            for nodes in self._nodes(old, "the stack no longer has it")
        ]

    def jobs(self) -> list[EndedJob]:
        """The Jobs that are deleted, whether they run or not. To be asked after `declare`, as `removed`."""
        ended: list[EndedJob] = []
        for key, old in self._known.items():
            new = self._declared.get(key)
            forcing = self._forcing(old, new, self._changes(old, new)) if new and old.type == JOB else []
            gone = new is None and old.is_of_slipway
            if old.type == JOB and (gone or forcing or (new and old.urn in self.unready)):
                missed = "the last update did not see it succeed" if new else "the stack no longer has it"
                why = f"another {_names(forcing)} replaces it" if forcing else missed
                namespace, name = (text(at(old.properties, "metadata", key)) for key in ("namespace", "name"))
                ended.append(EndedJob(self.state.cluster_of(old), namespace or "default", name, why))
        return ended

    def pools_of(self, cluster: str) -> list[str]:
        """The names of the pools that the cluster has before the update."""
        return [pool.name for pools in self._pools.values() for pool in pools if pool.cluster == cluster]

    def _nodes(self, old: Resource, why: str) -> Iterator[EndedNodes]:
        label = self._labels[old.type]
        if not label:
            yield EndedNodes(self.state.called(old), "", "", why)
            return
        for pool in self._pools.get(old.urn, ()):
            rate = node_price(self._charges, pool.urn)
            yield EndedNodes(pool.cluster, pool.name, f"{label}={pool.labels.get(label, '')}", why, rate)

    def _changes(self, old: Resource, new: Resource) -> list[Difference]:
        ignored = [parse_path(path) for path in new.ignore_changes]
        return [
            difference
            for difference in [*self._known_changes(old, new), *self._moved(old, new)]
            if not any(covers(path, difference.path) for path in ignored)
            and not self._replacing.keeps(new.type, difference, new.properties)
        ]

    @staticmethod
    def _known_changes(old: Resource, new: Resource) -> Iterator[Difference]:
        for difference in differences(old.properties, new.properties):
            if not unknown(difference.before) and not unknown(difference.after):
                yield difference

    def _moved(self, old: Resource, new: Resource) -> Iterator[Difference]:
        """What comes from a resource that is replaced, or updated with new outputs."""
        for key, urns in old.property_dependencies.items():
            sources = [self.state.resources[urn] for urn in sorted(urns) if urn in self.state.resources]
            replaced = any(self._is_replaced(source) for source in sources)
            if not replaced and not any(self._is_moved(source) for source in sources):
                continue
            for path in unknown_paths(new.properties.get(key), (key,)):
                difference = Difference(path, UNKNOWN, UNKNOWN)
                # An update in place keeps the identifiers of a resource, so it replaces no other.
                if replaced or not self._forcing(old, new, [difference]):
                    yield difference

    def _is_replaced(self, old: Resource) -> bool:
        new = self._declared.get((old.type, old.name))
        return new is not None and bool(self._forcing(old, new, self._changes(old, new)))

    def _is_moved(self, old: Resource) -> bool:
        new = self._declared.get((old.type, old.name))
        return new is not None and old.type in self._replacing.moving and bool(self._changes(old, new))

    def _forcing(self, old: Resource, new: Resource, changes: Sequence[Difference]) -> list[Difference]:
        return self._replacing.find_forcing(new.type, changes, old.properties, new.properties)


def _names(changes: Sequence[Difference]) -> str:
    return ", ".join(dict.fromkeys(path_text(without_indices(change.path)) for change in changes))
