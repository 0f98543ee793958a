"""Choose a profiler: the one that was asked for, else the first that sees the engine.

A profiler that was asked for by name and cannot sample is an error. ``auto`` takes the next one,
and ``explain_fallbacks`` says why. Once measuring has begun the profiler stays: samples of two
profilers cannot be pooled.
"""

from collections.abc import Callable, MutableMapping
from importlib import import_module

from pytest_flamegate.config.options import SAMPLERS
from pytest_flamegate.core.errors import ToolError, UsageError
from pytest_flamegate.profile.profilers.base import Probe, Profiler, Setup
from pytest_flamegate.profile.profilers.tools import try_profiler

AUTO, NONE = "auto", "none"
PROFILERS: dict[str, Callable[[Setup], Profiler]] = {
    name: import_module(f"{__name__}.{name.replace('-', '')}").make_profiler for name in SAMPLERS
}
"""A new profiler is a file here and its name in ``SAMPLERS``."""


def choose_profiler(
    requested: str, setup: Setup, probes: MutableMapping[str, Probe]
) -> Profiler | None:
    """Return the profiler to use; None if ``requested`` is ``none``.

    ``auto`` takes the first one that is usable and sees Python frames of a Python engine, or
    native ones of any other program; a profiler named by the user only has to be usable. A trial
    takes half a second. ``probes`` holds the results by name; those of new ones are added.

    Raises:
        UsageError: ``E_PROFILER_OPTION`` of the requested profiler.
        ToolError: ``E_NO_PROFILER`` if ``auto`` finds none, with the reason of each; the code of
            the probe if the requested profiler is unusable.
    """
    if requested == AUTO:
        return _choose_automatically(setup, probes)
    if requested == NONE:
        return None
    profiler = PROFILERS[requested](setup)
    probe = _probe(profiler, probes)
    if not probe.usable:
        raise ToolError(
            probe.code, f"{requested} cannot be used: {probe.reason.rstrip('.')}.", probe.remedy
        )
    return profiler


def explain_fallbacks(
    chosen: Profiler, setup: Setup, probes: MutableMapping[str, Probe]
) -> list[str]:
    """Return why ``auto`` took ``chosen``: one sentence for each profiler that failed first."""
    sentences = []
    for name in _order(setup):
        if name == chosen.name:
            break
        probe = probes.get(name)
        if probe is not None and not probe.usable:
            sentences.append(
                f"{probe.profiler} cannot be used, so {chosen.name} samples: {probe.code}: "
                f"{probe.reason.rstrip('.')}. {probe.remedy}"
            )
    return sentences


def _order(setup: Setup) -> list[str]:
    return list(PROFILERS) if setup.python_engine else list(PROFILERS)[::-1]


def _choose_automatically(setup: Setup, probes: MutableMapping[str, Probe]) -> Profiler:
    wanted = "Python" if setup.python_engine else "native"
    reasons, remedies = [], []
    for name in _order(setup):
        try:
            profiler = PROFILERS[name](setup)
        except UsageError as error:  # it lacks an option that was asked for
            reasons.append(f"{name}: {error.problem.rstrip('.')}")
            continue
        probe = _probe(profiler, probes)
        if probe.usable and (probe.sees_python if setup.python_engine else probe.sees_native):
            return profiler
        code = f"{probe.code}: " if probe.code else ""
        reason = probe.reason or f"sees no {wanted} frames here"
        reasons.append(f"{name}: {code}{reason.rstrip('.')}")
        if probe.remedy:
            remedies.append(f"{name}: {probe.remedy.rstrip('.')}.")
    raise ToolError(
        "E_NO_PROFILER",
        f"No profiler can see the {wanted} frames of this engine ({'; '.join(reasons)}).",
        " ".join([*remedies, "Or measure without profiles: --flamegate-profiler=none."]),
    )


def _probe(profiler: Profiler, probes: MutableMapping[str, Probe]) -> Probe:
    if profiler.name not in probes:
        probes[profiler.name] = try_profiler(profiler)
    return probes[profiler.name]
