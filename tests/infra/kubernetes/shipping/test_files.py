"""Files in ConfigMaps: which keys, which limits, and that they come out in the pod as they went in."""

import base64
import re

import pulumi

from slipway.infra.kubernetes.shipping.bundle import Files, config_map, config_map_name, keys, volume
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
