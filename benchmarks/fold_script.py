"""Fold the output of ``perf script``: the package's own path from text to text.

python -m benchmarks.fold_script PERF_SCRIPT FOLDED
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.profile.model import Profile, Stack
from pytest_flamegate.profile.profilers.perf_data import CHUNK_BYTES, parse_script


def profile_of(stacks: Mapping[Stack, int]) -> Profile:
    """Return a profile with these stacks and nothing known of how they were sampled."""
    return Profile("perf", "", "cpu-clock", "", stacks)


def main(printed: Path, folded: Path) -> None:
    """Read one file, write the other."""
    with printed.open("rb") as stream:
        script = parse_script(iter(partial(stream.read, CHUNK_BYTES), b""))
    folded.write_text(fold_profile(profile_of(script.stacks)), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
