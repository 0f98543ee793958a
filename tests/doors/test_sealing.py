"""What is refused before anything is sealed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_flamegate.errors import UndecidedError
from pytest_flamegate.measuring import Measuring
from pytest_flamegate.profile import Profile, Stack
from pytest_flamegate.profile.none import NoProfiler
from pytest_flamegate.progress import NoProgress
from pytest_flamegate.sealing import seal
from pytest_flamegate.workload.engines.base import Served
from pytest_flamegate.workload.spec import Workload
from tests.profile.profiles import profile, python


def pooled(samples: int, **changes: Any) -> Profile:
    stacks: dict[Stack, int] = {(python("rms_norm"),): samples}
    return profile(stacks, call_graph="python", **changes)


def measuring(directory: Path, *profiles: Profile) -> Measuring:
    workload = Workload(
        name="w",
        engine="python",
        prompt="p",
        max_tokens=1,
        source="test",
        directory=directory,
    )
    made = Measuring(workload, Served({}), NoProfiler(), 1.0, NoProgress())
    made.profiles.extend(profiles)
    return made


@pytest.mark.parametrize(
    ("samples", "code"), [((), "E_NO_SAMPLES"), ((199,), "E_FEW_SAMPLES"), ((1, 198), "E_FEW")]
)
def test_too_few_samples(tmp_path: Path, samples: tuple[int, ...], code: str) -> None:
    profiles = [pooled(count, complete=count) for count in samples]
    with pytest.raises(UndecidedError, match=code):
        _ = measuring(tmp_path, *profiles).profile


def test_decode_is_not_pooled_with_whole_processes(tmp_path: Path) -> None:
    whole, decode = (pooled(300, complete=300, covers=c) for c in ("process", "decode"))
    found = measuring(tmp_path, whole, decode, decode).profile
    assert found is not None
    assert (found.samples, found.covers) == (600, "decode")


def test_stacks_that_were_cut() -> None:
    taken = pooled(1000, complete=499)
    with pytest.raises(UndecidedError, match="E_STACKS_CUT"):
        seal(cast(Any, None), cast(Any, SimpleNamespace(profile=taken)))
