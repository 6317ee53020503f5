"""How much code and data travels to pods in ConfigMaps, and what is said of more."""

from collections.abc import Mapping

LIMIT = 1024 * 1024
"""Most bytes that the values of one ConfigMap may have together ("cannot exceed 1 MiB",
kubernetes.io/docs/concepts/configuration/configmap, seen November 2026)."""

MEBIBYTE = 1024 * 1024

MOST_CODE = 8 * MEBIBYTE
"""Most bytes of code. Pulumi's state has each ConfigMap twice, as input and as output, in base64: some 21 MiB,
which every update reads and writes."""

SHOWN = 5
"""How many of the biggest files, or of the wrong ones, an error names."""


class ShippingError(Exception):
    """Files that cannot be shipped: ``value`` is what there is, ``reason`` why not, ``fix`` what to do."""

    def __init__(self, value: object, reason: str, fix: str) -> None:
        self.value = value
        self.reason = reason
        self.fix = fix
        super().__init__(f"{value}: {reason}; {fix}")


def require_fit(sizes: Mapping[str, int], alternative: str) -> None:
    """Raises ShippingError, which names the biggest files, where they are more than one ConfigMap holds.

    ``sizes`` are in bytes, ``alternative`` is what to do with bigger ones.
    """
    _require(sizes, LIMIT, f"a ConfigMap holds at most {LIMIT} bytes", f"make them smaller, or {alternative}")


def require_room(sizes: Mapping[str, int]) -> None:
    """Raises ShippingError, which names the biggest files, where they are more code than travels."""
    _require(
        sizes,
        MOST_CODE,
        f"a step ships at most {MOST_CODE // MEBIBYTE} MiB",
        "put data into the store and read it from there, name a smaller folder as `code`, or have an image built "
        "with them: `build`",
    )


def _require(sizes: Mapping[str, int], most: int, limit: str, fix: str) -> None:
    total = sum(sizes.values())
    if total <= most:
        return
    biggest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    names = ", ".join(f"{path} ({size} bytes)" for path, size in biggest)
    raise ShippingError(f"{total} bytes", f"{limit}; the biggest files are {names}", fix)
