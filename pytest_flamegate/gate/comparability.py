"""May two evidences be compared at all? Field by field, each difference with its code."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_flamegate.config import thresholds
from pytest_flamegate.gate.statistics import mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.gate.measurement import Measurement
    from pytest_flamegate.receipt.types import Evidence


ABSENT = "absent"

# Where a workload was declared and how long it may take does not change what runs;
# the model is compared by its content, the environment by what was requested, and a
# build or an injection is the change under test.
IGNORED_WORKLOAD_FIELDS = frozenset(
    {
        "name",
        "source",
        "directory",
        "timeout_s",
        "thresholds",
        "build",
        "injection",
        "model",
        "tokenizer",
        "env",
    }
)
_PROFILER_FIELDS = ("profiler", "event", "rate_hz", "call_graph")


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field in which two sides differ, as text, and the code of the refusal."""

    field: str
    baseline: str
    current: str
    code: str

    @property
    def message(self) -> str:
        """One sentence that names the field and both values."""
        return f"{self.field} differs: {self.baseline} at the baseline, {self.current} now."


@dataclass(frozen=True, slots=True)
class Comparability:
    """Whether two sides may be compared, and every difference that forbids it."""

    differences: tuple[FieldDifference, ...] = ()

    @property
    def comparable(self) -> bool:
        """True where nothing that matters differs."""
        return not self.differences


COMPARABLE = Comparability()
"""Nothing differs."""


def compare(baseline: Evidence, current: Evidence) -> Comparability:
    """Compare everything that must be equal for times and shares to mean the same.

    Differences come in the order in which they matter to a reader: workload, model,
    tokens, machine, environment, clock, formulas, Python, profiler.
    """
    return Comparability(
        (
            *_workload(baseline, current),
            *_model(baseline, current),
            *_tokens(baseline, current),
            *machine_differences(baseline, current),
            *_mapping(
                "environment",
                baseline.requested_environment,
                current.requested_environment,
                "E_ENVIRONMENT_DIFFERS",
            ),
            *_clock(baseline, current),
            *_formulas(baseline, current),
            *_profiler(baseline, current),
        )
    )


def engine_differences(baseline: Evidence, current: Evidence) -> tuple[FieldDifference, ...]:
    """Return what the two sides' engines say of themselves in different words.

    It forbids no comparison: another version of a library may be the very change under test.
    """
    return tuple(_mapping("engine", baseline.engine, current.engine, "I_ENGINE_DIFFERS"))


def _workload(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    old, new = (
        {key: value for key, value in side.workload.items() if key not in IGNORED_WORKLOAD_FIELDS}
        for side in (baseline, current)
    )
    return _mapping("workload", old, new, "E_WORKLOAD_DIFFERS")


def _model(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    old, new = baseline.model_sha256, current.model_sha256
    for found in _field("model sha256", old, new, "E_MODEL_DIFFERS", width=12):
        before, after = (
            text if sha256 is None else f"{text} ({_shortened(_plain(side.model.get('path')))})"
            for text, sha256, side in (
                (found.baseline, old, baseline),
                (found.current, new, current),
            )
        )
        yield replace(found, baseline=before, current=after)


def _tokens(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    code = "E_TOKENS_DIFFER"
    yield from _field("token source", baseline.token_source, current.token_source, code)
    if baseline.token_digest == current.token_digest and baseline.tokens == current.tokens:
        return
    old, new = baseline.tokens, current.tokens
    for index in range(max(len(old), len(new))):
        before = repr(old[index]) if index < len(old) else "the end"
        after = repr(new[index]) if index < len(new) else "the end"
        if before != after:
            yield FieldDifference(f"token {index}", _shortened(before), _shortened(after), code)
            break
    yield FieldDifference(
        "token digest", baseline.token_digest[:12], current.token_digest[:12], code
    )


def machine_differences(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    """Yield every field of the machine's identity in which the two sides differ."""
    for name in sorted({*baseline.machine, *current.machine}):
        old, new = baseline.machine.get(name), current.machine.get(name)
        if name == "python":
            yield from _python(old, new)
        else:
            yield from _field(f"machine {name}", old, new, "E_MACHINE_DIFFERS")


def _python(old: str | None, new: str | None) -> Iterator[FieldDifference]:
    before, after = (version and _python_minor(version) for version in (old, new))
    return _field("Python", before, after, "E_PYTHON_DIFFERS")


def _clock(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    code = "E_CLOCK_DIFFERS"
    yield from _field("clock scope", baseline.clock_scope, current.clock_scope, code)
    yield from _field("run delay", _run_delay(baseline), _run_delay(current), code)
    yield from _field("reference kernel", _reference(baseline), _reference(current), code)


def _run_delay(evidence: Evidence) -> str:
    """Say whether the quiet clock was wall time less run delay, or CPU time."""
    seen = {
        block.interval.run_delay_ns is not None
        for run in evidence.runs
        if run.role == "timed"
        for block in run.blocks
    }
    return _some_all_none(seen)


def _reference(evidence: Evidence) -> str:
    seen = {
        block.reference is not None
        for run in evidence.runs
        if run.role == "timed"
        for block in run.blocks
    }
    return _some_all_none(seen)


def _some_all_none(seen: set[bool]) -> str:
    if not seen:
        return ABSENT
    if len(seen) == 2:
        return "in some blocks"
    return "measured" if seen.pop() else "not measured"


def _formulas(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    """Compare how figures of the same name were computed."""
    # The gate alone is imported without the verifier, which the receipts' package brings along.
    from pytest_flamegate.receipt.formulas import differing_formulas

    for each in differing_formulas(baseline.metrics, current.metrics):
        yield from _field(f"{each.field} of {each.second.name}", *each.values, each.code)


def _profiler(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    code = "E_PROFILER_DIFFERS"
    old, new = baseline.profile, current.profile
    if old is None or new is None:
        yield from _field(
            "profiler", old.profiler if old else None, new.profiler if new else None, code
        )
        return
    if baseline.machine.get("python") == current.machine.get("python"):
        yield from _python(old.python, new.python)  # else the machine has said so
    for name in _PROFILER_FIELDS:
        yield from _field(
            name if name == "profiler" else f"profiler {name}",
            getattr(old, name),
            getattr(new, name),
            code,
        )


def _python_minor(version: str) -> str:
    """Cut a Python version after its minor number: patches do not change frames or speed."""
    match = re.match(r"(\D*\d+\.\d+)(?:\.\d+)?", version)
    return match[1] + version[match.end() :] if match else version


def _mapping(
    kind: str, old: Mapping[str, object], new: Mapping[str, object], code: str
) -> Iterator[FieldDifference]:
    for name in sorted({*old, *new}):
        yield from _field(f"{kind} {name}", old.get(name), new.get(name), code)


def _field(
    field: str, old: object, new: object, code: str, width: int = 60
) -> Iterator[FieldDifference]:
    before, after = _plain(old), _plain(new)
    if before != after:
        yield FieldDifference(field, *_told_apart(before, after, width), code)


def _plain(value: object) -> str:
    """Text of a value that is the same before and after a trip through JSON."""
    if value is None:
        return ABSENT
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(repr(_plain(item)) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_plain(value[key])!r}" for key in sorted(value)) + "}"
    return str(value)


def _told_apart(before: str, after: str, width: int) -> tuple[str, str]:
    """Shorten two texts from where they begin to differ, so that the difference shows."""
    start = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    skip = start - 10 if start > width - 10 else 0
    return tuple(  # type: ignore[return-value]
        ("…" if skip else "") + _shortened(text[skip:], width) for text in (before, after)
    )


def _shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


MAX_CPU_PRESSURE_PCT = thresholds.MAX_CPU_PRESSURE_PCT
REFERENCE_LIMIT = 0.3
"""Beyond this change of its log time the machine is in another state altogether."""

TRANSIENT_CODES = frozenset({"E_CPU_PRESSURE", "E_REFERENCE_OFF"})
"""Differences that may go away when more is measured."""


def condition_differences(
    baseline: Measurement, current: Measurement
) -> tuple[FieldDifference, ...]:
    """Return how the state of the machine differed between two stored measurements.

    ``E_CPU_PRESSURE`` where the CPUs were contended on one side only: contention on
    both sides is spread that the statistics see. ``E_REFERENCE_OFF`` where the fixed
    reference kernel itself changed speed by more than ``REFERENCE_LIMIT``: then the ratio
    to it cannot be trusted either. A smaller change widens the interval instead.
    """
    return (*_pressure(baseline, current), *_reference_conditions(baseline, current))


def _pressure(baseline: Measurement, current: Measurement) -> Iterator[FieldDifference]:
    old, new = baseline.cpu_pressure_pct, current.cpu_pressure_pct
    if old is None or new is None:
        return
    if (old > MAX_CPU_PRESSURE_PCT) != (new > MAX_CPU_PRESSURE_PCT):
        yield FieldDifference("CPU pressure", f"{old:.0f} %", f"{new:.0f} %", "E_CPU_PRESSURE")


def reference_shift(baseline: Measurement, current: Measurement) -> float | None:
    """Return the change of the reference kernel's log time, None without one on both sides."""
    old, new = (
        [math.log(p.reference_s) for p in side.timed if p.reference_s is not None]
        for side in (baseline, current)
    )
    return mean(new) - mean(old) if old and new else None


def _reference_conditions(baseline: Measurement, current: Measurement) -> Iterator[FieldDifference]:
    shift = reference_shift(baseline, current)
    if shift is None or abs(shift) <= REFERENCE_LIMIT:
        return
    old, new = (
        1e3 * math.exp(mean([math.log(p.reference_s) for p in side.timed if p.reference_s]))
        for side in (baseline, current)
    )
    yield FieldDifference(
        "speed of the reference kernel", f"{old:.3f} ms", f"{new:.3f} ms", "E_REFERENCE_OFF"
    )


MACHINE_ID_FIELDS = ("cpu_model", "cpu_cores", "arch", "cpu_flags_sha256")
"""Fields of the machine identity that the id depends on; the others are compared, not named."""

_NOISE_WORDS = frozenset({"cpu", "processor", "core", "cores", "with", "graphics", "r", "tm"})
_MAX_WORDS = 3
_UNKNOWN = "unknown"


def machine_id(identity: Mapping[str, str]) -> str:
    """Return a stable, filesystem-safe name of the machine class, like ``amd-epyc-2c-3f9a1c``.

    Depends on ``MACHINE_ID_FIELDS`` alone, so a kernel update keeps the name (and is
    then reported as a difference). An absent field counts as ``unknown``.
    """
    known = {name: identity.get(name, "").strip() or _UNKNOWN for name in MACHINE_ID_FIELDS}
    canonical = "\n".join(f"{name}={known[name]}" for name in MACHINE_ID_FIELDS)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    cores = re.sub(r"[^0-9]", "", known["cpu_cores"], flags=re.ASCII)[:6] or "x"
    return "-".join([*_model_words(known["cpu_model"]), f"{cores}c", digest])


def _model_words(model: str) -> list[str]:
    """Return the first telling words of a CPU's marketing name."""
    plain = re.sub(r"\((?:r|tm|c)\)", " ", model.lower())
    plain = plain.split("@")[0]
    words = [word for word in re.split(r"[^a-z0-9]+", plain) if word]
    telling = [
        word for word in words if word not in _NOISE_WORDS and not re.fullmatch(r"\d+core", word)
    ]
    return [word[:16] for word in telling[:_MAX_WORDS]] or [_UNKNOWN]
