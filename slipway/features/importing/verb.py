"""The verb `import`."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.infra.features import Verb

VERBS = {
    "import": Verb(
        "slipway.features.importing.verb",
        "import_manifest",
        "Write a pipeline from a TFJob, a Job and the like.",
        ("import tfjob.yaml", "import tfjob.yaml --name churn --code ../churn"),
    )
}


def import_manifest(
    manifest: Annotated[str, typer.Argument(help="A YAML file, or a folder of them.", show_default=False)],
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the pipeline; default: the training's.")] = "",
    code: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="That of its program, which is copied.")
    ] = None,
) -> None:
    """Write a pipeline's folder from the manifest of a TFJob, a Job or another kind that the page import.md lists.

    Says of every field that is not carried over why. Overwrites nothing: all of it is written, or nothing.
    """
    from slipway.features.importing.folder import write_imported

    raise typer.Exit(write_imported(manifest, name, code))
