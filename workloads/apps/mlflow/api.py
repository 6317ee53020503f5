"""MLflow's REST API as far as results need it (mlflow.org/docs/latest/api_reference/rest-api.html, MLflow 3.17).

Standard library only: a client of MLflow takes 250 MB of memory.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT = 60.0
"""Seconds for one request."""

PAGE = 1000
"""Runs in one answer to a search."""

MOST_METRICS, MOST_PARAMETERS, MOST_TAGS = 1000, 100, 100
"""Entries of one request (mlflow/utils/validation.py, MLflow 3.17)."""

ABSENT, EXISTING = "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"


KIND, TRAINING = "mlflow.experimentKind", "custom_model_development"
"""The tag of an experiment that its page is for trainings, and not for conversations (MLflow 3.17)."""


class MlflowError(Exception):
    """A request that the server did not answer, or refused. `code` is MLflow's word for it, if any."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Mlflow:
    """The server at `address`, such as `http://127.0.0.1:5000`. All methods but `is_ready` raise MlflowError."""

    address: str

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/health", timeout=TIMEOUT):
                return True
        except OSError:
            return False

    def experiment(self, name: str) -> str:
        """The ID of the experiment `name`, which is created where there is none."""
        try:
            experiment = self._call("experiments/get-by-name", {"experiment_name": name}, method="GET")[
                "experiment"
            ]
        except MlflowError as error:
            if error.code != ABSENT:
                raise
            new = {"name": name, "tags": _pairs({KIND: TRAINING})}
            return self._call("experiments/create", new)["experiment_id"]
        if experiment.get("lifecycle_stage") == "deleted":
            raise MlflowError(f"the experiment {name} is deleted; restore it: `mlflow experiments restore`")
        return experiment["experiment_id"]

    def runs(self, experiment: str) -> Iterator[dict[str, Any]]:
        """All runs of an experiment, those that somebody deleted included."""
        token = ""
        while True:
            search = {
                "experiment_ids": [experiment],
                "run_view_type": "ALL",
                "max_results": PAGE,
                "page_token": token,
            }
            answer = self._call("runs/search", search)
            yield from answer.get("runs", [])
            token = answer.get("next_page_token", "")
            if not token:
                return

    def create(self, experiment: str, name: str, start: int, tags: Mapping[str, str]) -> str:
        """The ID of a new run that began at `start`, in milliseconds since the epoch."""
        body = {"experiment_id": experiment, "run_name": name, "start_time": start, "tags": _pairs(tags)}
        return self._call("runs/create", body)["run"]["info"]["run_id"]

    def log(
        self,
        run: str,
        *,
        metrics: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add to a run what it does not have yet."""
        for key, entries, most in (
            ("params", _pairs(parameters or {}), MOST_PARAMETERS),
            ("metrics", list(metrics), MOST_METRICS),
            ("tags", _pairs(tags or {}), MOST_TAGS),
        ):
            for start in range(0, len(entries), most):
                self._call("runs/log-batch", {"run_id": run, key: entries[start : start + most]})

    def log_inputs(self, run: str, datasets: Sequence[Mapping[str, str]]) -> None:
        """Note what a run was made from."""
        if datasets:
            inputs = [{"dataset": dict(dataset)} for dataset in datasets]
            self._call("runs/log-inputs", {"run_id": run, "datasets": inputs})

    def finish(self, run: str, end: int, name: str = "") -> None:
        """Mark a run as finished at `end`, in milliseconds since the epoch; rename it where there is a `name`."""
        named = {"run_name": name} if name else {}
        self._call("runs/update", {"run_id": run, "status": "FINISHED", "end_time": end, **named})

    def _call(self, path: str, body: Mapping[str, Any], method: str = "POST") -> Any:
        url = f"{self.address}/api/2.0/mlflow/{path}"
        data = json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            code, message = _reason(error)
            raise MlflowError(f"{path}: {message}", code) from error
        except (OSError, ValueError) as error:
            raise MlflowError(f"{path}: {error}") from error


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _reason(error: urllib.error.HTTPError) -> tuple[str, str]:
    try:
        answer = json.load(error)
        return str(answer["error_code"]), str(answer["message"])[:500]
    except (OSError, ValueError, KeyError, TypeError):
        return "", f"HTTP {error.code}"
