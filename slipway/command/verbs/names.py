"""The names that a user may mean, read without what a verb imports: a shell waits for them at every Tab.

What cannot be read has no names. The verb itself says what is wrong with it.
"""

from collections.abc import Iterator

import yaml

from slipway.infra.places import PROJECT, PROJECT_FILE

WORKLOADS = "workloads"
PIPELINE_FILES = ("pipeline.yaml", "pipeline.yml")


def stacks() -> list[str]:
    """The stacks that have a file in the project."""
    try:
        project = yaml.safe_load((PROJECT / PROJECT_FILE).read_text(encoding="utf-8"))
        folder = PROJECT / str(project.get("stackConfigDir", "."))
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return []
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in folder.glob("Pulumi.*.yaml"))


def pipelines() -> list[str]:
    """The folders below ``workloads/`` that declare a pipeline."""
    files = (file for name in PIPELINE_FILES for file in (PROJECT / WORKLOADS).glob(f"*/{name}"))
    return sorted({file.parent.name for file in files})


def complete_stacks(incomplete: str) -> Iterator[str]:
    """Stacks that begin so."""
    return (name for name in stacks() if name.startswith(incomplete))


def complete_pipelines(incomplete: str) -> Iterator[str]:
    """Pipelines that begin so."""
    return (name for name in pipelines() if name.startswith(incomplete))
