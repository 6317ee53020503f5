"""Quantities as the API server writes them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.schema.quantities import (
    BINARY,
    DECIMAL,
    canonical,
    cpu_millicores,
    cpu_quantity,
    mebibytes,
    size_quantity,
)

SUFFIXES = {suffix: Fraction(10) ** power for suffix, power in DECIMAL} | {
    suffix: Fraction(1024) ** power for suffix, power in BINARY if suffix
}
"""Every suffix of a quantity, and what it stands for."""


def value(quantity: str) -> Fraction:
    number = quantity.rstrip("numkMGTPEKi")
    return Fraction(number) * SUFFIXES[quantity.removeprefix(number)]


@st.composite
def quantities(draw: st.DrawFn) -> str:
    whole, part = draw(st.integers(0, 10**12)), draw(st.sampled_from(["", ".5", ".25", ".001", ".100"]))
    suffix = draw(st.sampled_from([unit for unit in SUFFIXES if unit not in {"n", "u"} or not part]))
    return f"{whole}{part}{suffix}"


@given(quantities())
def test_a_canonical_quantity_has_the_same_value_and_stays_as_it_is(quantity: str) -> None:
    written = canonical(quantity)
    assert value(written) == value(quantity)
    assert canonical(written) == written
    assert "." not in written


@pytest.mark.parametrize(
    ("quantity", "written"),
    [
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("0.5Ki", "512"),
        ("1024", "1024"),
        ("1000", "1k"),
        ("2000k", "2M"),
        ("0Mi", "0"),
        ("12e6", "12e6"),
        ("all", "all"),
    ],
)
def test_a_quantity_is_written_as_the_api_server_writes_it(quantity: str, written: str) -> None:
    assert canonical(quantity) == written


@given(st.integers(0, 10**9))
def test_numbers_are_written_canonically(amount: int) -> None:
    cpu, size = cpu_quantity(amount), size_quantity(amount)
    assert (cpu, cpu_millicores(cpu)) == (canonical(cpu), amount)
    assert (size, value(size)) == (canonical(size), amount * 2**20)
    assert mebibytes(size) == amount
