"""How the tests are divided among workers."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/offline/rehearsal/test_end_to_end.py", "tests/test_invariants.py")
"""Modules whose tests share what takes long to make; each runs on one worker, all other tests on any."""


class Scheduling(LoadScopeScheduling):
    """Groups the tests of some modules.

    pytest-xdist's own groups (`xdist_group`) do nothing under pytest 9.2, whose node ids it can no longer write to
    (pytest-xdist 3.8.0, November 2026).
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return module if module in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Called by pytest-xdist once there are workers."""
    return Scheduling(config, log)
