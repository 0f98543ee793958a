"""Fold what ``perf script`` printed: the package's own path from text to text.

python -m benchmarks.fold_script PERF_SCRIPT FOLDED
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from pytest_flamegate.profile.folded import fold_profile
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.profile.profilers.perf_script import BLOCK_BYTES, Script, parse_script


def profile_of(script: Script) -> Profile:
    """Return a profile of what was read; how it was taken is not in there."""
    return Profile(
        profiler="perf",
        profiler_version="",
        event="cpu-clock",
        rate_hz=0,
        call_graph="",
        python="",
        stacks=script.stacks,
        errors=0,
        lost=script.lost,
        complete=0,
        duration_ns=script.span_ns,
        pids=tuple(script.pids),
    )


def main(printed: Path, folded: Path) -> None:
    """Read one file, write the other."""
    with printed.open("rb") as stream:
        script = parse_script(iter(partial(stream.read, BLOCK_BYTES), b""))
    folded.write_text(fold_profile(profile_of(script)), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
