"""Small profiles for the tests of this room."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_flamegate.profile.model import Frame, Profile, Stack

DATA = Path(__file__).parent / "data"


def python(name: str, module: str = "engine.py") -> Frame:
    return Frame(name, module, "python")


def native(name: str, module: str = "libengine.so") -> Frame:
    return Frame(name, module, "native")


def system(name: str) -> Frame:
    return Frame(name, "kernel", "system")


def profile(stacks: dict[Stack, int], **changes: Any) -> Profile:
    plain = Profile(
        profiler="perf",
        profiler_version="6.1",
        event="cpu-clock",
        rate_hz=999,
        call_graph="dwarf,32768",
        python="3.11.7",
        stacks=stacks,
        complete=sum(stacks.values()),
        duration_ns=1_000_000_000,
        pids=(7,),
    )
    return replace(plain, **changes)
