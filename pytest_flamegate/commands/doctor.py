"""``flamegate doctor``: which instruments work on this machine, and how to enable the others."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.config.thresholds import MAX_CPU_PRESSURE_PCT
from pytest_flamegate.core import clocks
from pytest_flamegate.core.errors import FlamegateError, ToolError, reason_of
from pytest_flamegate.core.files import path_text
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.engines.gguf import SHIPPED_MODEL
from pytest_flamegate.models.discover import describe_model, find_model, find_tokenizer, read_model
from pytest_flamegate.observe.gpu_watch import DeviceWatch
from pytest_flamegate.observe.machine import find_known_bandwidth, read_identity
from pytest_flamegate.profile import profilers
from pytest_flamegate.profile.profilers import choose_profiler, explain_fallbacks
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.profile.profilers.callgrind import probe_callgrind
from pytest_flamegate.profile.profilers.perf_data import DIRECTORY
from pytest_flamegate.profile.profilers.tools import describe_permissions, try_profiler

Check = tuple[str, bool, str]
"""One line: what was checked, whether it works, and the details."""


def run(parsed: argparse.Namespace) -> int:
    """Try every instrument; 0 if at least one profiler works."""
    if parsed.ci is not None:
        from pytest_flamegate.commands import ci  # the machine's instruments need none of it

        return ci.run(parsed.ci)
    machine = read_identity()
    common.print_text(
        f"machine    {machine['cpu_model']}, {machine['cpu_cores']} cores, "
        f"{machine['os']} {machine.get('kernel', '')}, {machine['python']}"
    )
    probes = {name: try_profiler(make(Setup())) for name, make in profilers.PROFILERS.items()}
    for probe in probes.values():
        kinds = (("Python", probe.sees_python), ("native", probe.sees_native))
        frames = " and ".join(kind for kind, is_seen in kinds if is_seen)
        _print_probe(probe, f"{probe.version}, sees {frames} frames, event {probe.event}")
    counts = probe_callgrind()
    _print_probe(counts, f"{counts.version}, instruction counts available", "no instruction counts")
    common.print_text(f"{'allowed':<14} {describe_permissions()}")
    known = find_known_bandwidth()  # of an earlier run: measuring takes too long for this
    for name, is_good, details in (
        *_check_clocks(),
        _check_gpu(),
        *([("memory", True, f"read at {known.describe()}")] if known is not None else []),
        *_check_directories(),
        _check_embedded_model(),
        *_check_model_search(),
        _check_signing(),
    ):
        common.print_text(f"{name:<10} {'ok' if is_good else '--'}  {details}")
    for kind, setup in (
        ("Python engines (the embedded one too)", Setup()),
        ("native commands", Setup(python_engine=False)),
    ):
        for line in _describe_choice(setup, probes):
            common.print_text(f"{kind}: {line}")
    return 0 if any(probe.usable for probe in probes.values()) else ToolError.exit_code


def _print_probe(probe: Probe, details: str, missing: str = "") -> None:
    """Print one line for an instrument, and its notes or its remedy below."""
    more = probe.notes if probe.usable else (probe.remedy,)
    if not probe.usable:
        details = ": ".join(part for part in (probe.code, missing, probe.reason) if part)
    common.print_text(f"{probe.profiler:<10} {'ok' if probe.usable else '--'}  {details}")
    for line in more:
        common.print_text(f"{'':<14} {line}")


def _describe_choice(setup: Setup, probes: dict[str, Probe]) -> list[str]:
    """Return the profiler that a run would take, in the words of a run."""
    try:
        profiler = choose_profiler("auto", setup, probes)
    except FlamegateError as error:
        return [
            f"{error.problem} Tokens per second can still be gated: "
            "pytest --flamegate --flamegate-profiler=none"
        ]
    assert profiler is not None  # only "none" gives no profiler
    probe = probes[profiler.name]
    seen, other = ("Python", "native") if setup.python_engine else ("native", "Python")
    sees_other = probe.sees_native if setup.python_engine else probe.sees_python
    unseen = "" if sees_other else f"; {other} ones are not seen"
    return [
        f"a gate runs here: pytest --flamegate ({profiler.name} samples {seen} frames{unseen})",
        *explain_fallbacks(profiler, setup, probes),
    ]


def _check_clocks() -> list[Check]:
    has_delay = clocks.read_clocks(os.getpid()).run_delay_ns is not None
    no_delay = "the kernel reports no run delay (schedstat); CPU time is used instead"
    pressure_pct = clocks.read_cpu_pressure_pct()
    is_calm = False
    pressure = "the kernel reports no CPU pressure (/proc/pressure/cpu)"
    if pressure_pct is not None:
        is_calm = pressure_pct <= MAX_CPU_PRESSURE_PCT
        pressure = f"{pressure_pct:.0f} % of the last 10 s some task waited for a CPU"
        pressure += "" if is_calm else "; end other programs before you measure"
    return [
        ("quiet", has_delay, "wall time less run delay" if has_delay else no_delay),
        ("pressure", is_calm, pressure),
    ]


def _check_gpu() -> Check:
    devices = DeviceWatch().observe([])
    missing = next(devices.find_missing(), None)
    if not devices.nodes and devices.kernel_driver is None:
        return "gpu", False, "no NVIDIA device: receipts say cpu"
    if missing is not None:
        return "gpu", False, f"{missing} Receipts say cpu; pip install 'pytest-flamegate[gpu]'"
    names = ", ".join(escape_name(device.name, 80) for device in devices.devices)
    return "gpu", True, f"{names}, driver {devices.kernel_driver}"


def _check_directories() -> list[Check]:
    artifacts = common.read_settings(argparse.Namespace()).directory
    directories = [("temporary", Path(tempfile.gettempdir())), ("artifacts", artifacts)]
    if sys.version_info >= (3, 13):
        directories.append(("jitdump", DIRECTORY))  # CPython writes there for perf
    return [(name, *_check_directory(path)) for name, path in directories]


def _check_directory(path: Path) -> tuple[bool, str]:
    """Write a file to ``path``, or to the closest directory above it that exists."""
    shown = escape_name(str(path), 300)
    try:
        existing = next(each for each in (path, *path.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"0" * 4096)
        free_bytes = shutil.disk_usage(existing).free
    except OSError as error:
        return False, f"{shown} cannot be written: {reason_of(error)}"
    return True, f"{shown}, {free_bytes / 2**30:.1f} GiB free"


def _check_embedded_model() -> Check:
    try:
        parameters = read_model(SHIPPED_MODEL).parameters
    except FlamegateError as error:
        return "model", False, str(error)
    return "model", True, f"embedded, {parameters / 1e6:.1f} M parameters"


def _check_model_search() -> list[Check]:
    """Return the model and tokenizer of a workload that uses the placeholders and names neither."""
    directory = common.read_settings(argparse.Namespace()).root
    model, checks = None, []
    try:
        model = find_model(None, directory)
        details = f"{escape_name(path_text(model), 300)} ({describe_model(model)})"
        checks.append(("{model}", True, f"{details} if none is declared"))
    except FlamegateError as error:
        checks.append(("{model}", False, _describe_unfound("{model}", error)))
    try:
        tokenizer = find_tokenizer(directory, model)
        checks.append(("{tokenizer}", True, escape_name(path_text(tokenizer), 300)))
    except FlamegateError as error:
        checks.append(("{tokenizer}", False, _describe_unfound("{tokenizer}", error)))
    return checks


def _describe_unfound(placeholder: str, error: FlamegateError) -> str:
    """Return one line: most projects need neither, and a run that does has the whole error."""
    return f"none to choose ({error.code}); needed only if a command has {placeholder}"


def _check_signing() -> Check:
    try:
        from pytest_flamegate.receipt import keys  # noqa: F401 - raises without cryptography
    except FlamegateError as error:
        return "signing", False, str(error)
    return "signing", True, "Ed25519: flamegate keygen, sign, verify-receipt --key"
