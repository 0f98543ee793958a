"""What holds for all tests."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from tests.sharing import together

# A busy machine takes its time over an example; that is no defect of what is tested.
settings.register_profile("flamegate", settings(deadline=None))
settings.load_profile("flamegate")

# How this run was asked for is no matter of the runs that tests start.
os.environ.pop("PYTEST_ADDOPTS", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under ``-n N`` spread the tests by what must stay together, whatever ``--dist`` says."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Together(config, log)
