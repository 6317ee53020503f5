"""The program of a project with settings of Slipway's: its ``__main__.py``, as the Pulumi CLI starts it.

What it declares before and after `slipway.run()` is declared here, too.
"""

from dataclasses import dataclass

import pulumi

from slipway.engine.any_program import PulumiProject
from slipway.infra.program import was_run
from slipway.infra.schema.problems import SettingsError
from slipway.infra.schema.yaml_files import ConfigError


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
