"""Setup of all tests: Hypothesis, and the lanes in which pytest-xdist runs them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.commands.asked import Command

# A plain install lacks Hypothesis, and pytest --help in a clone reads this file.
with suppress(ModuleNotFoundError):
    from hypothesis import settings

    # An example may take long on a busy machine; that is no defect of the code under test. The same
    # examples run every time; .ci/nightly draws new ones with --hypothesis-profile=random.
    settings.register_profile("flamegate", deadline=None, derandomize=True)
    settings.register_profile("random", deadline=None)
    settings.load_profile("flamegate")

# Settings of this run must not reach the code under test: not pytest's own options, and not the
# variables by which flamegate recognises CI and takes its options.
for _name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_ADDOPTS"):
    os.environ.pop(_name, None)
# BLAS reads this when NumPy is imported first: helper threads spin, and gain nothing here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# No file of these tests has to survive a crash of the machine; the tests of what a crash leaves
# start processes of their own.
os.fsync = lambda _: None  # type: ignore[assignment]
# A shell starts background jobs with SIGINT ignored; tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that must end with a given exit code, and returns its output."""
    from tests.commands.asked import Command

    return Command(capsys)


MEASURES = "measures"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Under ``-n N`` distribute tests by ``find_lane``, in the order in which workers have them."""
    config.option.loadscopereorder = False
    # xdist would mark the items of a group only if --dist was given to the worker too.
    config.option.loadgroup = True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = find_lane
    return scheduler


def find_lane(nodeid: str) -> str:
    """Return the lane of a test: the tests of a lane run on one worker.

    Two measurements at the same time would disturb each other. A module's fixtures are made once
    if its tests stay together.
    """
    return MEASURES if nodeid.endswith(f"@{MEASURES}") else nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what measures for its lane; on a worker the longest lanes come first.

    These are the one that measures, and then the modules with the most tests. One that writes
    files counts as ten: a long module that began last would leave the other worker idle.
    """
    measuring = {item for item in items if item.get_closest_marker(MEASURES) is not None}
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in measuring:
            _name_lane(item)
        sizes = Counter[str]()
        for item in items:
            writes_files = "tmp_path" in getattr(item, "fixturenames", ())
            sizes[find_lane(item.nodeid)] += 10 if writes_files else 1
        items.sort(key=lambda item: (item not in measuring, -sizes[find_lane(item.nodeid)]))


def _name_lane(item: pytest.Item) -> None:
    """Have the test's id end with its lane: all that a worker tells the scheduler are ids."""
    try:
        from _pytest.nodeid import coerce_node_id
    except ImportError:  # before pytest 9.2 xdist does it, for the tests of a group
        item.add_marker(pytest.mark.xdist_group(MEASURES))
    else:
        item._id = coerce_node_id(f"{item.nodeid}@{MEASURES}")
