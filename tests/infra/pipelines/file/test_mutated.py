"""Mutated files: whatever is in a ``pipeline.yaml``, it gives steps, or problems that name their places."""

import contextlib
import random
from pathlib import Path

import pytest
import yaml

from slipway.infra.pipelines.discovery import services_of, steps_of
from slipway.infra.pipelines.file.reading import Folder, read
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load, pipelines_in
from slipway.infra.stack.configuration import shipping_problems
from tests.fuzz import LONGEST, mutate_pipeline
from tests.infra.pipelines.days import DAYS, SECTION
from tests.support.checkout import ROOT
from tests.support.stack_values import GCP, changed

TEXTS = [
    *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "workloads").glob("*/pipeline.yaml"))),
    yaml.safe_dump(DAYS, sort_keys=False),
]
STEPS = {name: {"pool": "cpu"} for name in ("prepare", "train", "evaluate", "draw")}
COUNT = 90


def complaints(text: str, folder: Path) -> str:
    """What is wrong with how the file is read; empty where nothing is."""
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    declaration = read(Folder(folder, "workloads/x", str(folder)))
    for problem in declaration.problems:
        told = [problem.key, problem.reason, problem.fix]
        if not problem.key.startswith("workloads/x/pipeline.yaml") or not all(told):
            return f"a problem without its key, reason or fix: {told}"
        if any(len(part) > LONGEST for part in told):
            return f"not fit to be shown: {told[0][:80]}"
    section = changed(SECTION, {"uses": str(folder), "steps": {**SECTION["steps"], **STEPS}})
    section = {key: value for key, value in section.items() if key != "services" or "services" in text}
    raw = changed(GCP, {"pipelines": {"x": section}})
    with contextlib.suppress(SettingsError):
        load(raw)
    for settings in pipelines_in(raw).values():
        try:
            steps_of(str(folder), settings)
            services_of(str(folder), settings)
        except SettingsError as error:
            return str(error)
    shipping_problems(raw, ROOT)
    return ""


@pytest.mark.slow
def test_every_file_gives_steps_or_problems(tmp_path: Path) -> None:
    wrong = {
        number: said
        for number in range(COUNT)
        if (
            said := complaints(
                mutate_pipeline(TEXTS[number % len(TEXTS)], random.Random(number)), tmp_path / str(number)
            )
        )
    }
    assert wrong == {}
