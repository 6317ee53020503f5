"""``make refresh-prices``: the clouds' prices and zones in the data files, or the files as they were.

The answers have the form of the published ones, as each cloud's `doctor` names them (November 2026): the CSV
file of the AWS Price List, SKUs of the Cloud Billing Catalog API, Compute Engine's aggregated lists, and EC2's
DescribeInstanceTypeOfferings. Descriptions of SKUs are as public parsers have them (skypilot-org/skypilot).
"""

import json
import shutil
import threading
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from slipway.command import refresh_prices
from slipway.infra.accelerators import PLACE
from slipway.infra.clouds.aws import catalogue
from slipway.infra.clouds.aws import doctor as aws
from slipway.infra.clouds.gcp import doctor as gcp
from slipway.infra.clouds.gcp import google_api
from slipway.infra.review.tables import price_table
from tests.support.checkout import ROOT

T4 = Path(f"{PLACE}/nvidia-tesla-t4.toml")
AWS_PRICES, GCP_PRICES = (Path(f"infra/clouds/{cloud}/data/prices.toml") for cloud in ("aws", "gcp"))
TODAY = datetime.now(UTC).date()
REGIONS = {"us-east-1": catalogue.regions()["us-east-1"]}

COLUMNS = (
    "SKU,OfferTermCode,RateCode,TermType,PriceDescription,EffectiveDate,StartingRange,EndingRange,Unit,"
    "PricePerUnit,Currency,Product Family,serviceCode,Location,Location Type,Instance Type,vCPU,"
    "Memory,Tenancy,Operating System,License Model,CapacityStatus,Pre Installed S/W"
)
LIST = """\
"FormatVersion","v1.0"
"Disclaimer","This pricing list is for informational purposes only."
"Publication Date","2026-11-20T18:12:09Z"
"Version","20261120181209"
"OfferCode","AmazonEC2"
"""


def row(type_: str, price: float, term: str = "OnDemand", system: str = "Linux", tenancy: str = "Shared") -> str:
    of = (term, "text", "2026-11-01", "0", "Inf", "Hrs", f"{price:.10f}", "USD", "Compute Instance", "AmazonEC2")
    place = ("US East (N. Virginia)", "AWS Region", type_, "4", "16 GiB", tenancy, system, "No License required")
    return ",".join(f'"{value}"' for value in ("SKU", "TERM", "RATE", *of, *place, "Used", "NA"))


def sku(description: str, usage: str, nanos: int, *places: str) -> dict[str, Any]:
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": nanos}}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": "GPU", "usageType": usage},
        "serviceRegions": list(places),
        "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": [rate]}}],
    }


SKUS = [
    sku("Nvidia Tesla T4 GPU running in Americas", "OnDemand", 360_000_000, "us-central1", "us-east1"),
    sku(
        "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas",
        "Preemptible",
        120_000_000,
        "us-central1",
    ),
    sku(
        "Commitment v1: Nvidia Tesla T4 GPU running in Americas for 3 Years", "Commit3Yr", 1_000_000, "us-central1"
    ),
    sku(
        "Nvidia Tesla T4 GPU attached to DWS Defined Duration VMs running in Americas",
        "OnDemand",
        2_000_000,
        "us-east1",
    ),
]

OFFERINGS = """\
<DescribeInstanceTypeOfferingsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>
<instanceTypeOfferingSet><item><instanceType>g4dn.xlarge</instanceType><location>use1-az3</location>
<locationType>availability-zone-id</locationType></item></instanceTypeOfferingSet>
</DescribeInstanceTypeOfferingsResponse>"""

Answer = Callable[[str, dict[str, list[str]]], tuple[int, str]]


def answers(path: str, query: dict[str, list[str]]) -> tuple[int, str]:
    if path.startswith("/offers/"):
        ordinary = [row("g4dn.xlarge", 0.5333), row("p5.48xlarge", 55.04)]
        others = [row("g4dn.xlarge", 9, term="Reserved"), row("g4dn.xlarge", 9, system="Windows")]
        dedicated = row("g4dn.xlarge", 9, tenancy="Dedicated")
        return 200, "\n".join([LIST + COLUMNS, *others, *ordinary, dedicated, ""])
    if path.startswith("/v1/services/6F81-5844-456A/skus"):
        second = query.get("pageToken") == ["next"]
        return 200, json.dumps({"skus": SKUS[2:]} if second else {"skus": SKUS[:2], "nextPageToken": "next"})
    if path.startswith("/compute/v1/projects/mine/aggregated/"):
        kind = path.rpartition("/")[2]
        items: dict[str, Any] = {
            "zones/us-central1-z": {kind: [{"name": "some"}]},
            "zones/us-east1-b": {"warning": {}},
        }
        return 200, json.dumps({"items": items})
    return 200, OFFERINGS


class Served:
    """What the local server answers, and where it is."""

    def __init__(self) -> None:
        self.answer: Answer = answers
        self.address = ""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    state = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            status, text = state.answer(url.path, parse_qs(url.query))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(aws, "PRICE_LIST", state.address)
    monkeypatch.setattr(gcp, "BILLING", state.address)
    monkeypatch.setattr(aws.catalogue, "regions", Mock(return_value=REGIONS))
    monkeypatch.setattr(google_api, "ADDRESS", state.address + "/{path}")
    google = google_api.Google(requests.Session(), "a test")
    monkeypatch.setattr(gcp, "signed_in", Mock(return_value=google))
    monkeypatch.setenv("AWS_ENDPOINT_URL", state.address)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("GOOGLE_API_KEY", "testing")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "mine")
    yield state
    server.shutdown()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the data files, of one accelerator."""
    for path in (T4, AWS_PRICES, GCP_PRICES, Path(f"{PLACE}.toml")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def content(root: Path, path: Path = T4) -> dict[str, Any]:
    return tomllib.loads((root / path).read_text(encoding="utf-8"))


def test_prices_are_those_of_the_lists(served: Served, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(root)
    assert refresh_prices.main(root) == 0
    after = content(root)
    machines = after["aws"]["prices"]["machines"]
    assert {row["on_demand"] for row in machines["g4dn.xlarge"].values()} == {0.5333}
    assert machines["g4dn.12xlarge"] == before["aws"]["prices"]["machines"]["g4dn.12xlarge"]
    gpus = after["gcp"]["prices"]["accelerators"]["nvidia-tesla-t4"]
    assert (gpus["us-central1"]["on_demand"], gpus["us-central1"]["spot"]) == (0.36, 0.12)
    assert (gpus["us-east1"]["on_demand"], gpus["us-east1"]["spot"]) == (0.36, 0.175)
    assert gpus["asia-east1"] == {"on_demand": 0.35, "spot": 0.1383}
    assert "0.5333" in capsys.readouterr().out


def test_every_price_has_its_own_source_and_day(served: Served, root: Path) -> None:
    assert refresh_prices.main(root) == 0
    table = price_table(root / AWS_PRICES, content(root)["aws"]["prices"])
    on_demand, spot = (table.price("machines", "g4dn.xlarge", "us-east-1", key) for key in ("on_demand", "spot"))
    assert on_demand is not None
    assert spot is not None
    assert on_demand.source.date == date(2026, 11, 20)
    assert "skypilot" in spot.source.url
    google = price_table(root / GCP_PRICES, content(root)["gcp"]["prices"])
    t4 = google.price("accelerators", "nvidia-tesla-t4", "us-central1", "on_demand")
    assert t4 is not None
    assert (t4.source.date, t4.source.dated) == (TODAY, False)


def test_zones_are_those_that_offer_it_now(served: Served, root: Path) -> None:
    assert refresh_prices.main(root) == 0
    after = content(root)
    assert after["gcp"]["zones"] == ["us-central1-z"]
    zones = after["aws"]["offered"]["g4dn.xlarge"]["zones"]
    assert [zone for zone in zones if zone.startswith("use1-")] == ["use1-az3"]
    assert "usw2-az1" in zones, "nobody was asked in that region"
    sources = content(root, Path(f"{PLACE}.toml"))
    for cloud in ("aws", "gcp"):
        (name,) = after[cloud]["sources"]["zones"]
        assert sources[name]["read"] == TODAY


def test_comments_and_all_other_facts_stay(served: Served, root: Path) -> None:
    files = [root / path for path in (T4, AWS_PRICES, GCP_PRICES, Path(f"{PLACE}.toml"))]
    comments = [[line for line in file.read_text().splitlines() if line.startswith("#")] for file in files]
    before = content(root)
    assert refresh_prices.main(root) == 0
    assert comments == [[line for line in file.read_text().splitlines() if line.startswith("#")] for file in files]
    assert content(root)["aws"]["families"] == before["aws"]["families"]
    texts = [file.read_text() for file in files]
    assert refresh_prices.main(root) == 0
    assert texts == [file.read_text() for file in files]


def test_what_cannot_be_asked_for_is_left(
    served: Served, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(root))
    before = content(root)
    assert refresh_prices.main(root) == 0
    assert content(root)["gcp"] == before["gcp"]
    assert content(root)["aws"]["offered"] == before["aws"]["offered"]
    assert capsys.readouterr().out.count("left as it is") == 3


def broken(part: str, status: int, text: str) -> Answer:
    return lambda path, query: (status, text) if part in path else answers(path, query)


@pytest.mark.parametrize(
    "answer",
    [
        broken("/offers/", 403, ""),
        broken("/offers/", 200, LIST + COLUMNS),
        broken("/offers/", 200, "<html>"),
        broken("/skus", 400, '{"error": {}}'),
        broken("/skus", 200, '{"items": []}'),
        broken("/aggregated/", 403, "{}"),
        broken("/aggregated/", 200, '{"items": {}}'),
    ],
)
def test_without_an_answer_no_file_changes(
    answer: Answer, served: Served, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.answer = answer
    before = {path: path.read_text() for path in root.rglob("*.toml")}
    assert refresh_prices.main(root) == 1
    assert {path: path.read_text() for path in root.rglob("*.toml")} == before
    assert capsys.readouterr().err.startswith("error: ")


def test_without_a_network_no_file_changes(
    served: Served, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aws, "PRICE_LIST", "http://127.0.0.1:9")
    before = (root / T4).read_text()
    assert refresh_prices.main(root) == 1
    assert (root / T4).read_text() == before
    assert "http://127.0.0.1:9/" in capsys.readouterr().err
