"""Where the Jobs' pods may connect to."""

from typing import Annotated, Literal

from pydantic import Field

from infra.platform import Egress
from infra.schema.base import Cidr, Model

Port = Annotated[int, Field(ge=1, le=65535)]


class AllowedNetwork(Model):
    """A network that pods may connect to."""

    cidr: Cidr = Field(description="Its block of addresses, for example that of a package mirror.")
    ports: list[Port] = Field(default=[443], min_length=1, description="Ports.")
    protocols: list[Literal["TCP", "UDP"]] = Field(default=["TCP"], min_length=1, description="Protocols.")


class EgressSettings(Model):
    """What the Jobs' pods may connect to: name servers, what the store and the pods' identity need of the node,
    HTTPS to public addresses, and the networks named here.
    """

    restrict: bool = Field(
        default=True,
        description="Limit it by a NetworkPolicy. `false` lets pods connect to everything.",
    )
    allow: dict[str, AllowedNetwork] = Field(
        default_factory=dict[str, AllowedNetwork],
        description="More networks, by a name of your choice: a package mirror or proxy inside your network.",
    )

    def allowed(self) -> list[Egress] | None:
        """The networks that ``allow`` names; None where nothing is limited."""
        if not self.restrict:
            return None
        return [Egress(each.cidr, tuple(each.ports), tuple(each.protocols)) for each in self.allow.values()]
