"""Data that is there, rehearsed: items of a folder of photos, a folder of tables; which steps new data run."""

from pathlib import Path
from typing import Any

import pytest

from slipway.infra.schema.problems import SettingsError
from slipway.rehearse.machine import boxes
from slipway.rehearse.session import configure
from slipway.rehearse.state import Phase
from tests.support.checkout import ROOT
from tests.support.rehearsing import SMALL, log, phases, pipeline_folder, rehearse_file, stack_file
from tests.support.tree import write_tree

TOTAL = """cat {tables}/*.csv > {output}/all.csv
if touch {tables}/new.csv; then touch {output}/wrote; fi
"""
DECLARED: dict[str, Any] = {
    "inputs": {"images": {"description": "Photos."}, "tables": {}},
    "steps": {
        "shrink": {
            "items": {"files": "{images}/**/*.ppm"},
            "run": ["python", "shrink.py", "{item}", "{output}"],
        },
        "total": {"run": TOTAL},
        "elsewhere": {
            "run": ["no-such-program", "{tables}", "{output}"],
            "rehearsal": {"run": ["cp", "-r", "{tables}/one.csv", "{output}"]},
        },
    },
}
PROGRAMS = {
    "shrink.py": "import pathlib, sys\nprint('shrinks', sys.argv[1])\n"
    "pathlib.Path(sys.argv[2], 'size').write_text(str(pathlib.Path(sys.argv[1]).stat().st_size))\n"
}
FIRST, SECOND = "1" * 64, "2" * 64


def section(folder: Path, images: str = FIRST) -> dict[str, Any]:
    return {
        "uses": str(folder),
        "inputs": {
            "images": {"url": "{store}/photos/cats", "digest": images},
            "tables": {"url": "{store}/tables", "digest": FIRST},
        },
        "steps": dict.fromkeys(DECLARED["steps"], SMALL),
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_new_data_run_only_the_steps_and_items_that_read_them(tmp_path: Path) -> None:
    pipeline_folder(tmp_path / "toy", PROGRAMS, **DECLARED)
    photos = write_tree(tmp_path / "photos", {"cats/a.ppm": "a", "cats/more/b.ppm": "bb", "dogs/c.ppm": "ccc"})
    tables = write_tree(tmp_path / "tables", {"one.csv": "1\n", "two.csv": "2\n"})
    here = {"store_files": {"photos": str(photos), "tables": str(tables)}}

    def rehearse(images: str) -> tuple[dict[str, Phase], str]:
        sections = {"toy": section(tmp_path / "toy", images)}
        file = stack_file(tmp_path / "stack.yaml", pipelines=sections, rehearsal=here)
        outcome, _ = rehearse_file(tmp_path / "out", file)
        return phases(outcome), log(tmp_path / "out", "toy-shrink")

    ended, text = rehearse(FIRST)
    assert (ended["toy-shrink"], ended["toy-total"]) == (Phase.SUCCEEDED, Phase.SUCCEEDED)
    assert {name for name in ("a.ppm", "b.ppm", "c.ppm") if name in text} == {"a.ppm", "b.ppm"}
    (result,) = (tmp_path / "out/store/toy/total").glob("*/all.csv")
    assert result.read_text() == "1\n2\n"
    assert (result.parent / "wrote").exists() is not boxes.available()
    assert [file.read_text() for file in (tmp_path / "out/store/toy/elsewhere").glob("*/one.csv")] == ["1\n"]

    write_tree(photos, {"cats/d.ppm": "dddd"})
    ended, text = rehearse(SECOND)
    assert (ended["toy-shrink"], ended["toy-total"]) == (Phase.SUCCEEDED, Phase.UNCHANGED)
    assert {name for name in ("a.ppm", "b.ppm", "d.ppm") if f"/{name}" in text} == {"d.ppm"}


def test_a_rehearsal_wants_a_folder_for_each_bucket(tmp_path: Path) -> None:
    pipeline_folder(tmp_path / "toy", PROGRAMS, **DECLARED)
    sections = {"toy": section(tmp_path / "toy")}
    sections["toy"]["inputs"]["images"]["url"] = "gs://team-data/photos"
    with pytest.raises(SettingsError) as refused:
        configure("local", ROOT, stack_file(tmp_path / "stack.yaml", pipelines=sections))
    assert any("inputs.images" in problem.key for problem in refused.value.problems)
