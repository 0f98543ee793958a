"""May two measurements be compared at all? Field by field, each difference with its code."""

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_flamegate.config.thresholds import MAX_CPU_PRESSURE_PCT
from pytest_flamegate.core.errors import find_remedy
from pytest_flamegate.core.text import first_difference, shorten
from pytest_flamegate.gate.measurement import Measurement
from pytest_flamegate.gate.rule import FieldDifference, Reason
from pytest_flamegate.gate.throughput import mean_reference_log, reference_shift
from pytest_flamegate.observe.observation import Block, find_other_answers
from pytest_flamegate.receipt.metrics import differing_formulas
from pytest_flamegate.receipt.types import Evidence

ABSENT = "absent"

# The place of a declaration and a time limit do not change what runs; the model is compared by
# its content, the environment by the variables requested, and a build or an injection is the
# change under test.
IGNORED_WORKLOAD_FIELDS = (
    *("name", "source", "directory", "timeout_s", "thresholds"),
    *("build", "injection", "model", "tokenizer", "env"),
)
OWN_WORKLOAD_FIELDS = ("build", "command", "target", "serve", "health")
"""How a program is built and started: each side of a pair has its own."""
_WIDTH = 60
_PROFILER_FIELDS = ("profiler", "event", "rate_hz", "call_graph")
REFERENCE_LIMIT = 0.3
"""A larger change of the reference kernel's log time means another state of the machine."""

_OUTPUT_AT_ONCE = (
    "The tokens of one side were read one by one, those of the other all at once, in one run at "
    "least: flush the output alike on both, and let the decode take longer than 2 ms."
)
_PAIRED_REMEDY = "Both sides must do the same work in the same way; only the code may differ."
_PAIRED_TOKENS = (
    "Other tokens are other work: restore the output. If it is meant and as long as before, a "
    "required check takes it, not compared, after flamegate accept."
)


def difference_reasons(
    differences: Sequence[FieldDifference], *, paired: bool
) -> tuple[Reason, ...]:
    """Return one reason for each difference; the last one of a code has the remedy."""
    last = {each.code: number for number, each in enumerate(differences)}
    reasons = []
    for number, each in enumerate(differences):
        message = each.describe("base" if paired else "baseline")
        if last[each.code] == number:
            remedy = _PAIRED_REMEDY if paired else find_remedy(each.code)
            if paired and each.code == "E_TOKENS_DIFFER":
                remedy = _PAIRED_TOKENS
            if {each.baseline, each.current} == {"decode-tokens/decode-time", "tokens/total"}:
                remedy = _OUTPUT_AT_ONCE
            message += f" {remedy}"
        reasons.append(Reason(each.code, message))
    return tuple(reasons)


def compare(
    baseline: Evidence, current: Evidence, *, paired: bool = False
) -> tuple[FieldDifference, ...]:
    """Compare every field that must be equal for times and shares to mean the same.

    Differences come in the order in which they matter to a reader: workload, model, tokens,
    machine, environment, clock, formulas, profiler. The sides of a pair may be built and started
    in different ways.
    """
    ignored = {*IGNORED_WORKLOAD_FIELDS, *(OWN_WORKLOAD_FIELDS if paired else ())}
    old, new = (
        {key: value for key, value in side.workload.items() if key not in ignored}
        for side in (baseline, current)
    )
    builds = [side.program.build for side in (baseline, current) if paired and side.program]
    unused = {name for build in builds if build for name in build.environment}
    return (
        *_compare_mappings("workload", old, new, "E_WORKLOAD_DIFFERS"),
        *_compare_models(baseline, current),
        *_compare_tokens(baseline, current),
        *machine_differences(baseline, current),
        *_compare_mappings(
            "environment",
            _without(unused, baseline.requested_environment),
            _without(unused, current.requested_environment),
            "E_ENVIRONMENT_DIFFERS",
        ),
        *_compare_clocks(baseline, current),
        *_compare_formulas(baseline, current),
        *_compare_profilers(baseline, current),
    )


def _without(unused: Collection[str], variables: Mapping[str, str]) -> dict[str, str]:
    # Earlier versions set that of VECLIB; macOS alone reads it.
    names = variables.keys() - {"VECLIB_MAXIMUM_THREADS", *unused}
    return {name: variables[name] for name in names}


def find_copy(baseline: Evidence, current: Evidence) -> Reason | None:
    """Return the error of a comparison of something with itself: it could only pass."""
    times = {run.blocks for run in baseline.runs if run.blocks}
    shared = [run.pid for run in current.runs if run.blocks in times]
    threads = {(run.wall_ns, run.lanes) for run in baseline.bricks}
    shared += [run.pid for run in current.bricks if (run.wall_ns, run.lanes) in threads]
    if baseline.nonce != current.nonce and not shared:
        return None
    same = f"both carry the nonce {current.nonce!r}"
    if shared:
        same = f"process {shared[0]} took the same times in both to the nanosecond"
    copied = f"The baseline was copied from the run that it is to judge: {same}."
    return Reason.advise("E_COPIED_BASELINE", copied)


def engine_differences(baseline: Evidence, current: Evidence) -> tuple[FieldDifference, ...]:
    """Return the differences between the versions that the two engines report.

    They forbid no comparison: another version of a library may be the very change under test.
    """
    return tuple(_compare_mappings("engine", baseline.engine, current.engine, "I_ENGINE_DIFFERS"))


def _compare_models(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    old, new = baseline.model_sha256, current.model_sha256
    for difference in _compare_values("model sha256", old, new, "E_MODEL_DIFFERS", width=12):
        before, after = (
            text if sha256 is None else f"{text} ({shorten(_plain(model.get('path')), _WIDTH)})"
            for text, sha256, model in (
                (difference.baseline, old, baseline.model),
                (difference.current, new, current.model),
            )
        )
        yield replace(difference, baseline=before, current=after)


def _compare_tokens(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    yield from _compare_values(
        "token source", baseline.token_source, current.token_source, "E_FORMULA_DIFFERS"
    )
    code = "E_TOKENS_DIFFER"
    if baseline.token_digest == current.token_digest and baseline.tokens == current.tokens:
        for one, other in find_other_answers(baseline.answers, current.answers)[:1]:
            name = f"answer to prompt {one.prompt + 1}"
            yield FieldDifference(name, one.digest[:12], other.digest[:12], code)
        return
    old, new = baseline.tokens, current.tokens
    if old != new:
        at = first_difference(old, new)
        before, after = (
            shorten(repr(side[at]), _WIDTH) if at < len(side) else "the end" for side in (old, new)
        )
        yield FieldDifference(f"token {at}", before, after, code)
        return
    # Only the listed tokens are equal: those of another sequence differ.
    yield FieldDifference(
        "token digest", baseline.token_digest[:12], current.token_digest[:12], code
    )


def machine_differences(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    """Yield every field of the machine's identity in which the two sides differ."""
    for name in sorted({*baseline.machine, *current.machine}):
        old, new = baseline.machine.get(name), current.machine.get(name)
        if name == "python":
            yield from _compare_pythons(old, new)
        else:
            yield from _compare_values(f"machine {name}", old, new, "E_MACHINE_DIFFERS")


def _compare_pythons(old: str | None, new: str | None) -> Iterator[FieldDifference]:
    # Patches do not change frames or speed.
    before, after = (re.sub(r"^(\D*\d+\.\d+)\.\d+", r"\1", text or "") for text in (old, new))
    return _compare_values("Python", before or old, after or new, "E_MACHINE_DIFFERS")


def _compare_clocks(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    code = "E_CLOCK_DIFFERS"
    yield from _compare_values("clock scope", baseline.clock_scope, current.clock_scope, code)
    # With a run delay the adjusted clock is wall time less that delay, else CPU time.
    for field, is_measured in (
        ("run delay", lambda block: block.interval.run_delay_ns is not None),
        ("reference kernel", lambda block: block.reference is not None),
    ):
        old, new = (_describe_presence(side, is_measured) for side in (baseline, current))
        yield from _compare_values(field, old, new, code)


def _describe_presence(evidence: Evidence, is_measured: Callable[[Block], bool]) -> str:
    blocks = (block for run in evidence.timed for block in run.blocks)
    observed = {is_measured(block) for block in blocks}
    if not observed:
        return ABSENT
    if len(observed) == 2:
        return "in some blocks"
    return "measured" if observed.pop() else "not measured"


def _compare_formulas(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    """Compare how figures of the same name were computed."""
    for each in differing_formulas(baseline.metrics, current.metrics):
        yield from _compare_values(f"{each.field} of {each.names[1]}", *each.values, each.code)


def _compare_profilers(baseline: Evidence, current: Evidence) -> Iterator[FieldDifference]:
    code = "E_PROFILER_DIFFERS"
    old, new = baseline.profile, current.profile
    if old is None or new is None:
        yield from _compare_values(
            "profiler", old.profiler if old else None, new.profiler if new else None, code
        )
        return
    if baseline.machine.get("python") == current.machine.get("python"):
        yield from _compare_pythons(old.python, new.python)  # else the machine has said so
    for name in _PROFILER_FIELDS:
        yield from _compare_values(
            name if name == "profiler" else f"profiler {name}",
            getattr(old, name),
            getattr(new, name),
            code,
        )


def _compare_mappings(
    kind: str, old: Mapping[str, object], new: Mapping[str, object], code: str
) -> Iterator[FieldDifference]:
    for name in sorted({*old, *new}):
        yield from _compare_values(f"{kind} {name}", old.get(name), new.get(name), code)


def _compare_values(
    field: str, old: object, new: object, code: str, width: int = _WIDTH
) -> Iterator[FieldDifference]:
    before, after = _plain(old), _plain(new)
    if before != after:
        yield FieldDifference(field, *_shorten_both(before, after, width), code)


def _plain(value: object) -> str:
    """Return a value as text that is the same before and after a trip through JSON."""
    if value is None:
        return ABSENT
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(repr(_plain(item)) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_plain(value[key])!r}" for key in sorted(value)) + "}"
    return str(value)


def _shorten_both(before: str, after: str, width: int) -> tuple[str, str]:
    """Shorten two texts to the part in which they begin to differ."""
    start = first_difference(before, after)
    skip = start - 10 if start > width - 10 else 0
    ellipsis = "…" if skip else ""
    return ellipsis + shorten(before[skip:], width), ellipsis + shorten(after[skip:], width)


def condition_differences(baseline: Measurement, current: Measurement) -> Iterator[FieldDifference]:
    """Yield how the state of the machine differed between two stored measurements.

    Contention on one side only is a difference; contention on both is spread that the statistics
    include. So is a reference kernel that changed speed by more than ``REFERENCE_LIMIT``: the
    ratio to it cannot be trusted then. A smaller change widens the interval instead.
    """
    code = "E_MACHINE_STATE"
    pressures = baseline.cpu_pressure_pct, current.cpu_pressure_pct
    contended = {pct > MAX_CPU_PRESSURE_PCT for pct in pressures if pct is not None}
    if None not in pressures and len(contended) == 2:
        old, new = (f"{pct:.0f} %" for pct in pressures)
        yield FieldDifference("CPU pressure", old, new, code)
    shift = reference_shift(baseline, current)
    if shift is not None and abs(shift) > REFERENCE_LIMIT:
        sides = (mean_reference_log(side) or 0.0 for side in (baseline, current))
        old, new = (f"{1e3 * math.exp(each):.3f} ms" for each in sides)
        yield FieldDifference("speed of the reference kernel", old, new, code)


MACHINE_ID_FIELDS = ("cpu_model", "cpu_cores", "arch", "cpu_flags_sha256")
"""Fields of the machine's identity that its id depends on; the others are only compared."""

_NOISE_WORDS = frozenset({"cpu", "processor", "core", "cores", "with", "graphics", "r", "tm"})
_MAX_WORDS = 3
_UNKNOWN = "unknown"


def machine_id(identity: Mapping[str, str]) -> str:
    """Return a stable, filesystem-safe name of the machine class, like ``amd-epyc-2c-3f9a1c``.

    It depends on ``MACHINE_ID_FIELDS`` alone, so a kernel update keeps the name (and is then
    reported as a difference). An absent field counts as ``unknown``.
    """
    known = {name: identity.get(name, "").strip() or _UNKNOWN for name in MACHINE_ID_FIELDS}
    canonical = "\n".join(f"{name}={known[name]}" for name in MACHINE_ID_FIELDS)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    cores = re.sub(r"[^0-9]", "", known["cpu_cores"], flags=re.ASCII)[:6] or "x"
    model = re.sub(r"\((?:r|tm|c)\)", " ", known["cpu_model"].lower()).split("@")[0]
    words = [
        word[:16]
        for word in re.split(r"[^a-z0-9]+", model)
        if word and word not in _NOISE_WORDS and not re.fullmatch(r"\d+core", word)
    ]
    return "-".join([*(words[:_MAX_WORDS] or [_UNKNOWN]), f"{cores}c", digest])
