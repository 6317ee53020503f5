"""The dashboards: what is drawn exists, and Prometheus understands how it is asked for."""

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from slipway.infra.clouds.gcp.platforms import converted
from slipway.infra.kubernetes.metrics.exporters import COUNTERS
from slipway.offline.rehearsal.machine.processes import free_ports
from slipway.tools import dashboards
from slipway.tools.dashboards import DASHBOARDS, FOLDER, NAMESPACE, grafana
from slipway.workloads.apps.page.middleware import Metrics
from slipway.workloads.runtime.usage.figures import MIB, Gpu, Usage
from slipway.workloads.runtime.usage.measure import METRICS, serve, text

SERVING = {
    ":tensorflow:serving:request_count": {"model_name", "status"},
    ":tensorflow:serving:request_latency_bucket": {"model_name", "API", "entrypoint", "status", "le"},
}
"""Of TensorFlow Serving (tensorflow_serving/servables/tensorflow/util.cc, read on 2026-11-22), with what
Prometheus puts behind the name of a histogram."""

EXPORTER = {"redis_key_size", "redis_memory_used_bytes", "redis_memory_max_bytes"}
"""Of redis_exporter (exporter/exporter.go and keys.go at v1.88.0, read on 2026-11-22)."""

PROMETHEUS = {"up"}

UNITS = {"none", "percent", "percentunit", "bytes", "mbytes", "s", "µs", "reqps", "watt", "suffix:cores"}
"""Of Grafana (packages/grafana-data/src/valueFormats/categories.ts, read on 2026-11-23): `mbytes` are mebibytes,
and any word may stand behind `suffix:`."""

EXPRESSIONS = [
    (panel.title, query.promql)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]


def known() -> set[str]:
    page: set[str] = set()
    for family in Metrics().registry.collect():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        page |= {f"{family.name}{ending}" for ending in endings}
    gpus = {line.partition(",")[0] for line in COUNTERS.splitlines()}
    return {*METRICS, *SERVING, *EXPORTER, *PROMETHEUS, *page, *gpus}


@pytest.mark.parametrize(("title", "promql"), EXPRESSIONS)
def test_prometheus_parses_every_query(title: str, promql: str) -> None:
    assert promql_parser.parse(promql.replace(NAMESPACE, "slipway|.+"))


@pytest.mark.parametrize(("title", "promql"), EXPRESSIONS)
def test_every_metric_is_one_that_something_exports(title: str, promql: str) -> None:
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", promql)
    names = set(re.findall(r"(?<![\w:])(?:slipway_|redis_|DCGM_|:tensorflow:)[\w:]+", bare))

    assert names
    assert names <= known()


def test_the_files_are_those_that_the_panels_make() -> None:
    assert dashboards.main(["--check"]) == 0
    assert {path.stem for path in FOLDER.glob("*.json")} == {dashboard.uid for dashboard in DASHBOARDS}


def test_panels_have_a_place_and_a_number_of_their_own() -> None:
    for dashboard in DASHBOARDS:
        made = grafana(dashboard)
        places = [tuple(panel["gridPos"].values()) for panel in made["panels"]]
        assert len(set(places)) == len(places) == len({panel["id"] for panel in made["panels"]})
        assert {target["datasource"]["uid"] for panel in made["panels"] for target in panel["targets"]} == {
            "${source}"
        }


def test_every_unit_is_one_of_grafanas_and_memory_is_in_powers_of_two() -> None:
    panels = {panel.title: panel for dashboard in DASHBOARDS for panel in dashboard.panels}

    assert {each.unit for each in panels.values()} <= UNITS
    # DCGM says MiB.
    assert panels["Memory in use, by Job"].unit == "mbytes"


def test_in_cloud_monitoring_a_dashboard_is_of_one_namespace_and_fits_its_grid() -> None:
    for path in FOLDER.glob("*.json"):
        made = converted(json.loads(path.read_text()), "slipway")
        assert NAMESPACE not in json.dumps(made)
        layout = made["mosaicLayout"]
        assert all(tile["xPos"] + tile["width"] <= layout["columns"] for tile in layout["tiles"])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real Prometheus that reads a step and a page."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no `prometheus` on PATH (Debian has a package)")
    usage = Usage("mnist.train", "p", "", asked_gpus=1, seconds=10, cpu_seconds=4.0, memory=MIB, rate=2000.0)
    usage.rate_unit = "images/s"
    gpu = Gpu("Tesla T4", memory_now=MIB, memory_total=16 * MIB)
    gpu.add(10, 2, 5)
    usage.gpus.append(gpu)
    labels = 'gpu="0",modelName="T4",namespace="slipway",pod="mnist-train-0123456789-abcde"'
    counters = "".join(f"{line.partition(',')[0]}{{{labels}}} 7\n" for line in COUNTERS.splitlines())
    servers = [serve("127.0.0.1", 0, lambda: text(usage)), serve("127.0.0.1", 0, lambda: counters)]
    targets = [f"127.0.0.1:{server.server_address[1]}" for server in servers]
    folder = tmp_path_factory.mktemp("prometheus")
    jobs = [
        {
            "job_name": name,
            "scrape_interval": "1s",
            "honor_labels": True,
            "static_configs": [
                {"targets": [target], "labels": {"namespace": "slipway", "pod": "dcgm-exporter-1"}}
            ],
        }
        for name, target in zip(("steps", "gpus"), targets, strict=True)
    ]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(address, "count(up == 1) == 2 and count(rate(slipway_step_cpu_seconds_total[5m]))")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)
        for server in servers:
            server.shutdown()
            server.server_close()


def ask(address: str, promql: str) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=10) as found:
        return json.loads(found.read())["data"]["result"]


def _wait(address: str, promql: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if ask(address, promql):
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("Prometheus has read nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "promql"),
    [expression for expression in EXPRESSIONS if "slipway_step" in expression[1] or "DCGM" in expression[1]],
)
def test_a_real_prometheus_has_an_answer_to_what_is_asked_of_jobs_and_gpus(
    prometheus: str, title: str, promql: str
) -> None:
    (found,) = ask(prometheus, promql.replace(NAMESPACE, "slipway"))

    if "step" in found["metric"]:
        assert found["metric"]["step"] in {"train", "mnist-train"}
    if title == "GPUs: idle since the start":
        assert float(found["value"][1]) == 1
