"""The versions of models that are loaded, and what a configuration makes of them.

As TensorFlow Serving does it (model_servers/server_core.cc and core/ of 2.21): a configuration whose label moves
to a version that is not loaded is refused as a whole, and nothing of it is loaded; a version is unloaded only once
one that is wanted answers; one that does not load keeps being tried, and then has its error in its state. A server
that starts takes any label, and opens its ports as soon as one version of each model answers, be it another one
(`HasAnyServableInStreamReachedState` of core/servable_state_monitor.cc). Versions load one after the other here,
the oldest first; the server loads several at a time.
"""

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# A SavedModel runs without Keras. TensorFlow then looks for the package tf_keras, and goes on where there is none.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def load(name: str) -> Any:
    """The module ``name`` of a package that has no types."""
    return importlib.import_module(name)


tf: Any = load("tensorflow")
descriptor_pb2: Any = load("google.protobuf.descriptor_pb2")
descriptor_pool: Any = load("google.protobuf.descriptor_pool")
message_factory: Any = load("google.protobuf.message_factory")
saved_model_pb2: Any = load("tensorflow.core.protobuf.saved_model_pb2")
text_format: Any = load("google.protobuf.text_format")

START, LOADING, AVAILABLE, END = "START", "LOADING", "AVAILABLE", "END"

_MESSAGES = """
name: "config.proto" package: "tensorflow.serving" syntax: "proto3"
message_type {
  name: "ModelServerConfig"
  field { name: "model_config_list" number: 1 type: TYPE_MESSAGE type_name: "ModelConfigList" }
}
message_type {
  name: "ModelConfigList"
  field { name: "config" number: 1 type: TYPE_MESSAGE type_name: "ModelConfig" label: LABEL_REPEATED }
}
message_type {
  name: "ModelConfig"
  field { name: "name" number: 1 type: TYPE_STRING }
  field { name: "base_path" number: 2 type: TYPE_STRING }
  field { name: "model_platform" number: 4 type: TYPE_STRING }
  field { name: "model_version_policy" number: 7 type: TYPE_MESSAGE type_name: "VersionPolicy" }
  field { name: "version_labels" number: 8 type: TYPE_MESSAGE type_name: "Labels" label: LABEL_REPEATED }
  nested_type {
    name: "Labels"
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_INT64 }
  }
}
message_type {
  name: "VersionPolicy"
  field { name: "latest" number: 100 type: TYPE_MESSAGE type_name: "Latest" oneof_index: 0 }
  field { name: "all" number: 101 type: TYPE_MESSAGE type_name: "All" oneof_index: 0 }
  field { name: "specific" number: 102 type: TYPE_MESSAGE type_name: "Specific" oneof_index: 0 }
  oneof_decl { name: "policy_choice" }
  nested_type { name: "Latest" field { name: "num_versions" number: 1 type: TYPE_UINT32 } }
  nested_type { name: "All" }
  nested_type { name: "Specific" field { name: "versions" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
}
message_type {
  name: "MonitoringConfig"
  field { name: "prometheus_config" number: 1 type: TYPE_MESSAGE type_name: "PrometheusConfig" }
}
message_type {
  name: "PrometheusConfig"
  field { name: "enable" number: 1 type: TYPE_BOOL }
  field { name: "path" number: 2 type: TYPE_STRING }
}
"""
"""The fields of config/{model_server_config,monitoring_config}.proto of 2.21 that a publisher writes.

The package with the messages, tensorflow-serving-api, has no message for monitoring, and is needed for nothing
else.
"""


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto()))
    return pool


_POOL = _pool()


def message(name: str, text: str = "") -> Any:
    """The message ``name`` of a configuration, as the ``text`` of a file says it.

    Raises:
        ServingError: INVALID_ARGUMENT; the text says at which line and column.
    """
    empty = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"tensorflow.serving.{name}"))()
    try:
        return text_format.Parse(text, empty)
    except text_format.ParseError as error:
        return invalid(str(error))


class ServingError(Exception):
    """A request that fails with ``code``, such as `NOT_FOUND`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> NoReturn:
    """Raise a ServingError with INVALID_ARGUMENT."""
    raise ServingError("INVALID_ARGUMENT", message)


@dataclass(frozen=True)
class Model:
    """A loaded SavedModel: its functions, and its signatures as they are declared."""

    functions: Mapping[str, Any]
    signatures: Mapping[str, Any]


@dataclass
class Version:
    """A version of a model in one of its states. ``error`` is why it did not load, with its code."""

    number: int
    path: Path
    state: str = START
    model: Model | None = None
    error: tuple[str, str] | None = None
    attempts: int = 0
    next_attempt: float = 0.0


@dataclass
class Servable:
    """A model of the configuration, and its versions by number."""

    name: str
    config: Any
    versions: dict[int, Version] = field(default_factory=dict[int, Version])
    wanted: bool = True

    @property
    def aspired(self) -> list[int]:
        """The versions that the configuration wants of those in the folder."""
        if not self.wanted:
            return []
        base = Path(self.config.base_path)
        numbers = sorted(
            int(path.name)
            for path in (base.iterdir() if base.is_dir() else ())
            if path.is_dir() and _is_number(path.name)
        )
        policy = self.config.model_version_policy
        if policy.HasField("specific"):
            return [number for number in numbers if number in policy.specific.versions]
        if policy.HasField("all"):
            return numbers
        return numbers[-max(policy.latest.num_versions, 1) :]


@dataclass(frozen=True)
class Retries:
    """How often a version that does not load is tried again, and the seconds between."""

    most: int = 5
    interval: float = 60.0


class Servables:
    """All models of a server. Its methods may be called from several threads, `poll` from one.

    ``log`` takes lines, and ``count`` an attempt to load a version: its path and `success` or `fail`.
    """

    def __init__(
        self,
        early_labels: bool,
        retries: Retries,
        log: Callable[[str], None],
        count: Callable[[str, str], None],
    ) -> None:
        self._early_labels = early_labels
        self._retries = retries
        self._log = log
        self._count = count
        self._lock = threading.RLock()
        self._models: dict[str, Servable] = {}
        self._labels: dict[str, dict[str, int]] = {}

    def configure(self, config: Any) -> None:
        """Take up a `ModelServerConfig`.

        Raises:
            ServingError: FAILED_PRECONDITION where a label moves to what is not loaded; INVALID_ARGUMENT.
        """
        models = list(config.model_config_list.config)
        for model in models:
            if not (model.name and model.base_path):
                invalid(f"Illegal empty ModelConfig name or base_path: {model}")
        with self._lock:
            labels = {model.name: self._check_labels(model) for model in models}
            self._labels = labels
            for model in models:
                self._models.setdefault(model.name, Servable(model.name, model)).config = model
            for name, servable in self._models.items():
                servable.wanted = name in labels

    def _check_labels(self, model: Any) -> dict[str, int]:
        existing = self._labels.get(model.name, {})
        versions = self._models[model.name].versions if model.name in self._models else {}
        labels = {entry.key: entry.value for entry in model.version_labels}
        for label, number in labels.items():
            moves = label in existing and existing[label] != number
            loaded = number in versions and versions[number].state == AVAILABLE
            if not loaded and (moves or not self._early_labels):
                raise ServingError(
                    "FAILED_PRECONDITION",
                    f"Request to assign label to version {number} of model {model.name}, which is not currently "
                    "available for inference",
                )
        return labels

    def poll(self) -> None:
        """Look at the folders of versions once: load what is wanted, then unload what is not."""
        with self._lock:
            servables = list(self._models.values())
        for servable in servables:
            self._poll(servable)

    def _poll(self, servable: Servable) -> None:
        aspired = servable.aspired
        for number in aspired:
            version = servable.versions.get(number)
            # One that was unloaded is loaded anew; one that failed stays as it is.
            if version is None or (version.state == END and version.error is None):
                path = Path(servable.config.base_path) / str(number)
                with self._lock:
                    servable.versions[number] = Version(number, path)
        for number in aspired:
            version = servable.versions[number]
            if version.state in (START, LOADING) and version.next_attempt <= time.monotonic():
                self._load(servable, version)
        answers = any(servable.versions[number].state == AVAILABLE for number in aspired)
        for number, version in servable.versions.items():
            if number not in aspired and version.state == AVAILABLE and (answers or not aspired):
                with self._lock:
                    version.state, version.model = END, None
                self._log(f"Done unloading servable version {{name: {servable.name} version: {number}}}")

    def _load(self, servable: Servable, version: Version) -> None:
        version.state = LOADING
        version.attempts += 1
        identity = f"{{name: {servable.name} version: {version.number}}}"
        try:
            model = read(version.path)
        except Exception as error:
            # Whatever is wrong with a SavedModel: each kind of damage has an exception of its own.
            self._count(str(version.path), "fail")
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            self._log(f"Loading servable: {identity} failed: {reason}")
            if version.attempts > self._retries.most:
                version.error = ("UNKNOWN", reason)
                version.state = END
            version.next_attempt = time.monotonic() + self._retries.interval
            return
        self._count(str(version.path), "success")
        with self._lock:
            version.model, version.state = model, AVAILABLE
        self._log(f"Successfully loaded servable version {identity}")

    @property
    def unavailable(self) -> list[str]:
        """The models that have no version which answers, each with the reason where there is one."""
        with self._lock:
            return [
                _reason(model)
                for model in self._models.values()
                if all(version.state != AVAILABLE for version in model.versions.values())
            ]

    @property
    def given_up(self) -> bool:
        """Whether a model has no version that answers, nor one that is still tried."""
        with self._lock:
            return any(
                all(version.state == END for version in model.versions.values())
                for model in self._models.values()
                if model.versions
            )

    def model(self, name: str, number: int | None, label: str) -> tuple[int, Model]:
        """The version of ``name`` that answers a request, and its number.

        Raises:
            ServingError: NOT_FOUND, or INVALID_ARGUMENT where there is no such label.
        """
        with self._lock:
            number = self._version_of_label(name, label) if label else number
            versions = self._models[name].versions if name in self._models else {}
            loaded = {version.number: version.model for version in versions.values() if version.model is not None}
            if number is None and loaded:
                number = max(loaded)
            model = loaded.get(number) if number is not None else None
            if number is None or model is None:
                wanted = f"Latest({name})" if number is None else f"Specific({name}, {number})"
                raise ServingError("NOT_FOUND", f"Servable not found for request: {wanted}")
            return number, model

    def states(self, name: str, number: int | None) -> list[Version]:
        """The versions of ``name``, the newest first, or the one that is asked for.

        A label makes no difference (model_servers/get_model_status_impl.cc of 2.21), other than documented.
        Raises ServingError with NOT_FOUND.
        """
        with self._lock:
            versions = self._models[name].versions if name in self._models else {}
            if number is not None:
                if number not in versions:
                    raise ServingError("NOT_FOUND", f"Could not find version {number} of model {name}")
                return [versions[number]]
            if not versions:
                raise ServingError("NOT_FOUND", f"Could not find any versions of model {name}")
            return [versions[version] for version in sorted(versions, reverse=True)]

    def _version_of_label(self, name: str, label: str) -> int:
        number = self._labels.get(name, {}).get(label)
        if number is None:
            invalid(f"Unrecognized servable version label: {label}")
        return number


def read(path: Path) -> Model:
    """Load a SavedModel. Raises what TensorFlow raises of one that is damaged."""
    loaded = tf.saved_model.load(str(path), tags=["serve"])
    content = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph = next(meta_graph for meta_graph in content.meta_graphs if "serve" in meta_graph.meta_info_def.tags)
    return Model(dict(loaded.signatures.items()), dict(graph.signature_def.items()))


def _reason(servable: Servable) -> str:
    errors = [
        f" due to error: {version.error[0]}: {version.error[1]}"
        for version in servable.versions.values()
        if version.error
    ]
    newest = max(servable.versions, default=0)
    return f"{{name: {servable.name} version: {newest}}}{errors[-1] if errors else ''}"


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()
