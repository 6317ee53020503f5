"""Ask a served model, by TensorFlow Serving's REST API
(github.com/tensorflow/serving, tensorflow_serving/g3doc/api_rest.md, seen November 2026). Standard library only.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ANSWER = 60.0
"""Seconds that the server has for one answer."""

STABLE = "stable"
"""The label of the version that visitors get."""

SIGNATURE = "serving_default"


class ModelError(OSError):
    """The server is not there, or refuses; the text says which, in the server's words."""


@dataclass(frozen=True)
class Answer:
    """The outputs of a request, one for each instance, by the version that made them, in so many milliseconds."""

    outputs: Sequence[Any]
    version: int
    milliseconds: float


@dataclass(frozen=True)
class Model:
    """A model at `address`, host and port, under the name `name`."""

    address: str
    name: str

    def versions(self) -> Mapping[int, str]:
        """The state of each version: `AVAILABLE` where it answers. Raises ModelError."""
        return _states(self._send(self._path))

    def version(self, label: str = STABLE) -> int:
        """The version that has a label; where none has it, the newest that answers.

        The metadata below a label name its version. The status below a label is that of all versions
        (model_servers/get_model_status_impl.cc of TensorFlow Serving 2.21).

        Raises:
            ModelError: no version answers.
        """
        try:
            return int(self._send(f"{self._path}/labels/{label}/metadata")["model_spec"]["version"])
        except (ModelError, KeyError, TypeError, ValueError):
            states = self.versions()
        answering = [version for version, state in states.items() if state == "AVAILABLE"]
        if not answering:
            shown = ", ".join(f"{version} {state}" for version, state in states.items())
            raise ModelError(f"no version of {self.name} answers: {shown or 'there is none'}")
        return max(answering)

    def inputs(self, version: int | None = None) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Type (`DT_UINT8`) and shape of each input; -1 is a dimension of any size. Raises ModelError."""
        at = f"/versions/{version}" if version is not None else ""
        signatures = self._send(f"{self._path}{at}/metadata")["metadata"]["signature_def"]["signature_def"]
        return {
            name: (
                str(tensor["dtype"]),
                tuple(int(size["size"]) for size in tensor["tensor_shape"].get("dim", ())),
            )
            for name, tensor in signatures[SIGNATURE]["inputs"].items()
        }

    def predict(self, instances: Sequence[Any], version: int | None = None) -> Answer:
        """The answer to `instances`, as the API has them: numbers, lists of lists, or one by the input's name.

        Without `version` it asks first which one is stable, and names that in the request: the answer itself does
        not say which version gave it.

        Raises:
            ModelError: there was no answer.
        """
        chosen = self.version() if version is None else version
        began = time.perf_counter()
        answer = self._send(f"{self._path}/versions/{chosen}:predict", {"instances": list(instances)})
        return Answer(answer["predictions"], chosen, 1000 * (time.perf_counter() - began))

    @property
    def _path(self) -> str:
        return f"/v1/models/{self.name}"

    def _send(self, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self.address}{path}", data=data, headers={"Content-Type": "application/json"}
        )
        # A proxy of the environment is for the way out of the cluster.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=ANSWER) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read(4096).decode(errors="replace")
            raise ModelError(f"{self.address}{path} answered {error.code}: {_words(text)}") from error
        except (OSError, ValueError) as error:
            raise ModelError(f"{self.address}{path}: {error}") from error


def _states(status: Mapping[str, Any]) -> dict[int, str]:
    return {int(version["version"]): str(version["state"]) for version in status.get("model_version_status", ())}


def _words(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
