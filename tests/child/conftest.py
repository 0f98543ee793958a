from __future__ import annotations

import os

import pytest

from pytest_flamegate.child.embedded import transformer
from pytest_flamegate.engines.embedded import SHIPPED_MODEL

# One thread, as in a measured run: BLAS helper threads spin and gain nothing here.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def model() -> transformer.Transformer:
    return transformer.load(SHIPPED_MODEL)
