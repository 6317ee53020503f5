"""The gRPC API (apis/prediction_service.proto and model_service.proto of 2.21)."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offline.serving import examples, predicting
from offline.serving.answers import metadata, status
from offline.serving.errors import ServingError, invalid
from offline.serving.libraries import (
    classification_pb2,
    grpc,
    management_pb2,
    model_service,
    predict_pb2,
    prediction_service,
    regression_pb2,
    tf,
)
from offline.serving.metrics import Metrics
from offline.serving.servables import Servables

THREADS = 16
_LARGEST = 2**31 - 1


def serve(servables: Servables, metrics: Metrics, address: str, configure: Callable[[Any], None]) -> Any:
    """A server at ``address``, which has to be started. Raises RuntimeError where the port is taken.

    ``configure`` takes a `ModelServerConfig` that a client sends.
    """
    options = [("grpc.max_receive_message_length", _LARGEST), ("grpc.max_send_message_length", _LARGEST)]
    # Without it a second server on the port would share its connections.
    options.append(("grpc.so_reuseport", 0))
    server = grpc.server(ThreadPoolExecutor(THREADS), options=options)
    prediction_service.add_PredictionServiceServicer_to_server(_Predictions(servables, metrics), server)
    model_service.add_ModelServiceServicer_to_server(_Models(servables, metrics, configure), server)
    server.add_insecure_port(address)
    return server


class _Answering:
    def __init__(self, servables: Servables, metrics: Metrics) -> None:
        self.servables = servables
        self.metrics = metrics

    def _answer(self, request: Any, context: Any, api: str, answer: Callable[[], Any]) -> Any:
        name, began = request.model_spec.name, time.monotonic()
        try:
            response = answer()
        except ServingError as error:
            self.metrics.count(name, error.code)
            return context.abort(getattr(grpc.StatusCode, error.code), error.message)
        self.metrics.count(name, "OK")
        self.metrics.took(name, api, "GRPC", time.monotonic() - began)
        return response

    @staticmethod
    def spec(request: Any) -> tuple[str, int | None, str]:
        """The model that a request names, and its version or label. Raises ServingError."""
        if not request.HasField("model_spec"):
            invalid("Missing ModelSpec")
        spec = request.model_spec
        return spec.name, spec.version.value if spec.HasField("version") else None, spec.version_label

    def tell(self, response: Any, request: Any, number: int, signature: str) -> None:
        """Write into ``response`` which version and signature answered."""
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = number
        response.model_spec.signature_name = signature


class _Predictions(_Answering):
    # The names of the service's methods are those of the protocol.
    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
        def answer() -> Any:
            number, model = self.servables.model(*self.spec(request))
            signature = request.model_spec.signature_name or predicting.DEFAULT
            try:
                inputs = {name: tf.make_ndarray(each) for name, each in request.inputs.items()}
            except (TypeError, ValueError) as error:
                invalid(f"tensor parsing error: {error}")
            outputs = predicting.run(model, signature, inputs, list(request.output_filter))
            response = predict_pb2.PredictResponse()
            self.tell(response, request, number, signature)
            for name, each in outputs.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(each))
            return response

        return self._answer(request, context, "Predict", answer)

    def Classify(self, request: Any, context: Any) -> Any:  # noqa: N802
        def answer() -> Any:
            number, model = self.servables.model(*self.spec(request))
            response = classification_pb2.ClassificationResponse()
            response.result.CopyFrom(examples.classify(model, request.model_spec.signature_name, request.input))
            self.tell(response, request, number, request.model_spec.signature_name)
            return response

        return self._answer(request, context, "Classify", answer)

    def Regress(self, request: Any, context: Any) -> Any:  # noqa: N802
        def answer() -> Any:
            number, model = self.servables.model(*self.spec(request))
            response = regression_pb2.RegressionResponse()
            response.result.CopyFrom(examples.regress(model, request.model_spec.signature_name, request.input))
            self.tell(response, request, number, request.model_spec.signature_name)
            return response

        return self._answer(request, context, "Regress", answer)

    def MultiInference(self, _request: Any, context: Any) -> Any:  # noqa: N802
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "MultiInference is not part of the stand-in")

    def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        def answer() -> Any:
            spec = self.spec(request)
            if not request.metadata_field:
                invalid("GetModelMetadataRequest must specify at least one metadata_field")
            for each in request.metadata_field:
                if each != "signature_def":
                    invalid(f"Metadata field {each} is not supported")
            return metadata(self.servables, *spec)

        return self._answer(request, context, "GetModelMetadata", answer)


class _Models(_Answering):
    def __init__(self, servables: Servables, metrics: Metrics, configure: Callable[[Any], None]) -> None:
        super().__init__(servables, metrics)
        self._configure = configure
        self._one_at_a_time = threading.Lock()

    def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(
            request, context, "GetModelStatus", lambda: status(self.servables, *self.spec(request)[:2])
        )

    def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        response = management_pb2.ReloadConfigResponse()
        try:
            with self._one_at_a_time:
                self._configure(request.config)
        except ServingError as error:
            context.abort(getattr(grpc.StatusCode, error.code), error.message)
        return response
