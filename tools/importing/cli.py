"""The command line of `slipway import`."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.infra.commands import command
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import Problem
from slipway.tools.importing.conversion import convert
from slipway.tools.importing.document import OPTION
from slipway.tools.importing.folder import draft
from slipway.tools.importing.manifest import read
from slipway.tools.new.writing import Draft, RefusedError, carry_out


def main(
    manifest: Annotated[str, typer.Argument(help="The manifest: a YAML file, or a folder of them.")],
    name: Annotated[str, typer.Option(help="Name of the pipeline; default: the training's.")] = "",
    code: Annotated[str, typer.Option(help="The folder of its program, which is copied.")] = "",
) -> None:
    """Write a pipeline's folder from the manifest of a TFJob, a Job or another kind that `docs/import.md` lists.

    Says of every field that is not carried over why, and overwrites nothing. Exits with 0 where the folder is
    written, with 2 where an option or the manifest is wrong, and with 1 where it cannot be written.
    """

    def make() -> Draft:
        if not manifest:
            fix = f"write `{command('import', manifest='tfjob.yaml')}`, the path of its file"
            raise RefusedError([Problem(OPTION, None, "nothing says what to import", fix)])
        document = read(Path(manifest).expanduser())
        return draft(document, convert(document), name, Path(code).expanduser() if code else None)

    carry_out(make, PROJECT)
