"""Which profiler samples: the one that was asked for, else the first that sees the engine.

One that was asked for and cannot is an error. Where ``auto`` goes by one that should have
done it, ``passed_over`` names it, and whoever takes the profile tells. Once measuring has
begun nobody takes over: half of a profile from one and half from another is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.profile.profilers import perf, pyspy
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence
    from pathlib import Path


REASON = "profiling was turned off"
TODO = "Choose a profiler with --flamegate-profiler, or leave it to auto."


@dataclass(frozen=True, slots=True)
class NoProfiler:
    """Stands where a profiler would; whoever asks it to sample is told why it does not."""

    name: str = "none"
    python_flags: tuple[str, ...] = ()
    rate_hz: int = 0

    def probe(self) -> Probe:
        """Say that profiling was turned off."""
        return Probe(
            profiler=self.name,
            version="",
            usable=False,
            sees_python=False,
            sees_native=False,
            code="E_NO_PROFILER",
            reason=REASON,
            remedy=TODO,
        )

    def attach(self, pid: int, directory: Path) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise _refusal()

    def wrap(self, argv: Sequence[str], directory: Path) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        raise _refusal()

    def parse(
        self,
        raw: Path,  # noqa: ARG002
        said: bytes = b"",  # noqa: ARG002
        window_ns: tuple[int, int] | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Refuse."""
        raise _refusal()


def make_no_profiler(setup: Setup) -> Profiler:  # noqa: ARG001
    """Return the profiler that samples nothing."""
    return NoProfiler()


def _refusal() -> ToolError:
    return ToolError("E_NO_PROFILER", "There is no profile: profiling was turned off.", TODO)


AUTO = "auto"
PROFILERS: dict[str, Callable[[Setup], Profiler]] = {
    "py-spy": pyspy.make_pyspy,
    "perf": perf.make_perf,
    "none": make_no_profiler,
}
"""A new profiler is a file and a line here. ``auto`` tries them in this order for Python
engines, and from the last to the first for native ones."""


def make_profilers(setup: Setup) -> dict[str, Profiler]:
    """Return every profiler, made for ``setup``."""
    return {name: make(setup) for name, make in PROFILERS.items()}


def choose_profiler(
    requested: str, setup: Setup, probes: MutableMapping[str, Probe] | None = None
) -> Profiler:
    """Return the profiler to use.

    ``auto`` takes the first that is usable and sees Python frames for a Python engine,
    native ones for any other program; a name takes that profiler if it is usable at
    all, and ``none`` always. ``probes`` is what is known already, by name; probes made
    here are added to it.

    Raises ``UsageError`` ``E_UNKNOWN_PROFILER``; ``ToolError`` with the code of the
    probe where the requested one is unusable, ``E_NO_PROFILER`` where ``auto`` finds none.
    """
    if probes is None:
        probes = {}
    if requested == AUTO:
        return _automatic(setup, probes)
    if requested not in PROFILERS:
        raise UsageError(
            "E_UNKNOWN_PROFILER",
            f"There is no profiler {requested!r}.",
            f"Use one of: {', '.join((AUTO, *PROFILERS))}.",
        )
    profiler = PROFILERS[requested](setup)
    if requested == "none":
        return profiler
    probe = _probe(profiler, probes)
    if not probe.usable:
        raise ToolError(
            probe.code, f"{requested} cannot be used: {probe.reason.rstrip('.')}.", probe.remedy
        )
    return profiler


def explain_fallbacks(
    chosen: Profiler, setup: Setup, probes: MutableMapping[str, Probe]
) -> list[str]:
    """Return why ``auto`` took ``chosen``: one sentence for each that failed before it."""
    told = []
    for name in _in_order(setup):
        if name == chosen.name:
            break
        probe = probes.get(name)
        if probe is not None and not probe.usable:
            told.append(
                f"{probe.profiler} cannot be used, so {chosen.name} samples: {probe.code}: "
                f"{probe.reason.rstrip('.')}. {probe.remedy}"
            )
    return told


def _in_order(setup: Setup) -> list[str]:
    known = [name for name in PROFILERS if name != "none"]
    return known if setup.python_engine else known[::-1]


def _automatic(setup: Setup, probes: MutableMapping[str, Probe]) -> Profiler:
    wanted = "Python" if setup.python_engine else "native"
    reasons, todos = [], []
    for name in _in_order(setup):
        try:
            profiler = PROFILERS[name](setup)
        except UsageError as error:  # it cannot sample in the way that was asked for
            reasons.append(f"{name}: {error.problem.rstrip('.')}")
            continue
        probe = _probe(profiler, probes)
        if probe.usable and (probe.sees_python if setup.python_engine else probe.sees_native):
            return profiler
        code = f"{probe.code}: " if probe.code else ""
        reasons.append(f"{name}: {code}{probe.reason or f'sees no {wanted} frames here'}")
        if probe.remedy:
            todos.append(f"{name}: {probe.remedy}")
    raise ToolError(
        "E_NO_PROFILER",
        f"No profiler can see the {wanted} frames of this engine ({'; '.join(reasons)}).",
        " ".join([*todos, "Or go without: --flamegate-profiler=none."]),
    )


def _probe(profiler: Profiler, probes: MutableMapping[str, Probe]) -> Probe:
    if profiler.name not in probes:
        probes[profiler.name] = profiler.probe()
    return probes[profiler.name]
