"""Kubernetes quantities as numbers: CPU in millicores, memory and storage in MiB, durations in seconds."""

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from slipway.infra.platform import GPU_RESOURCE, Resources

CPU = re.compile(r"(?P<number>[0-9]{1,15}(\.[0-9]{1,3})?)(?P<unit>[mkM]?)")
BYTES = re.compile(r"(?P<number>[0-9]{1,18}(\.[0-9]{1,9})?)(?P<unit>[KMGTP]i?|k)?")
DURATION = re.compile(r"(?P<number>[1-9][0-9]{0,14})(?P<unit>[smhd])")
QUANTITY = re.compile(r"(?P<number>[0-9]{1,30}(\.[0-9]{1,9})?)(?P<unit>[numkMGTPE]|[KMGTPE]i)?")
NEARLY_BYTES = re.compile(r"(?P<number>[0-9]{1,15}(\.[0-9]{1,3})?) *(?P<unit>[kmgt])i?b?", re.IGNORECASE)
"""A size as people write it who do not think of Kubernetes: ``8GB``, ``8 gb``, ``512m``."""

NEARLY_CPU = re.compile(
    r"(?P<number>[0-9]{1,15}(\.[0-9]{1,3})?) *(?P<unit>m?)(i|(illi)? *v?(cpu|core)s?)?", re.IGNORECASE
)
"""The same of CPU: ``2000mi``, ``2 cores``, ``500 mCPU``."""

NEARLY_DURATION = re.compile(
    r"(?P<number>[0-9]{1,9}(\.[0-9]{1,3})?) *"
    r"((?P<unit>[smhdw])|(?P<word>sec(ond)?|min(ute)?|hr|hour|day|week)s?)(?![a-z])[ ,]*",
    re.IGNORECASE,
)
"""A part of a duration as people write it: ``1h`` of ``1h30m``, ``90 min``, ``1.5 hours``, ``2 weeks``."""

EXPONENT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?[eE]\+?[0-9]{1,2}")
"""A number with an exponent, which Kubernetes reads as a quantity, and Slipway does not."""

UNITS = {
    None: 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}
DECIMAL = (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0), ("m", -3), ("u", -6), ("n", -9))
"""Decimal suffixes of quantities and the powers of 10 that they stand for, the largest first."""

BINARY = (("Ei", 6), ("Pi", 5), ("Ti", 4), ("Gi", 3), ("Mi", 2), ("Ki", 1), ("", 0))
"""Binary suffixes of quantities and the powers of 1024 that they stand for, the largest first."""

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def cpu_millicores(quantity: str) -> int:
    """CPU such as ``500m``, ``2``, ``1.5`` or, of many nodes, ``2k`` in millicores.

    Raises ValueError for anything else.
    """
    match = CPU.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is not a CPU quantity such as 500m or 2")
    millicores = 1000 * Fraction(match["number"]) * Fraction(10) ** dict(DECIMAL)[match["unit"]]
    if millicores.denominator != 1:
        raise ValueError(f"{quantity!r} is not a whole number of millicores")
    return int(millicores)


def size_in_bytes(quantity: str) -> Fraction:
    """Memory or storage such as ``4Gi``, ``512Mi`` or ``10G`` in bytes. Raises ValueError for anything else."""
    match = BYTES.fullmatch(quantity)
    if match is None:
        raise ValueError(f"{quantity!r} is not a size such as 512Mi or 4Gi")
    return Fraction(match["number"]) * UNITS[match["unit"]]


def mebibytes(quantity: str) -> int:
    """Memory or storage such as ``4Gi``, ``512Mi`` or ``10G`` in whole MiB, rounded up.

    Raises ValueError for anything else.
    """
    return math.ceil(size_in_bytes(quantity) / 2**20)


def number_of(quantity: str) -> Fraction | None:
    """The number that a quantity is; None for text that is none, and for one with an exponent."""
    match = QUANTITY.fullmatch(quantity)
    if match is None:
        return None
    unit = match["unit"] or ""
    scale = Fraction(1024) ** dict(BINARY)[unit] if unit.endswith("i") else Fraction(10) ** dict(DECIMAL)[unit]
    # Nothing smaller than a billionth is kept: it counts as one.
    return Fraction(math.ceil(Fraction(match["number"]) * scale * 10**9), 10**9)


def canonical(quantity: str) -> str:
    """A quantity as the API server writes it: ``1Gi`` for ``1024Mi``, ``1`` for ``1000m``, ``1500m`` for ``1.5``.

    It has the largest suffix of its kind that leaves a whole number; what has no such binary suffix becomes a
    decimal quantity (`Quantity.CanonicalizeBytes` in pkg/api/resource/quantity.go of Kubernetes'
    apimachinery, seen November 2026). Text that is no quantity, or one with an exponent, is returned as it is.
    """
    value = number_of(quantity)
    if value is None:
        return quantity
    if not value:
        return "0"
    binary = quantity.endswith("i") and not value % 1024
    base, suffixes = (1024, BINARY) if binary else (10, DECIMAL)
    amounts = ((value / Fraction(base) ** power, suffix) for suffix, power in suffixes)
    return next(f"{amount.numerator}{suffix}" for amount, suffix in amounts if amount.denominator == 1)


def cpu_quantity(millicores: int) -> str:
    """CPU in millicores as the API server writes it."""
    return canonical(f"{millicores}m")


def size_quantity(mebibytes: int) -> str:
    """Memory or storage in MiB as the API server writes it."""
    return canonical(f"{mebibytes}Mi")


def meant_size(text: str) -> str | None:
    """The size that ``text`` nearly is, ``8Gi`` for ``8GB`` or ``8192Mi`` for ``8192``; None where nothing is."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return f"{text}Mi"
    if EXPONENT.fullmatch(text):
        return f"{math.ceil(Fraction(text) / 2**20)}Mi"
    match = NEARLY_BYTES.fullmatch(text.strip())
    return f"{match['number']}{match['unit'].upper()}i" if match else None


def meant_cpu(text: str) -> str | None:
    """The CPU that ``text`` nearly is: ``2000m`` for ``2000mi``, ``2`` for ``2 cores``; None for another text."""
    if EXPONENT.fullmatch(text):
        return canonical(f"{math.ceil(1000 * Fraction(text))}m")
    match = NEARLY_CPU.fullmatch(text.strip())
    return f"{match['number']}{match['unit'].lower()}" if match else None


def meant_duration(text: str) -> str | None:
    """The duration that ``text`` nearly is, ``90m`` for ``1h30m`` or ``1.5 hours``; None where nothing is."""
    parts = list(NEARLY_DURATION.finditer(text.strip()))
    if not parts or "".join(part.group() for part in parts) != text.strip():
        return None
    of = {**SECONDS, "w": 7 * SECONDS["d"]}
    length = math.ceil(
        sum(Fraction(part["number"]) * of[(part["unit"] or part["word"])[0].lower()] for part in parts)
    )
    unit = next((unit for unit in "dhm" if length % SECONDS[unit] == 0), "s")
    return f"{length // SECONDS[unit]}{unit}" if length else None


def seconds(duration: str) -> int:
    """A duration such as ``30m``, ``12h`` or ``7d`` in seconds. Raises ValueError for anything else."""
    match = DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"{duration!r} is not a duration such as 30m, 12h or 7d")
    return int(match["number"]) * SECONDS[match["unit"]]


def tiered(amount: float, tiers: Iterable[tuple[float, float]]) -> float:
    """The sum of each tier's share of the part of ``amount`` that lies in it; a tier is (upper end, share).

    By such tiers, nodes reserve a smaller share of their CPU and memory the larger they are.
    """
    total = lower = 0.0
    for upper, share in tiers:
        total += max(0.0, min(amount, upper) - lower) * share
        lower = upper
    return total


def amounts(quantities: Mapping[str, str]) -> Resources:
    """What a container's ``requests`` or ``limits`` come to. Raises ValueError for what is no quantity."""
    return Resources(
        cpu=cpu_millicores(quantities.get("cpu", "0")),
        memory=mebibytes(quantities.get("memory", "0")),
        ephemeral_storage=mebibytes(quantities.get("ephemeral-storage", "0")),
        gpus=int(quantities.get(GPU_RESOURCE, "0")),
    )
