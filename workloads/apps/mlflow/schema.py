"""Say in one word of which MLflow a database is, without changing it.

Run as `python -m slipway.workloads.apps.mlflow.schema ADDRESS`, in a process of its own: the list of migrations
imports all of MLflow.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

EMPTY, CURRENT, OLDER, LATER, FOREIGN = "empty", "current", "older", "later", "foreign"
"""Without a table; of this MLflow; of an earlier or a later one; of something else, which has tables."""


def state(address: str, migrations: Path) -> str:
    """One of the words above. `migrations` is MLflow's folder of them, as Alembic has it.

    Raises sqlalchemy.exc.SQLAlchemyError.
    """
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import create_engine, inspect

    with create_engine(address).connect() as connection:
        heads = {*MigrationContext.configure(connection).get_current_heads()}
        tables = [name for name in inspect(connection).get_table_names() if not name.startswith("alembic_")]
    if not heads:
        return FOREIGN if tables else EMPTY
    scripts = ScriptDirectory(str(migrations))
    if heads == {*scripts.get_heads()}:
        return CURRENT
    return OLDER if heads <= {script.revision for script in scripts.walk_revisions()} else LATER


def migrations_of_mlflow() -> Path:
    """MLflow's folder of migrations (MLflow 3.17)."""
    spec = importlib.util.find_spec("mlflow")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "store" / "db_migrations"


if __name__ == "__main__":
    print(state(sys.argv[1], migrations_of_mlflow()))
