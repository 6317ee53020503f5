"""Where MLflow keeps what it knows: a SQLite file of the app, or a Postgres that somebody else runs."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path


class Database(ABC):
    """MLflow's database. `address` is what SQLAlchemy calls it."""

    address: str

    @abstractmethod
    def hold(self) -> None:
        """Keep all others from recording the same pipeline's results in it. Raises an error where one does."""

    @abstractmethod
    def link(self, run: str, directory: Path) -> None:
        """Make the files in `directory` those of a run. MLflow's API has no word for it: there a run's files are
        below its experiment's folder, into which they would have to be copied.
        """


@dataclass
class SqliteFile(Database):
    """The file `path`, which one pod has to itself."""

    path: Path

    def __post_init__(self) -> None:
        self.address = f"sqlite:///{self.path.absolute()}"

    def hold(self) -> None:
        """Nobody else has it."""

    def link(self, run: str, directory: Path) -> None:
        """As any database. Raises sqlite3.Error."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            connection.execute(
                "UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (directory.absolute().as_uri(), run)
            )
