"""The results that Jobs declare as worth showing (`slipway.infra.pipelines.results`), read from the rehearsal's
store."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from slipway.infra.kubernetes.labels import NAME, RESULTS_ANNOTATION, RUN_ANNOTATION
from slipway.infra.kubernetes.results import selected
from slipway.infra.pipelines.results import (
    ITEMS,
    ITEMS_FILE,
    RESULTS,
    Curves,
    File,
    Format,
    Number,
    Page,
    Picture,
    Result,
    Table,
)
from slipway.infra.review.stack import Resource, strings
from slipway.rehearse.state import first_problem

COPY_LIMIT = 100 * 1024 * 1024
"""Bytes of a file beyond which only the store has it."""


@dataclass(frozen=True)
class ShownNumber:
    """A number, as people read it in ``text``.

    ``value`` is None where its format allows what is no number, and it is none.
    """

    name: str
    title: str
    value: float | None
    format: Format
    text: str


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells as people read them.

    ``failed`` says that it is an item that was set aside, ``right`` whether the value is the true one, None where
    the truth is not known.
    """

    cells: tuple[str, ...]
    right: bool | None = None
    failed: bool = False


@dataclass(frozen=True)
class ShownTable:
    """A table. ``compared`` is the number of the column that is marked.

    ``of_items`` says that its rows are the items of a step.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[Row, ...]
    path: str
    compared: int | None = None
    of_items: bool = False

    @cached_property
    def failed(self) -> int:
        """Rows of items that were set aside."""
        return sum(row.failed for row in self.rows)

    @cached_property
    def known(self) -> int:
        """Rows whose truth is known."""
        return sum(row.right is not None for row in self.rows)

    @cached_property
    def right(self) -> int:
        """Rows whose value is the true one."""
        return sum(row.right is True for row in self.rows)

    @property
    def heading(self) -> str:
        """The title, with how many rows are right, or how many items are done."""
        if self.of_items:
            failed = f", {self.failed} failed" if self.failed else ""
            return f"{self.title}, {len(self.rows) - self.failed} of {len(self.rows)} done{failed}"
        return f"{self.title}, {self.right} of {self.known} right" if self.known else self.title


@dataclass(frozen=True)
class ShownCurves:
    """Numbers by name for each epoch or step."""

    declared: Curves
    points: list[dict[str, float]]


@dataclass(frozen=True)
class ShownFile:
    """A PNG or HTML file that is shown, or a file or folder of which only the place is.

    ``path`` is below the Job's directory of the store, ``size`` in bytes.
    """

    title: str
    file: Path
    path: str
    size: int

    @property
    def copied(self) -> bool:
        """Whether a copy is kept beside the report: of a file that is not too large for a second one."""
        return self.file.is_file() and self.size <= COPY_LIMIT


VALUES: Mapping[Format, TypeAdapter[Any]] = {
    "text": TypeAdapter(Any),
    "integer": TypeAdapter(int),
    "number": TypeAdapter(FiniteFloat),
    "percent": TypeAdapter(Annotated[FiniteFloat, Field(ge=0, le=1)]),
    "file": TypeAdapter(str),
}
"""What a value has to be that is written in a format."""

ITEMS_FAILED = 10
"""The exit code of a step of which more items failed than may (`slipway.features.items.pod.item_worker`)."""

ROWS: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(list[dict[str, Any]])


class _WrongContentError(ValueError):
    """A file is not what its declaration says; the text says why."""


@dataclass
class JobResults:
    """What one Job of a pipeline declares and left in ``folder`` of the store, in the order of its declaration.

    ``files`` are the files that could be understood, relative to ``folder``.
    """

    job: str
    pipeline: str
    folder: Path
    numbers: list[ShownNumber] = field(default_factory=list[ShownNumber])
    tables: list[ShownTable] = field(default_factory=list[ShownTable])
    curves: list[ShownCurves] = field(default_factory=list[ShownCurves])
    pictures: list[ShownFile] = field(default_factory=list[ShownFile])
    pages: list[ShownFile] = field(default_factory=list[ShownFile])
    others: list[ShownFile] = field(default_factory=list[ShownFile])
    files: tuple[str, ...] = ()

    def titled(self, label: str) -> "JobResults":
        """These results with ``label`` behind each title."""

        def titled(files: Iterable[ShownFile]) -> list[ShownFile]:
            return [replace(file, title=f"{file.title} ({label})") for file in files]

        declared = [curve.declared for curve in self.curves]
        titles = [one.model_copy(update={"title": f"{one.title} ({label})"}) for one in declared]
        return replace(
            self,
            tables=[replace(table, title=f"{table.title} ({label})") for table in self.tables],
            curves=[replace(curve, declared=one) for curve, one in zip(self.curves, titles, strict=True)],
            pictures=titled(self.pictures),
            pages=titled(self.pages),
            others=titled(self.others),
        )

    def add(self, declared: Result) -> None:
        """Reads one result. Raises OSError, and ValueError where the file is not what ``declared`` says."""
        file = _below(self.folder, declared.path)
        shown = ShownFile(declared.title, file, declared.path, file.stat().st_size)
        match declared:
            case Number():
                self.numbers.append(_number(declared, _json(file)))
            case Table():
                self.tables.append(_table(declared, _json(file)))
            case Curves():
                self.curves.append(_curves(declared, _json(file)))
            case Picture():
                with file.open("rb") as picture:
                    if picture.read(4) != b"\x89PNG":
                        raise _WrongContentError("it is no PNG")
                self.pictures.append(shown)
            case Page():
                file.read_bytes().decode()
                self.pages.append(shown)
            case File():
                self.others.append(shown)


@dataclass(frozen=True)
class CollectedResults:
    """The results of all Jobs, in the order of the Jobs; ``problems`` are results that cannot be shown."""

    jobs: tuple[JobResults, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def pipelines(self) -> dict[str, list[JobResults]]:
        """The Jobs with results, by their pipeline."""
        by_pipeline: dict[str, list[JobResults]] = {}
        for job in self.jobs:
            by_pipeline.setdefault(job.pipeline, []).append(job)
        return by_pipeline


def collect(
    jobs: Iterable[Resource],
    store: Path,
    with_failed_items: Iterable[Resource] = (),
    failed: Iterable[Resource] = (),
) -> CollectedResults:
    """The declared results of ``jobs``, which succeeded, in the folder ``store``.

    Of Jobs ``with_failed_items``, which failed for these, there is the table of all items; of others that
    ``failed`` there are the pages that they left, such as a notebook as far as it ran.
    """
    collected: list[JobResults] = []
    problems: dict[str, None] = {}
    of_items, others = list(with_failed_items), list(failed)
    for job in (*jobs, *of_items, *others):
        try:
            declared, results = _declared_results(job, store)
            if job in of_items:
                declared = tuple(result for result in declared if _is_of_items(result))
            elif job in others:
                pages = (result for result in declared if isinstance(result, Page))
                declared = tuple(page for page in pages if (results.folder / page.path).is_file())
        except ValueError as error:
            problems[f"{job.name}: its results cannot be shown: {_reason(error)}"] = None
            continue
        damaged: set[str] = set()
        for result in declared:
            try:
                results.add(result)
            except (OSError, ValueError) as error:
                damaged.add(result.path)
                verb = "read" if isinstance(error, OSError) else "understood"
                where = f"{job.name}: result {result.name}: {results.folder / result.path}"
                problems[f"{where} cannot be {verb}: {_reason(error)}"] = None
        damaged.update(other.path for other in results.others if not other.copied)
        results.files = tuple(dict.fromkeys(result.path for result in declared if result.path not in damaged))
        if declared:
            collected.append(results)
    return CollectedResults(tuple(collected), tuple(problems))


def _declared_results(job: Resource, store: Path) -> tuple[tuple[Result, ...], JobResults]:
    """The declarations of ``job``, and where its results are. Raises ValueError."""
    annotations = strings(job.metadata.get("annotations"))
    pipeline = strings(job.metadata.get("labels")).get(NAME, job.name)
    declared = RESULTS.validate_json(annotations.get(RESULTS_ANNOTATION, "[]"))
    return declared, JobResults(job.name, pipeline, _below(store, annotations.get(RUN_ANNOTATION, "")))


def _is_of_items(declared: Result) -> bool:
    return (declared.kind, declared.name, declared.path) == ("table", ITEMS, ITEMS_FILE)


def _below(folder: Path, path: str) -> Path:
    file = folder / path
    if not file.resolve().is_relative_to(folder.resolve()):
        raise _WrongContentError(f"{path} leads out of {folder}")
    return file


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return first_problem(error) if isinstance(error, ValidationError) else str(error)


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _WrongContentError(f"it is no JSON: {error}") from error


def _select(content: Any, pointer: str) -> Any:
    try:
        return selected(content, pointer)
    except (LookupError, ValueError):
        raise _WrongContentError(f"there is no {pointer}") from None


def _value(kind: TypeAdapter[Any], value: Any, where: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _WrongContentError(f"{where} is {value}, and results are finite numbers")
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise _WrongContentError(f"{where}: {first_problem(error)}") from None


def _objects(declared: Result, content: Any) -> list[dict[str, Any]]:
    """The list of objects that ``declared`` selects of a file."""
    return _value(ROWS, _select(content, declared.select), declared.select)


def _number(declared: Number, content: Any) -> ShownNumber:
    value = _value(VALUES[declared.format], _select(content, declared.select), declared.select)
    text = format_value(value, declared.format, decimals([value]))
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return ShownNumber(declared.name, declared.title, number, declared.format, text)


def _table(declared: Table, content: Any) -> ShownTable:
    rows = _objects(declared, content)
    columns = list(declared.columns)
    if rows:
        # What no row has a value for would only make the others narrower.
        filled = {column.key for column in columns if any(row.get(column.key) is not None for row in rows)}
        columns = [column for column in columns if column.key in filled] or columns[:1]
    keys = [column.key for column in columns]
    for number, row in enumerate(rows):
        for column in columns:
            if row.get(column.key) is not None:
                where = f"{declared.select}/{number}/{column.key}"
                row[column.key] = _value(VALUES[column.format], row[column.key], where)
    of_items = _is_of_items(declared)
    if of_items:
        # Of many rows only the first are shown.
        rows.sort(key=lambda row: not _is_failed(row))
    digits = {key: decimals(row.get(key) for row in rows) for key in keys}
    return ShownTable(
        name=declared.name,
        title=declared.title,
        headings=tuple(column.title for column in columns),
        numeric=tuple(column.format in {"integer", "number", "percent"} for column in columns),
        rows=tuple(
            Row(
                cells=tuple(
                    format_value(row.get(column.key), column.format, digits[column.key]) for column in columns
                ),
                right=_right(row, declared.compare),
                failed=of_items and _is_failed(row),
            )
            for row in rows
        ),
        path=declared.path,
        compared=keys.index(declared.compare[0]) if declared.compare and declared.compare[0] in keys else None,
        of_items=of_items,
    )


def _right(row: Mapping[str, Any], compare: tuple[str, str] | None) -> bool | None:
    value, truth = (row.get(key) for key in compare) if compare else (None, None)
    return None if value is None or truth is None else bool(value == truth)


def _is_failed(row: Mapping[str, Any]) -> bool:
    return row.get("state") == "failed"


def _curves(declared: Curves, content: Any) -> ShownCurves:
    points: list[dict[str, float]] = []
    for number, entry in enumerate(_objects(declared, content)):
        drawn = [f"{prefix}{key}" for key in declared.curves for prefix in ("", "val_")]
        keys = drawn or list(entry)
        points.append(
            {
                key: _value(VALUES["number"], entry[key], f"{declared.select}/{number}/{key}")
                for key in keys
                if entry.get(key) is not None and (drawn or isinstance(entry[key], int | float))
            }
        )
    return ShownCurves(declared, points)


def decimals(values: Iterable[Any]) -> int:
    """Digits after the point that numbers beside each other have: the largest shows three digits at least."""
    numbers = [abs(value) for value in values if isinstance(value, int | float)]
    if all(float(number).is_integer() for number in numbers):
        return 0
    return min(max(2 - math.floor(math.log10(max(numbers))), 1), 9)


def format_value(value: Any, format_: Format, digits: int = 0) -> str:
    """``value`` as people read it; ``digits`` are those after the point of a ``number``."""
    match value, format_:
        case None, _:
            return ""
        case _, "integer" | "number":
            return f"{value:,.{digits}f}"
        case _, "percent":
            return f"{100 * value:.1f} %"
        case bool(), _:
            return "yes" if value else "no"
        case str(), _:
            return PurePosixPath(value).name if format_ == "file" else value
        case _:
            return json.dumps(value)
