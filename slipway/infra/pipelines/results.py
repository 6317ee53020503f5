"""What a step leaves in its directory of the store that is worth showing, as its pipeline declares it.

Stack outputs, ``make show``, the summary and the report of a rehearsal show these, and know nothing else of a
pipeline's results. A Job carries those of its step as JSON in the annotation
`slipway.infra.kubernetes.labels.RESULTS_ANNOTATION`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from slipway.infra.schema.base import Model, refuse
from slipway.infra.schema.paths import below_problem
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed

USED = "used"

PIPELINE_OUTPUTS = ("runs", "browse", "addresses", "to_do", "apps", "tokens", "start", USED)
"""What the output of each pipeline has beside its results: where those of its steps are, as URLs and as pages, and
how people reach its apps."""

STORE, CONNECT, KUBECONFIG, SHOW, PLATFORM = "store", "connect", "kubeconfig", "show", "platform"

STACK_OUTPUTS = (STORE, CONNECT, KUBECONFIG, SHOW, PLATFORM)
"""The stack's own outputs: the store, how to reach the clusters, what ``make show`` has to know, and what the
stacks of other teams have to know of the clusters (`slipway.infra.platform_output`)."""

Format = Literal["text", "integer", "number", "percent", "file"]
"""How a value is written: ``percent`` takes a share from 0 to 1, ``file`` shows the name of a path."""

ACRONYMS = frozenset({"auc", "f1", "iou", "lr", "mae", "mape", "mse", "pr", "r2", "rmse", "roc"})
"""What metrics are called that is written in capitals."""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Result(_Declared):
    """``name`` is what stack outputs and ``make show`` call it; ``title`` is shown to people.

    ``path`` is a file or a folder in the step's directory. ``select`` is the JSON pointer (RFC 6901) of what is
    shown of a JSON file; empty for the whole of it.
    """

    name: str
    title: str
    path: str
    select: str = ""


class Number(_Result):
    """One number of a JSON file."""

    kind: Literal["number"] = "number"
    format: Format = "number"


class Column(_Declared):
    """A column of a table: the rows' ``key``, its heading, and how its values are written."""

    key: str
    title: str
    format: Format = "text"


class Table(_Result):
    """A list of objects in a JSON file, a row each.

    Rows are in the order of the file, and a column that no row has a value for is left out. ``compare`` names
    two keys, the value and the truth: where both are there, rows that differ are marked, and the title counts
    those that agree.
    """

    kind: Literal["table"] = "table"
    columns: tuple[Column, ...] = Field(min_length=1)
    compare: tuple[str, str] | None = None


class Curves(_Result):
    """A list of objects in a JSON file, one for each epoch or step, with a number by each curve's name.

    ``curves`` are the names of those that are drawn; all of them where it is empty. ``val_<name>`` is drawn in the
    chart of ``<name>``: so Keras calls what it measures on validation data. ``unit`` is what an object stands for.
    ``logs`` is the folder in the step's directory that TensorBoard reads, where there is one.
    """

    kind: Literal["curves"] = "curves"
    curves: tuple[str, ...] = ()
    unit: str = "epoch"
    logs: str = ""


class Picture(_Result):
    """A PNG file."""

    kind: Literal["picture"] = "picture"


class File(_Result):
    """Any other file, of which only the place is shown."""

    kind: Literal["file"] = "file"


class Page(_Result):
    """An HTML file. The report shows it without running its scripts."""

    kind: Literal["page"] = "page"


Result = Annotated[Number | Table | Curves | Picture | Page | File, Field(discriminator="kind")]

ITEMS = "items"
"""The result that every step with items has: the table of its items."""

ITEMS_FILE = "items.json"
"""The file with a row for each item, in the step's directory."""

ITEM_COLUMNS = (
    Column(key="item", title="Item"),
    Column(key="state", title="State"),
    Column(key="attempts", title="Attempts", format="integer"),
    Column(key="seconds", title="Seconds", format="number"),
    Column(key="reason", title="Reason"),
)
"""What is known of any item. ``state`` is `done` or `failed`, ``reason`` that of the last failure."""


def items_table(columns: tuple[Column, ...] = ()) -> Table:
    """The table of a step's items; ``columns`` are values of the ``summary.json`` that its program leaves."""
    *known, reason = ITEM_COLUMNS
    return Table(name=ITEMS, title="Items", path=ITEMS_FILE, columns=(*known, *columns, reason))


RESULTS: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])
"""Reads the annotation, a JSON list."""


def heading(name: str) -> str:
    """``test_accuracy`` as ``Test accuracy``, ``val_auc`` as ``Val AUC``; capitals of the name stay."""
    words = name.replace("_", " ").replace("-", " ").split()
    first, *others = [word.upper() if word in ACRONYMS else word for word in words] or [""]
    return " ".join([first[:1].upper() + first[1:], *others])


FORMATS = get_args(Format)

RESULT_KINDS: Mapping[str, Sequence[str]] = {
    "number": ("format",),
    "table": ("columns", "compare"),
    "curves": ("draw", "unit", "logs"),
    "picture": (),
    "page": (),
    "file": (),
}
"""The kinds of results, each with the keys that it alone may have."""


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
POINTER = re.compile(r"(/([^~/]|~[01])*)*")

JSON_KINDS = ("number", "table", "curves")

MANIFEST = "manifest.json"
"""What the last file of a whole result is called."""


class TableColumn(Model):
    """A column of a table."""

    format: Format = Field(default="text", description="How its values are written.")
    title: str | None = Field(default=None, description="Its heading; default: the key.")


def _column_section(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in FORMATS:
        raise refuse("not one of the values it can have", did_you_mean(value, FORMATS, f"write {listed(FORMATS)}"))
    return {"format": value}


def _result_section(value: Any) -> Any:
    """``metrics.json#/accuracy`` is a number, ``curve.png`` a picture, and any other path a file."""
    if not isinstance(value, str | dict):
        raise refuse("neither a path nor a section", "write a path: `metrics.json#/accuracy`, `curve.png`")
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    path, mark, _ = value.partition("#")
    if mark and path.lower().endswith(".json"):
        return {"number": value}
    return {"picture" if value.lower().endswith(".png") else "file": value}


DeclaredColumn = Annotated[
    TableColumn, BeforeValidator(_column_section, json_schema_input_type=Format | TableColumn)
]
"""A column: a section, or its format alone."""


class StepResult(Model):
    """What a step leaves that is worth showing. One of the first six keys says what it is, and where: a path
    below the step's output, for a part of a JSON file with ``#`` and a JSON pointer (RFC 6901).
    """

    number: str | None = Field(default=None, description="A number of a JSON file: `metrics.json#/test/accuracy`.")
    table: str | None = Field(default=None, description="A list of objects of a JSON file, a row each.")
    curves: str | None = Field(
        default=None, description="A list of objects of a JSON file, one for each epoch, with a number by curve."
    )
    picture: str | None = Field(default=None, description="A PNG file.")
    page: str | None = Field(default=None, description="An HTML file, which is shown without its scripts.")
    file: str | None = Field(default=None, description="Any other file, of which the place is shown.")
    title: str | None = Field(default=None, description="What people read above it; default: its name.")
    format: Format | None = Field(default=None, description="How a number is written.")
    columns: dict[str, DeclaredColumn] | None = Field(
        default=None, description="A table's columns, which it needs: how each is written, by the rows' keys."
    )
    compare: Annotated[list[str], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="Two keys of a table's rows, the value and the truth; rows that differ are marked.",
    )
    draw: list[str] | None = Field(
        default=None, description="The names of the curves that are drawn; default: all."
    )
    unit: str | None = Field(default=None, description="What an object of the curves stands for: `epoch`.")
    logs: str | None = Field(default=None, description="The folder with the curves that TensorBoard reads.")

    def findings(self, at: Path, name: str) -> Iterator[Finding]:
        """Findings about the result called ``name`` at ``at``: its name, its kind, paths and JSON pointers."""
        if not NAME.fullmatch(name):
            fix = "write letters, digits, `_` and `-` after a letter"
            yield Finding(at, name, "not the name of a result", fix)
        elif name in PIPELINE_OUTPUTS:
            yield Finding(at, name, f"`{name}` is an output that every pipeline has", "choose another name")
        kinds = [kind for kind in RESULT_KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            reason = f"{listed(kinds, 'and')} at once" if kinds else "it does not say what it is, and where"
            yield Finding(at, kinds or None, reason, f"write one of {listed(RESULT_KINDS)}")
            return
        (kind,) = kinds
        for other, keys in RESULT_KINDS.items():
            for key in keys if other != kind else ():
                if (value := getattr(self, key)) is not None:
                    whose = "a table's" if other == "table" else f"a result's with `{other}`"
                    reason = f"the key is {whose}, and this has `{kind}`"
                    yield Finding((*at, key), value, reason, "remove it")
        if kind == "table" and not self.columns:
            yield Finding((*at, "columns"), None, "required, and not there", "add it: how each column is written")
        yield from _file_findings((*at, kind), kind, getattr(self, kind))
        if self.logs is not None and (why := below_problem(self.logs)):
            reason = f"not a path below `{{output}}`: {why}"
            yield Finding((*at, "logs"), self.logs, reason, "write a relative path")

    def declare(self, name: str) -> Result:
        """The result called ``name``, as stack outputs and the report know it."""
        title = self.title or heading(name)
        where = self.number or self.table or self.curves or self.picture or self.page or self.file or ""
        path, _, select = where.partition("#")
        if self.number is not None:
            return Number(name=name, title=title, path=path, select=select, format=self.format or "number")
        if self.table is not None:
            columns = declare_columns(self.columns or {})
            compare = (self.compare[0], self.compare[1]) if self.compare else None
            return Table(name=name, title=title, path=path, select=select, columns=columns, compare=compare)
        if self.curves is not None:
            return Curves(
                name=name,
                title=title,
                path=path,
                select=select,
                curves=tuple(self.draw or ()),
                unit=self.unit or "epoch",
                logs=self.logs or "",
            )
        kind = Picture if self.picture is not None else Page if self.page is not None else File
        return kind(name=name, title=title, path=where)


def _file_findings(at: Path, kind: str, value: str) -> Iterator[Finding]:
    path, mark, pointer = value.partition("#") if kind in JSON_KINDS else (value, "", "")
    if why := below_problem(path):
        reason = f"not a path below `{{output}}`: {why}"
        yield Finding(at, value, reason, "write a path relative to it, such as `metrics.json`")
    elif path == MANIFEST:
        yield Finding(at, value, "Slipway writes the file of that name itself", "choose another name")
    elif not mark and "#" in value:
        reason = "only JSON files have parts, and this is not `*.json`"
        yield Finding(at, value, reason, "remove the `#`, or name a JSON file")
    elif not POINTER.fullmatch(pointer):
        reason = "no JSON pointer (RFC 6901) stands after the `#`: it begins with `/`, and `~` is written `~0`"
        yield Finding(at, value, reason, f"write for example `{path}#/{pointer.lstrip('/') or 'accuracy'}`")


def declare_columns(columns: Mapping[str, TableColumn]) -> tuple[Column, ...]:
    """Columns by their key, as stack outputs and the report know them."""
    return tuple(
        Column(key=key, title=column.title or heading(key), format=column.format)
        for key, column in columns.items()
    )


DeclaredResult = Annotated[StepResult, BeforeValidator(_result_section, json_schema_input_type=str | StepResult)]
"""A result: a section, or its path alone."""
