"""TensorFlow, gRPC and the messages of TensorFlow Serving, none of which has types.

The messages are those of the package tensorflow-serving-api 2.21.
"""

import importlib
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def load(name: str) -> Any:
    """The module ``name``."""
    return importlib.import_module(name)


tf: Any = load("tensorflow")
np: Any = load("numpy")
grpc: Any = load("grpc")
json_format: Any = load("google.protobuf.json_format")
text_format: Any = load("google.protobuf.text_format")
saved_model_pb2: Any = load("tensorflow.core.protobuf.saved_model_pb2")
example_pb2: Any = load("tensorflow.core.example.example_pb2")
error_codes_pb2: Any = load("tensorflow.core.protobuf.error_codes_pb2")
types_pb2: Any = load("tensorflow.core.framework.types_pb2")
classification_pb2: Any = load("tensorflow_serving.apis.classification_pb2")
input_pb2: Any = load("tensorflow_serving.apis.input_pb2")
metadata_pb2: Any = load("tensorflow_serving.apis.get_model_metadata_pb2")
status_pb2: Any = load("tensorflow_serving.apis.get_model_status_pb2")
management_pb2: Any = load("tensorflow_serving.apis.model_management_pb2")
model_pb2: Any = load("tensorflow_serving.apis.model_pb2")
predict_pb2: Any = load("tensorflow_serving.apis.predict_pb2")
regression_pb2: Any = load("tensorflow_serving.apis.regression_pb2")
config_pb2: Any = load("tensorflow_serving.config.model_server_config_pb2")
model_service: Any = load("tensorflow_serving.apis.model_service_pb2_grpc")
prediction_service: Any = load("tensorflow_serving.apis.prediction_service_pb2_grpc")
