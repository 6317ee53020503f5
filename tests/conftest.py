"""How the tests are divided among workers, and what keeps them quick."""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.checkout import copy_checkout

# What a shell starts in the background, as `nohup make test &`, ignores Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine, whatever runs beside a test decides how long it takes.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

pytest_plugins = ["tests.support.trained"]

TOGETHER = (
    "tests/docs/test_rehearsals.py",
    "tests/infra/kubernetes/image_builds/test_build.py",
    "tests/engine/evaluation/test_worker.py",
    "tests/preview/test_changes.py",
    "tests/preview/test_cli.py",
    "tests/preview/test_platform_and_team.py",
    "tests/preview/test_revisions.py",
    "tests/rehearse/machine/test_programs.py",
    "tests/rehearse/output/test_comparison.py",
    "tests/rehearse/output/test_report.py",
    "tests/rehearse/apps/test_demo_of_mnist.py",
    "tests/rehearse/test_end_to_end.py",
    "tests/rehearse/test_examples.py",
    "tests/engine/test_all_stacks.py",
    "tests/test_architecture.py",
    "tests/test_invariants.py",
    "tests/test_new_pipeline.py",
    "tests/test_newcomer.py",
    "tests/test_own_project.py",
    "tests/workloads/fraud/",
    "tests/features/notebook/",
    "tests/features/page/test_browser.py",
    "tests/features/serving/test_publish.py",
    "tests/workloads/resnet/test_measure.py",
    "tests/workloads/mnist/test_predict.py",
)
"""Modules and folders whose tests share what takes long, or one place of the machine; each runs on one worker, all
other tests on any.
"""

ALL_MARKED = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", re.MULTILINE)
"""The marker that a module gives to all its tests, which stands first."""


class Scheduling(LoadScopeScheduling):
    """Groups the tests of some modules.

    pytest-xdist's own groups (`xdist_group`) do nothing under pytest 9.2, whose node ids it can no longer write to
    (pytest-xdist 3.8.0, November 2026).
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in TOGETHER if nodeid.startswith(start)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Called by pytest-xdist once there are workers."""
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves modules unread of which the Makefile's expression of markers takes no test.

    Their imports take longer than many quick tests; several import TensorFlow.
    """
    wanted = str(config.getoption("markexpr"))
    if not wanted or not collection_path.match("test_*.py"):
        return None
    content = collection_path.read_text(encoding="utf-8")
    if wanted == "long":
        return "pytest.mark.long" not in content or None
    marked = ALL_MARKED.search(content)
    return (marked is not None and f"not {marked[1]}" in wanted.split(" and ")) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage during the imports, which make millions of objects that stay: a fifth of their time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Lets Python look for garbage less often, and never among the millions of objects of the imported SDKs.

    It takes a third of an evaluation's time otherwise.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


OF_STEPS = {"TF_USE_LEGACY_KERAS", "TF_CPP_MIN_LOG_LEVEL"} - os.environ.keys()
"""Variables that a step sets where it prepares its process."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, as a new clone would be, with what make installs already there."""
    return copy_checkout(tmp_path_factory.mktemp("checkout") / "slipway")


@pytest.fixture(autouse=True)
def no_step_was_prepared() -> Iterator[None]:
    """Takes back what a step did that ran in this process, and not in one of its own.

    Steps keep Keras from importing scikit-learn, and TensorFlow from importing Keras: programs that later tests
    start would inherit that.
    """
    yield
    if sys.modules.get("sklearn", pytest) is None:
        del sys.modules["sklearn"]
    for name in OF_STEPS:
        os.environ.pop(name, None)
