"""The store of a rehearsal: a folder."""

from collections.abc import Sequence
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

    def names(self, prefix: str) -> Sequence[str]:
        """Paths of the files whose path begins with ``prefix``, sorted."""
        root = self.folder.resolve()
        folder = (root / prefix.rpartition("/")[0]).resolve()
        if not folder.is_relative_to(root):
            return []
        found = (path.relative_to(root).as_posix() for path in folder.rglob("*") if path.is_file())
        return sorted(name for name in found if name.startswith(prefix))
