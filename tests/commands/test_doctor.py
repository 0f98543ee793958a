"""``flamegate doctor``: the machine and its instruments, with the words of a run."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_flamegate.commands import doctor as doctor_command
from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.observe.gpu import DeviceNode, ObservedDevices
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.observe.machine import Bandwidth
from pytest_flamegate.profile.profilers import choose_profiler
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.profile.profilers.tools import describe_permissions
from tests.commands.asked import Captured, ask
from tests.models.gguf_files import write_large_model
from tests.receipt.gpu import gpu_run

SAMPLES = Probe("perf", "6.1", usable=True, sees_python=True, sees_native=True)
COUNTS = replace(SAMPLES, profiler="callgrind", version="3.19.0", notes=("noted",))
NO_COUNTS = replace(
    COUNTS,
    usable=False,
    code="E_PROFILER_ABSENT",
    reason="no program valgrind on PATH",
    remedy="Install it: apt install valgrind",
)
DENIED = replace(
    SAMPLES,
    profiler="py-spy",
    usable=False,
    code="E_PROFILER_DENIED",
    reason="Permission Denied: Try running again.",
    remedy="Type: sudo sysctl kernel.yama.ptrace_scope=0.",
)

Doctor = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Doctor:
    """Return a function that runs the command on a machine with these profilers."""

    def run(*probes: Probe, counts: Probe = COUNTS) -> tuple[int, str]:
        # The table is replaced, not changed: its order decides which profiler is preferred.
        table = {
            each.profiler: lambda _, each=each: SimpleNamespace(
                name=each.profiler, probe=lambda: each
            )
            for each in probes
        }
        module = import_module("pytest_flamegate.profile.profilers")
        monkeypatch.setattr(module, "PROFILERS", table)
        for place in (module, doctor_command):
            monkeypatch.setattr(place, "try_profiler", lambda profiler: profiler.probe())
        monkeypatch.setattr(doctor_command, "probe_callgrind", lambda: counts)
        code = ask("doctor")
        return code, "\n".join(
            " ".join(line.split()) for line in capsys.readouterr().out.splitlines()
        )

    return run


def test_this_machine_is_described(project: Path, capsys: Captured) -> None:
    before = sorted(project.iterdir())
    assert ask("doctor") in (0, 5)
    starts = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert {"machine", "py-spy", "perf", "quiet", "pressure", "model"} <= starts
    assert {"allowed", "temporary", "artifacts", "Python", "native"} <= starts
    assert sorted(project.iterdir()) == before


def test_python_engines_and_native_commands_have_a_line_each(doctor: Doctor) -> None:
    for python, native in ((True, False), (False, True), (True, True)):
        code, text = doctor(replace(SAMPLES, sees_python=python, sees_native=native))
        assert code == 0
        for kind, is_seen in (("Python eng", python), ("native c", native)):
            line = next(line for line in text.splitlines() if line.startswith(kind))
            assert ("a gate runs here" in line) is is_seen
            assert ("--flamegate-profiler=none" in line) is not is_seen


def test_instruction_counts_are_available_or_not(doctor: Doctor) -> None:
    assert "callgrind ok 3.19.0, instruction counts available\nnoted" in doctor(SAMPLES)[1]
    assert (
        "callgrind -- E_PROFILER_ABSENT: no instruction counts: no program valgrind on PATH\n"
        "Install it: apt install valgrind" in doctor(SAMPLES, counts=NO_COUNTS)[1]
    )


def test_without_any_profiler_it_prints_what_a_run_prints(doctor: Doctor) -> None:
    """Instruction counts are no profile: they do not help."""
    code, text = doctor(DENIED)
    assert code == 5
    with pytest.raises(ToolError, match="E_NO_PROFILER") as raised:
        choose_profiler("auto", Setup(), {"py-spy": DENIED})
    assert raised.value.problem in text
    assert "--flamegate-profiler=none" in text
    assert doctor()[0] == 5


def test_a_profiler_that_replaces_another_is_reported_with_the_reason(doctor: Doctor) -> None:
    _, text = doctor(DENIED, SAMPLES)
    assert f"py-spy -- E_PROFILER_DENIED: {DENIED.reason}\n" in text
    assert (
        "engines (the embedded one too): py-spy cannot be used, so perf samples: "
        "E_PROFILER_DENIED: Permission Denied: Try running again. Type: sudo sysctl" in text
    )


def test_a_gpu_has_one_line(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    no_library = ObservedDevices(
        (DeviceNode("/dev/nvidia0", 0),), control=True, kernel_driver="550.54"
    )
    for seen, line in (
        (ObservedDevices(), "gpu -- no NVIDIA device: receipts say cpu"),
        (no_library, "gpu -- NVML, the driver's library, reported no version. Receipts say cpu; "
                     "pip install 'pytest-flamegate[gpu]'"),
        (gpu_run().evidence.device, "gpu ok NVIDIA H100 80GB HBM3, driver 550.54.15"),
    ):  # fmt: skip
        monkeypatch.setattr(DeviceWatch, "observe", lambda *_, seen=seen: seen)
        text = doctor(SAMPLES)[1]
        assert [each for each in text.splitlines() if each.startswith("gpu ")] == [line]


def test_an_artifact_directory_that_cannot_be_written_is_reported(
    doctor: Doctor, project: Path
) -> None:
    (project / "taken").touch()
    for directory, reason in (
        ("taken/here", "Not a directory"), ("x" * 5000, "File name too long")
    ):  # fmt: skip
        (project / "pytest.ini").write_text(f"[pytest]\nflamegate_dir = {directory}\n")
        text = doctor(SAMPLES)[1]
        (line,) = [line for line in text.splitlines() if line.startswith("artifacts")]
        assert line.endswith(f" cannot be written: {reason}")
        assert describe_permissions() in text


def test_the_bandwidth_is_printed_if_it_is_known_and_a_busy_machine_is_not_ok(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "\nmemory " not in doctor(SAMPLES)[1]
    known = Bandwidth(20e9, 512 << 20, 9, 1, 0.0)
    monkeypatch.setattr(doctor_command, "find_known_bandwidth", lambda: known)
    for pressure_pct, line in (
        (3.0, "pressure ok 3 % of the last 10 s"),
        (99.0, "pressure -- 99 % of the last 10 s"),
        (None, "pressure -- the kernel reports no CPU pressure"),
    ):
        monkeypatch.setattr(clocks, "read_cpu_pressure_pct", lambda pct=pressure_pct: pct)
        text = doctor(SAMPLES)[1]
        assert f"\n{line}" in text
        assert "\nmemory ok read at 20.0 GB/s by 1 thread" in text


def test_the_model_is_named_or_one_line_says_who_needs_one(
    project: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(project / "hub"))

    def lines() -> list[str]:
        return [line for line in doctor()[1].splitlines() if line.startswith("{")]

    model, tokenizer = lines()
    # Most projects need neither: the places that were searched are in the error of a run.
    assert model == (
        "{model} -- none to choose (E_MODEL_MISSING); needed only if a command has {model}"
    )
    assert tokenizer == (
        "{tokenizer} -- none to choose (E_TOKENIZER_MISSING); needed only if a command has "
        "{tokenizer}"
    )
    (project / "models").mkdir()
    write_large_model(project / "models/large.gguf")
    assert lines() == [
        f"{{model}} ok {project}/models/large.gguf (2.2 GB, Q4_0) if none is declared",
        f"{{tokenizer}} ok {project}/models/large.gguf",
    ]
