"""``make refresh-prices``: writes what the clouds say today of accelerators' prices and zones into the data files.

- Prices of AWS on demand: the files of the AWS Price List, which need no account.
- Prices of Google's GPUs that are attached to machines: the Cloud Billing Catalog API, with ``GOOGLE_API_KEY``.
- Zones of AWS and Google: their APIs, where this machine is signed in to them.

What cannot be asked for is left as it is, and said. Where an answer is missing, no file changes. Never asked for:
Spot prices of AWS, which are a statistic of a day, and prices of Google's machine types with GPUs built in, which
are sums over SKUs.

Formats, seen in November 2026: the CSV file of docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/
reading-service-price-list-file-for-services.html and API_DescribeInstanceTypeOfferings.html of
docs.aws.amazon.com/AWSEC2/latest/APIReference; services.skus/list below
cloud.google.com/billing/docs/reference/rest/v1; acceleratorTypes/aggregatedList and machineTypes/aggregatedList
below cloud.google.com/compute/docs/reference/rest/v1.
"""

import csv
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import requests
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from botocore.session import Session
from rich.console import Console
from rich.table import Table

from infra.accelerators import PLACE
from infra.clouds.aws.catalogue import records, region_of, regions
from infra.clouds.gcp import google_api
from infra.clouds.gcp.rules import PROJECT_VARIABLES
from offline import files

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# botocore and requests have no types of their own.

ROOT = Path(__file__).parents[1]

PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"
BILLING = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "6F81-5844-456A"
"""The id of its service in Cloud Billing (cloud.google.com/skus)."""

TIMEOUTS = (5, 120)
"""Seconds to wait for a connection, and for the next piece of an answer: a region's price list has some 300 MB."""

ORDINARY = {
    "TermType": "OnDemand",
    "Unit": "Hrs",
    "Currency": "USD",
    "Operating System": "Linux",
    "Tenancy": "Shared",
    "License Model": "No License required",
    "CapacityStatus": "Used",
    "Pre Installed S/W": "NA",
}
"""The columns of the one row of an instance type that has its ordinary price. Other rows are of other licences, of
dedicated hosts or of reservations."""

WIDTH = 115
"""The longest line of a list."""

Prices = dict[tuple[str, str], dict[str, float]]
"""Amounts by column, of a name in a region."""


class RefreshError(Exception):
    """An answer is missing, or is not what it is documented to be; the text says which."""


@dataclass
class Data:
    """The data files below ``root`` as text, what changed in them, and what was not asked for."""

    root: Path
    texts: dict[Path, str] = field(default_factory=dict[Path, str])
    changes: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    left: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        paths = [self.prices("aws"), self.prices("gcp"), self.sources, *sorted((self.root / PLACE).glob("*.toml"))]
        self.texts = {path: path.read_text(encoding="utf-8") for path in paths}

    def prices(self, cloud: str) -> Path:
        """The price table of a cloud, which has the sources of prices."""
        return self.root / "infra" / "clouds" / cloud / "data" / "prices.toml"

    @property
    def sources(self) -> Path:
        """The file with the sources of all other facts about accelerators."""
        return self.root / f"{PLACE}.toml"

    def sold_by(self, cloud: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """What each accelerator's file says of ``cloud``."""
        for path, text in self.texts.items():
            if path.parent == self.root / PLACE and cloud in (content := tomllib.loads(text)):
                yield path, content[cloud]

    def set(self, path: Path, table: str, key: str, value: str) -> None:
        """Writes ``key = value`` into ``[table]``, which is added at the end of the file where it is not there."""
        tables = re.split(r"(?m)^(?=\[)", self.texts[path])
        line = re.compile(rf"(?ms)^{re.escape(key)} = (\[.*?\]|[^\n]*)$")
        for index, content in enumerate(tables):
            if content.startswith(f"[{table}]\n"):
                end = len(content.rstrip("\n"))
                tables[index], count = line.subn(lambda _: f"{key} = {value}", content, count=1)
                if not count:
                    tables[index] = f"{content[:end]}\n{key} = {value}{content[end:]}"
                break
        else:
            tables.append(f"\n[{table}]\n{key} = {value}\n")
        self.texts[path] = "".join(tables)

    def cite(self, path: Path, table: str, url: str, key: str, day: date) -> None:
        """Writes a source: its ``date``, or the day on which it was ``read``."""
        self.set(path, table, "url", f'"{url}"')
        self.set(path, table, key, day.isoformat())

    def put_prices(self, cloud: str, kind: str, prices: Prices, source: str) -> None:
        """Puts ``prices`` into the rows that there are. What is not among them keeps its amount and its source."""
        default: str = tomllib.loads(self.texts[self.prices(cloud)])["kinds"][kind]
        for path, sold in list(self.sold_by(cloud)):
            for name, rows in sold.get("prices", {}).get(kind, {}).items():
                for region, row in rows.items():
                    new, earlier = prices.get((name, region), {}), row.pop("source", default)
                    of = {column: earlier[column] if isinstance(earlier, dict) else earlier for column in row}
                    of |= dict.fromkeys(new, source)
                    self.changes += [
                        (f"{kind}.{name}, {region}, {column}", str(row.get(column, "-")), str(amount))
                        for column, amount in new.items()
                        if row.get(column) != amount
                    ]
                    sources = source if {*of.values()} == {source} else of
                    key = f'"{name}"' if "." in name else name
                    if new:
                        value = toml({**row, **new, "source": sources})
                        self.set(path, f"{cloud}.prices.{kind}.{key}", region, value)

    def put_zones(self, path: Path, table: str, key: str, before: list[str], after: list[str]) -> None:
        """Puts a list of zones in the place of another."""
        if sorted(before) != after:
            gone, more = sorted({*before} - {*after}), sorted({*after} - {*before})
            self.changes.append((f"{path.stem}, {table}, {key}", ", ".join(gone) or "-", ", ".join(more) or "-"))
            line = toml(after)
            if len(f"{key} = {line}") > WIDTH:
                rows = textwrap.wrap(f"{line[1:-1]},", WIDTH, break_on_hyphens=False, initial_indent="  ")
                line = "\n".join(["[", *(f"  {row.strip()}" for row in rows), "]"])
            self.set(path, table, key, line)


def toml(value: object) -> str:
    """``value`` as it stands behind a key."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {toml(member)}' for key, member in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def aws_price_list(region: str) -> tuple[date, dict[str, float]]:
    """When the list of a region was published, and what each instance type costs there for an hour."""
    url = f"{PRICE_LIST}/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
    with requests.get(url, stream=True, timeout=TIMEOUTS) as answer:
        answer.raise_for_status()
        rows = csv.reader(line.decode("utf-8") for line in answer.iter_lines())
        about = dict(next(rows) for _ in range(5))
        names = next(rows)
        prices: dict[str, float] = {}
        for values in rows:
            row = dict(zip(names, values, strict=False))
            if all(row[column] == value for column, value in ORDINARY.items()) and float(row["PricePerUnit"]) > 0:
                prices[row["Instance Type"]] = round(float(row["PricePerUnit"]), 5)
    if not prices:
        raise RefreshError(f"the price list of {region} has no instance type")
    return datetime.fromisoformat(about["Publication Date"]).date(), prices


def refresh_aws_prices(data: Data) -> None:
    """On demand, of the rows that there are."""
    rows = [sold.get("prices", {}).get("machines", {}) for _, sold in data.sold_by("aws")]
    prices: Prices = {}
    days: list[date] = []
    for region in sorted({region for machines in rows for by_region in machines.values() for region in by_region}):
        day, amounts = aws_price_list(region)
        days.append(day)
        prices |= {(name, region): {"on_demand": amount} for name, amount in amounts.items()}
    data.put_prices("aws", "machines", prices, "aws_price_list")
    url = f"{PRICE_LIST}/offers/v1.0/aws/AmazonEC2/current/index.json"
    data.cite(data.prices("aws"), "sources.aws_price_list", url, "date", min(days))


def google_skus(key: str) -> Iterator[Mapping[str, Any]]:
    """All SKUs of Compute Engine."""
    url, token = f"{BILLING}/v1/services/{COMPUTE_ENGINE}/skus", ""
    while True:
        query = {"key": key, "pageSize": "5000", "pageToken": token}
        answer = requests.get(url, params=query, timeout=TIMEOUTS)
        answer.raise_for_status()
        yield from answer.json()["skus"]
        token = answer.json().get("nextPageToken", "")
        if not token:
            return


def refresh_google_prices(data: Data, today: date) -> None:
    """Of GPUs that are attached to machines: Tesla T4 is ``nvidia-tesla-t4``."""
    key = os.environ.get("GOOGLE_API_KEY")
    if not key:
        data.left.append("Google's prices: set GOOGLE_API_KEY to a key for the Cloud Billing API")
        return
    told = re.compile(r"Nvidia (\w+ \w+) GPU (?:attached to (Spot) Preemptible VMs )?running in ")
    prices: Prices = {}
    for sku in google_skus(key):
        match, usage = told.match(sku["description"]), sku["category"]["usageType"]
        if match and usage == ("Preemptible" if match[2] else "OnDemand"):
            price = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
            amount = round(int(price.get("units", 0)) + price.get("nanos", 0) / 1e9, 5)
            name = f"nvidia-{match[1].lower().replace(' ', '-')}"
            for region in sku["serviceRegions"] if amount else ():
                prices.setdefault((name, region), {})["spot" if match[2] else "on_demand"] = amount
    data.put_prices("gcp", "accelerators", prices, "billing_catalogue")
    url = "https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list"
    data.cite(data.prices("gcp"), "sources.billing_catalogue", url, "read", today)


def refresh_aws_zones(data: Data, today: date) -> None:
    """Of the types whose zones are recorded. A region that the account has not opted in to keeps its zones."""
    types = sorted({name for _, sold in data.sold_by("aws") for name in sold.get("offered", {})})
    zones: dict[str, set[str]] = {name: set() for name in types}
    asked: set[str] = set()
    session = Session()
    for region in filter(records, regions()):
        query = {"LocationType": "availability-zone-id", "Filters": [{"Name": "instance-type", "Values": types}]}
        try:
            client = session.create_client("ec2", region_name=region)
            pages = client.get_paginator("describe_instance_type_offerings").paginate(**query)
            offerings = [offering for page in pages for offering in page["InstanceTypeOfferings"]]
        except NoCredentialsError:
            data.left.append("zones of AWS: this machine is not signed in to it")
            return
        except ClientError as error:
            data.left.append(f"zones of {region}: {error}")
            continue
        except BotoCoreError as error:
            raise RefreshError(f"EC2 in {region} cannot be asked ({type(error).__name__})") from error
        asked.add(region)
        for offering in offerings:
            zones[offering["InstanceType"]].add(offering["Location"])
    for path, sold in list(data.sold_by("aws")):
        for name, facts in sold.get("offered", {}).items():
            kept = {zone for zone in facts["zones"] if region_of(zone) not in asked}
            after = sorted(kept | {zone for zone in zones[name] if region_of(zone)})
            data.put_zones(path, f'aws.offered."{name}"', "zones", facts["zones"], after)
        if sold.get("offered") and asked:
            data.set(path, "aws.sources", "zones", '["aws_offerings"]')
            url = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceTypeOfferings.html"
            data.cite(data.sources, "aws_offerings", url, "read", today)


def refresh_google_zones(data: Data, today: date) -> None:
    """Of GPUs that are attached, the zones of the GPU; of others, those of the machine types that have it."""
    project = next(filter(None, map(os.environ.get, PROJECT_VARIABLES)), "")
    try:
        google = google_api.signed_in({}) if project else None
    except google_api.NoCredentialsError:
        google = None
    if google is None:
        data.left.append("zones of Google: sign in, and name a project in GOOGLE_CLOUD_PROJECT")
        return
    for path, sold in list(data.sold_by("gcp")):
        kind, names = (
            ("machineTypes", list(sold.get("machines", {})))
            if "machines" in sold
            else ("acceleratorTypes", [path.stem])
        )
        query = {"filter": " OR ".join(f"(name = {name})" for name in names), "maxResults": "500", "pageToken": ""}
        after: set[str] = set()
        while True:
            try:
                page = google.get(
                    "compute.googleapis.com", f"compute/v1/projects/{project}/aggregated/{kind}", **query
                )
            except (google_api.RefusedError, google_api.UnreachableError, google_api.NoCredentialsError) as error:
                raise RefreshError(f"Compute Engine cannot be asked: {error}") from error
            after |= {
                place.removeprefix("zones/") for place, content in page["items"].items() if content.get(kind)
            }
            query["pageToken"] = page.get("nextPageToken", "")
            if not query["pageToken"]:
                break
        if not after:
            raise RefreshError(f"Compute Engine offers {path.stem} nowhere")
        data.put_zones(path, "gcp", "zones", sold.get("zones", []), sorted(after))
        data.set(path, "gcp.sources", "zones", '["google_compute_api"]')
        url = "https://cloud.google.com/compute/docs/reference/rest/v1/acceleratorTypes/aggregatedList"
        data.cite(data.sources, "google_compute_api", url, "read", today)


def main(root: Path = ROOT) -> int:
    """Exits with 1, and changes nothing, where an answer is missing."""
    data, today = Data(root), datetime.now(UTC).date()
    try:
        refresh_aws_prices(data)
        refresh_google_prices(data, today)
        refresh_aws_zones(data, today)
        refresh_google_zones(data, today)
    except (RefreshError, requests.RequestException, LookupError, ValueError, TypeError, StopIteration) as error:
        reason = str(error) if isinstance(error, RefreshError) else f"an answer is not as documented ({error!r})"
        if isinstance(error, requests.RequestException):
            url = str(error.request.url if error.request is not None else "a cloud")
            reason = f"{url.partition('?')[0]} cannot be asked ({type(error).__name__})"
        print(f"error: {reason}; no file was changed", file=sys.stderr)
        return 1
    for path, text in data.texts.items():
        tomllib.loads(text)
        if text != path.read_text(encoding="utf-8"):
            files.write(path, text)
    table = Table("fact", "before", "after", title=f"{len(data.changes)} facts about accelerators changed")
    for change in data.changes:
        table.add_row(*change)
    console = Console()
    console.print(table)
    for sentence in data.left:
        console.print(f"left as it is: {sentence}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
