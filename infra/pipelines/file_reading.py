"""From a folder with a ``pipeline.yaml`` to the `Pipeline` that it declares."""

from dataclasses import dataclass
from pathlib import Path

from infra.pipelines.contract import AnyPipeline, Pipeline
from infra.pipelines.file_settings import section_of
from infra.pipelines.file_steps import steps
from infra.pipelines.pipeline_file import NAMES, PipelineFile
from infra.schema.yaml_files import read_yaml


@dataclass(frozen=True)
class Folder:
    """A folder that declares a pipeline. ``shown`` is its path as people know it, and ``path`` where it is.

    ``shipped`` is how its declarations name it: relative to the repository, or absolute.
    """

    path: Path
    shown: str
    shipped: str

    @property
    def file(self) -> str:
        """Its ``pipeline.yaml`` as people know it."""
        return f"{self.shown}/{NAMES[0]}"

    def below(self, path: str) -> str:
        """A file or folder in it, as declarations name it."""
        return "/".join([self.shipped, *(part for part in path.split("/") if part not in {"", "."})])


def read(folder: Folder) -> AnyPipeline:
    """The pipeline that ``folder`` declares."""
    declared = PipelineFile.model_validate(read_yaml(folder.path / NAMES[0]))
    name = "".join(part.capitalize() for part in folder.path.name.split("-"))
    return Pipeline(
        settings=section_of(name, declared),
        steps=lambda settings: steps(declared, settings, folder.below),
    )
