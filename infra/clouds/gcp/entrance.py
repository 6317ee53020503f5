"""What Google's load balancer has for an app that people reach: an address, a certificate, and who gets in."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.gateway import Opening, gateway
from infra.clouds.gcp.names import resource_name
from infra.platform import Entrance
from infra.schema.names import short_digest
from infra.schema.request import Exposed

DATA = Path(__file__).parent / "data" / "entrance.toml"

NAME_LIMIT = 63
"""Of addresses, certificates and TLS policies (RFC 1035, as each of their references says)."""

ENTRIES = 2
"""The visitor's address and that of the forwarding rule: "<unverified IP(s)>, <immediate client IP>, <global
forwarding rule external IP>" (Google's documentation, quoted at serverfault.com/questions/908724, seen November
2026)."""

ACCESS_ROLE = "roles/iap.httpsResourceAccessor"
"""Lets people through Identity-Aware Proxy."""


@dataclass(frozen=True)
class EntranceArgs:
    """``exposed`` are the apps of one cluster that people reach; ``after`` is what has to be there first."""

    project: str
    exposed: Sequence[Exposed]
    after: Sequence[pulumi.Resource]


def entrances(clusters: Mapping[str, EntranceArgs]) -> dict[str, Entrance]:
    """Declares, for the apps of each cluster that people reach, what Google's load balancers have for them.

    A cluster without such an app is not in the result.
    """
    open_ones = {name: args for name, args in clusters.items() if args.exposed}
    if not open_ones:
        return {}
    first = next(iter(open_ones.values()))
    policy = gcp.compute.SSLPolicy(
        "ingress",
        name=resource_name(NAME_LIMIT, "ingress"),
        project=first.project,
        profile="MODERN",
        min_tls_version="TLS_1_2",
        opts=pulumi.ResourceOptions(depends_on=first.after),
    )
    return {name: _entrance(args, policy) for name, args in open_ones.items()}


def _entrance(args: EntranceArgs, policy: gcp.compute.SSLPolicy) -> Entrance:
    opts = pulumi.ResourceOptions(depends_on=args.after)
    openings: dict[str, Opening] = {}
    ready: list[pulumi.Resource] = [policy]
    for each in args.exposed:
        opening, made = _opening(args, each, policy, opts)
        openings[each.ingress.host] = opening
        ready += [*made, *_grants(args, each, opts)]
    networks = tomllib.loads(DATA.read_text(encoding="utf-8"))["networks"]
    return Entrance(
        lambda door, opts: gateway(door, openings[door.host], opts),
        frozenset(host for host, opening in openings.items() if opening.iap),
        networks,
        outside=True,
        ready=ready,
        entries=ENTRIES,
    )


def _opening(
    args: EntranceArgs, each: Exposed, policy: gcp.compute.SSLPolicy, opts: pulumi.ResourceOptions
) -> tuple[Opening, list[pulumi.Resource]]:
    name, called = f"ingress-{each.name}", resource_name(NAME_LIMIT, "ingress", each.name)
    address = gcp.compute.GlobalAddress(
        # Its description would replace it: nothing of it depends on the host, whose record it stands in.
        name,
        name=called,
        project=args.project,
        description=f"People reach {each.name} here",
        opts=opts,
    )
    # Of another host both are made anew, and Google takes no two of one name.
    mark = short_digest(sha256(each.ingress.host.encode()).hexdigest())
    host = resource_name(NAME_LIMIT, "ingress", each.name, mark)
    certificate = gcp.certificatemanager.Certificate(
        name,
        name=host,
        project=args.project,
        managed=gcp.certificatemanager.CertificateManagedArgs(domains=[each.ingress.host]),
        opts=opts,
    )
    certificates = gcp.certificatemanager.CertificateMap(name, name=called, project=args.project, opts=opts)
    entry = gcp.certificatemanager.CertificateMapEntry(
        name,
        name=host,
        project=args.project,
        map=certificates.name,
        certificates=[certificate.id],
        hostname=each.ingress.host,
        opts=opts,
    )
    opening = Opening(address.name, address.address, certificates.name, policy.name, each.ingress.login.iap)
    return opening, [address, entry]


def _grants(args: EntranceArgs, each: Exposed, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Lets the members in at this host alone. A grant on the backend would be narrower, but its name is the
    controller's, and not known before.

    Identity-Aware Proxy knows conditions on a request's host (docs.cloud.google.com/iap/docs/
    cloud-iap-context-aware-access-howto, seen November 2026).
    """
    login = each.ingress.login.iap
    if login is None:
        return []
    condition = gcp.iap.WebIamMemberConditionArgs(
        title=f"slipway-{each.name}",
        description=f"The app {each.name}",
        expression=f'request.host == "{each.ingress.host}"',
    )
    return [
        gcp.iap.WebIamMember(
            f"ingress-{each.name}-{member}",
            project=args.project,
            role=ACCESS_ROLE,
            member=member,
            condition=condition,
            opts=opts,
        )
        for member in dict.fromkeys(login.members)
    ]
