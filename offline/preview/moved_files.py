"""Files of Jobs that moved to another path, and the changes that follow from that alone."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath

from offline.preview.config_map_files import ShippedFiles

MOVED = "its code moved"


class MovedFiles:
    """The files of a stack that moved; ``paths`` has their new paths by the old ones.

    A file moved if one of the same name is gone and the code is the same, but for the names of modules that moved.
    ``before`` and ``after`` are all files.
    """

    def __init__(self, before: ShippedFiles, after: ShippedFiles) -> None:
        self.before, self.after = before, after
        earlier, now = before.files, after.files
        came = {PurePosixPath(path).name: path for path in now if path not in earlier}
        gone = [path for path in earlier if path not in now]
        self.paths: Mapping[str, str] = {
            path: came[name] for path in gone if (name := PurePosixPath(path).name) in came
        }
        # Another file may count as moved only because this one did, so the rest is checked again.
        while wrong := [old for old, new in self.paths.items() if not self.same(earlier[old], now[new])]:
            self.paths = {old: new for old, new in self.paths.items() if old not in wrong}

    def same(self, before: object, after: object) -> bool:
        """Whether two contents are the same except for the names of modules that moved."""
        return before == after or self.renamed(before, after)

    def renamed(self, before: object, after: object) -> bool:
        """Whether two texts differ in the names of modules that moved and in nothing else."""
        if not (self.paths and isinstance(before, str) and isinstance(after, str)):
            return False
        names = {_module(old): _module(new) for old, new in self.paths.items()} | dict(self.paths)
        pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?![\w/])")
        renamed = pattern.sub(lambda found: names[found[0]], before)
        return renamed != before and (renamed == after or _code(renamed) == _code(after))

    def explain(self, path: str) -> bool:
        """Whether the file at ``path`` was added or removed because it, or its package, moved."""
        ends = {*self.paths, *self.paths.values()}
        here = PurePosixPath(path)
        return path in ends or (
            here.name == "__init__.py" and any(PurePosixPath(each).parent == here.parent for each in ends)
        )


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


@cache
def _code(text: str) -> str:
    """A Python file without its comments, its line breaks and the order of its imports; another text as it is."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = " ".join(node.value.split())
    # A new name may change the order of sorted imports.
    imports = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    rest = [ast.dump(each) for each in tree.body if each not in imports]
    return "\n".join([*sorted(map(ast.dump, imports)), *rest])
