"""The limits of this machine, and the commands that install a profiler."""

from __future__ import annotations

from pathlib import Path

from pytest_flamegate.profile.profilers.base import unused_path
from pytest_flamegate.profile.profilers.tools import (
    describe_permissions,
    failure_error,
)


def write_proc(root: Path, status: str, **sysctls: str) -> Path:
    (root / "self").mkdir()
    (root / "self/status").write_text(status)
    for name, text in sysctls.items():
        path = root / "sys/kernel" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_the_limits_of_a_container(tmp_path: Path) -> None:
    status = "CapInh:\t0\nCapEff:\t0000004000080000\nSeccomp:\t2\n"
    proc = write_proc(tmp_path, status, perf_event_paranoid="3", yama__ptrace_scope="1")
    assert describe_permissions(proc) == (
        "kernel.perf_event_paranoid is 3, kernel.yama.ptrace_scope is 1, CAP_SYS_PTRACE is held, "
        "CAP_SYS_ADMIN is not held, CAP_PERFMON is held, a seccomp filter is in force"
    )


def test_a_limit_that_the_kernel_does_not_report_is_left_out(tmp_path: Path) -> None:
    unknown = "the kernel does not report its limits"
    assert describe_permissions(tmp_path) == unknown
    proc = write_proc(tmp_path, "Seccomp:\tx\nCapEff:\tzz\n")
    assert describe_permissions(proc) == unknown


def test_a_denied_profiler_says_what_is_allowed_here() -> None:
    denied = b"Access to performance monitoring and observability operations is limited."
    allowed = f" Here {describe_permissions()}."
    assert failure_error("perf", denied, 255).remedy.endswith(allowed)
    full = failure_error("perf", b"No space left on device", 255)
    assert "Here " not in full.remedy


def test_no_recording_takes_the_place_of_another(tmp_path: Path) -> None:
    first = unused_path(tmp_path / "new", "perf", ".data")
    first.touch()
    second = unused_path(tmp_path / "new", "perf", ".data")
    assert first != second
    assert not second.exists()
