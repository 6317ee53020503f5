"""`slipway put` and `slipway get`: files of this machine into the store of a stack that is up, and out of it."""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from slipway.infra import pulumi_cli
from slipway.infra.commands import command, option
from slipway.infra.exits import Exit, report_error
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.places import PROJECT
from slipway.infra.terminal import new_console
from slipway.offline.engine.stack_config import ConfigError, stack_config
from slipway.tools.history.comparison import HistoryError
from slipway.tools.show import ShowError
from slipway.tools.transfer.buckets import bucket_of, url_of
from slipway.tools.transfer.files import File, TransferError, local_files, to_copy
from slipway.tools.transfer.pods import Transfer, mounted

PUT, GET = "put", "get"
"""Into the store, and out of it."""


def main(way: str, stack: str, source: str, target: str, *, force: bool) -> Exit:
    """Copies ``source`` to ``target``, one of which is in the store of the stack."""
    if missing := [option(name) for name, value in (("from", source), ("to", target)) if not value]:
        first, second = ("scans", "data/scans") if way == PUT else ("data/scans", "scans")
        example = command(way, **{"stack": stack, "from": first, "to": second})
        report_error(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: {example}")
        return Exit.REFUSED
    console = new_console()
    try:
        outputs = pulumi_cli.outputs_of(stack)
        store = url_of(stack, outputs)
        again = command(way, **{"stack": stack, "from": source, "to": target, "force": True})
        request = _Request(stack, store, source, target, force, again)
        (_put if way == PUT else _get)(console, request, [*outputs, *pipeline_names()])
    except (TransferError, HistoryError, ShowError, ConfigError, pulumi_cli.CliError) as error:
        report_error(error)
        return Exit.FAILED
    return Exit.DONE


@dataclass(frozen=True)
class _Request:
    """A command line. ``store`` is the store's URL, ``again`` the command that overwrites."""

    stack: str
    store: str
    source: str
    target: str
    force: bool
    again: str


def _put(console: Console, request: _Request, taken: Sequence[str]) -> None:
    place = Path(request.source).expanduser()
    if not place.exists():
        raise TransferError(f"there is no {place} on this machine")
    path = _path_in_store(request.target, place.name if place.is_file() else "")
    if path.split("/")[0] in taken or path.startswith("."):
        raise TransferError(
            f"{option('to', request.target)}: `{path.split('/')[0]}/` of the store has results of steps, "
            "which stay as they were checked; name another folder, such as `data`"
        )
    files = local_files(place)
    if not files:
        raise TransferError(f"there is no file in {place}")
    if bucket := bucket_of(request.store, stack_config(request.stack, PROJECT)):
        names = to_copy(files, bucket.files(path), force=request.force, again=request.again)
        if names:
            bucket.copy(str(place), bucket.at(path), folder=place.is_dir())
    else:
        with mounted(request.stack) as store:
            names = to_copy(files, store.files(path), force=request.force, again=request.again)
            if names:
                with _progress(console, files, names) as advance:
                    store.put(Transfer(place, path, files, names), advance)
    _report(console, files, names, f"{request.store}/{path}")


def _get(console: Console, request: _Request, _taken: Sequence[str]) -> None:
    path = _path_in_store(request.source, "")
    if bucket := bucket_of(request.store, stack_config(request.stack, PROJECT)):
        files = bucket.files(path)
        place, names = _local_place(request, path, files)
        if names:
            place.parent.mkdir(parents=True, exist_ok=True)
            folder = "" not in files
            if folder:
                place.mkdir(exist_ok=True)
            bucket.copy(bucket.at(path), str(place), folder=folder)
    else:
        with mounted(request.stack) as store:
            files = store.files(path)
            place, names = _local_place(request, path, files)
            if names:
                with _progress(console, files, names) as advance:
                    store.get(Transfer(place, path, files, names), advance)
    _report(console, files, names, str(place))


def _local_place(request: _Request, path: str, files: Mapping[str, File]) -> tuple[Path, list[str]]:
    """Where on this machine the files go, and which of them are not there yet. Raises TransferError."""
    if not files:
        raise TransferError(f"there is no file {path!r} in the store of {request.stack}, and none below it")
    place = Path(request.target).expanduser()
    if "" in files and (request.target.endswith("/") or place.is_dir()):
        place /= PurePosixPath(path).name
    return place, to_copy(files, local_files(place), force=request.force, again=request.again)


def _path_in_store(text_of_path: str, name: str) -> str:
    """A path below the store's root; with `/` at its end it is the folder of the file ``name``.

    Raises TransferError where it is none.
    """
    path = PurePosixPath(f"{text_of_path}{name}" if text_of_path.endswith("/") else text_of_path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise TransferError(f"{text_of_path!r} is no path below the root of the store: write `data/scans`")
    return path.as_posix()


@contextlib.contextmanager
def _progress(
    console: Console, files: Mapping[str, File], names: Sequence[str]
) -> Generator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_interactive
    ) as progress:
        task = progress.add_task(f"{len(names)} files", total=sum(files[name].size for name in names))
        yield lambda size: progress.advance(task, size)


def _report(console: Console, files: Mapping[str, File], names: Sequence[str], where: str) -> None:
    size = decimal(sum(files[name].size for name in names))
    same = f"; {len(files) - len(names)} were there already" if len(files) > len(names) else ""
    console.print(f"{len(names)} files ({size}) copied to {where}{same}", markup=False, soft_wrap=True)
