"""``flamegate doctor``: what works on this machine, what does not, and what to type."""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_flamegate.commands import common
from pytest_flamegate.core.text import escape_name

if TYPE_CHECKING:
    from pytest_flamegate.profile.profilers.base import Probe, Setup


_GOOD, _BAD = "ok", "--"


def add(subparsers: common.Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("doctor", help="say what works here and how to mend the rest")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Try everything for real; 0 where at least one profiler works."""
    from pytest_flamegate.observe.machine import read_identity
    from pytest_flamegate.profile.profilers.base import Setup
    from pytest_flamegate.profile.profilers.callgrind import probe_callgrind
    from pytest_flamegate.profile.profilers.choose import make_profilers
    from pytest_flamegate.profile.profilers.errors import describe_permissions

    machine = read_identity()
    common.print_text(
        f"machine    {machine['cpu_model']}, {machine['cpu_cores']} cores, "
        f"{machine['os']} {machine.get('kernel', '')}, {machine['python']}"
    )
    made = make_profilers(Setup()).values()
    probes = {each.name: each.probe() for each in made}
    for probe in probes.values():
        for line in _probe_lines(probe):
            common.print_text(line)
    for line in _counts_lines(probe_callgrind()):
        common.print_text(line)
    common.print_text(f"{'allowed':<14} {describe_permissions()}")
    for name, good, words in (
        *_clocks(),
        _gpu(),
        *_bandwidth(),
        *_places(),
        _model(),
        *_found(),
        _signing(),
    ):
        common.print_text(f"{name:<10} {_GOOD if good else _BAD}  {words}")
    for kind, setup in (
        ("Python engines (the embedded one too)", Setup()),
        ("native commands", Setup(python_engine=False)),
    ):
        for line in _chosen(setup, probes):
            common.print_text(f"{kind}: {line}")
    return 0 if any(probe.usable for probe in probes.values()) else 5


def _chosen(setup: Setup, probes: dict[str, Probe]) -> list[str]:
    """Say which profiler a run takes, in the words of a run."""
    from pytest_flamegate.core.errors import FlamegateError
    from pytest_flamegate.profile.profilers.choose import choose_profiler, explain_fallbacks

    try:
        profiler = choose_profiler("auto", setup, probes)
        assert profiler is not None  # only "none" is
    except FlamegateError as error:
        return [
            "no profiler sees them here; tokens per second can still be gated: "
            "pytest --flamegate --flamegate-profiler=none",
            f"{error.code}: {error.problem}",
        ]
    probe = probes[profiler.name]
    seen = "Python" if setup.python_engine else "native"
    other = probe.sees_native if setup.python_engine else probe.sees_python
    unseen = "" if other else f"; {'native' if setup.python_engine else 'Python'} ones are not seen"
    return [
        f"a gate runs here: pytest --flamegate ({profiler.name} samples {seen} frames{unseen})",
        *explain_fallbacks(profiler, setup, probes),
    ]


def _places() -> list[tuple[str, bool, str]]:
    """Say whether recordings and artifacts can be written, and how much room there is."""
    from pytest_flamegate.profile.profilers.perf_data import DIRECTORY

    artifacts = common.read_settings(argparse.Namespace()).directory
    places = [("temporary", Path(tempfile.gettempdir())), ("artifacts", artifacts)]
    if sys.version_info >= (3, 13):
        places.append(("jitdump", DIRECTORY))  # CPython writes there what perf needs
    return [(name, *_place(path)) for name, path in places]


def _place(path: Path) -> tuple[bool, str]:
    """Write a file there, or where the directory would be made; say why where it cannot be."""
    try:
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"0" * 4096)
        free = shutil.disk_usage(there).free
    except OSError as error:
        return False, f"{escape_name(str(path), 300)} cannot be written: {error.strerror or error}"
    return True, f"{escape_name(str(path), 300)}, {free / 2**30:.1f} GiB free"


def _probe_lines(probe: Probe) -> list[str]:
    if probe.usable:
        sees = [
            w for w, yes in (("Python", probe.sees_python), ("native", probe.sees_native)) if yes
        ]
        words = f"{probe.version}, sees {' and '.join(sees)} frames, event {probe.event}"
        notes = [f"{'':<14} {note}" for note in probe.notes]
        return [f"{probe.profiler:<10} {_GOOD}  {words}", *notes]
    return [
        f"{probe.profiler:<10} {_BAD}  {probe.code}: {probe.reason}",
        f"{'':<14} {probe.remedy}",
    ]


def _counts_lines(probe: Probe) -> list[str]:
    """Say whether instructions can be counted: an extra signal, and no profile."""
    if probe.usable:
        good, words, more = _GOOD, f"{probe.version}, instruction counts available", probe.notes
    else:
        good, more = _BAD, (probe.remedy,)
        words = f"{probe.code}: no instruction counts: {probe.reason}"
    return [f"{probe.profiler:<10} {good}  {words}", *(f"{'':<14} {line}" for line in more)]


def _clocks() -> list[tuple[str, bool, str]]:
    import os

    from pytest_flamegate.core import clocks

    reading = clocks.read_clocks(os.getpid())
    delay = reading.run_delay_ns is not None
    pressure = clocks.read_cpu_pressure_pct()
    linux = sys.platform == "linux"
    return [
        (
            "platform",
            linux,
            "Linux: all clocks"
            if linux
            else f"{platform.system()}: CPU time only, no run delay, no bytes read, no perf",
        ),
        (
            "quiet",
            delay,
            "wall time less run delay"
            if delay
            else "the kernel tells no run delay (schedstat); CPU time is used instead",
        ),
        (
            "pressure",
            pressure is not None,
            f"{pressure:.0f} % of the last 10 s some task waited for a CPU"
            if pressure is not None
            else "the kernel tells no CPU pressure (/proc/pressure/cpu)",
        ),
    ]


def _gpu() -> tuple[str, bool, str]:
    from pytest_flamegate.observe.gpu_watch import DeviceWatch

    seen = DeviceWatch().observe([])
    missing = next(seen.find_missing(), None)
    if not seen.nodes and seen.kernel_driver is None:
        return "gpu", False, "no NVIDIA device: receipts say cpu"
    if missing is not None:
        return "gpu", False, f"{missing} Receipts say cpu; pip install 'pytest-flamegate[gpu]'"
    names = ", ".join(escape_name(device.name, 80) for device in seen.devices)
    return "gpu", True, f"{names}, driver {seen.kernel_driver}"


def _bandwidth() -> list[tuple[str, bool, str]]:
    """Say what was measured here before; measuring is no part of this."""
    from pytest_flamegate.observe.bandwidth import find_known_bandwidth

    known = find_known_bandwidth()
    return [] if known is None else [("memory", True, f"read at {known.describe()}")]


def _model() -> tuple[str, bool, str]:
    from pytest_flamegate.core.errors import FlamegateError
    from pytest_flamegate.engines.embedded import SHIPPED_MODEL
    from pytest_flamegate.models.gguf import read_header

    try:
        header = read_header(SHIPPED_MODEL)
    except FlamegateError as error:
        return "model", False, str(error)
    return "model", True, f"embedded, {header.parameters / 1e6:.1f} M parameters"


def _found() -> list[tuple[str, bool, str]]:
    """Say what a workload takes that uses {model} and {tokenizer} and names neither."""
    from pytest_flamegate.core.errors import FlamegateError
    from pytest_flamegate.core.files import path_text as shown
    from pytest_flamegate.models.discover import describe_model as glance
    from pytest_flamegate.models.discover import find_model, find_tokenizer

    directory = common.read_settings(argparse.Namespace()).root
    lines = []
    model = None
    try:
        model = find_model(None, directory)
        told = f"{escape_name(shown(model), 300)} ({glance(model)}) where none is declared"
        lines.append(("{model}", True, told))
    except FlamegateError as error:
        lines.append(("{model}", False, str(error)))
    try:
        tokenizer = find_tokenizer(directory, model)
        lines.append(("{tokenizer}", True, escape_name(shown(tokenizer), 300)))
    except FlamegateError as error:
        lines.append(("{tokenizer}", False, str(error)))
    return lines


def _signing() -> tuple[str, bool, str]:
    from pytest_flamegate.core.errors import FlamegateError

    try:
        from pytest_flamegate.receipt import keys  # noqa: F401 - to see whether it can be
    except FlamegateError as error:
        return "signing", False, str(error)
    return "signing", True, "Ed25519: flamegate keygen, sign, verify-receipt --key"
