"""What is refused before anything is sealed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.profile import Stack
from pytest_flamegate.sealing import seal
from tests.profile.profiles import profile, python


@pytest.mark.parametrize(
    ("samples", "complete", "code"),
    [(0, 0, "E_NO_SAMPLES"), (199, 199, "E_FEW_SAMPLES"), (1000, 499, "E_STACKS_CUT")],
)
def test_a_profile_that_says_too_little(samples: int, complete: int, code: str) -> None:
    stacks: dict[Stack, int] = {(python("rms_norm"),): samples} if samples else {}
    pooled = profile(stacks, call_graph="python", complete=complete)
    with pytest.raises(UndecidedError, match=code):
        seal(cast(Any, None), cast(Any, SimpleNamespace(profile=pooled)))
