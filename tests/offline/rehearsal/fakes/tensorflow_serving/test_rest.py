"""The fake's REST answers beside those that TensorFlow Serving documents.

What is called documented are requests and answers of tensorflow.org/tfx/serving/api_rest (seen November 2026);
errors that others go by are those of model_servers and core of github.com/tensorflow/serving at 2.21.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.offline.rehearsal.fakes.tensorflow_serving.server import Server

pytestmark = pytest.mark.slow

HALF = "/v1/models/half_plus_three"
SENSORS = "/v1/models/sensors:predict"
ROWS = [
    {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
    {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
]
COLUMNS = {
    "tag": ["foo", "bar"],
    "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
    "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]],
}


@pytest.mark.slow
def test_the_documented_status(server: Server) -> None:
    assert server.get(HALF) == (
        200,
        {
            "model_version_status": [
                {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            ]
        },
    )
    assert server.get(f"{HALF}/versions/123") == server.get(HALF)


def test_the_documented_prediction(server: Server) -> None:
    answer = server.post(f"{HALF}:predict", {"instances": [1.0, 2.0, 5.0]})
    assert answer == (200, {"predictions": [3.5, 4.0, 5.5]})
    assert server.post(f"{HALF}/versions/123:predict", {"instances": [1.0, 2.0, 5.0]}) == answer


@pytest.mark.slow
def test_the_documented_error(server: Server) -> None:
    answer = server.post("/v1/models/half:predict", {"instances": [1.0, 5.0]})
    assert answer == (404, {"error": "Servable not found for request: Latest(half)"})


@pytest.mark.parametrize("method", ["classify", "regress"])
def test_says_that_it_has_predict_only(server: Server, method: str) -> None:
    code, answer = server.post(f"{HALF}:{method}", {"examples": [{"x": 1.0}]})
    assert code == 501
    assert "predict only" in answer["error"]


def test_refuses_grpc_and_says_that_it_has_predict_only(server: Server) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.rpc}") as channel:
        call: Any = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=60)
    error: Any = raised.value
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "predict only" in error.details()


def test_a_single_text_in_and_out(server: Server) -> None:
    body = {"signature_name": "greet", "inputs": "you"}
    assert server.post(f"{HALF}:predict", body) == (200, {"outputs": "hello you"})
    assert server.post(f"{HALF}:predict", {"signature_name": "greet", "inputs": {"b64": "é"}})[0] == 400


def test_the_same_columns_and_rows(server: Server) -> None:
    code, rows = server.post(SENSORS, {"instances": ROWS})
    assert code == 200
    first = dict(rows["predictions"][0])
    assert first.pop("scaled") == [[0.1, 0.2], [pytest.approx(0.3), 0.4]]
    assert first == {
        "odd": [True, False, True, False, True],
        "raw_bytes": {"b64": "Zm9v"},
        "sum": 15,
        "tag": "foo",
    }
    code, columns = server.post(SENSORS, {"inputs": {**COLUMNS, "more": 1}})
    assert code == 200
    for name, values in columns["outputs"].items():
        assert values == [prediction[name] for prediction in rows["predictions"]]


def test_one_input_may_go_without_its_name(server: Server) -> None:
    assert server.post(f"{HALF}:predict", {"inputs": [1.0]}) == (200, {"outputs": [3.5]})
    assert server.post(f"{HALF}:predict", {"inputs": {"x": [1.0]}}) == (200, {"outputs": [3.5]})
    assert server.post(f"{HALF}:predict", {"instances": [{"x": 1}]}) == (200, {"predictions": [3.5]})


def test_binary_values_in_and_out(server: Server) -> None:
    row = {**ROWS[0], "tag": {"b64": "/w=="}}
    code, answer = server.post(SENSORS, {"instances": [row]})
    assert code == 200
    assert answer["predictions"][0]["raw_bytes"] == {"b64": "/w=="}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2, "3.1"),
        (2.0, "4.0"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        # Six digits do not tell it from others.
        (2.1234567, "4.0617285"),
    ],
)
def test_numbers_are_as_short_as_tells_them_from_others(server: Server, value: float, text: str) -> None:
    body = json.dumps({"instances": [value]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.rest}{HALF}:predict", data=body, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        content = answer.read().decode()
    assert content.partition("[")[2].partition("]")[0] == text


def test_metadata_has_the_signatures(server: Server) -> None:
    code, metadata = server.get(f"{HALF}/metadata")
    assert code == 200
    assert metadata["model_spec"] == {"name": "half_plus_three", "signature_name": "", "version": "123"}
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    default = signatures["serving_default"]
    assert default["method_name"] == "tensorflow/serving/predict"
    given = default["inputs"]["x"]
    assert given["dtype"] == "DT_FLOAT"
    assert given["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert {*signatures} >= {"serving_default", "greet"}


PREDICT = f"{HALF}:predict"
TAG = {"tag": "foo", "signal": [1, 2, 3, 4, 5]}
INPUTS = "['sensor', 'signal', 'tag']"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (f"{HALF}/versions/7:predict", {"instances": [1]}, "Specific(half_plus_three, 7)"),
        # The page goes by these words.
        (f"{HALF}/labels/canary:predict", {"instances": [1]}, "Unrecognized servable version label: canary"),
        (f"{HALF}:explain", {}, f"POST {HALF}:explain"),
        (PREDICT, b"", "JSON"),
        (PREDICT, b"{", "JSON"),
        (PREDICT, [1], "[1]"),
        (PREDICT, {}, "'inputs' or 'instances'"),
        (PREDICT, {"instances": [1], "inputs": [1]}, "'inputs' or 'instances'"),
        (PREDICT, {"instances": 1}, "'instances'"),
        (PREDICT, {"instances": []}, "0 instances"),
        *((PREDICT, {"instances": [value]}, "input x") for value in ("one", True, None, [1, [2]], [1.0])),
        (PREDICT, {"instances": [{"y": 1}]}, "['x']"),
        (PREDICT, {"signature_name": "other", "instances": [1]}, '"other"'),
        (PREDICT, {"signature_name": 1, "instances": [1]}, "'signature_name'"),
        *((SENSORS, {"instances": [row]}, INPUTS) for row in (1, TAG, {**ROWS[0], "more": 1})),
        (SENSORS, {"instances": [ROWS[0], 1]}, INPUTS),
        (SENSORS, {"inputs": TAG}, INPUTS),
        (SENSORS, {"instances": [ROWS[0], {**ROWS[1], "signal": [1]}]}, "input signal"),
        (SENSORS, {"instances": [{**ROWS[0], "tag": {"b64": "?"}}]}, "input tag"),
        (SENSORS, {"instances": [{**ROWS[0], "signal": [1.5, 2, 3, 4, 5]}]}, "input signal"),
        (SENSORS, {"instances": [{**ROWS[0], "signal": [2**31, 2, 3, 4, 5]}]}, "input signal"),
    ],
)
def test_errors_say_what_is_wrong(server: Server, path: str, body: Any, said: str) -> None:
    code, answer = server.post(path, body)
    assert [*answer] == ["error"]
    assert said in answer["error"]
    assert code == (404 if "/versions/7" in path else 400)


def test_what_is_asked_of_no_model(server: Server) -> None:
    assert server.get("/v1/models/none") == (404, {"error": "Could not find any versions of model none"})
    unknown = (404, {"error": "Could not find version 7 of model half_plus_three"})
    assert server.get(f"{HALF}/versions/7") == unknown
    assert server.get("/v1/models") == (400, {"error": "Missing model name in request."})
    assert server.get("/v1/other") == (400, {"error": "Malformed request: GET /v1/other"})
    assert server.get("/other") == (404, None)


def test_says_that_it_is_a_fake(server: Server) -> None:
    assert server.text("/").startswith("This is a fake of TensorFlow Serving")
    assert server.notes[0].startswith("fake: This is a fake of TensorFlow Serving")


def test_prometheus_reads_the_names_of_the_server(server: Server) -> None:
    server.post(f"{HALF}:predict", {"instances": [1.0]})
    server.post("/v1/models/unknown:predict", {"instances": [1.0]})
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(server.text("/monitoring/prometheus/metrics"))
        for sample in family.samples
    }
    count = ":tensorflow:serving:request_count"
    assert samples[count, "half_plus_three", "OK"] >= 1
    assert samples[count, "unknown", "NOT_FOUND"] == 1
    latency = ":tensorflow:serving:request_latency_count"
    assert any(name == latency and "half_plus_three" in labels for name, *labels in samples)
    load = ":tensorflow:cc:saved_model:load_attempt_count"
    assert any(name == load and labels[1:] == ["success"] for name, *labels in samples)
