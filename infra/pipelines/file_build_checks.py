"""What is wrong with the images that a ``pipeline.yaml`` has built: of steps, of services and of apps alike."""

from collections.abc import Iterator

from infra.pipelines.file_builds import Build
from infra.pipelines.file_words import VARIABLE
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path


def own_build(at: Path, image: str | None, build: Build | None) -> Iterator[Finding]:
    """What is wrong with the ``build`` of the program at ``at``, which may have an ``image`` too."""
    yield from build_findings((*at, "build"), build)
    if build and image:
        reason = f"the {_KINDS[str(at[0])]} has a `build` too, and only one of them can be its image"
        yield Finding((*at, "image"), image, reason, "remove one of them", read=((*at, "build"),))


_KINDS = {"steps": "step", "services": "service", "apps": "app"}


def build_findings(at: Path, build: Build | None) -> Iterator[Finding]:
    """Paths of the build at ``at`` that lead out of the pipeline's folder, and names that no ``ARG`` can have."""
    if build is None:
        return
    context = None if build.context in {".", "./"} else build.context
    for key, path in (("context", context), ("dockerfile", build.dockerfile)):
        if path is not None and (why := below_problem(path.removeprefix("./"))):
            around = "the pipeline's folder" if key == "context" else "the context"
            reason = f"not a path below {around}: {why}"
            yield Finding(
                (*at, key), path, reason, "write a path relative to it; move or copy what it names there"
            )
    for name in build.args:
        if not VARIABLE.fullmatch(name):
            fix = "write letters, digits and `_`, and begin with a letter or `_`"
            yield Finding((*at, "args", name), name, "not the name of an argument", fix)
