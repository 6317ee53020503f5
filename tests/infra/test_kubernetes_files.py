"""Files in ConfigMaps: which keys, which limits, and that they come out in the pod as they went in."""

import base64
import re
from pathlib import Path

import pulumi
import pytest

from infra.kubernetes.files import (
    LIMIT,
    Files,
    ShippingError,
    config_map,
    config_map_name,
    image_folder,
    keys,
    volume,
)
from tests.support.recording import Recorded, record

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


def recorded(files: Files) -> Recorded:
    recording = record(
        lambda: config_map("digits", files, "slipway", {"a": "b"}, pulumi.ResourceOptions()), {}, preview=True
    )
    return recording.one("kubernetes:core/v1:ConfigMap")


def test_content_comes_back_under_its_path_whatever_it_is() -> None:
    files = Files(
        {
            "a/b.py": b"x = 1\n",
            "a.b.py": b"y = 2\n",
            "images/\u00fcber 1.png": PNG,
            "deep/" + "d" * 300 + ".py": b"",
        }
    )
    inputs = recorded(files).inputs
    stored = {key: text.encode() for key, text in inputs.get("data", {}).items()}
    stored |= {key: base64.b64decode(text) for key, text in inputs.get("binaryData", {}).items()}
    items = volume("v", "m", files).config_map.items  # type: ignore[union-attr]
    assert {item.path: stored[item.key] for item in items} == files.contents  # type: ignore[union-attr]
    assert len(stored) == len(files.contents)
    assert inputs["immutable"] is True


def test_keys_are_what_kubernetes_allows() -> None:
    paths = ["a/b.py", "a.b.py", "a b.py", "a_b.py", "\u00e4.png", "x" * 400, "a/b/c"]
    made = keys(paths)
    assert len(set(made.values())) == len(paths)
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) for key in made.values())
    assert keys(reversed(paths)) == made


def test_other_content_is_another_config_map() -> None:
    one, other = Files({"a.py": b"1"}), Files({"a.py": b"2"})
    assert config_map_name("digits", one) != config_map_name("digits", other)
    assert recorded(one).inputs["metadata"]["name"] == config_map_name("digits", one)


def test_the_digest_does_not_depend_on_order_and_tells_paths_from_contents() -> None:
    assert Files({"a": b"1", "b": b"2"}).digest == Files({"b": b"2", "a": b"1"}).digest
    assert Files({"a": b"1b", "c": b""}).digest != Files({"a": b"1", "bc": b""}).digest


def test_an_image_folder_is_its_pngs_and_their_labels(tmp_path: Path) -> None:
    for name in (
        "3.png",
        "sub/7.PNG",
        "labels.json",
        "notes.txt",
        ".hidden.png",
        ".cache/1.png",
        "sub/labels.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PNG)
    assert set(image_folder(tmp_path).contents) == {
        "3.png",
        "sub/7.PNG",
        "labels.json",
        "sub/labels.json",
    }


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShippingError, match="no such folder"):
        image_folder(tmp_path / "nowhere")


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ShippingError, match="no PNG file"):
        image_folder(tmp_path)


def test_a_folder_over_the_limit_is_refused_with_its_biggest_images(tmp_path: Path) -> None:
    (tmp_path / "big.png").write_bytes(b"0" * LIMIT)
    (tmp_path / "small.png").write_bytes(b"0")
    with pytest.raises(ShippingError, match=r"1048577 bytes.*big\.png \(1048576 bytes\), small\.png") as error:
        image_folder(tmp_path)
    assert "store:" in error.value.fix
