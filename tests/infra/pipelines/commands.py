"""A small pipeline of commands, declared in Python, for tests of what becomes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipway.infra.pipelines.contract import (
    Best,
    Command,
    PipelineSettings,
    StepDeclaration,
    StepSettings,
    Variant,
)
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.results import Number
from tests.support.tree import write_tree

CPU, GPU = StepSettings(pool="cpu"), StepSettings(pool="gpu", gpus=1)
ACCURACY = Number(name="accuracy", title="Accuracy", path="metrics.json", select="/test/accuracy")

FILES = {
    "workloads/__init__.py": "",
    "workloads/churn/pipeline.yaml": "description: Who will leave.",
    "workloads/churn/README.md": "About it.",
    "workloads/churn/requirements.txt": "numpy==2.0.0 --hash=sha256:00\n",
    "workloads/churn/prepare.py": "import features",
    "workloads/churn/train.py": "from models import forest",
    "workloads/churn/features.py": "",
    "workloads/churn/models/__init__.py": "",
    "workloads/churn/models/forest.py": "",
    "workloads/churn/models/linear.py": "",
    "workloads/churn/schema.json": "{}",
}


@dataclass(frozen=True)
class Declared(DeclaredPipeline):
    """A pipeline whose steps a test gives."""

    declared: Sequence[StepDeclaration] = ()

    @property
    def steps(self) -> Sequence[StepDeclaration]:  # type: ignore[override]
        return self.declared

    unchecked = steps


def pipeline(*steps: StepDeclaration, name: str = "churn") -> DeclaredPipeline:
    return Declared(name, "churn", PipelineSettings(), steps)


def command(name: str, *words: str, **changes: Any) -> StepDeclaration:
    """A step that runs ``words`` in the folder of the pipeline."""
    values: dict[str, Any] = {
        "module": None,
        "placed_by": CPU,
        "command": Command("workloads/churn"),
        "results": (ACCURACY,),
        **changes,
    }
    return StepDeclaration(name=name, arguments=words, **values)


def prepare() -> StepDeclaration:
    return command("prepare", "python", "prepare.py", "--output", "{output}", results=())


def variants(best: Best | None = None) -> list[StepDeclaration]:
    """The step ``train``, once for each of two values."""
    words = ("python", "train.py", "--data", "{prepare}", "--output", "{output}", "--trees")
    return [
        command(
            f"train-{trees}",
            *(*words, str(trees)),
            inputs={"prepare": "prepare"},
            variant=Variant("train", {"trees": trees}),
            best=best,
        )
        for trees in (100, 300)
    ]


def on_gpu(step: StepDeclaration) -> StepDeclaration:
    return replace(step, placed_by=GPU)


def repository(folder: Path) -> Path:
    """A repository with the files of the pipeline, and stand-ins for the programs that run it."""
    return write_tree(folder, FILES)
