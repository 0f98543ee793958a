from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.profile.profilers.errors import failure_error, read_permissions
from pytest_flamegate.profile.profilers.perf import KNOWN
from pytest_flamegate.profile.profilers.trial import COMMANDS, install_hint


def proc(root: Path, status: str, **sysctls: str) -> Path:
    (root / "self").mkdir()
    (root / "self/status").write_text(status)
    for name, text in sysctls.items():
        path = root / "sys/kernel" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_a_container_is_told_from_a_machine(tmp_path: Path) -> None:
    found = read_permissions(
        proc(
            tmp_path,
            "CapInh:\t0\nCapEff:\t0000004000080000\nSeccomp:\t2\n",
            perf_event_paranoid="3",
            yama__ptrace_scope="1",
        )
    )
    assert found.capabilities == frozenset({"CAP_PERFMON", "CAP_SYS_PTRACE"})
    assert found.words == (
        "kernel.perf_event_paranoid is 3, kernel.yama.ptrace_scope is 1, CAP_SYS_PTRACE is held, "
        "CAP_SYS_ADMIN is not held, CAP_PERFMON is held, a seccomp filter is in force"
    )


def test_what_the_kernel_does_not_say_is_not_made_up(tmp_path: Path) -> None:
    assert read_permissions(tmp_path).words == "the kernel does not say"
    assert (
        read_permissions(proc(tmp_path, "Seccomp:\tx\nCapEff:\tzz\n")).words
        == "the kernel does not say"
    )


def test_a_refusal_says_what_is_allowed_here() -> None:
    said = b"Access to performance monitoring and observability operations is limited."
    assert failure_error("perf", said, 255, KNOWN).remedy.endswith(
        f" Here {read_permissions().words}."
    )
    assert "Here " not in failure_error("perf", b"No space left on device", 255, KNOWN).remedy


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "apt install linux-perf"),
        ("NAME=x\nID=linuxmint\nID_LIKE='ubuntu debian'\n", "apt install linux-tools-$(uname -r)"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install perf"),
    ],
)
def test_the_command_is_that_of_the_distribution(
    release: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "os-release").write_text(release)
    assert install_hint("perf", tmp_path / "os-release") == f"Install it: {command}."


@pytest.mark.parametrize("release", ["ID=other\n", "ID='open\n", "", None])
def test_an_unknown_system_is_told_them_all(release: str | None, tmp_path: Path) -> None:
    if release is not None:
        (tmp_path / "os-release").write_text(release)
    told = install_hint("valgrind", tmp_path / "os-release")
    assert all(command in told for command in COMMANDS["valgrind"].values())
