"""What is wrong with a pipeline's file and with its section of a stack file, by key."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load


def problems(folder: Path, stack: Mapping[str, Any]) -> dict[str, str]:
    """The reasons and fixes of ``stack``: keys of the folder's file without its name, those of its section below
    `stack`.
    """
    try:
        load(stack)
    except SettingsError as error:
        texts: dict[str, str] = {}
        for problem in error.problems:
            key = problem.key.removeprefix(f"{folder}/pipeline.yaml").removeprefix(": ")
            key = re.sub(r"^slipway:pipelines\.\w+", "stack", key)
            texts[key] = "\n".join(filter(None, [texts.get(key), problem.reason, problem.fix]))
        return texts
    return {}


def check(texts: Mapping[str, str], keys: str, names: Mapping[str, Sequence[str]]) -> None:
    """Fails where the keys are others than ``keys`` and those of ``names``, or a text lacks one of its names."""
    assert texts.keys() == {*keys.split(), *names}
    missing = {key: [name for name in named if name not in texts[key]] for key, named in names.items()}
    assert {key: named for key, named in missing.items() if named} == {}
