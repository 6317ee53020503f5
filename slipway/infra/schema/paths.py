"""Paths in a stack file: below a store or the repository, or absolute on a node or a server. One rule for each."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator

from slipway.infra.schema.base import refuse
from slipway.infra.schema.problems import Finding

LONGEST_NAME, LONGEST_PATH = 255, 4096
"""Bytes of one name and of a whole path (``NAME_MAX`` and ``PATH_MAX`` of linux/limits.h, Linux 6.12)."""


def _parts_problem(parts: list[str]) -> str | None:
    """What keeps ``parts`` from being the names of nested folders, each as it is."""
    if not all(part.strip() for part in parts):
        return "a part of it is empty"
    if any(part in {".", ".."} for part in parts):
        return "`.` and `..` name other folders than they stand in"
    if any(len(part.encode(errors="replace")) > LONGEST_NAME for part in parts):
        return f"a part of it is longer than {LONGEST_NAME} bytes"
    if len("/".join(parts).encode(errors="replace")) >= LONGEST_PATH:
        return f"longer than {LONGEST_PATH} bytes"
    return None


def below_problem(path: str) -> str | None:
    """What keeps ``path`` from naming a file or folder below the one it is relative to; None where it does."""
    if path.startswith("/"):
        return "an absolute path"
    if path.startswith("~"):
        return "`~` stands for a home directory"
    return _parts_problem(path.removesuffix("/").split("/"))


BUCKET_FOLDER = re.compile(r"[\w.=-]+(/[\w.=-]+)*", re.ASCII)
"""Google's IAM has it between quotes in a condition, a mount has it in a list with commas, and Amazon's policies
take `*` and `?` for any characters and `$` for a variable."""


def bucket_folder_problem(folder: str) -> str | None:
    """Why that cannot be the folder of a bucket to which pods are let in; None where it can."""
    if problem := below_problem(folder):
        return problem
    if not BUCKET_FOLDER.fullmatch(folder.strip("/")):
        return "a folder's name has letters, digits, `-`, `_`, `.` and `=`"
    return None


def existing_bucket_findings(name: str, pattern: re.Pattern[str], scheme: str, lists: str) -> Iterator[Finding]:
    """A finding where ``name`` does not match the ``pattern`` of a bucket's name.

    ``scheme`` begins URLs of the cloud's buckets, and the command ``lists`` shows their names.
    """
    if not pattern.fullmatch(name):
        yield Finding(
            ("store", "bucket"),
            name,
            "not the name of a bucket",
            f"write `{name.removeprefix(scheme).partition('/')[0]}`, and what follows it as `folder`"
            if name.startswith(scheme)
            else f"write the name that `{lists}` shows, without `{scheme}`",
        )


MOST_PARTS, MOST_FOLDERS = 50, 2
"""Parts of a pattern of files, and how many of them may be `**`: each of these multiplies the time of a search."""


def pattern_problem(pattern: str) -> str | None:
    """What keeps ``pattern`` from being searched for; None where nothing does."""
    parts = pattern.split("/")
    if len(parts) > MOST_PARTS:
        return f"{len(parts)} folders inside one another, and a pattern has at most {MOST_PARTS}"
    if parts.count("**") > MOST_FOLDERS:
        return f"`**` stands in it {parts.count('**')} times, and a pattern has it at most {MOST_FOLDERS} times"
    return None


def absolute_problem(path: str) -> str | None:
    """What keeps ``path`` from being the absolute path of a folder other than the root; None where it is one."""
    if not path.startswith("/"):
        return "not an absolute path"
    if path == "/":
        return "the root of the file system"
    return _parts_problem(path.removeprefix("/").removesuffix("/").split("/"))


def below_store(value: str) -> str:
    """The rule of `StorePath`."""
    if why := below_problem(value):
        raise refuse(f"not a path below the store's root: {why}", "write a relative path such as `uploads/images`")
    return value


StorePath = Annotated[str, AfterValidator(below_store)]
"""A path below the store's root."""


def _on_server(value: str) -> str:
    if why := absolute_problem(value):
        raise refuse(f"not the path of an exported folder: {why}", "write for example `/exports/slipway`")
    return value


ExportedPath = Annotated[str, AfterValidator(_on_server)]
"""The absolute path of a folder that a server exports."""


def _local(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise refuse("not a path of this machine", "write for example `~/images`")
    return value


LocalPath = Annotated[str, AfterValidator(_local)]
"""A file or folder of the machine that the program runs on."""
