"""Held-out images: from what a pipeline's step publishes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from slipway.workloads.apps.page.samples import MOST, Sample, SamplesError, load

LABELS = [str(digit) for digit in range(10)]


@pytest.mark.slow
def test_what_the_step_of_the_digits_publishes(data: Path) -> None:
    """Ten images with `labels.json`, and the split that it tests with as arrays."""
    images = load(data / "images")
    assert sorted(image.truth(LABELS) or 0 for image in images) == list(range(10))
    assert {image.image.size for image in images} == {(28, 28)}
    arrays = load(data / "test.npz")
    with np.load(data / "test.npz") as file:
        assert len(arrays) == len(file["labels"])
        assert [array.truth(LABELS) for array in arrays[:20]] == file["labels"][:20].tolist()
        assert np.array_equal(np.asarray(arrays[7].image), file["images"][7])


def test_folders_named_by_label(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (5, 4)).save(tmp_path / name / "one.jpg")
    assert [sample.truth(["cat", "dog"]) for sample in load(tmp_path)] == [0, 1]
    assert [sample.truth(["fish"]) for sample in load(tmp_path)] == [None, None]


@pytest.mark.parametrize(("label", "place"), [("b", 1), (0, 0), ("1", 1), (2, None), (-1, None), (None, None)])
def test_a_label_is_a_name_or_a_place(label: str | int | None, place: int | None) -> None:
    assert Sample(Image.new("L", (1, 1)), label).truth(["a", "b"]) == place


@pytest.mark.parametrize("kind", ["<i8", ">i2", "|u1", "<u4"])
def test_whole_numbers_of_every_size(tmp_path: Path, kind: str) -> None:
    labels = np.array([3, 0, 9], kind)
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 4, 5, 3), np.uint8), labels=labels)
    samples = load(tmp_path / "a.npz")
    assert [sample.label for sample in samples] == [3, 0, 9]
    assert samples[0].image.size == (5, 4)


def test_no_more_are_kept_than_there_is_memory_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((MOST + 10, 2, 2), np.uint8))
    assert len(load(tmp_path / "a.npz")) == MOST


def refused(path: Path) -> str:
    with pytest.raises(SamplesError) as error:
        load(path)
    return str(error.value)


def test_what_is_no_folder_of_images_is_said(tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "nothing")
    assert "no image" in refused(tmp_path)
    (tmp_path / "x.png").write_bytes(b"no")
    assert "x.png" in refused(tmp_path)
    (tmp_path / "x.png").unlink()
    Image.new("L", (1, 1)).save(tmp_path / "x.png")
    (tmp_path / "labels.json").write_text("[1]")
    assert "labels.json" in refused(tmp_path)
    (tmp_path / "labels.json").write_text("{")
    assert "not JSON" in refused(tmp_path)
    (tmp_path / "text.npz").write_text("no")
    assert "text.npz" in refused(tmp_path / "text.npz")
    for name, arrays in {
        "float": {"images": np.zeros((2, 2, 2))},
        "flat": {"images": np.zeros((2, 2), np.uint8)},
        "more": {"images": np.zeros((2, 2, 2), np.uint8), "labels": np.zeros(3, np.uint8)},
        "none": {"labels": np.zeros(3, np.uint8)},
        "object": {"images": np.array([{}])},
    }.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)  # type: ignore[arg-type]
        assert name in refused(tmp_path / f"{name}.npz")


def test_a_shape_that_the_file_does_not_fill_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("images.npy", "w") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 28, 28)}
        np.lib.format.write_array_header_1_0(stream, header)
    assert "a.npz" in refused(tmp_path / "a.npz")


def test_fractions_are_refused_in_words_that_say_what_to_save(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 2, 2), np.float32))
    assert "`images` is of the type <f4" in refused(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", images=np.zeros((2, 2, 2), np.uint8), labels=np.zeros(2))
    assert "`labels` is of the type <f8" in refused(tmp_path / "b.npz")
