"""The program of a Pulumi project in Python: how it is started, and which configuration it requires."""

import os
import runpy
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import pulumi

from slipway.engine.unknown_results import unknown_result
from slipway.infra.places import PACKAGE
from slipway.infra.program import was_run
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.schema.yaml_files import ConfigError, read_yaml

_T = TypeVar("_T")


@dataclass(frozen=True)
class PulumiProject:
    """A project in the folder ``root``. ``main`` is the folder or file of its program, relative to it."""

    root: Path
    name: str
    main: str = "."

    @classmethod
    def read(cls, root: Path) -> Self:
        """From its ``Pulumi.yaml``. Raises ConfigError, also where the program is in another language."""
        content = mapping(read_yaml(root / "Pulumi.yaml"))
        runtime = content.get("runtime")
        language = str(mapping(runtime).get("name") or runtime or "")
        if language != "python":
            raise ConfigError(
                f"{root / 'Pulumi.yaml'}: runtime: {language or 'none'}: only Python programs are evaluated"
            )
        return cls(root, str(content.get("name", "")), str(content.get("main") or "."))

    def run(self) -> None:
        """Runs the program as the CLI's language host does, in the folder of its ``main`` (see `in_folder`).

        Raises ConfigError where there is none, and what the program raises.
        """
        main, arguments = self.root / self.main, sys.argv
        file = main / "__main__.py" if main.is_dir() else main
        if not file.is_file():
            raise ConfigError(f"{file}: there is no such file; the program of the project stands in it")
        sys.path.insert(0, str(self._folder))
        sys.argv = [str(main)]
        self._forget_modules()
        try:
            # The file and not its folder, of which Python would keep the bytecode in the project.
            runpy.run_path(str(file), run_name="__main__")
        finally:
            sys.path.remove(str(self._folder))
            sys.argv = arguments

    def _forget_modules(self) -> None:
        """Modules of the project that an earlier run has imported declare nothing a second time."""
        folder = f"{self.root}{os.sep}"
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            # A repository may have the package. It, pipelines and the command declare nothing by themselves.
            ours = name.partition(".")[0] in {PACKAGE, "workloads", "__main__"}
            if file and file.startswith(folder) and not ours and "site-packages" not in Path(file).parts:
                del sys.modules[name]

    @contextmanager
    def in_folder(self) -> Generator[None]:
        """The working directory that the program expects, until callbacks have been called, too."""
        before = Path.cwd()
        os.chdir(self._folder)
        try:
            yield
        finally:
            os.chdir(before)

    @property
    def _folder(self) -> Path:
        main = self.root / self.main
        return main if main.is_dir() else main.parent


@dataclass(frozen=True)
class SlipwayProject(PulumiProject):
    """A project whose program calls `slipway.run`."""

    def run(self) -> None:
        """Runs the program.

        Raises ConfigError where it does not call `slipway.run`, SettingsError for wrong settings, and what the
        program raises.
        """
        try:
            super().run()
        except pulumi.RunError as error:
            if isinstance(error.__cause__, SettingsError):
                # The CLI prints only their text; here they are data.
                raise error.__cause__ from None
            raise
        if not was_run():
            raise ConfigError(
                f"{self.root / self.main}: the program never calls `slipway.run()`, so nothing is declared of "
                "what its stack files ask for: add `from slipway import run` and `run()`"
            )


_missing: ContextVar[dict[str, bool] | None] = ContextVar("missing", default=None)

KINDS: Mapping[str, type | None] = {
    "_require": str,
    "_require_bool": bool,
    "_require_int": int,
    "_require_float": float,
    "_require_object": None,
}
"""The methods of `pulumi.Config` behind ``require…``, with the types of what they return."""


def naming_all_missing(evaluate: Callable[[], _T]) -> _T:
    """What ``evaluate`` returns.

    Raises SettingsError with everything that the program requires of its configuration and that is missing.
    """
    try:
        return evaluate()
    except pulumi.ConfigMissingError:
        if problems := find_missing(evaluate):
            raise SettingsError(problems) from None
        raise


def find_missing(evaluate: Callable[[], object]) -> list[Problem]:
    """Everything that a program requires of its configuration and that is missing, not only the first.

    ``evaluate`` is called with stand-ins for these values. It may fail, because a stand-in is no such value.
    """
    _install()
    missing: dict[str, bool] = {}
    token = _missing.set(missing)
    try:
        evaluate()
    except Exception as error:
        # The program may have ended at a stand-in before it required the rest.
        pulumi.log.debug(f"with stand-ins: {error}")
    finally:
        _missing.reset(token)
    return [missing_value(key, secret=secret) for key, secret in missing.items()]


def missing_value(key: str, *, secret: bool) -> Problem:
    """The problem that a program requires the configuration value ``key``."""
    return Problem(
        key,
        None,
        "the program requires a value, and neither the stack file nor Pulumi.yaml has one",
        f"pulumi config set {'--secret ' if secret else ''}{key} <value>",
    )


@cache
def _install() -> None:
    for name, kind in KINDS.items():
        setattr(pulumi.Config, name, _requiring(getattr(pulumi.Config, name), kind))


def _requiring(require: Callable[..., Any], kind: type | None) -> Callable[..., Any]:
    def requiring(self: pulumi.Config, key: str, *more: Any, **named: Any) -> Any:
        try:
            return require(self, key, *more, **named)
        except pulumi.ConfigMissingError as error:
            missing = _missing.get()
            if missing is None:
                raise
            missing[error.key] = error.secret
            return unknown_result(error.key, kind)

    return requiring
