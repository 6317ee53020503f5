"""Writes the folder of a pipeline from a manifest."""

from pathlib import Path

from slipway.infra.commands import command
from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import Problem
from slipway.tools.importing.conversion import convert
from slipway.tools.importing.document import OPTION
from slipway.tools.importing.folder import draft
from slipway.tools.importing.manifest import read
from slipway.tools.new.writing import Draft, RefusedError, carry_out


def write_imported(manifest: str, name: str, code: Path | None) -> Exit:
    """Writes it, as `carry_out` says."""

    def make() -> Draft:
        if not manifest:
            fix = f"write `{command('import', manifest='tfjob.yaml')}`, the path of its file"
            raise RefusedError([Problem(OPTION, None, "nothing says what to import", fix)])
        document = read(Path(manifest).expanduser())
        return draft(document, convert(document), name, code and code.expanduser())

    return carry_out(make, PROJECT)
