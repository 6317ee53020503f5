"""A Postgres as MLflow's database: who records in it, and whether MLflow may use it as it is.

Its address and password are in the variables of libpq, `PGHOST`, `PGPASSWORD` and so on
(postgresql.org/docs/17/libpq-envars.html), so that no command line has them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from slipway.workloads.apps.mlflow.database import Database
from slipway.workloads.apps.mlflow.schema import CURRENT, EMPTY, FOREIGN, OLDER
from slipway.workloads.runtime.exits import BAD_INPUT, STORE_TROUBLE, StepError

ADDRESS = "postgresql+psycopg://"

SCHEMA = "slipway.workloads.apps.mlflow.schema"


class HeldError(Exception):
    """Another program records the results of the same pipeline in the database."""


class Postgres(Database):
    """The Postgres that libpq's variables name, with the results of `pipeline`."""

    address = ADDRESS

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        # Each connection is closed with what it holds, and none is kept for others.
        self._engine = create_engine(ADDRESS, isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None

    def hold(self) -> None:
        """Take Postgres's lock of the pipeline, which ends with the connection. Two that record at once would make
        two runs of one result: the pods of an update, of two replicas, or of two stacks.

        Raises HeldError, SQLAlchemyError.
        """
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return
            self._connection = self._engine.connect()
            lock = {"lock": lock_of(self._pipeline)}
            if self._connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), lock).scalar():
                return
        except SQLAlchemyError:
            self._leave()
            raise
        self._leave()
        raise HeldError(
            f"another MLflow app records the results of {self._pipeline} in this database: a pod that is about to "
            "end, or that of another stack, which needs a database of its own"
        )

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
        self._connection = None

    def link(self, run: str, directory: Path) -> None:
        """As any database, by the connection that has the lock. Raises SQLAlchemyError."""
        assert self._connection is not None
        self._connection.execute(
            text("UPDATE runs SET artifact_uri = :directory WHERE run_uuid = :run"),
            {"directory": directory.absolute().as_uri(), "run": run},
        )


def lock_of(name: str) -> int:
    """The number of an advisory lock, 64 bits with a sign."""
    digest = hashlib.sha256(f"slipway mlflow {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def bring_up_to_date(version: str, migrate_to: str, environment: Mapping[str, str]) -> None:
    """Make an empty database MLflow's, and leave one alone that is of another version.

    By itself MLflow migrates a database of an earlier version where it lacks a table, without a question
    (mlflow/store/db/utils.py, `_all_tables_exist`, MLflow 3.17). An earlier MLflow then refuses the database, and
    the way back is a backup. So it is migrated where `migrate_to` is the `version` of MLflow alone.

    Raises:
        StepError: STORE_TROUBLE where the database does not answer or cannot be migrated, BAD_INPUT where it is
            not to be used.
    """
    engine = create_engine(ADDRESS, isolation_level="AUTOCOMMIT")
    name = os.environ.get("PGDATABASE", "")
    try:
        # Two pods may start at once.
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": lock_of("")})
            state = _python("-m", SCHEMA, ADDRESS, environment=environment, what="cannot be read").strip()
            if state == FOREIGN:
                reason = "has tables, and none of MLflow's list of migrations"
                raise StepError(BAD_INPUT, f"the database {name} {reason}: name an empty one, or MLflow's own")
            if state == OLDER and migrate_to != version:
                raise StepError(BAD_INPUT, _consent(name, version))
            if state in {EMPTY, OLDER}:
                print(f"MLflow {version}: its tables are made in the database {name}", flush=True)
                _python(
                    "-m", "mlflow", "db", "upgrade", ADDRESS, environment=environment, what="cannot be migrated"
                )
            elif state != CURRENT:
                reason = f"is of a later MLflow than {version}, which cannot use it, or another program's"
                raise StepError(BAD_INPUT, f"the database {name} {reason}: name another one, or restore a backup")
    except SQLAlchemyError as error:
        place = f"{os.environ.get('PGHOST', '')}:{os.environ.get('PGPORT', '')}/{name}"
        reason = " ".join(str(error).partition("(Background on")[0].split())
        raise StepError(STORE_TROUBLE, f"the database {place} does not answer: {reason}") from error
    finally:
        engine.dispose()


def _consent(name: str, version: str) -> str:
    return (
        f"the database {name} is of an earlier MLflow than {version}, which would migrate it, and an earlier "
        f"MLflow cannot use it any more; back it up, then write `migrate_to: {version}` at `database` of the app "
        "in the stack file. Nothing was changed"
    )


def _python(*words: str, environment: Mapping[str, str], what: str) -> str:
    """The output of a Python program. What it complains of stands in the log."""
    done = subprocess.run(
        [sys.executable, *words], check=False, stdout=subprocess.PIPE, env=environment, text=True
    )
    if done.returncode:
        name = os.environ.get("PGDATABASE", "")
        raise StepError(STORE_TROUBLE, f"the database {name} {what} (exit code {done.returncode})")
    return done.stdout
