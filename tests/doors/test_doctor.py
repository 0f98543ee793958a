"""The doctor says what a run says, and of instruction counts, which are no profile."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.cli import main
from pytest_flamegate.commands.doctor import _bandwidth
from pytest_flamegate.core import process
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.observe import bandwidth
from pytest_flamegate.observe.bandwidth import Bandwidth
from pytest_flamegate.observe.gpu import DeviceNode, ObservedDevices
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.profile.profilers import callgrind
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.profile.profilers.choose import choose_profiler
from pytest_flamegate.profile.profilers.permissions import read_permissions
from tests.receipt.gpu import gpu_run

SAMPLES = Probe("perf", "6.1", usable=True, sees_python=True, sees_native=True)
COUNTS = Probe(
    "callgrind", "3.19.0", usable=True, sees_python=False, sees_native=True, notes=("noted",)
)
NO_COUNTS = Probe(
    "callgrind",
    "",
    usable=False,
    sees_python=False,
    sees_native=False,
    code="E_PROFILER_ABSENT",
    reason="no program valgrind on PATH",
    remedy="Install it: apt install valgrind",
)


class One:
    def __init__(self, seen: Probe) -> None:
        self.name = seen.profiler
        self.seen = seen

    def made(self, _: Setup) -> Any:
        return self

    def probe(self) -> Probe:
        return self.seen


def offer(monkeypatch: pytest.MonkeyPatch, *known: One) -> None:
    """Let these be all profilers that there are."""
    # In place of the table, not in it: put back one by one its entries would change their order.
    module = import_module("pytest_flamegate.profile.profilers.choose")
    monkeypatch.setattr(module, "PROFILERS", {one.name: one.made for one in known})


def said(
    samples: Probe,
    counts: Probe,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, list[str]]:
    offer(monkeypatch, One(samples))
    monkeypatch.setattr(callgrind, "probe_callgrind", lambda: counts)
    code = main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("callgrind"))
    return code, [" ".join(line.split()) for line in lines[at : at + 2]]


@pytest.mark.parametrize(
    ("counts", "lines"),
    [
        (COUNTS, ["callgrind ok 3.19.0, instruction counts available", "noted"]),
        (
            NO_COUNTS,
            [
                "callgrind -- E_PROFILER_ABSENT: no instruction counts: "
                "no program valgrind on PATH",
                "Install it: apt install valgrind",
            ],
        ),
    ],
)
def test_counts_are_available_or_not(
    counts: Probe,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert said(SAMPLES, counts, monkeypatch, capsys) == (0, lines)


def test_counts_alone_are_no_profiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Probe("perf", "", usable=False, sees_python=False, sees_native=False)
    assert said(nothing, COUNTS, monkeypatch, capsys)[0] == 5


DENIED = Probe(
    "py-spy",
    "0.4.3",
    usable=False,
    sees_python=False,
    sees_native=False,
    code="E_PROFILER_DENIED",
    reason="Permission Denied: Try running again.",
    remedy="Type: sudo sysctl kernel.yama.ptrace_scope=0.",
)


def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *seen: Probe
) -> str:
    offer(monkeypatch, *map(One, seen))
    monkeypatch.setattr(callgrind, "probe_callgrind", lambda: COUNTS)
    main(["doctor"])
    return capsys.readouterr().out


def test_a_profiler_that_steps_in_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = doctor(monkeypatch, capsys, DENIED, SAMPLES)
    assert f"py-spy     --  E_PROFILER_DENIED: {DENIED.reason}\n" in text
    assert (
        "engines (the embedded one too): py-spy cannot be used, so perf samples: "
        "E_PROFILER_DENIED: Permission Denied: Try running again. Type: sudo sysctl" in text
    )


def test_where_nothing_sees_the_engine_it_says_what_a_run_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = doctor(monkeypatch, capsys, DENIED)
    with pytest.raises(ToolError, match="E_NO_PROFILER") as refused:
        choose_profiler("auto", Setup(), {"py-spy": DENIED})
    assert refused.value.problem in text


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (ObservedDevices(), "gpu -- no NVIDIA device: receipts say cpu"),
        (
            ObservedDevices(
                nodes=(DeviceNode("/dev/nvidia0", 0),), control=True, kernel_driver="550.54"
            ),
            "gpu -- NVML, the driver's library, told no version. Receipts say cpu; "
            "pip install 'pytest-flamegate[gpu]'",
        ),
        (gpu_run().evidence.device, "gpu ok NVIDIA H100 80GB HBM3, driver 550.54.15"),
    ],
    ids=["none", "no library", "one"],
)
def test_a_gpu_is_told_in_one_line(
    seen: ObservedDevices,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(DeviceWatch, "seen", lambda *_: seen)
    told = doctor(monkeypatch, capsys, SAMPLES).splitlines()
    assert [" ".join(each.split()) for each in told if each.startswith("gpu ")] == [line]


def test_a_place_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nflamegate_dir = taken/here\n")
    (tmp_path / "taken").touch()
    monkeypatch.chdir(tmp_path)
    text = doctor(monkeypatch, capsys, SAMPLES)
    (line,) = [line for line in text.splitlines() if line.startswith("artifacts")]
    assert line.endswith("taken/here cannot be written: Not a directory")
    assert read_permissions().describe() in text


def test_a_place_that_has_an_impossible_name_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nflamegate_dir = {'x' * 5000}\n")
    monkeypatch.chdir(tmp_path)
    assert "cannot be written: File name too long" in doctor(monkeypatch, capsys, SAMPLES)


def test_a_bandwidth_is_told_where_it_was_measured_and_not_measured_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(process, "run", None)
    assert _bandwidth() == []
    known = Bandwidth(20e9, 18e9, 15e9, 1 << 27, 9, 1, "")
    monkeypatch.setattr(bandwidth, "find_known_bandwidth", lambda: known)
    ((name, good, words),) = _bandwidth()
    assert (name, good) == ("memory", True)
    assert words.startswith("read at 20.0 GB/s by 1 thread")
