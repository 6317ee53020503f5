"""Which quotas of AWS a stack needs with every pool at its largest."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from infra.clouds.aws import nodes
from infra.clouds.aws.catalogue import instance_type
from infra.clouds.aws.review.pools import CLUSTER, template
from infra.review.facts import Quota
from infra.review.properties import at, mappings, text
from infra.review.stack import Resource, Stack

DATA = Path(__file__).parents[1] / "data" / "quotas.toml"
SUBNET = "aws:ec2/subnet:Subnet"

Need = tuple[str, str]
"""The quota's code, or what is counted where no source says by which quota; and where."""


def quotas(stack: Stack) -> Sequence[Quota]:
    """What the stack needs of each quota, by region or zone."""
    needed: Counter[Need] = Counter()
    regions: dict[Need, str] = {}
    for region, need, amount in (*_vcpus(stack), *_disks(stack), *_counts(stack)):
        needed[need] += amount
        regions[need] = region
    rules = _rules()
    found: list[Quota] = []
    for (code, where), amount in sorted(needed.items()):
        if code not in rules and amount:
            see = (
                f"aws service-quotas list-service-quotas --service-code ec2 --region {regions[code, where]} "
                "--query 'Quotas[].[QuotaName,Value]' --output table"
            )
            found.append(Quota(code, where, amount, "vCPUs", see, known=False))
    for need in (each for code in rules for each in sorted(needed) if each[0] == code and needed[each]):
        code, where = need
        rule = rules[code]
        found.append(
            Quota(
                metric=rule["name"],
                where=where,
                needed=round(needed[need] / 1024, 2) if rule["unit"] == "TiB" else needed[need],
                unit=rule["unit"],
                see=(
                    f"aws service-quotas get-service-quota --service-code {rule['service']} --quota-code {code} "
                    f"--region {regions[need]} --query Quota.Value"
                ),
                ordinary=rule.get("ordinary"),
                key=(rule["service"], code, regions[need]),
            )
        )
    return found


def _vcpus(stack: Stack) -> Iterator[tuple[str, Need, int]]:
    for group in stack.of_type(nodes.NODE_GROUP):
        machine = instance_type(nodes.machine(group.properties, template(stack, group)))
        if machine is None or group.properties.get("capacityType") == "CAPACITY_BLOCK":
            continue
        region = _region(stack, group)
        metric = _vcpu_metric(machine.name, spot=nodes.is_spot(group.properties))
        yield region, (metric, region), machine.vcpus * nodes.most_nodes(group.properties)


def _vcpu_metric(machine: str, *, spot: bool) -> str:
    """The code of the quota that counts the vCPUs of ``machine``, or these words where no source has it."""
    for code, rule in _data()["vcpus"].items():
        if rule.get("spot", False) == spot and _is_in(machine, rule["families"]):
            return code
    return f"vCPUs of {machine.partition('.')[0]}{' as Spot' if spot else ''}"


def _is_in(machine: str, families: Sequence[str]) -> bool:
    family = machine.partition(".")[0]
    letters = re.match(r"[a-z]+", family)
    return family in families or (letters is not None and letters[0] in families)


def _disks(stack: Stack) -> Iterator[tuple[str, Need, int]]:
    """GiB of the nodes' disks."""
    for group in stack.of_type(nodes.NODE_GROUP):
        region, machines = _region(stack, group), template(stack, group)
        disks = mappings(machines.get("blockDeviceMappings"))
        kind = at(disks[0], "ebs", "volumeType") if disks else None
        for code, rule in _data()["disks"].items():
            if kind == rule["type"]:
                size = nodes.disk_size(group.properties, machines)
                yield region, (code, region), size * nodes.most_nodes(group.properties)


def _counts(stack: Stack) -> Iterator[tuple[str, Need, int]]:
    for code, rule in _data()["counts"].items():
        for resource in stack.of_type(rule["type"]):
            region = _region(stack, resource)
            where = {"zone": _zone, "cluster": _cluster}.get(rule.get("scope", ""), _region)
            yield region, (code, where(stack, resource) or region), 1


def _cluster(stack: Stack, group: Resource) -> str:
    source = stack.source(group, "clusterName", CLUSTER)
    return stack.called(source) if source else text(group.properties.get("clusterName"))


def _zone(stack: Stack, resource: Resource) -> str:
    """The zone of the resource's subnet; empty where it is not known."""
    subnet = stack.source(resource, "subnetId", SUBNET)
    found = [subnet.properties.get(key) for key in ("availabilityZone", "availabilityZoneId")] if subnet else []
    return next((zone for each in found if (zone := text(each))), "")


def _region(stack: Stack, resource: Resource) -> str:
    return text(resource.properties.get("region")) or text(stack.configuration.get("aws:region")) or "<region>"


@cache
def _rules() -> Mapping[str, Mapping[str, Any]]:
    """All quotas by their code, in the order of the data."""
    data = _data()
    vcpus = {code: {"service": "ec2", "unit": "vCPUs", **rule} for code, rule in data["vcpus"].items()}
    return {**vcpus, **data["disks"], **data["counts"]}


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))
