"""The store of a rehearsal: a folder."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StoreFolder:
    """Fulfils `infra.platform.StoreFiles`."""

    folder: Path

    def read_text(self, path: str) -> str:
        """The file's text; raises FileNotFoundError where there is none, or it would lie outside."""
        file = (self.folder / path).resolve()
        if not file.is_relative_to(self.folder.resolve()):
            raise FileNotFoundError(path)
        return file.read_text(encoding="utf-8")
