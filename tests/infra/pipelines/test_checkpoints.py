"""`checkpoints` of a step: what it becomes in the pod, and what is wrong with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.kubernetes.pods.pod import checkpoint_flags, grace_period
from slipway.infra.pipelines.checkpoints import Checkpoints
from slipway.infra.pipelines.file import reading
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.platform import Platform, Pool
from slipway.runtime.steps.attendant import Settings
from tests.support.recording import record
from tests.support.stand_in import cpu_pool, platform, step


def read(folder: Path, **keys: Any) -> tuple[dict[str, str], Checkpoints | None]:
    """What is wrong with a file with a step with these keys, by key; and how its checkpoints are copied."""
    parameters = {name: {"type": "string", "default": "a"} for name in keys.pop("parameters", ())}
    program = {"run": ["python", "train.py", "--to", "{checkpoint}", "{output}"], **keys}
    file = {"description": "Trains.", "parameters": parameters, "steps": {"train": program}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(file), encoding="utf-8")
    declaration = reading.read(Folder(folder, "x", str(folder)))
    wrong = {
        problem.key.partition(": ")[2]: f"{problem.reason}; {problem.fix}" for problem in declaration.problems
    }
    (declared,) = declaration.steps(declaration.settings.model_validate({"steps": {"train": {"pool": "cpu"}}}))
    return wrong, declared.checkpoints


SEARCH: dict[str, Any] = {
    "run": ["python", "train.py", "--rate", "{rate}", "--to", "{checkpoint}", "{output}"],
    "parameters": ["rate"],
    "search": {"parameters": {"rate": ["a", "b"]}, "trials": 2, "by": "accuracy"},
    "results": {"accuracy": "metrics.json#/accuracy"},
}


def test_a_step_says_when_and_how_its_checkpoints_are_copied(tmp_path: Path) -> None:
    assert read(tmp_path, checkpoints={}) == ({}, Checkpoints())
    section = {"every": "10m", "bandwidth": "50Mi", "signal": "USR1"}
    assert read(tmp_path, checkpoints=section) == ({}, Checkpoints(600, 50, "USR1"))
    torchrun = ["torchrun", "train.py", "{checkpoint}"]
    assert read(tmp_path, run=torchrun, checkpoints={"signal": "INT"}) == ({}, Checkpoints(signal="INT"))
    assert read(tmp_path, run="train --to {checkpoint} > {output}/log", checkpoints={})[0] == {}
    assert read(tmp_path, checkpoints={}, **SEARCH)[0] == {}
    assert read(tmp_path, parameters=["checkpoint"]) == ({}, None)


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        ({}, "steps.train.run[3]", "checkpoints: {}"),
        ({"checkpoints": {"every": "500ms"}}, "steps.train.checkpoints.every", "30m"),
        ({"checkpoints": {"every": "0s"}}, "steps.train.checkpoints.every", "no time"),
        ({"checkpoints": {"bandwidth": "0"}}, "steps.train.checkpoints.bandwidth", "above zero"),
        ({"checkpoints": {"signal": "KILL"}}, "steps.train.checkpoints.signal", "`USR1`"),
        *(
            ({"checkpoints": {"signal": "USR1"}, "run": run}, "steps.train.checkpoints.signal", "`TERM`")
            for run in (
                ["torchrun", "--nproc-per-node=2", "train.py", "{checkpoint}"],
                ["python", "-m", "torch.distributed.run", "train.py", "{checkpoint}"],
                "cd /x && exec /opt/bin/torchrun train.py {checkpoint}",
                ["accelerate", "launch", "train.py", "{checkpoint}"],
            )
        ),
        ({"checkpoints": {"all_pods": True}}, "steps.train.checkpoints.all_pods", "one pod"),
        ({"checkpoints": {}, "parameters": ["checkpoint"]}, "parameters.checkpoint", "another name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, keys: dict[str, Any], key: str, words: str) -> None:
    wrong, _ = read(tmp_path, **keys)
    assert list(wrong) == [key]
    assert words in wrong[key]


def placed(*pools: Pool) -> Platform:
    """A platform, which is declared as in a program."""
    platforms: list[Platform] = []
    record(lambda: platforms.append(platform(*pools)), {}, preview=True)
    return platforms[0]


def test_a_pod_has_the_seconds_that_its_pool_gives_and_its_runner_knows_them() -> None:
    pools = [replace(cpu_pool("cpu"), notice=15), replace(cpu_pool("spot"), notice=100)]
    on = placed(*pools)
    assert [grace_period(step(on, pool.name)) for pool in pools] == [25, 25]
    seconds: list[float] = []
    for pool in pools:
        declared = step(on, pool.name, checkpoints=Checkpoints(every=60, bandwidth=2, signal="INT"))
        flag, text = checkpoint_flags(declared)
        settings = Settings.parse(text)
        assert (flag, settings.every, settings.bandwidth) == ("--checkpoints", 60, 2 << 20)
        assert (settings.signal, settings.grace) == ("SIGINT", grace_period(declared))
        seconds.append(settings.grace)
    assert seconds == [15, 100]
