"""Install the Python packages that an app's image lacks, in any image that has pip.

Run as `python -m workloads.runtime.app_packages --requirements requirements.txt --target /packages`. Python 3.9.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

from workloads.runtime.exits import INSTALL_FAILED, StepError, run


def main(arguments: list[str] | None = None) -> int:
    """Run the installation; returns the exit code.

    Raises:
        StepError: as `workloads.runtime.packages.main` does, and INSTALL_FAILED where the image has no pip.
    """
    if importlib.util.find_spec("pip") is None:
        raise StepError(
            INSTALL_FAILED,
            f"this image's Python, {sys.executable}, has no pip: take an image that has it; or one that has all "
            "packages, with no requirements for the app",
        )
    if importlib.util.find_spec("packaging") is None:
        # pip has a copy of it.
        for name in ("packaging", "packaging.requirements"):
            sys.modules[name] = importlib.import_module(f"pip._vendor.{name}")
    from workloads.runtime import packages

    return packages.main(arguments)


if __name__ == "__main__":
    run(main)
