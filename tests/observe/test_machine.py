"""The identity of a machine, and the vector instructions of its CPU."""

from __future__ import annotations

import platform

import pytest

from pytest_flamegate.observe import machine
from pytest_flamegate.observe.machine import find_instruction_set


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("fpu sse2 avx avx2 avx512f", "AVX-512"),
        ("fpu sse2 avx avx2", "AVX2"),
        ("fp asimd crc32", "NEON"),
        ("half thumb neon", "NEON"),
        ("fpu sse2", "scalar"),
    ],
)
def test_widest_instructions(monkeypatch: pytest.MonkeyPatch, flags: str, name: str) -> None:
    monkeypatch.setattr(machine, "_cpu", lambda: ("model", flags))
    assert find_instruction_set() == name


@pytest.mark.parametrize(("arch", "name"), [("arm64", "NEON"), ("x86_64", "")])
def test_without_flags_only_arm_is_known(
    monkeypatch: pytest.MonkeyPatch, arch: str, name: str
) -> None:
    monkeypatch.setattr(machine, "_cpu", lambda: ("model", ""))
    monkeypatch.setattr(platform, "machine", lambda: arch)
    assert find_instruction_set() == name
