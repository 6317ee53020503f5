"""A look at whether anybody uses an app: what counts as use, what looks remember, and what is done."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slipway.workloads.runtime.apps import idle
from slipway.workloads.runtime.exits import StepError
from tests.workloads.json_server import serving

TF_SERVING = """\
# TYPE :tensorflow:cc:saved_model:load_attempt_count counter
:tensorflow:cc:saved_model:load_attempt_count{model_path="/store/models/digits/1",status="success"} 1
# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{model_name="digits",status="OK"} 910
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{model_name="digits",API="predict",entrypoint="REST",le="10"} 0
:tensorflow:serving:request_latency_bucket{model_name="digits",API="predict",entrypoint="REST",le="+Inf"} 4
:tensorflow:serving:request_latency_sum{model_name="digits",API="predict",entrypoint="REST"} 8211
:tensorflow:serving:request_latency_count{model_name="digits",API="predict",entrypoint="REST"} 4
:tensorflow:serving:request_latency_sum{model_name="digits",API="",entrypoint="REST"} 91003
:tensorflow:serving:request_latency_count{model_name="digits",API="",entrypoint="REST"} 905
:tensorflow:serving:request_latency_count{model_name="digits",API="Predict",entrypoint="GRPC"} 3
"""
"""As `SerializeHistogram` of util/prometheus_exporter.cc of 2.21 writes it: the readiness probe has no API."""

COUNTER = ":tensorflow:serving:request_latency_count"
LABELS = {"API": ["predict", "classify", "regress"]}
NOTES = "/api/v1/namespaces/slipway/configmaps/mnist-serving-idle"
SCALE = "/apis/apps/v1/namespaces/slipway/deployments/mnist-serving/scale"


@dataclass
class Cluster:
    """A namespace with the notes of an app, one pod that answers Prometheus, and the clock of looks."""

    port: int = 0
    text: str = TF_SERVING
    now: datetime = datetime(2026, 11, 26, 12, tzinfo=UTC)
    notes: dict[str, str] = field(default_factory=lambda: {"about": "…"})
    scaled: list[Any] = field(default_factory=list)

    def answer(self, method: str, path: str, content: Any) -> tuple[int, object]:
        if path == SCALE and method == "PATCH":
            self.scaled.append(content)
            return 200, {}
        assert path == NOTES
        self.notes |= content["data"] if method == "PATCH" else {}
        return 200, {"data": self.notes}

    def noted(self) -> dict[str, Any]:
        return json.loads(self.notes["use"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(made.text.encode())

        def log_message(self, format: str, *_: object) -> None:
            del format

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        made.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture
def look(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "token").write_text("of-the-service-account")

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            del tz
            return cluster.now

    monkeypatch.setattr(idle, "datetime", Clock)
    with serving(cluster.answer) as api:

        def once(minutes: int = 10, *, path: str = "/metrics", up: bool = True, then: str = "stop") -> int:
            cluster.now += timedelta(minutes=minutes)
            return idle.main(
                [
                    *("--app", f"127.0.0.1:{cluster.port if up else 1}", "--after", "7200", "--then", then),
                    *("--kind", "deployment", "--scale", "mnist-serving", "--replicas", "2"),
                    *("--namespace", "slipway", "--notes", "mnist-serving-idle"),
                    *("--holds", "a node of t4, $0.53 an hour", "--path", path, "--counter", COUNTER),
                    *(word for value in LABELS["API"] for word in ("--label", f"API={value}")),
                    *("--api", f"http://{api.address}", "--service-account", str(tmp_path)),
                ]
            )

        yield once


def asked(cluster: Cluster, predictions: int, probes: int = 905) -> None:
    cluster.text = TF_SERVING.replace(
        'API="predict",entrypoint="REST"} 4', f'API="predict",entrypoint="REST"}} {predictions}'
    )
    cluster.text = cluster.text.replace('API="",entrypoint="REST"} 905', f'API="",entrypoint="REST"}} {probes}')


def test_predictions_of_both_interfaces_count_and_probes_do_not() -> None:
    assert idle.counted(TF_SERVING, COUNTER, LABELS) == 7


def test_a_server_is_stopped_two_hours_after_its_last_prediction(
    cluster: Cluster, look: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    look()
    for minute in range(10, 120, 10):
        asked(cluster, 4, probes=905 + minute)
        look()
    assert cluster.scaled == []
    asked(cluster, 5)
    look()
    last = cluster.now.isoformat()
    for _ in range(11):
        look()
    assert cluster.scaled == [], "it was asked within two hours"
    look()
    assert cluster.scaled == [{"spec": {"replicas": 0}}]
    output = capsys.readouterr().out
    assert "$0.53 an hour" in output
    assert "kubectl --namespace slipway scale deployment/mnist-serving --replicas=2" in output
    assert (cluster.noted()["used"], cluster.noted()["stopped"]) == (last, True)


def test_one_that_is_to_be_warned_of_goes_on(
    cluster: Cluster, look: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    look(then="warn")
    look(120, then="warn")
    assert cluster.scaled == []
    assert "holds a node of t4, $0.53 an hour" in capsys.readouterr().out
    assert (cluster.noted()["idle"], cluster.noted()["stopped"]) == (True, False)
    asked(cluster, 9)
    look(then="warn")
    assert cluster.noted()["idle"] is False


def test_one_that_was_started_again_is_not_stopped_for_the_time_before(cluster: Cluster, look: Any) -> None:
    look()
    look(120)
    look(up=False)
    assert cluster.noted()["stopped"] is True, "who watches sees why it is away"
    asked(cluster, 0)
    look(600)
    assert len(cluster.scaled) == 1
    look(119)
    assert len(cluster.scaled) == 1
    look(1)
    assert len(cluster.scaled) == 2


@pytest.mark.parametrize(("predictions", "stopped"), [(0, 0), (7, 1)])
def test_a_program_that_started_anew_has_its_time_anew(
    cluster: Cluster, look: Any, predictions: int, stopped: int
) -> None:
    """Its count begins at 0. Somebody scaled it to no pod and back between two looks, say."""
    asked(cluster, 7)
    look()
    asked(cluster, predictions)
    look(120)
    assert len(cluster.scaled) == stopped


def test_one_that_does_not_answer_is_left_alone(cluster: Cluster, look: Any) -> None:
    look()
    look(500, up=False)
    look()
    assert cluster.scaled == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("requests_total 4\n", "/metrics"),
        (TF_SERVING.replace("API=", "Method="), "/metrics"),
        (TF_SERVING, "/nowhere"),
    ],
)
def test_one_whose_use_cannot_be_told_is_never_stopped(cluster: Cluster, look: Any, text: str, path: str) -> None:
    look()
    cluster.text = text
    for _ in range(3):
        with contextlib.suppress(StepError):
            look(120, path=path)
            pytest.fail("it cannot be told")
    assert cluster.scaled == []


def test_damaged_notes_begin_the_time_anew(cluster: Cluster, look: Any) -> None:
    cluster.notes["use"] = '{"used": "yesterday"}'
    look()
    look(110)
    assert cluster.scaled == []


def test_a_metric_that_has_not_counted_yet_is_none_that_is_missing() -> None:
    assert idle.counted("# TYPE shop_requests_total counter\n", "shop_requests_total", {"route": ["/"]}) == 0
    text = (
        'shop_requests_total{route="/a \\"b\\"",code="200"} 3 1732622400000\nshop_requests_total{route="/h"} 9\n'
    )
    assert idle.counted(text, "shop_requests_total", {"route": ['/a "b"']}) == 3
