"""The stand-in's gRPC answers, asked with the messages and stubs of tensorflow-serving-api 2.21."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from tests.offline.serving.server import Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.rpc}") as found:
        yield found


@pytest.fixture
def stub(channel: grpc.Channel) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def asking(**inputs: Any) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half_plus_three"
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def test_predicts_and_says_which_version_answered(stub: Any) -> None:
    response = stub.Predict(asking(x=np.array([1, 2, 5], np.float32)))
    assert tf.make_ndarray(response.outputs["y"]).tolist() == [3.5, 4.0, 5.5]
    assert response.model_spec.name == "half_plus_three"
    assert response.model_spec.version.value == 123
    assert response.model_spec.signature_name == "serving_default"


def test_gives_only_the_outputs_that_are_asked_for(stub: Any) -> None:
    request = predict_pb2.PredictRequest(output_filter=["sum"])
    request.model_spec.name = "sensors"
    inputs = {"tag": [b"a"], "signal": np.ones((1, 5), np.int32), "sensor": np.ones((1, 2, 2), np.float32)}
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    assert {name: tf.make_ndarray(each).tolist() for name, each in stub.Predict(request).outputs.items()} == {
        "sum": [5]
    }


def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value.code(), raised.value.details()


def test_refuses_in_the_words_of_the_server(stub: Any) -> None:
    wrong = asking(x=np.array([1], np.int64))
    assert refused(lambda: stub.Predict(wrong)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "Expects arg[0] to be float but int64 is provided",
    )
    code, said = refused(lambda: stub.Predict(asking(z=np.array([1], np.float32))))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert said == (
        "input size does not match signature: 1!=1 len({z}) != len({x}). Sent extra: {z}. Missing but required: "
        "{x}."
    )
    unknown = asking(x=np.array([1], np.float32))
    unknown.model_spec.name = "half"
    assert refused(lambda: stub.Predict(unknown)) == (
        grpc.StatusCode.NOT_FOUND,
        "Servable not found for request: Latest(half)",
    )
    other = asking(x=np.array([1], np.float32))
    other.model_spec.signature_name = "other"
    assert refused(lambda: stub.Predict(other)) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        'Serving signature key "other" not found.',
    )
    assert refused(lambda: stub.Predict(predict_pb2.PredictRequest()))[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_classifies_and_regresses(stub: Any) -> None:
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(2.0)
    regression = regression_pb2.RegressionRequest()
    regression.model_spec.name = "half_plus_three"
    regression.model_spec.signature_name = "tensorflow/serving/regress"
    regression.input.example_list.examples.append(example)
    assert [each.value for each in stub.Regress(regression).result.regressions] == [4.0]
    classification = classification_pb2.ClassificationRequest()
    classification.model_spec.CopyFrom(regression.model_spec)
    classification.model_spec.signature_name = "tensorflow/serving/classify"
    classification.input.CopyFrom(regression.input)
    (answer,) = stub.Classify(classification).result.classifications
    assert [(kind.label, round(kind.score, 6)) for kind in answer.classes] == [
        ("small", 0.6),
        ("large", 0.4),
    ]
    regression.input.Clear()
    assert refused(lambda: stub.Regress(regression)) == (grpc.StatusCode.INVALID_ARGUMENT, "Input is empty.")


def test_says_signatures_and_state(stub: Any, channel: grpc.Channel) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half_plus_three"
    response = stub.GetModelMetadata(request)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    assert found.signature_def["serving_default"].inputs["x"].dtype == 1
    asked = get_model_status_pb2.GetModelStatusRequest()
    asked.model_spec.name = "half_plus_three"
    (version,) = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(asked).model_version_status
    assert version.version == 123
    assert version.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert version.status.error_code == 0
