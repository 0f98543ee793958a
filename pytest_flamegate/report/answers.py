"""Answers of commands, as text and as plain data: receipts, imported results, differences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_flamegate.core.errors import FlamegateError
from pytest_flamegate.core.text import Notice, Refusal, significant
from pytest_flamegate.profile.difference import Change, ProfileDifference, ProfileSide
from pytest_flamegate.receipt.imports.imported import ImportComparison, Imported, ImportedMetric
from pytest_flamegate.receipt.rules.replay import describe_rates
from pytest_flamegate.receipt.verify import Verification
from pytest_flamegate.report import text
from pytest_flamegate.report.difference import (
    SHARES_ONLY,
    Scale,
    change_rows,
    describe_difference,
    describe_total,
)
from pytest_flamegate.report.text import clip, columns, paint, visible

_TOKENS = {"E_REPLAY_TOKENS": "differ", "W_REPLAY_NOT_DETERMINISTIC": "not compared"}
_LONG = 1000


def verification_text(
    found: Verification,
    *,
    path: str | None = None,
    required: str | None = None,
    colour: bool = False,
    error: FlamegateError | None = None,
) -> str:
    """Return the answer about one receipt, without a line break at its end.

    An honest receipt whose replay does not hold is neither accepted nor refused. ``path`` names the
    receipt if there are several, ``required`` the grade that was asked for; ``error`` is the reason
    why its workload could not be run again.
    """
    undecided = error is not None or (found.replayed is not None and not found.obtained_again)
    answer = "refused" if not found.ok else "not replayed" if undecided else "accepted"
    if colour and not (found.ok and undecided):
        answer = paint(answer, "green" if found.ok else "red")
    wanted = f", wanted {visible(required).upper()}" if required else ""
    name = f"{visible(path, _LONG)}: " if path is not None else ""
    replayed = replay_line(found)
    replay = [replayed] if replayed is not None else []
    if error is not None:
        problem = visible(f"{error.problem} {error.remedy}", 20_000)
        replay = ["not replayed:", *columns([(error.code, problem)], indent=2)]
    usable = "yes" if found.fit else "no" if found.honest else "not evaluated (verification failed)"
    return "\n".join(
        [
            f"{name}{answer} (grade {found.grade.name}{wanted})   policy {visible(found.policy)}",
            *replay,
            f"honest: yes, {found.grade.name}" if found.honest else "honest: no",
            *_finding_lines([*found.refusals, *found.warnings]),
            f"usable as a baseline: {usable}",
            *_finding_lines(found.unfit),
            *([f"signed by {visible(found.signed_by)}"] if found.signed_by else []),
            visible(found.ceiling, _LONG),
        ]
    )


def _finding_lines(findings: Sequence[Refusal | Notice]) -> list[str]:
    """Return a line for each finding: its code, the problem, the remedy."""
    rows = []
    for each in findings:
        sentences = (visible(each.message, _LONG), visible(each.remedy, _LONG))
        rows.append((each.code, " ".join(filter(None, sentences))))
    return columns(rows, indent=2)


def replay_line(found: Verification) -> str | None:
    """Return ``replayed here: 8 processes, digest equal, …``; None if nothing was run."""
    replayed = found.replayed
    if replayed is None:
        return None
    tokens = _compare_tokens(found)
    digest = "differs" if tokens == "differ" else tokens
    rates = describe_rates(replayed.rate)
    return f"replayed here: {replayed.processes} processes, digest {digest}, {rates}"


def replay_document(found: Verification) -> dict[str, object] | None:
    """Return the replay as plain data; rates are tokens per second, null if not compared."""
    replayed = found.replayed
    if replayed is None:
        return None
    rate = replayed.rate
    return {
        "processes": replayed.processes,
        "tokens": _compare_tokens(found),
        "rate": rate.answer,
        "claimed_tokens_per_second": rate.claimed,
        "tokens_per_second": rate.here,
        "low": rate.low,
        "high": rate.high,
        "wall_tokens_per_second": rate.wall,
    }


def _compare_tokens(found: Verification) -> str:
    codes = [each.code for each in (*found.refusals, *found.warnings)]
    return next((word for code, word in _TOKENS.items() if code in codes), "equal")


# Imported results


_WIDTH = 44
_WORDS = {True: "better", False: "worse", None: "same"}
_MOST_LEFT_OUT = 5
_NAMES = ("name", "statistic", "formula", "unit", "direction")


def imported_text(results: Sequence[Imported]) -> str:
    """Return a table of the figures of every result, with their formulas."""
    rows = [("result", "figure", "", "statistic", "of", "formula")]
    for result in results:
        rows += [
            (
                visible(result.result),
                each.name,
                _value(each),
                each.statistic,
                "" if each.samples is None else text.count(each.samples),
                each.formula,
            )
            for each in result.metrics
        ]
    first = results[0]
    tool = " ".join(part for part in (first.tool, first.tool_version) if part)
    lines = [
        f"{text.plural(len(results), 'result')} of {clip(visible(tool), 60)}, SELF_REPORTED: "
        "not measured by flamegate",
        *columns(rows, right=(2, 4)),
    ]
    left_out = [each for result in results for each in result.left_out]
    lines += [
        f"left out: {visible(each.field)}, {each.reason}" for each in left_out[:_MOST_LEFT_OUT]
    ]
    if len(left_out) > _MOST_LEFT_OUT:
        lines.append(f"left out: {text.count(len(left_out) - _MOST_LEFT_OUT)} more")
    return "\n".join(lines)


def comparison_text(compared: ImportComparison) -> str:
    """Return the figures that are comparable, then the names of those that are not."""
    rows = [("figure", "statistic", "before", "after", "change", "", "formula")]
    rows += [
        (
            pair.after.name,
            pair.after.statistic,
            _value(pair.before),
            _value(pair.after),
            f"{pair.change_pct:+,.1f} %",
            _WORDS[pair.better],
            pair.after.formula,
        )
        for pair in compared.pairs
    ]
    lines = columns(rows, right=(2, 3, 4)) if compared.pairs else ["nothing could be compared"]
    lines += [f"{each.code}: {each.message}" for each in compared.differing]
    if compared.alone:
        lines.append(f"not on both sides: {clip(', '.join(compared.alone), 300)}")
    return "\n".join(lines)


def comparison_document(compared: ImportComparison) -> dict[str, object]:
    """Return the comparison as plain data."""
    return {
        "compared": [
            {name: getattr(pair.after, name) for name in _NAMES}
            | {
                "before": pair.before.value,
                "after": pair.after.value,
                "change_pct": pair.change_pct,
                "better": pair.better,
            }
            for pair in compared.pairs
        ],
        "refused": [{"code": each.code, "message": each.message} for each in compared.differing],
        "alone": list(compared.alone),
    }


def _value(metric: ImportedMetric) -> str:
    spread = "" if metric.stddev is None else f" ± {significant(metric.stddev)}"
    return clip(f"{significant(metric.value, 4)}{spread} {metric.unit}", _WIDTH)


# Differences


def difference_text(difference: ProfileDifference, *, colour: bool = False) -> str:
    """Return the answer, its warnings and a table, without a line break at the end."""
    summary = visible(describe_difference(difference), 2 * _LONG)
    lines = [paint(summary, "yellow" if difference.changed else "green") if colour else summary]
    lines += _warnings(difference)
    for role, side in (("before", difference.base), ("after", difference.head)):
        samples = text.plural(side.profile.samples, side.profile.unit.removesuffix("s"))
        lines.append(f"  {role:<6}  {visible(side.name)} · {samples}")
    own = f"own part in {Scale.of(difference).unit}"
    head = ("", own, "", "before", "after", "change", "share", "moved", "z")
    table = [head, *change_rows(difference)]
    lines += columns(table, right=(0, 3, 4, 5, 6, 7, 8), indent=2, gap=2)
    lines.append(f"  in all  {describe_total(difference)}")
    lines.append(
        f"  changed means |z| ≥ {difference.certain_z:.1f}: of two profiles of one program one in "
        "a hundred shows any change; ± is two standard errors"
    )
    return "\n".join(lines)


def _warnings(difference: ProfileDifference) -> Iterator[str]:
    if difference.mismatches:
        details = "; ".join(visible(str(each)) for each in difference.mismatches)
        yield f"  NOT COMPARABLE  the profiles were taken differently: {details}"
    if difference.measure == "share":
        yield f"  shares only  {SHARES_ONLY}"


def difference_document(difference: ProfileDifference) -> dict[str, object]:
    """Return the difference as plain data; every function, the largest change first.

    Values are in ``unit``: seconds per token, shares of 0 to 1, or instructions. ``z`` is null
    for an exact change.
    """
    units = {"cost": "s/token", "share": "share", "count": "instructions"}
    return {
        "answer": describe_difference(difference),
        "measure": difference.measure,
        "unit": units[difference.measure],
        "certain_z": difference.certain_z,
        "mismatches": [
            {"what": each.condition, "base": each.base, "head": each.head}
            for each in difference.mismatches
        ],
        "base": _side(difference.base),
        "head": _side(difference.head),
        "total": _change(difference.total),
        "functions": [
            {
                "name": each.frame.name,
                "module": each.frame.module,
                "kind": each.frame.kind,
                "state": each.state,
                "own": _change(each.own),
                "inclusive": _change(each.inclusive),
            }
            for each in difference.functions
        ],
    }


_CONDITIONS = ("profiler", "event", "rate_hz", "call_graph", "python", "covers")
_CHANGE = ("base", "head", "change", "error", "z", "base_samples", "head_samples", "base_share",
           "head_share", "shift_pp")  # fmt: skip


def _side(side: ProfileSide) -> dict[str, object]:
    return {
        "name": side.name,
        "samples": side.samples,
        **{name: getattr(side.profile, name) for name in _CONDITIONS},
        "cpu_s_per_token": side.cpu_s_per_token,
    }


def _change(change: Change) -> dict[str, object]:
    found = {name: getattr(change, name) for name in _CHANGE}
    return found if math.isfinite(change.z) else found | {"z": None}
