import pytest

from pytest_flamegate.child.embedded import transformer
from pytest_flamegate.engines.gguf import SHIPPED_MODEL


@pytest.fixture(scope="session")
def model() -> transformer.Transformer:
    return transformer.load(SHIPPED_MODEL)
