"""Blocks of addresses, as a stack file has them."""

import pytest
from pydantic import TypeAdapter, ValidationError

from slipway.infra.schema.base import Cidr


@pytest.mark.parametrize(("address", "block"), [("203.0.113.7", "203.0.113.7/32"), ("10.0.0.0", "10.0.0.0/20")])
def test_an_address_alone_is_refused_with_a_block_that_is_one(address: str, block: str) -> None:
    known = TypeAdapter[str](Cidr)
    assert known.validate_python(block) == block
    with pytest.raises(ValidationError) as refused:
        known.validate_python(address)
    assert f"`{block}`" in refused.value.errors()[0]["ctx"]["fix"]
