"""What a cluster makes of a pod's requests."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.infra.platform import Pool, RequestRules, Resources

RULES = RequestRules(Resources(cpu=500, memory=512, ephemeral_storage=10), (1, 6.5))

POOL = Pool("spot", "batch", {}, [], Resources(30000, 110 * 1024, 10240), max_nodes=8)


@pytest.mark.parametrize(
    ("wanted", "admitted"),
    [
        (Resources(100, 256, 256), Resources(500, 512, 256)),
        (Resources(500, 512), Resources(500, 512, 10)),
        # A GiB is 1,024 MiB, and a CPU 1,000 millicores.
        (Resources(2000, 1024, 10), Resources(2000, 2048, 10)),
        (Resources(1000, 8192, 10), Resources(1231, 8192, 10)),
        (Resources(2000, 4096, 512, gpus=1), Resources(2000, 4096, 512, gpus=1)),
    ],
    ids=["too little", "the least", "too little memory", "too much memory", "as it is"],
)
def test_requests_are_raised_to_what_the_cluster_takes(wanted: Resources, admitted: Resources) -> None:
    assert RULES.admitted(wanted) == admitted


AMOUNTS = st.builds(
    Resources,
    cpu=st.integers(1, 30_000),
    memory=st.integers(1, 110_000),
    ephemeral_storage=st.integers(0, 10_240),
)


@given(AMOUNTS, st.sampled_from([(None, 1), ((1, 6.5), 1), ((4, 4), 250), ((1, 8), 250)]))
def test_what_was_raised_is_taken_as_it_is(wanted: Resources, how: tuple[tuple[float, float] | None, int]) -> None:
    """Otherwise the cluster would change it once more, behind the back of whoever declared it."""
    rules = RequestRules(RULES.least, *how)
    admitted = rules.admitted(wanted)
    assert admitted.cpu >= wanted.cpu
    assert admitted.memory >= wanted.memory
    assert admitted.cpu % rules.step == 0
    assert rules.admitted(admitted) == admitted


def test_a_pool_without_rules_takes_requests_as_they_are() -> None:
    wanted = Resources(100, 256, 256)
    assert POOL.admitted(wanted) == wanted
    assert replace(POOL, requests=RULES).admitted(wanted) != wanted
