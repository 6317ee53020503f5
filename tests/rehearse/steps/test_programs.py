"""Programs as they are, rehearsed: scripts, code of several MiB, hidden files, a value that shells split."""

from pathlib import Path
from typing import Any

import pytest

from slipway.rehearse.state import Phase
from tests.support.rehearsing import SMALL, pipeline_folder, rehearse_file, stack_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TITLE = 'two  words, it\'s "$HOME" `x`'

BOTH = """# A script: it's several commands.
mkdir {output}/"a folder" && printf '%s' {title} > {output}/"a folder"/title.txt
./tool.sh {output}/tool.txt
wc -c < data.bin > {output}/size.txt
cat .project-root .conf/a > {output}/hidden.txt
if touch here; then echo writable > {output}/hidden.txt; fi
"""

DECLARED: dict[str, Any] = {
    "parameters": {"title": {"type": "string", "default": TITLE}},
    "steps": {
        "both": {"run": BOTH, "files": [".project-root", ".conf/*"]},
        "package": {"run": ["python", "-m", "pkg.train", "{output}"], "files": ["pkg/plugins"]},
        "elsewhere": {"directory": "{output}", "run": ["python", "write.py", "{title}"]},
        "failing": {"run": "echo begun > {output}/begun\nls /nowhere\necho never > {output}/never"},
    },
}

IN_PACKAGE = """import importlib, sys
from .model import NAME
from . import data
plugin = importlib.import_module(".plugins.a", __package__)
open(f"{sys.argv[1]}/{NAME}", "w").write(data.TEXT + plugin.TEXT)
"""

FILES = {
    "tool.sh": '#!/bin/sh\necho made > "$1"\n',
    "write.py": "import sys\nopen('title.txt', 'w').write(sys.argv[1])\n",
    "pkg/train.py": IN_PACKAGE,
    "pkg/model.py": "NAME = 'net.txt'\n",
    "pkg/data.py": "TEXT = 'data'\n",
    "pkg/plugins/a.py": "from ..data import TEXT\nfrom .b import NAME\n",
    "pkg/plugins/b.py": "NAME = ''\n",
    "data.bin": "x" * 2_500_000,
    ".project-root": "root\n",
    ".conf/a": "a\n",
    ".env": "b\n",
}


def test_programs_run_as_they_are(tmp_path: Path) -> None:
    pipeline_folder(tmp_path / "toy", FILES, **DECLARED)
    (tmp_path / "toy/tool.sh").chmod(0o755)
    section = {"uses": str(tmp_path / "toy"), "steps": dict.fromkeys(DECLARED["steps"], SMALL)}
    file = stack_file(tmp_path / "stack.yaml", pipelines={"toy": section})
    outcome, text = rehearse_file(tmp_path / "out", file)

    def written(step: str) -> dict[str, str]:
        (run,) = (tmp_path / "out/store/toy" / step).iterdir()
        return {path.relative_to(run).as_posix(): path.read_text() for path in run.rglob("*.txt")}

    assert written("both") == {
        "a folder/title.txt": TITLE,
        "tool.txt": "made\n",
        "size.txt": "2500000\n",
        "hidden.txt": "root\na\n",
    }
    assert written("package") == {"net.txt": "datadata"}
    assert written("elsewhere") == {"title.txt": TITLE}
    phases = {record.name: (record.phase, record.exit_code) for record in outcome.records if "toy" in record.name}
    assert phases.pop("toy-failing") == (Phase.FAILED, 2)
    assert {phase for phase, _ in phases.values()} == {Phase.SUCCEEDED}
    assert "line 2 of the script" in text
    assert not list((tmp_path / "out/store/toy/failing").rglob("never"))
    assert ".env" in text


def test_a_failed_step_has_its_programs_words_and_the_key_that_mends_it(tmp_path: Path) -> None:
    run = {
        "memory": "import time; x = [bytearray(9**8) for _ in range(9)]; time.sleep(30)",
        "time": "import time; time.sleep(30)",
        "wrong": "raise ValueError('expected 3 columns')",
    }
    steps = {name: {"run": ["python", "-c", code, "{output}"]} for name, code in run.items()}
    pipeline_folder(tmp_path / "toy", {}, steps=steps)
    of_steps = {name: {**SMALL, "memory": "128Mi"} for name in run} | {"time": {**SMALL, "time_limit": "3s"}}
    section = {"uses": str(tmp_path / "toy"), "steps": of_steps}
    file = stack_file(tmp_path / "stack.yaml", pipelines={"toy": section})
    outcome, _ = rehearse_file(tmp_path / "out", file)

    why = {record.name: record.reason for record in outcome.records}
    assert "`slipway:pipelines.toy.steps.memory.memory`" in why["toy-memory"]
    assert "limit is 128 MiB" in why["toy-memory"]
    assert "`slipway:pipelines.toy.steps.time.time_limit`" in why["toy-time"]
    assert "3 s" in why["toy-time"]
    assert why["toy-wrong"] == "ValueError: expected 3 columns (exit code 1)"
