"""What all settings models share: strictness, and the kinds of value a stack file holds."""

import ipaddress
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from infra.platform import Resources
from infra.settings import quantity

WRONG_VALUE = "slipway_wrong_value"
"""Type of the errors that the values below raise; their context holds ``reason`` and ``fix``."""


class Model(BaseModel):
    """A section of a stack file. Unknown keys are refused, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refuse(reason: str, fix: str) -> PydanticCustomError:
    """The error by which a value's validator refuses it, in the words a `Problem` shows."""
    return PydanticCustomError(WRONG_VALUE, "{reason}", {"reason": reason, "fix": fix})


def _number_as_text(value: Any) -> Any:
    """YAML reads ``cpu: 2`` as a number; a quantity is text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _parsed_by(parse: Callable[[str], int], reason: str, fix: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            amount = parse(value)
        except ValueError:
            amount = 0
        if amount <= 0:
            raise refuse(reason, fix)
        return value

    return check


Cpu = Annotated[
    str,
    BeforeValidator(_number_as_text),
    AfterValidator(
        _parsed_by(quantity.cpu_millicores, "not an amount of CPU above zero", "write `500m`, `2` or `1.5`")
    ),
]
"""CPU as a Kubernetes quantity."""

Size = Annotated[
    str,
    BeforeValidator(_number_as_text),
    AfterValidator(_parsed_by(quantity.mebibytes, "not a size above zero", "write for example `512Mi` or `4Gi`")),
]
"""Memory or storage as a Kubernetes quantity."""

Duration = Annotated[
    str,
    AfterValidator(
        _parsed_by(quantity.seconds, "not a duration", "write a whole number and a unit: `30m`, `12h`, `7d`")
    ),
]
"""A whole number and a unit: ``30m``, ``12h``, ``7d``."""


def _cidr(value: str) -> str:
    try:
        block = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise refuse("not a block of addresses", "write an IPv4 CIDR block such as `10.0.0.0/20`") from None
    if block.version != 4:
        raise refuse("an IPv6 block, and the clusters' networks are IPv4", "write an IPv4 CIDR block") from None
    if "/" not in value:
        raise refuse("an address and not a block: its length is missing", f"write for example `{value}/20`")
    if str(block) != value:
        raise refuse("the address has bits outside the block's mask", f"write `{block}`")
    return value


Cidr = Annotated[str, AfterValidator(_cidr)]
"""An IPv4 CIDR block."""


def _utc_time(value: str) -> str:
    try:
        datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        raise refuse("not a time in RFC 3339 and UTC", 'write it in quotes, as `"2026-01-03T02:00:00Z"`') from None
    return value


UtcTime = Annotated[str, AfterValidator(_utc_time)]
"""A time in RFC 3339 and UTC. Pulumi rewrites one that stands without quotes."""


def _image_by_digest(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", value):
        raise refuse(
            "not an image by digest: a tag can be moved, and then the same step runs other code",
            "write `<registry>/<name>@sha256:<64 hexadecimal digits>`; `docker buildx imagetools inspect <image>` "
            "shows the digest",
        )
    return value


Image = Annotated[str, AfterValidator(_image_by_digest)]
"""A container image by its digest."""


def _path_in_store(value: str) -> str:
    parts = value.split("/")
    if not value or value.startswith("/") or ".." in parts:
        raise refuse("not a path below the store's root", "write a relative path such as `uploads/mnist`")
    return value


StorePath = Annotated[str, AfterValidator(_path_in_store)]
"""A path below the store's root."""

Labels = dict[str, str]


class TaintSettings(Model):
    """A node taint. Pods of steps that run on the pool tolerate it."""

    key: str = Field(description="Taint key, for example `nvidia.com/gpu`.")
    value: str = Field(default="", description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="What happens to pods that do not tolerate it."
    )


class ChartSettings(Model):
    """Where Helm finds a pinned chart."""

    chart: str | None = Field(
        default=None,
        description="Where Helm finds the chart, in place of its public repository: a folder or file of this "
        "machine, a URL, or an `oci://` reference.",
    )
    version: str | None = Field(default=None, description="Version of the chart there; default: the pinned one.")


class TimeSlicing(Model):
    """Several pods on one GPU, by time-slicing."""

    strategy: Literal["TIME_SHARING"] = Field(default="TIME_SHARING", description="Take turns on the GPU.")
    clients: int = Field(ge=2, le=48, description="Most pods that share one GPU.")


class PoolSettings(Model, ABC):
    """A node pool of any cluster, as far as the steps that ask for it are concerned."""

    node_keys: ClassVar[tuple[str, ...]]
    """Its keys that decide what one of its nodes leaves to pods."""

    @abstractmethod
    def node(self) -> Resources | None:
        """What one node leaves to pods; None where its machine type is not known."""

    @property
    @abstractmethod
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs."""

    @property
    def gpu_type(self) -> str | None:
        """The accelerator of its nodes, where it is known."""
        return None

    @property
    def shares_gpus(self) -> bool:
        """Whether it slices or partitions its GPUs, of which a pod can use only one share."""
        return False

    @property
    def most_nodes(self) -> int | None:
        """The most nodes it can have, where one number says so; with 0, a step would wait for a node for ever."""
        return None


class ClusterSettings(Model):
    """A cluster of any cloud."""


class StoreSettings(Model):
    """A store of any kind."""

    sidecar: ClassVar[Resources] = Resources(cpu=0, memory=0)
    """What its mount adds to a pod's requests."""
