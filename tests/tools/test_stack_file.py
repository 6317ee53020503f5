"""What is changed of a stack file in place, and that the rest of it stays, character by character."""

import stat
from pathlib import Path

import pytest

from slipway.infra.schema.yaml_files import ConfigError, read_yaml
from slipway.tools.stack_file import change

KEYS = ("config", "slipway:pipelines", "vision", "inputs")
DIGEST = "1e" + "0" * 62  # A number, if it stood without quotes.


def file_of(folder: Path, inputs: str) -> Path:
    file = folder / "Pulumi.dev.yaml"
    text = f"# Für alle ✓\nconfig:\n  slipway:pipelines:\n    vision:\n{inputs}      epochs: 3   # few\n"
    file.write_bytes(text.encode())
    return file


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "      inputs:\n        images: gs://team/train   # photos\n",
            '      inputs:\n        images: {url: "gs://team/train", digest: "DIGEST"}   # photos\n',
        ),
        (
            "      inputs: {images: '{store}/a, b', other: x}\n",
            "      inputs: {images: {url: '{store}/a, b', digest: \"DIGEST\"}, other: x}\n",
        ),
        (
            "      inputs:\n        images:\n          # ours\n          url: gs://team/train  # photos\n\n",
            "      inputs:\n        images:\n          # ours\n          url: gs://team/train  # photos\n"
            '          digest: "DIGEST"\n\n',
        ),
        (
            "      inputs:\n        images:\n          digest: abc # old\n          url: gs://team\n",
            '      inputs:\n        images:\n          digest: "DIGEST" # old\n          url: gs://team\n',
        ),
        (
            "      inputs:\n        images: {url: gs://team, grants: false}\n",
            '      inputs:\n        images: {url: gs://team, grants: false, digest: "DIGEST"}\n',
        ),
        (
            "      inputs:\r\n        images:\r\n          url: gs://team\r\n",
            '      inputs:\r\n        images:\r\n          url: gs://team\r\n          digest: "DIGEST"\r\n',
        ),
    ],
)
def test_one_value_changes_and_nothing_else(tmp_path: Path, before: str, after: str) -> None:
    file = file_of(tmp_path, before)
    expected = file.read_bytes().replace(before.encode(), after.replace("DIGEST", DIGEST).encode())
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    change(link, {(*KEYS, "images"): {"digest": DIGEST}})
    assert file.read_bytes() == expected
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    # Again, it is as it was.
    change(file, {(*KEYS, "images"): {"digest": DIGEST}})
    assert file.read_bytes() == expected


def test_what_two_pipelines_share_is_changed_once(tmp_path: Path) -> None:
    shared = "      inputs: &data\n        images: gs://team\n    other:\n      inputs: *data\n"
    file = file_of(tmp_path, shared)
    other = ("config", "slipway:pipelines", "other", "inputs", "images")
    change(file, {(*KEYS, "images"): {"digest": DIGEST}, other: {"digest": DIGEST}})
    pipelines = read_yaml(file)["config"]["slipway:pipelines"]
    assert (
        pipelines["vision"]["inputs"]
        == pipelines["other"]["inputs"]
        == {"images": {"url": "gs://team", "digest": DIGEST}}
    )


@pytest.mark.parametrize(
    "inputs",
    [
        "      inputs:\n        of: &u gs://team\n        images: *u\n",
        "      inputs:\n        of: &u gs://team\n        images:\n          url: *u\n",
        "      inputs:\n        of: &u {images: gs://team}\n        <<: *u\n",
        "      inputs: {other: gs://team}\n",
        "",
    ],
)
def test_what_cannot_be_changed_in_place_stays_and_is_said(tmp_path: Path, inputs: str) -> None:
    file = file_of(tmp_path, inputs)
    before = file.read_bytes()
    with pytest.raises(ConfigError) as raised:
        change(file, {(*KEYS, "images"): {"digest": DIGEST}})
    assert "vision.inputs.images" in str(raised.value)
    assert DIGEST in str(raised.value)
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {file.name}
