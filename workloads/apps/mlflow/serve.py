"""Run MLflow's own server, and record the results in the store in it.

Run as `python -m slipway.workloads.apps.mlflow.serve --pipeline STORE/mnist --data DIR --host 0.0.0.0 --port
5000`, with what the pipeline declares of each step's results in SLIPWAY_RESULTS (JSON). DIR keeps the database;
`--postgres` in its place is the one that libpq's environment variables name.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.workloads.apps.mlflow.api import Mlflow
from slipway.workloads.apps.mlflow.database import Database, SqliteFile
from slipway.workloads.apps.mlflow.importing import Importer, keep_looking
from slipway.workloads.runtime.exits import STORE_TROUBLE, USAGE, StepError, exit_code, run
from slipway.workloads.runtime.hosts import IN_CLUSTER, configured
from slipway.workloads.runtime.steps.program import Forwarding
from slipway.workloads.runtime.store import explain, write_atomically

RESULTS = "SLIPWAY_RESULTS"

DATABASE, ARTIFACTS, VERSION = "mlflow.db", "artifacts", "version"
"""What is kept: runs, files that programs upload, and the version of MLflow that the database is of."""

NO_UPLOADS = "no-uploads-without-a-volume:/"
"""A place of a kind that no client knows, which says it in its error."""

PAUSE = 30.0
"""Seconds between two looks at the store."""

QUIET: Mapping[str, str] = {
    # It would tell its makers how it is used (mlflow.org/docs/latest/community/usage-tracking, MLflow 3.17).
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # Eight more processes with 450 MB, for evaluations by language models.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


def main(arguments: list[str] | None = None) -> int:
    """Serve until the process is ended or the server ends; returns the server's exit code.

    Raises:
        StepError: USAGE without MLflow or what the pipeline declares; STORE_TROUBLE where the data directory
            cannot be written or the database cannot be brought up to date; BAD_INPUT where it is not to be used.
    """
    options = _parse(arguments)
    try:
        steps = json.loads(os.environ[RESULTS])
        version = importlib.metadata.version("mlflow")
    except (KeyError, ValueError) as error:
        raise StepError(USAGE, f"{RESULTS} has no JSON object with the results of each step") from error
    except importlib.metadata.PackageNotFoundError as error:
        raise StepError(
            USAGE, "this Python has no MLflow; workloads/apps/mlflow/requirements.txt pins one"
        ) from error
    database = _database(options, version)
    importer = Importer(
        Mlflow(f"http://127.0.0.1:{options.port}"),
        database,
        options.pipeline.parent,
        options.pipeline.name,
        steps,
        functools.partial(declared_runs, options.runs),
    )
    environment = {**os.environ, **QUIET}
    with Forwarding(signal.SIGTERM) as signals:
        server = subprocess.Popen(command(options, database, configured()), env=environment)
        signals.to(server)
        threading.Thread(target=keep_looking, args=(importer, options.every), daemon=True).start()
        code = server.wait()
    return exit_code(code)


def _database(options: argparse.Namespace, version: str) -> Database:
    """The database, as MLflow of this `version` has it."""
    if not options.postgres:
        bring_up_to_date(options.data, version)
        return SqliteFile(options.data / DATABASE)
    # With SQLite alone 30 MB of memory are not needed.
    from slipway.workloads.apps.mlflow import postgres

    postgres.bring_up_to_date(version, options.migrate_to, {**os.environ, **QUIET})
    return postgres.Postgres(options.pipeline.name)


def declared_runs(file: Path | None) -> dict[str, dict[str, Any]]:
    """What `file` (infra/kubernetes/apps/runs.py) has of each run, by the directory of its result."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file else {"runs": {}}
    of_all = {name: value for name, value in content.items() if name != "runs"}
    return {path: {**of_all, **of_run} for path, of_run in content["runs"].items()}


def command(options: argparse.Namespace, database: Database, hosts: frozenset[str]) -> list[str]:
    """MLflow's command line; `hosts` are the names by which people reach it from outside."""
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--backend-store-uri", database.address),
        *artifacts(options.data),
        *("--host", options.host, "--port", str(options.port), "--workers", "1"),
        # Probes ask every two seconds.
        "--uvicorn-opts=--no-access-log",
        *("--allowed-hosts", ",".join(allowed_hosts(hosts))),
        *(["--cors-allowed-origins", ",".join(f"https://{host}" for host in sorted(hosts))] if hosts else []),
    ]


def artifacts(data: Path | None) -> list[str]:
    """Where MLflow puts files that programs and people upload. Without a directory of its own it has no place, and
    a client says so at once: one whose upload is refused by the server tries for minutes (MLflow 3.17).
    """
    if data is None:
        return ["--no-serve-artifacts", "--default-artifact-root", NO_UPLOADS]
    return ["--serve-artifacts", "--artifacts-destination", (data / ARTIFACTS).absolute().as_uri()]


def allowed_hosts(hosts: frozenset[str]) -> list[str]:
    """Patterns of the names that the server answers by: those of its own machine and of the cluster, and `hosts`.

    MLflow compares the whole header `Host`, port included, with each (mlflow/server/security_utils.py, 3.17). The
    patterns that it has by itself let names such as `10.example.com` pass, which a site can lead here (DNS
    rebinding).
    """
    names = ["localhost", "127.0.0.1", "[[]::1]", *(f"*{ending}" for ending in IN_CLUSTER), *sorted(hosts)]
    return [pattern for name in names for pattern in (name, f"{name}:*")]


def bring_up_to_date(data: Path, version: str) -> None:
    """Migrate the database of another version of MLflow, of which a copy is kept beside it.

    Raises:
        StepError: STORE_TROUBLE.
    """
    database, mark = data / DATABASE, data / VERSION
    try:
        data.mkdir(parents=True, exist_ok=True)
        before = mark.read_text(encoding="utf-8").strip() if mark.exists() else ""
        if before == version:
            return
        if database.exists():
            _copy(database, data / f"{DATABASE}.{before or 'earlier'}")
            words = [sys.executable, "-m", "mlflow", "db", "upgrade", SqliteFile(database).address]
            print(f"MLflow {version}: the database is of {before or 'an unknown version'}", flush=True)
            if code := subprocess.run(words, check=False, env={**os.environ, **QUIET}).returncode:
                reason = f"{database} cannot be brought from MLflow {before} to {version} (exit code {code})"
                raise StepError(STORE_TROUBLE, f"{reason}; as it was, it is in {DATABASE}.{before or 'earlier'}")
        write_atomically(mark, f"{version}\n".encode())
    except OSError as error:
        raise StepError(STORE_TROUBLE, f"{error.filename or data}: {explain(error)}") from error
    except sqlite3.Error as error:
        raise StepError(STORE_TROUBLE, f"{database} cannot be copied: {error}") from error


def _copy(database: Path, copy: Path) -> None:
    new = copy.with_name(f"{copy.name}.new")
    new.unlink(missing_ok=True)
    with (
        contextlib.closing(sqlite3.connect(database)) as source,
        contextlib.closing(sqlite3.connect(new)) as target,
    ):
        source.backup(target)
    new.replace(copy)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.apps.mlflow.serve", description=__doc__)
    add = parser.add_argument
    add("--pipeline", type=Path, required=True, metavar="DIR", help="the pipeline's directory in the store")
    add("--runs", type=Path, metavar="FILE", help="with which commit the runs were declared, and on which pools")
    kept = parser.add_mutually_exclusive_group(required=True)
    kept.add_argument("--data", type=Path, metavar="DIR", help="what is kept: the database, uploaded files")
    kept.add_argument("--postgres", action="store_true", help="the database is the one of PGHOST, PGDATABASE …")
    add("--migrate-to", default="", metavar="VERSION", help="the MLflow that may migrate that database")
    add("--host", default="127.0.0.1", help="address; 0.0.0.0 is all of this machine")
    add("--port", type=int, default=5000)
    add("--every", type=float, default=PAUSE, metavar="SECONDS", help="between two looks at the store")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
