"""Draws the pictures of all stacks that the pages show.

python -m slipway.tools.reference.pictures            # write docs/images/stacks
python -m slipway.tools.reference.pictures --check    # exit 1 where one is out of date
"""

import sys
from collections.abc import Sequence

from slipway.infra.places import LIBRARY
from slipway.offline.files import write_or_check
from slipway.offline.picture.svg import picture
from slipway.offline.preview.revisions import evaluate_trees

FOLDER = LIBRARY / "docs" / "images" / "stacks"


def main(arguments: Sequence[str]) -> int:
    """Writes the pictures of all stacks, or with ``--check`` says whether they are up to date."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, evaluation in evaluate_trees(LIBRARY, None).head.items():
        if evaluation.stack is None:
            failure = evaluation.failure
            print(f"{name}: {failure.message if failure else 'not evaluated'}", file=sys.stderr)
            status = 1
            continue
        file = FOLDER / f"{name}.svg"
        status |= write_or_check(file, picture(evaluation.stack), "slipway.tools.reference.pictures", arguments)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
