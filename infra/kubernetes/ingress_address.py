"""Where a load balancer or a controller says that an Ingress is reached."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pulumi


def leads_to(status: pulumi.Output[Any], otherwise: pulumi.Input[str]) -> pulumi.Output[str]:
    """What a DNS record of the host of an Ingress has to have, as its ``status`` says; else ``otherwise``.

    The status is as Pulumi saw it last: a controller that writes it later is seen after `pulumi refresh`.
    """
    return pulumi.Output.all(status, otherwise).apply(lambda both: _record(_addresses(both[0])) or both[1])


def _addresses(status: object) -> Sequence[Mapping[str, Any]]:
    """The SDK hands the status over as mappings that its own types are, with the keys as it writes them."""
    there: object = status
    for key in ("load_balancer", "ingress"):
        there = cast("Mapping[str, Any]", there).get(key) if isinstance(there, Mapping) else None
    return cast("Sequence[Mapping[str, Any]]", there or ())


def _record(addresses: Sequence[Mapping[str, Any]]) -> str:
    names = [f"CNAME {each['hostname']}" for each in addresses if each.get("hostname")]
    return ", ".join(names or [f"A {each['ip']}" for each in addresses if each.get("ip")])
