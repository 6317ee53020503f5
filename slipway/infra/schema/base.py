"""What all settings models share: strictness, and the kinds of value a stack file holds."""

import ipaddress
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from slipway.infra.platform import Resources
from slipway.infra.schema import quantities
from slipway.infra.schema.renamed import Removed, Renamed

WRONG_VALUE = "slipway_wrong_value"
"""Type of the errors that the values below raise; their context holds ``reason`` and ``fix``."""


class Model(BaseModel):
    """A section of a stack file. Unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    other_names: ClassVar[Mapping[str, str]] = {}
    """What other clouds call one of its keys, by which that key is suggested."""

    renamed: ClassVar[Mapping[str, Renamed]] = {}
    """Its keys that had another name in an earlier release, by that name."""

    removed: ClassVar[Mapping[str, Removed]] = {}
    """The keys that it had in an earlier release, and what to write instead."""

    removed_kinds: ClassVar[Mapping[str, Removed]] = {}
    """Of a section that a key such as `kind` tells from others: values that this key had in an earlier release."""


def annotation_of(field: FieldInfo) -> Any:
    """The type of a field, with its constraints."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def refuse(reason: str, fix: str) -> PydanticCustomError:
    """The error by which a value's validator refuses it, in the words a `Problem` shows."""
    return PydanticCustomError(WRONG_VALUE, "{reason}", {"reason": reason, "fix": fix})


def no_truth(value: Any) -> Any:
    """Pydantic, as Python, counts True as 1."""
    if isinstance(value, bool):
        raise refuse("true or false, and it has to be a number", "write a number")
    return value


Int = Annotated[int, BeforeValidator(no_truth)]
"""A whole number."""

Float = Annotated[float, BeforeValidator(no_truth)]
"""A number."""


def _as_text(value: Any) -> Any:
    """YAML reads ``cpu: 2`` as a number; a quantity is text, and so is what is said of one that is wrong."""
    return str(value) if isinstance(value, int | float) else value


MOST_CPU = 2_000_000
"""An amount of CPU of so many millicores is refused as a mistake: no machine has 2,000 cores, and people often
write ``2000`` for ``2000m``."""

LEAST_SIZE = 2**20
"""A size of fewer bytes is refused as a mistake: no container starts in less than 1 MiB, and people often write
``8192`` for ``8192Mi``."""

MOST_MEMORY = 64 * 2**40
"""An amount of memory of more bytes is refused as a mistake: no machine has 64 TiB."""

MOST_STORAGE = 2**50
"""An amount of storage of more bytes is refused as a mistake: what Slipway stores is far below 1 PiB."""

LONGEST = 365 * 86400
"""A duration of more seconds, a year, is refused as a mistake."""


def _cpu(value: str) -> str:
    meant, example = quantities.meant_cpu(value), "write `500m`, `2` or `1.5`"
    try:
        millicores = quantities.cpu_millicores(value)
    except ValueError:
        millicores = 0
        if meant and quantities.cpu_millicores(meant):
            raise refuse("not an amount of CPU as Kubernetes writes it", f"did you mean `{meant}`?") from None
    if millicores <= 0:
        raise refuse("not an amount of CPU above zero", example)
    if millicores >= MOST_CPU:
        whole = value.isdigit() and len(value) <= 6
        fix = f"did you mean `{value}m`, in thousandths of a core?" if whole else example
        raise refuse(f"{millicores // 1000} cores, more than any machine has", fix)
    return value


def _sized(most: int, words: str) -> Callable[[str], str]:
    """Checks a size; ``words`` say of what there are at most ``most`` bytes."""
    example = "write for example `512Mi` or `4Gi`"

    def check(value: str) -> str:
        meant = quantities.meant_size(value)
        try:
            amount = quantities.size_in_bytes(value)
        except ValueError:
            amount = Fraction(0)
            if meant and quantities.size_in_bytes(meant):
                raise refuse("not a size as Kubernetes writes it", f"did you mean `{meant}`?") from None
        if amount <= 0:
            raise refuse("not a size above zero", example)
        if amount < LEAST_SIZE:
            fix = f"did you mean `{meant}`?" if meant and value.isdigit() else example
            raise refuse(f"{int(amount)} bytes, which is next to nothing: a number without a unit is bytes", fix)
        if amount > most:
            raise refuse(f"more than {words}", example)
        return value

    return check


Cpu = Annotated[str, BeforeValidator(_as_text), AfterValidator(_cpu)]
"""CPU as a Kubernetes quantity."""

Memory = Annotated[str, BeforeValidator(_as_text), AfterValidator(_sized(MOST_MEMORY, "any machine has, 64Ti"))]
"""Memory as a Kubernetes quantity."""

Size = Annotated[
    str, BeforeValidator(_as_text), AfterValidator(_sized(MOST_STORAGE, "1Pi, the most that is accepted"))
]
"""Storage as a Kubernetes quantity."""


def _duration(value: str) -> str:
    example = "write a whole number and a unit: `30m`, `12h`, `7d`"
    try:
        length = quantities.seconds(value)
    except ValueError:
        if re.fullmatch(r"0+[a-z]?", value):
            raise refuse("no time at all", example) from None
        if re.fullmatch(r"[0-9]{1,9}", value):
            fitting = [f"`{value}{unit}`" for unit in "smh" if int(value) * quantities.SECONDS[unit] <= LONGEST]
            fix = f"write {', '.join(fitting[:-1])} or {fitting[-1]}" if fitting[1:] else example
            raise refuse("a number without a unit of time", fix) from None
        meant = quantities.meant_duration(value)
        raise refuse("not a duration", f"did you mean `{meant}`?" if meant else example) from None
    if length > LONGEST:
        raise refuse("longer than a year", example)
    return value


Duration = Annotated[str, BeforeValidator(_as_text), AfterValidator(_duration)]
"""A whole number and a unit: ``30m``, ``12h``, ``7d``."""


def _cidr(value: str) -> str:
    try:
        block = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise refuse("not a block of addresses", "write an IPv4 CIDR block such as `10.0.0.0/20`") from None
    if block.version != 4:
        raise refuse("an IPv6 block, and the clusters' networks are IPv4", "write an IPv4 CIDR block") from None
    if "/" not in value:
        # Of one machine, unless a network of the usual size begins there.
        fitting = (
            f"{value}/20" if str(ipaddress.ip_interface(f"{value}/20").network[0]) == value else f"{value}/32"
        )
        raise refuse("an address and not a block: its length is missing", f"write for example `{fitting}`")
    if str(block) != value:
        raise refuse("the address has bits outside the block's mask", f"write `{block}`")
    return value


Cidr = Annotated[str, AfterValidator(_cidr)]
"""An IPv4 CIDR block."""


def misuse(block: ipaddress.IPv4Network, usable: Iterable[ipaddress.IPv4Network]) -> str | None:
    """Why nodes and pods cannot have the block's addresses; None where it lies in one of the ``usable`` blocks."""
    if any(block.subnet_of(network) for network in usable):
        return None
    if block.is_loopback:
        return "loopback addresses, with which every machine reaches itself"
    if block.is_link_local:
        return "link-local addresses, among them that of the machines' metadata service"
    if block.is_multicast:
        return "multicast addresses, which no machine can have"
    return "addresses of the Internet, which pods could then not reach"


def everywhere(networks: Mapping[str, str]) -> tuple[str, ...] | None:
    """The name of the network that is the whole Internet, no name where several are it together; else None."""
    blocks = {name: ipaddress.IPv4Network(block) for name, block in networks.items()}
    whole = ipaddress.IPv4Network("0.0.0.0/0")
    if whole not in ipaddress.collapse_addresses(blocks.values()):
        return None
    return tuple(name for name, block in blocks.items() if block == whole)[:1]


Labels = dict[str, str]


class TaintSettings(Model):
    """A node taint. Pods of steps that run on the pool tolerate it."""

    key: str = Field(description="Taint key, for example `nvidia.com/gpu`.")
    value: str = Field(default="", description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="What happens to pods that do not tolerate it."
    )


class TimeSlicing(Model):
    """Several pods on one GPU, by time-slicing."""

    removed: ClassVar[Mapping[str, Removed]] = {"strategy": Removed("remove it: pods take turns on the GPU")}

    clients: Int = Field(ge=2, le=48, description="Most pods that share one GPU.")


class PoolSettings(Model, ABC):
    """A node pool of any cluster, as far as the steps that ask for it are concerned."""

    if TYPE_CHECKING:
        accelerator: Any = None
        gpus: Any = None

    node_keys: ClassVar[Mapping[str, tuple[str, ...]]]
    """Its keys that decide what one of its nodes leaves to pods, by the field of
    `slipway.infra.platform.Resources`."""

    @abstractmethod
    def node(self) -> Resources | None:
        """What one node leaves to pods; None where its machine type is not known."""

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""
        return self.accelerator is not None or bool(self.gpus)

    @property
    def gpu_type(self) -> str | None:
        """The accelerator of its nodes, where it is known."""
        return self.accelerator

    @property
    def shares_gpus(self) -> bool:
        """Whether it slices or partitions its GPUs; a pod can then use only one share."""
        return False

    @property
    def most_nodes(self) -> int | None:
        """The most nodes it can have, where one number says so; with 0, a step would wait for a node for ever."""
        return None


class ClusterSettings(Model):
    """A cluster of any kind, which its ``cloud`` or ``stack`` tells apart."""

    if TYPE_CHECKING:
        # A type checker lets a subclass narrow the type of a field only where it is Any.
        cloud: Any
        pools: dict[str, Any]

    collects_metrics: ClassVar[bool] = False
    """Whether the cloud itself reads what runs on the cluster answers Prometheus."""

    has_list_prices: ClassVar[bool] = True
    """Whether there are list prices of its nodes, as far as the stack knows."""

    creates_namespace: bool = Field(
        default=True,
        description="The stack creates the namespace, and refuses one that is there and not its own. `false`: it "
        "is there, and the stack neither changes nor deletes it.",
    )

    def node_of(self, pool: PoolSettings) -> Resources | None:
        """What one node of ``pool``, one of its own, leaves to pods; None where its machine type is not known."""
        return pool.node()

    def most_nodes_of(self, pool: PoolSettings) -> int | None:
        """The most nodes that ``pool``, one of its own, can have at once; None where that is not known."""
        return pool.most_nodes

    def nodes_key_of(self, pool: PoolSettings) -> str:  # noqa: ARG002
        """The key of ``pool``, one of its own, that says how many nodes it has."""
        return "nodes"

    @property
    def owns_namespace(self) -> bool:
        """Whether the stack creates the namespace, and deletes it."""
        return self.creates_namespace

    @property
    def has_registry(self) -> bool:
        """Whether its cloud has a registry that the stack can declare."""
        return False

    @property
    def builds_problem(self) -> str | None:
        """What keeps pods from building images there; None where nothing is known to."""
        return None

    @property
    def clouds(self) -> tuple[str, ...]:
        """The clouds whose behaviour its pods meet."""
        return (self.cloud,)

    @property
    def other_stack(self) -> str | None:
        """The stack that has the cluster, and whose file has its pools; None where it is this stack's own."""
        return None

    @property
    def store_reader(self) -> Mapping[str, str] | None:
        """What the cloud's package needs to read the store, where another stack has it."""
        return None

    @property
    def sidecar(self) -> Resources | None:
        """What the store's mount adds to a pod's requests, where no section `store` says so."""
        return None


class CreatedCluster(ClusterSettings):
    """A cluster that the stack creates, with its pools."""

    may_end_jobs_on: list[str] = Field(
        default_factory=list,
        description="Pools on which an update may end running Jobs. On all others `pulumi up` refuses an update "
        "that takes the nodes of a Job away.",
    )


AppRights = Literal["read", "write"]
"""What an app may do with the store: read it, or write its own folder, too."""


class Team(Model):
    """A team whose own stack runs Jobs on the clusters: as one service account, in one namespace of each. Apps of
    that stack which have the store mounted each have a service account of their own.
    """

    namespace: str = Field(description="Namespace of its Jobs: `slipway:namespace` of its stack.")
    service_account: str = Field(
        default="runner", description="Service account of its Jobs: `slipway:service_account` of its stack."
    )
    apps: dict[str, dict[str, AppRights]] = Field(
        default_factory=dict[str, dict[str, AppRights]],
        description="The apps of its stack that have the store mounted, by pipeline and name, each with `read` or "
        "`write`: `shop: {serving: read}`. Each has an identity of its own; default: none.",
    )


class StoreSettings(Model):
    """A store of any kind. Each kind's own model has ``kind``, which tells it apart."""

    if TYPE_CHECKING:
        kind: Any

    sidecar: ClassVar[Resources] = Resources(cpu=0, memory=0)
    """What its mount adds to a pod's requests."""

    beside: ClassVar[Resources] = Resources(cpu=0, memory=0)
    """What each bucket of an input that a pod mounts, too, adds to that."""
