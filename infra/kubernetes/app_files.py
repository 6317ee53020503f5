"""What an app ships to its pods, and the results of steps that it reads there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.app import App
from infra.kubernetes.bundle import collect, normalised
from infra.kubernetes.code_folder import code_files
from infra.kubernetes.run import Run
from infra.kubernetes.shipped_files import Files, image_folder, require_fit
from infra.pipelines.apps import AppDeclaration
from infra.step import CODE, Command

LOCK = "requirements.txt"
"""Where the lock file of an app stands in its bundle."""

INSTALLER = "workloads.runtime.app_packages"
"""The module that an init container runs to install what an app's image lacks."""

SUPPLIED = "workloads.runtime.supplied"
"""The module that starts an app whose image lacks libraries."""

READER = "workloads.runtime.app_inputs"
"""The module that starts an app which reads the best of several results, or those of the newest run."""

IN_IMAGE = "install them as a package into an image and name that as `image`"
"""What to do with code that is more than one ConfigMap holds."""


@dataclass(frozen=True)
class PlannedApp:
    """An app with the files that it ships, and the runs whose results it reads.

    ``bundle`` is None where it ships nothing: its image has all that it runs.
    """

    app: App
    bundle: Files | None
    folders: Mapping[str, Files]
    inputs: Mapping[str, Run]

    @property
    def name(self) -> str:
        """Logical name of what is declared for it: ``<pipeline>-<app>``."""
        return f"{self.app.pipeline}-{self.app.name}"


def plan(app: App, root: Path, runs: Mapping[str, Run]) -> PlannedApp:
    """Finds what ``app`` ships, below the repository's ``root``; ``runs`` are by their Jobs' lasting names.

    Raises ShippingError where a file is missing or too big.
    """
    folders = {name: image_folder(folder, root) for name, folder in app.folders.items()}
    inputs = {name: runs[step.job] for name, step in app.inputs.items()}
    starters = [*([SUPPLIED] if app.supplies else []), *([READER] if is_told(app) else [])]
    return PlannedApp(app, app_bundle(app.declared, app.command, root, starters), folders, inputs)


def is_told(app: App) -> bool:
    """Whether it is known only when ``app`` starts which results it reads."""
    return bool(app.follows or app.choices)


def app_bundle(
    declared: AppDeclaration, command: Command | None, root: Path, starters: Sequence[str] = ()
) -> Files | None:
    """The files that an app ships beside its folders of images: its module, its ``command``'s code, its lock file,
    and the modules ``starters`` that start it.

    Raises ShippingError.
    """
    installer = [INSTALLER] if declared.requirements else []
    contents: dict[str, bytes] = {}
    if declared.module or installer or starters:
        modules = [*([declared.module] if declared.module else []), *declared.modules, *installer, *starters]
        contents.update(collect(modules, root, list(declared.files)).contents)
    if command:
        code = code_files(command, declared.arguments)
        contents.update({f"{CODE}/{path}": content for path, content in code.items()})
    if declared.requirements:
        contents[LOCK] = normalised(root / declared.requirements)
    if not contents:
        return None
    files = Files(contents)
    require_fit(files.sizes, IN_IMAGE)
    return files
