"""Draws the pictures of all stacks that the pages show.

python -m tools.reference.pictures            # write docs/images/stacks
python -m tools.reference.pictures --check    # exit 1 where one is out of date
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from offline.files import write_or_check
from offline.picture.svg import picture
from offline.preview.revisions import evaluate_trees

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images" / "stacks"


def main(arguments: Sequence[str]) -> int:
    """Writes the pictures of all stacks, or with ``--check`` says whether they are up to date."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    status = 0
    for name, evaluation in evaluate_trees(ROOT, None).head.items():
        if evaluation.stack is None:
            failure = evaluation.failure
            print(f"{name}: {failure.message if failure else 'not evaluated'}", file=sys.stderr)
            status = 1
            continue
        file = FOLDER / f"{name}.svg"
        status |= write_or_check(file, picture(evaluation.stack), "tools.reference.pictures", arguments)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
