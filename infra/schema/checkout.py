"""Where the user's checkout is, while another revision of it runs from a temporary folder.

A module of its own, so that a preview, which starts such a revision, can name the variable without waiting for
pydantic.
"""

import os
from pathlib import Path

VARIABLE = "SLIPWAY_CHECKOUT"
"""The environment variable with the root of the user's checkout."""


def checkout(root: Path) -> Path:
    """The user's checkout, which is ``root`` itself, unless that is another revision."""
    return Path(os.environ.get(VARIABLE) or root)
