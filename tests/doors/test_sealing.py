"""What is refused before anything is sealed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.core.progress import NoProgress
from pytest_flamegate.engines.base import Served
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Run
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.profile.model import Profile, Stack
from pytest_flamegate.profile.profilers.choose import NoProfiler
from pytest_flamegate.run import seal as run_seal
from pytest_flamegate.run.measure import Measuring
from pytest_flamegate.run.seal import seal
from tests.made import bundle
from tests.profile.profiles import profile, python


@dataclass(frozen=True)
class Seen:
    """As much of an observation as is looked through."""

    runs: tuple[Run, ...]


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
        seal(
            cast(Any, SimpleNamespace(look=None, stamps=())),
            cast(Any, SimpleNamespace(profile=taken)),
        )


def test_reports_hold_no_secret() -> None:
    secret = "k3-9fQ7xW2mVb8Rt5"
    told = Report(f"log {secret}", {"tokens": 4.0, f"{secret}_ms": 1.0}, {f"a_{secret}": 2, "b": 1})
    triple = bundle()
    runs = (replace(triple.evidence.runs[0], reported=(told,)), *triple.evidence.runs[1:])
    seen = cast(Any, Seen(runs))
    redactor = Redactor.of({"API_TOKEN": secret})
    clean = run_seal.of_reports(seen, redactor)
    (report,) = clean.runs[0].reported
    assert report == Report(
        "log redacted", {"tokens": 4.0, "redacted_ms": 1.0}, {"a_redacted": 2, "b": 1}
    )
    assert redactor.places == ["evidence.runs.reported"]
    assert clean.runs[1:] == runs[1:]


def test_reports_without_a_secret_stay_the_very_same() -> None:
    seen = cast(Any, Seen(bundle().with_reports(kernels={"MUL_MAT": 3}).evidence.runs))
    redactor = Redactor.of({"API_TOKEN": "k3-9fQ7xW2mVb8Rt5"})
    assert run_seal.of_reports(seen, redactor) is seen
    assert redactor.places == []


def test_kernels_that_differ_in_a_secret_alone_count_together() -> None:
    secrets = ("k3-9fQ7xW2mVb8Rt5", "Zz81-kLmPq04-77tY")
    told = Report("log", {}, {f"gemv_{secret}": 2 for secret in secrets})
    run = replace(bundle().evidence.runs[0], reported=(told,))
    redactor = Redactor.of(dict(zip(("A_TOKEN", "B_TOKEN"), secrets, strict=True)))
    clean = run_seal.of_reports(cast(Any, Seen((run,))), redactor)
    assert clean.runs[0].reported[0].kernels == {"gemv_redacted": 4}
