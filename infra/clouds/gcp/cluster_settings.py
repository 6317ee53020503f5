"""What a stack file says of a cluster on Google Cloud beside its nodes: its API, its addresses, its upgrades."""

from pydantic import Field

from slipway.infra.schema.base import Cidr, Model, UtcTime


class ControlPlane(Model):
    """From where the cluster's API can be reached, and the key of its Secrets."""

    dns_endpoint: bool = Field(
        default=True, description="The DNS-based endpoint, guarded by IAM; needs no network to be opened."
    )
    authorized_networks: dict[str, Cidr] = Field(
        default_factory=dict, description="Name to CIDR block of each network that may reach the IP endpoint."
    )
    secrets_key: str | None = Field(
        default=None,
        description="Cloud KMS key that encrypts Kubernetes Secrets: `own` for one that the stack creates, or "
        "yours in the cluster's region (`projects/…/locations/…/keyRings/…/cryptoKeys/…`), which "
        "GKE's service agent must be allowed to use. Changed in place: GKE writes every Secret again. "
        "Removed, GKE keeps the old key.",
    )


class Network(Model):
    """Address ranges of a cluster's subnet; clusters of one stack may not overlap."""

    nodes_cidr: Cidr = Field(default="10.0.0.0/20", description="Addresses of the nodes.")
    pods_cidr: Cidr = Field(default="10.4.0.0/14", description="Addresses of the pods.")
    services_cidr: Cidr = Field(default="10.8.0.0/20", description="Addresses of the Services.")
    control_plane_cidr: Cidr = Field(default="172.16.0.0/28", description="A /28 for the control plane.")


class Maintenance(Model):
    """When GKE may upgrade the cluster: an RFC 5545 window in UTC."""

    start: UtcTime = Field(default="2026-01-03T02:00:00Z", description="First window's start.")
    end: UtcTime = Field(default="2026-01-03T10:00:00Z", description="First window's end.")
    recurrence: str = Field(
        default="FREQ=WEEKLY;BYDAY=SA,SU",
        description="When it comes again, as RFC 5545 has it: 48 hours or more in any 32 days, which GKE wants.",
    )
