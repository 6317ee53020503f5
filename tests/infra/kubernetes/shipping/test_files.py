"""Files in ConfigMaps: which keys, which limits, and that they come out in the pod as they went in."""

import base64
import os
import re
from pathlib import Path

import pulumi
import pytest

from slipway.infra.kubernetes.shipping.bundle import (
    Files,
    config_map,
    config_map_name,
    image_folder,
    keys,
    left_out,
    volume,
)
from slipway.infra.kubernetes.shipping.sizes import LIMIT, ShippingError
from slipway.infra.review.stack import Resource
from tests.support.recording import record

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


def recorded(files: Files) -> Resource:
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
        "8.jpg",
        "sub/9.JPEG",
        "labels.json",
        "notes.txt",
        ".hidden.png",
        ".cache/1.png",
        "sub/labels.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PNG)
    assert set(image_folder(tmp_path, tmp_path).contents) == {
        "3.png",
        "sub/7.PNG",
        "8.jpg",
        "sub/9.JPEG",
        "labels.json",
        "sub/labels.json",
    }


def test_what_else_is_in_an_image_folder_is_named(tmp_path: Path) -> None:
    for name in ("3.png", "sub/notes.txt", "labels.json", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(PNG)
    assert left_out(tmp_path) == ["sub/notes.txt"]


def test_what_cannot_be_shipped_is_refused_by_its_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x:0:0", encoding="utf-8")
    root = tmp_path / "repository"
    folder = root / "images"
    folder.mkdir(parents=True)
    (folder / "good.png").write_bytes(PNG)
    (folder / "1.png").symlink_to(secret)
    (folder / "2.png").symlink_to(folder / "gone")
    (folder / "3.gif").write_bytes(PNG)
    (folder / "4\n.png").write_bytes(PNG)
    os.mkfifo(folder / "5.png")
    with pytest.raises(ShippingError) as error:
        image_folder(folder, root)
    for words in (
        "1.png is a link out of the repository",
        "2.png is a link to no file",
        "3.gif is neither PNG nor JPEG",
        "nobody sees",
        "5.png is no file",
    ):
        assert words in error.value.reason
    assert "convert" in error.value.fix


def test_a_link_inside_the_repository_is_followed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "7.png").write_bytes(PNG)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "7.png").symlink_to(tmp_path / "other" / "7.png")
    assert image_folder(tmp_path / "images", tmp_path).contents == {"7.png": PNG}


def test_a_folder_that_is_a_link_out_of_the_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "7.png").write_bytes(PNG)
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "images").symlink_to(tmp_path / "outside")
    with pytest.raises(ShippingError, match="out of the repository"):
        image_folder(tmp_path / "repository" / "images", tmp_path / "repository")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ShippingError, match="no such folder"):
        image_folder(tmp_path / "nowhere", tmp_path)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ShippingError, match="no PNG or JPEG file"):
        image_folder(tmp_path, tmp_path)


def test_a_folder_over_the_limit_is_refused_with_its_biggest_images(tmp_path: Path) -> None:
    (tmp_path / "big.png").write_bytes(b"0" * LIMIT)
    (tmp_path / "small.png").write_bytes(b"0")
    with pytest.raises(ShippingError, match=r"1048577 bytes.*big\.png \(1048576 bytes\), small\.png") as error:
        image_folder(tmp_path, tmp_path)
    assert "store:" in error.value.fix
