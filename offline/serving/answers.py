"""The messages that say what models are, and in which state (get_model_metadata.proto, get_model_status.proto)."""

from typing import Any

from offline.serving.libraries import error_codes_pb2, metadata_pb2, status_pb2
from offline.serving.servables import Servables


def status(servables: Servables, name: str, number: int | None) -> Any:
    """The `GetModelStatusResponse` of a model. Raises ServingError."""
    response = status_pb2.GetModelStatusResponse()
    for version in servables.states(name, number):
        each = response.model_version_status.add()
        each.version = version.number
        each.state = status_pb2.ModelVersionStatus.State.Value(version.state)
        each.status.error_code = error_codes_pb2.Code.Value(version.error[0] if version.error else "OK")
        each.status.error_message = version.error[1] if version.error else ""
    return response


def metadata(servables: Servables, name: str, number: int | None, label: str) -> Any:
    """The `GetModelMetadataResponse` of a model that is loaded. Raises ServingError."""
    found, model = servables.model(name, number, label)
    signatures = metadata_pb2.SignatureDefMap()
    for alias, signature in model.signatures.items():
        signatures.signature_def[alias].CopyFrom(signature)
    response = metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = found
    response.metadata["signature_def"].Pack(signatures)
    return response
