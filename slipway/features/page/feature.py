"""Apps of the kind `page`: a web page where people try the classifier of small images that another app serves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from slipway.infra.features import Feature
from slipway.infra.pipelines.app_kinds.contract import APPS, AppInFile, AppInStack, AppKind
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings
from slipway.infra.pipelines.contract import literal, service_variables
from slipway.infra.pipelines.pods import Probe
from slipway.infra.schema.base import Cpu, Float, Int, Memory, Model, Size
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.renamed import Removed

MODULE = "slipway.features.page.pod"

REQUIREMENTS = "slipway/features/page/pod/requirements.txt"
"""The lock file of what it runs on, relative to the repository."""

FILES = tuple(
    f"slipway/features/page/pod/static/{name}" for name in ("index.html", "page.css", "page.js", "icon.svg")
)
"""What it sends to browsers."""

PORT = 8080


class PageSettings(AppSettings):
    """Where a page runs, and how much its visitors may ask of it."""

    cpu: Cpu = Field(default="500m", description="CPU asked for.")
    memory: Memory = Field(default="512Mi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(default="1Gi", description="Scratch space for temporary files.")
    rate: Float = Field(
        default=10, gt=0, le=10_000, description="Predictions a second that each visitor may ask for, on average."
    )
    rate_of_all: Float = Field(
        default=200, gt=0, le=100_000, description="Predictions a second that each pod asks the server for."
    )
    proxies: Int | None = Field(
        default=None,
        ge=0,
        le=10,
        description="Entries at the end of `X-Forwarded-For` that proxies in front of it write, the visitor's "
        "address first; default: what the controller and the login write with `ingress`, else 0. With "
        "too few visitors share one rate, with too many each can name any address as theirs.",
    )


class Pictures(Model):
    """What images the model takes. Their size, their channels and their numbers are read from its signature."""

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("width", "height", "channels", "fit", "share", "black", "white"),
        Removed(
            "remove it: the page takes models whose signature says it, of whole numbers to 255 or others to 1"
        ),
    )

    ink: Literal["light", "dark"] = Field(
        default="dark",
        description="`light`: the model reads light drawings on a dark ground; `dark`: the other way round.",
    )


class Page(Model):
    """What a page shows, and whom it asks."""

    removed: ClassVar[Mapping[str, Removed]] = {"version": Removed("drop it: the newest version answers")}

    serving: str = Field(description="The app that serves the model.")
    model: str = Field(description="The model's name there.")
    title: str = Field(default="Try the model", max_length=80, description="What stands above it.")
    labels: list[str] = Field(
        default_factory=list[str], description="What the model's outputs mean, in their order; default: 0, 1, 2, …"
    )
    samples: str | None = Field(
        default=None,
        description="A folder of PNG files that the model was not trained on, with `labels.json`: "
        "`{prepare}/images`. Without one the page reads nothing.",
    )
    pictures: Pictures = Field(default_factory=Pictures, description="What images the model takes.")


class PageApp(AppKind, Page):
    """A web page where people try the classifier of small images that another app serves: they draw, or take a
    test image.
    """

    kind: Literal["page"] = Field(description="The page.")
    settings = PageSettings

    def words(self) -> Sequence[tuple[Path, str]]:
        """Where its samples are."""
        return [(("samples",), self.samples)] if self.samples else []

    def connections(self) -> Sequence[tuple[Path, str]]:
        """The app that serves its model."""
        return [(("serving",), self.serving)]

    def connection_findings(self, app: AppInFile, other: str) -> Iterator[Finding]:
        """Findings about the model that ``other`` serves."""
        served = app.apps[other].model_served()
        if served is not None and self.model != served:
            reason, read = f"the app `{other}` serves the model `{served}`", ((APPS, other, "model"),)
            yield Finding((*app.at, "model"), self.model or None, reason, f"write `{served}`", read=read)

    def declare(self, app: AppInStack) -> AppDeclaration:
        """The page, which reads the step of its samples."""
        page = self.model_copy(update={"samples": self.samples and app.fill(self.samples)})
        return declaration(app.name, app.placed_by, page, app.inputs(word for _, word in self.words()))


def declaration(
    name: str, settings: PageSettings, page: Page, inputs: Mapping[str, str] | None = None
) -> AppDeclaration:
    """A page called ``name``. ``inputs`` are the steps that `Page.samples` refers to, by the input's name."""
    return AppDeclaration(
        name=name,
        title=page.title,
        placed_by=settings,
        port=PORT,
        module=MODULE,
        arguments=[
            *("--host", "0.0.0.0", "--port", "{port}"),
            *("--serving-variable", service_variables(page.serving)[0]),
            *_arguments(page),
            *_bounds(settings),
        ],
        inputs=inputs or {},
        connects=[page.serving],
        requirements=REQUIREMENTS,
        files=FILES,
        probe=Probe("/healthz"),
    )


def _arguments(page: Page) -> Sequence[str]:
    options = {
        "model": literal(page.model),
        "title": literal(page.title),
        "samples": page.samples,
        "ink": page.pictures.ink,
    }
    # With `=`, so that a value that begins with a dash is one.
    words = [f"--{key}={value}" for key, value in options.items() if value is not None]
    return [*words, *(f"--label={literal(label)}" for label in page.labels)]


def _bounds(settings: PageSettings) -> Sequence[str]:
    proxies = [] if settings.proxies is None else [f"--proxies={settings.proxies}"]
    return [f"--rate={settings.rate:g}", f"--rate-of-all={settings.rate_of_all:g}", *proxies]


FEATURE = Feature(app_kinds=(PageApp,))
