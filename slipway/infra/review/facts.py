"""Facts about a resource: what it costs, how long it takes, what it needs, what a change of it does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum


@dataclass(frozen=True)
class Source:
    """Where a fact is from, and the date of that source; when it was read where it has none (not ``dated``)."""

    url: str
    date: date
    dated: bool = True

    @property
    def when(self) -> str:
        """``2026-07-30``, or ``undated, read 2026-11-21``."""
        return f"{'' if self.dated else 'undated, read '}{self.date}"


@dataclass(frozen=True)
class Price:
    """A list price in US dollars per ``unit``, before discounts and taxes.

    The unit is ``hour``, ``month`` or ``GiB-month`` of what is paid by time, else for example ``GiB``.
    """

    amount: float
    unit: str
    source: Source


@dataclass(frozen=True)
class Disk:
    """A disk that a cluster makes for a claim, of which the cluster's cloud knows the price.

    ``cluster`` is the cluster by the name that Kubernetes objects know it by, ``storage_class`` the claim's class,
    None for the cluster's default. ``provisioner`` and ``kind`` are those of a class that the stack declares.
    """

    cluster: str
    storage_class: str | None
    provisioner: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Charge:
    """What one resource is billed for.

    ``price`` is None where no source says it. Of things that are paid by the hour, ``idle`` are those billed while
    no Job runs, ``most`` those with every pool at its largest. ``quantity`` is how much of the price's unit one of
    them is: 100 for a disk of 100 GiB. What is paid by usage alone (``metered``) is listed with its price and in
    no sum. ``pool`` is the URN of the pool whose nodes are billed so, each of them; empty for everything else.
    ``disk`` is the disk whose price a cloud has to say.
    """

    urn: str
    what: str
    price: Price | None
    idle: float = 1
    most: float = 1
    quantity: float = 1
    metered: bool = False
    pool: str = ""
    disk: Disk | None = None


@dataclass(frozen=True)
class Quota:
    """What the stack needs of one quota with every pool at its largest.

    ``where`` is the region or zone, ``see`` the command or page that shows the limit. ``ordinary`` is the limit of
    a new project or account, None where it is not documented. ``key`` is what its cloud asks for it by, where that
    is more than ``metric`` and ``where``. ``known`` is false where no source says which quota counts this;
    ``metric`` then says what is counted.
    """

    metric: str
    where: str
    needed: float
    unit: str
    see: str
    ordinary: float | None = None
    key: tuple[str, ...] = ()
    known: bool = True


@dataclass(frozen=True)
class Standing:
    """Where a quota stands: its ``limit``, and how much of that is ``used``; None where that is not known."""

    quota: Quota
    limit: float | None = None
    used: float | None = None


@dataclass(frozen=True)
class Supply:
    """What a cloud has for one node of a pool: the quotas that count it, and the zones that offer its machine.

    ``offering`` are those among the pool's zones; None where they could not be asked for, or the pool names none.
    ``unknown`` is why nothing of it is known, empty where something is.
    """

    standings: Sequence[Standing] = ()
    offering: Sequence[str] | None = None
    unknown: str = ""


@dataclass(frozen=True)
class Seconds:
    """How long something takes, and the source of that."""

    amount: float
    source: Source


@dataclass(frozen=True)
class Streaming:
    """How long nodes take to start a container whose image they read piece by piece, as the container needs it.

    ``hosts`` are the registries of such images: `docker.io`, or with a dot at the beginning all below a name.
    """

    start: Seconds
    hosts: Sequence[str]

    def reads(self, image: str) -> bool:
        """Whether it reads this image."""
        host, slash, _ = image.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host = "docker.io"
        return any(host.endswith(known) if known.startswith(".") else host == known for known in self.hosts)


@dataclass(frozen=True)
class Identity:
    """Who may do what outside the cluster.

    ``name`` is what the cloud calls it, ``of`` whose it is (``pods of slipway/runner``), ``may`` what it may do,
    in a few words. ``clusters`` are those in which it is used. ``store`` says that the store is reached through
    it.
    """

    name: str
    of: str
    may: str
    clusters: Sequence[str] = ()
    store: bool = False


@dataclass(frozen=True)
class Grant:
    """Somebody from outside the clusters who is let in by the resource with the URN ``resource``.

    ``who`` is a principal or a network as its cloud writes it, ``may`` what it may do: ``reach the API server of
    the cluster ml``. ``signs_in`` says that the cloud's IAM still asks who they are; on a resource that
    is new, this opens nothing.
    """

    resource: str
    who: str
    may: str
    signs_in: bool = False


NOT_RESTORED = "it cannot be restored"


@dataclass(frozen=True)
class Holding:
    """What of users' data is in a resource, and what becomes of it when the resource is deleted.

    ``lost`` is the object of "deletes": ``the bucket and everything in it``. ``kept`` says why the data outlive
    the resource, and ``refused`` why an update that would delete it fails; both are empty where that is not so.
    ``restore`` says how it can be had back, or under which condition nothing is lost. The resource also goes with
    those that have the URNs ``within``. ``rebuilt`` says what makes the data again, and what is gone all the same;
    it is empty where nothing does. ``meant`` says that the resource itself asks for its data to go with it, so
    that nothing has to keep it from being deleted.
    """

    lost: str
    kept: str = ""
    refused: str = ""
    restore: str = NOT_RESTORED
    within: frozenset[str] = frozenset()
    rebuilt: str = ""
    meant: bool = False


class Effect(StrEnum):
    """What an update in place does to what is there."""

    NOTE = "note"
    """Something that a reviewer should know."""
    ENDS_WORK = "ends-work"
    """Pods that run are ended."""
    REFUSED = "refused"
    """The cloud or its provider does not carry it out: `up` fails, or succeeds and has changed nothing."""
    CUTS_OFF = "cuts-off"
    """`up` no longer reaches what it has to change, and fails half-way."""
    DELETES_DATA = "deletes-data"
    """What is older, or more, than the new value allows is deleted for good."""
    UNGUARDS = "unguards"
    """A safeguard ends: a log, a backup, old versions, protection from deletion."""


class When(StrEnum):
    """Which change of a property's value has the effect.

    What can be raised and lowered are numbers, quantities, versions and durations.
    """

    CHANGED = "changed"
    RAISED = "raised"
    LOWERED = "lowered"
    SHORTENED = "shortened"
    """A time after which something is deleted: lowered, or set where it was unset or 0, which mean never."""
    ON = "on"
    """A switch is turned on."""
    OFF = "off"
    """A switch is turned off, an element taken out of a list, or a value taken away."""
    SKIPPED = "skipped"
    """A version raised by more than one minor version."""


@dataclass(frozen=True)
class InPlace:
    """What an update in place of the properties at ``paths`` means for what is there.

    The paths are written as in `slipway.infra.review.contract.Review.replacing`. It holds for the changes that
    ``when`` names. Where ``kept`` is the path of another property, it holds only while the resource ignores
    changes of that property, so that the provider sends the value in the state, and ``when`` compares with that
    value. Where ``sent`` is one, it holds only while the resource does not ignore them.
    ``fix`` says what to do instead; it is empty for a note. ``restore`` says how what the update deletes can
    be had back.
    """

    paths: Sequence[str]
    note: str
    source: Source
    effect: Effect = Effect.NOTE
    when: When = When.CHANGED
    kept: str = ""
    sent: str = ""
    fix: str = ""
    blocked: str = ""
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    restore: str = NOT_RESTORED


STACK = "{stack}"
"""Stands for the stack's name in a text, so that one text can be told of several stacks."""


class State(StrEnum):
    """How one thing was found: ``WRONG`` makes `pulumi up` fail or surprise, ``UNKNOWN`` could not be checked."""

    WRONG = "wrong"
    UNKNOWN = "unknown"
    FINE = "fine"


@dataclass(frozen=True)
class Observation:
    """One thing that was checked, or could not be.

    ``subject`` says what, ``said`` what was found, in words that follow it. ``mend`` is the command that puts it
    right or shows it, empty where there is none, and ``advice`` what a command cannot do. `STACK` in ``mend`` is
    the stack. One that is ``listed`` is shown where all is well, too.
    """

    state: State
    subject: str
    said: str
    mend: str = ""
    advice: str = ""
    listed: bool = False


def wrong(subject: str, said: str, mend: str, advice: str = "") -> Observation:
    """What makes `pulumi up` fail or surprise, with the command that mends it or that ``advice`` needs."""
    return Observation(State.WRONG, subject, said, mend, advice)


def unknown(subject: str, said: str, mend: str = "") -> Observation:
    """What could not be checked, why, and the command by which a person can."""
    return Observation(State.UNKNOWN, subject, said, mend)


def fine(subject: str, said: str) -> Observation:
    """An observation that all is well."""
    return Observation(State.FINE, subject, said)


@dataclass(frozen=True)
class Probe:
    """A check that may ask somebody else, and so take its time. ``run`` is called in a thread of its own."""

    subject: str
    run: Callable[[], Iterable[Observation]]
