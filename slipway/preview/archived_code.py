"""The files of an archive of code that several ConfigMaps hold together
(`slipway.infra.kubernetes.shipping.archive`).
"""

import base64
import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from slipway.infra.review.stack import mapping


def content_of(config_map: Mapping[str, Any], key: str) -> bytes:
    """What a ConfigMap with these properties holds at ``key``; nothing where it is not known or not base64."""
    text = mapping(config_map.get("data")).get(key)
    if isinstance(text, str):
        return text.encode()
    encoded = mapping(config_map.get("binaryData")).get(key)
    try:
        return base64.b64decode(encoded) if isinstance(encoded, str) else b""
    except ValueError:
        return b""


def members(parts: Sequence[bytes]) -> dict[str, str]:
    """The contents of the files by their paths, as a ConfigMap has them: text, or base64. Empty: no archive."""
    files: dict[str, str] = {}
    if not parts:
        return files
    try:
        with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None:
                    data = content.read()
                    try:
                        files[member.name] = data.decode()
                    except UnicodeDecodeError:
                        files[member.name] = base64.b64encode(data).decode()
    except tarfile.TarError:
        return {}
    return files
