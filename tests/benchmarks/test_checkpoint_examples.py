"""The examples of docs/checkpoints.md whose programs need nothing, or what this project has, go on when killed."""

from pathlib import Path

import pytest

from benchmarks.checkpoint_examples import DISTRIBUTED, examples, goes_on


def test_every_framework_of_the_page_has_an_example() -> None:
    headings = ["Keras", "PyTorch", DISTRIBUTED, "JAX with Orbax", "scikit-learn", "A shell script"]
    assert list(examples()) == headings


@pytest.mark.slow
@pytest.mark.parametrize(
    "heading", ["A shell script", "scikit-learn", pytest.param("Keras", marks=pytest.mark.long)]
)
def test_an_example_goes_on_from_its_checkpoint(tmp_path: Path, heading: str) -> None:
    assert goes_on(tmp_path, *examples()[heading], told=True) > 0
