"""What a step leaves in its directory of the store that is worth showing, as its pipeline declares it.

Stack outputs, ``make show``, the summary and the report of a rehearsal show these, and know nothing else of a
pipeline's results. A Job carries those of its step as JSON in the annotation
`infra.kubernetes.labels.RESULTS_ANNOTATION`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

USED = "used"

PIPELINE_OUTPUTS = ("runs", "browse", "addresses", "to_do", "apps", "tokens", "start", USED)
"""What the output of each pipeline has beside its results: where those of its steps are, as URLs and as pages, and
how people reach its apps."""

METRICS, METRICS_PASSWORDS = "metrics", "metrics-passwords"

STORE, CONNECT, KUBECONFIG, SHOW, PLATFORM = "store", "connect", "kubeconfig", "show", "platform"

STACK_OUTPUTS = (STORE, CONNECT, KUBECONFIG, SHOW, PLATFORM, METRICS, METRICS_PASSWORDS)
"""The stack's own outputs: the store, how to reach the clusters, what ``make show`` has to know, what the stacks
of other teams have to know of the clusters (`infra.platform_output`), and by cluster the commands that lead to the
pages of what reads metrics, with Grafana's password for the user ``admin``."""

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
    """One number of a JSON file.

    ``remark`` is the JSON pointer of a sentence that is shown with it, where the file has one.
    """

    kind: Literal["number"] = "number"
    format: Format = "number"
    remark: str = ""


class Column(_Declared):
    """A column of a table: the rows' ``key``, its heading, and how its values are written."""

    key: str
    title: str
    format: Format = "text"


class Table(_Result):
    """A list of objects in a JSON file, a row each.

    Rows are in the order of the file, and a column that no row has a value for is left out. ``compare`` names
    two keys, the value and the truth: where both are there, rows that differ are marked, and the title counts
    those that agree. ``bars`` names the key of the length of a bar that is drawn for each row, and ``spread`` that
    of its uncertainty, in the same unit. ``caveat`` is a sentence shown with a table in which the key
    ``caveat_when`` of a row is true.
    """

    kind: Literal["table"] = "table"
    columns: tuple[Column, ...] = Field(min_length=1)
    compare: tuple[str, str] | None = None
    bars: str = ""
    spread: str = ""
    caveat: str = ""
    caveat_when: str = ""


class Curves(_Result):
    """A list of objects in a JSON file, one for each epoch or step, with a number by each curve's name.

    ``curves`` are the names of those that are drawn; all of them where it is empty. ``val_<name>`` is drawn in the
    chart of ``<name>``: so Keras calls what it measures on validation data. ``marks`` is the key of a number, such
    as the learning rate, whose changes are marked on the axis. ``unit`` is what an object stands for. ``logs`` is
    the folder in the step's directory that TensorBoard reads, where there is one.
    """

    kind: Literal["curves"] = "curves"
    curves: tuple[str, ...] = ()
    marks: str = ""
    unit: str = "epoch"
    logs: str = ""


class Picture(_Result):
    """A PNG file."""

    kind: Literal["picture"] = "picture"


class File(_Result):
    """Any other file, of which only the place is shown."""

    kind: Literal["file"] = "file"


Result = Annotated[Number | Table | Curves | Picture | File, Field(discriminator="kind")]

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
