"""The page beside a flame graph: what ran, where, how it was seen, and what stands out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_flamegate.gate.words import headline
from pytest_flamegate.report import figures
from pytest_flamegate.report.brick_pages import TITLE as BRICKS
from pytest_flamegate.report.brick_pages import bricks_markdown
from pytest_flamegate.report.decode import TITLE as DECODE_ALONE
from pytest_flamegate.report.decode import decode_section
from pytest_flamegate.report.guide import READING
from pytest_flamegate.report.insights import by_self_share, insights
from pytest_flamegate.report.markup import block, code, escape, link, table
from pytest_flamegate.report.own_word import HEAD, RIGHT, observed, own_rows
from pytest_flamegate.report.own_word import TITLE as OWN_WORD
from pytest_flamegate.report.provenance import program_notes
from pytest_flamegate.report.signals import cost_cells, metric_title, metric_value, signal_cells
from pytest_flamegate.workload.digest import generated

if TYPE_CHECKING:
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.profile.subtraction import DecodeProfile
    from pytest_flamegate.receipt.types import Evidence, ProfileRecord, Receipt
    from pytest_flamegate.report.bricks import BricksShown

TOP = 20

_WORKLOAD_ELSEWHERE = frozenset({"name", "source", "build", "env", "model", "tokenizer"})


def flamegraph_markdown(
    evidence: Evidence,
    receipt: Receipt,
    verdict: Verdict | None,
    *,
    regenerate: str,
    picture: str = "flamegraph.svg",
    decode: DecodeProfile | None = None,
    decode_picture: str = "decode.svg",
    difference: str | None = None,
    bricks: BricksShown | None = None,
) -> str:
    """Return the page as Markdown, ending in a line break.

    ``regenerate`` is the exact command that makes it again; ``picture`` the address of
    the SVG, relative to the page. ``decode`` is the profile of decode alone, where there is
    one, and ``decode_picture`` the address of its SVG; ``difference`` is that of what changed;
    ``bricks`` is what was clocked of them, None where nothing was.
    Text that comes from elsewhere (prompts, names, paths) stays text. Equal arguments give
    equal bytes.
    """
    name = str(evidence.workload.get("name") or "workload")
    parts = [
        f"# Flame graph: {escape(name)}",
        *([f"**{escape(headline(verdict))}**"] if verdict is not None else []),
        f"!{link(f'Flame graph of {name}', picture)}",
        *_hotspots(evidence.profile),
        *(_section(DECODE_ALONE, decode_section(decode, decode_picture)) if decode else []),
        *(_section(BRICKS, bricks_markdown(bricks)) if bricks else []),
        *_section("What stands out", "\n".join(f"- {each}" for each in insights(evidence))),
        *_section("Throughput and latency", _metrics(evidence)),
        *_section(OWN_WORD, _own_word(evidence)),
        *_section("Against the baseline", _comparison(verdict, name, difference)),
        *_section("What ran", _what_ran(evidence, receipt)),
        *_section("Hardware", _mapping(evidence.machine)),
        *_section("Build", _build(evidence, receipt)),
        *_section("Determinism environment", _environment(evidence)),
        *_section("Profiler", _profiler(evidence.profile)),
        *_section("Evidence", _evidence(evidence, receipt, verdict)),
        *_section("Make it again", block(regenerate, "bash")),
        *_section("How to view and read it", READING),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, body: str) -> list[str]:
    return [f"## {title}", body] if body else []


def _value(value: object) -> str:
    """Return a plain value as Markdown; lists of words as the command they are."""
    if value is None or value == "" or value == [] or value == ():
        return "–"
    if isinstance(value, str):
        return code(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return figures.count(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return code(shlex.join(value))
    if isinstance(value, Mapping):
        value = {str(key): each for key, each in value.items()}
    return code(json.dumps(value, sort_keys=True, default=str, ensure_ascii=False))


def _label(name: str) -> str:
    return escape(name.replace("_", " "))


def _mapping(values: Mapping[str, object]) -> str:
    if not values:
        return ""
    return table(["what", "value"], [[_label(key), _value(each)] for key, each in values.items()])


def _hotspots(profile: ProfileRecord | None) -> list[str]:
    if profile is None:
        return ["## Hottest frames", "No profile was taken."]
    ranked = by_self_share(profile.hotspots)
    rows = [
        [
            str(rank),
            code(each.name),
            code(each.module) if each.module else "–",
            escape(each.category),
            figures.count(each.self_samples),
            figures.share(each.self_share),
            figures.share(each.inclusive_share),
            "–" if each.cpu_s_per_token is None else figures.micros(each.cpu_s_per_token),
        ]
        for rank, each in enumerate(ranked[:TOP], 1)
    ]
    head = ["rank", "frame", "module", "category", "self samples", "self", "with callees",
            "self µs/token"]  # fmt: skip
    said = (
        "Self is what a frame spends itself; with callees adds all it calls. "
        "Costs are shares of the CPU time of one token."
    )
    left = len(ranked) - TOP
    more = [f"{figures.plural(left, 'further frame')} in `evidence.json`."] if left > 0 else []
    if not rows:
        return ["## Hottest frames", "The profile holds no frame."]
    return ["## Hottest frames", said, table(head, rows, right=(0, 4, 5, 6, 7)), *more]


def _metrics(evidence: Evidence) -> str:
    rows = [
        [
            escape(metric_title(metric)),
            metric_value(metric),
            code(metric.formula),
            metric.clock,
            figures.count(metric.samples),
            metric.provenance,
        ]
        for metric in observed(evidence)
    ]
    head = ["figure", "value", "formula", "clock", "samples", "provenance"]
    return table(head, rows, right=(1, 4)) if rows else ""


def _own_word(evidence: Evidence) -> str:
    rows = [list(map(escape, row)) for row in own_rows(evidence)]
    said = (
        "Medians of what the engine reports on itself; shown beside what was observed, never gated."
    )
    return f"{said}\n\n{table(list(HEAD), rows, right=RIGHT)}" if rows else ""


def _comparison(verdict: Verdict | None, name: str, difference: str | None) -> str:
    if verdict is None:
        return "This run was not judged."
    parts = [f"!{link(f'What changed in {name}', difference)}"] if difference else []
    parts += ["\n".join(f"- {code(each.code)} {escape(each.message)}" for each in verdict.reasons)]
    rows = [signal_cells(signal) for signal in verdict.signals]
    if rows:
        head = ["signal", "baseline", "now", "change", "interval", "allowed", "could have seen",
                "decision"]  # fmt: skip
        parts.append(
            table(head, [[code(row[0]), *map(escape, row[1:])] for row in rows], right=range(1, 7))
        )
    costs = [cost_cells(cost) for cost in verdict.attribution]
    if costs:
        head = ["where it went", "before µs/token", "after µs/token", "change µs/token", "explains"]
        parts.append(
            table(head, [[code(row[0]), *map(escape, row[1:])] for row in costs], right=range(1, 5))
        )
    rates = []
    if verdict.false_alarm_rate is not None:
        rates.append(f"False alarms: {escape(verdict.error_rate_basis)}.")
    if verdict.baseline_processes or verdict.current_processes:
        rates.append(
            f"Timed processes: {verdict.baseline_processes} at the baseline, "
            f"{verdict.current_processes} now."
        )
    return "\n\n".join([*parts, *([" ".join(rates)] if rates else [])])


def _what_ran(evidence: Evidence, receipt: Receipt) -> str:
    commit = evidence.commit
    told: dict[str, str] = {"generated": code(evidence.created)}
    if commit is None:
        told["commit"] = "not in a repository"
    else:
        changed = figures.plural(commit.uncommitted, "uncommitted file")
        told["commit"] = f"{code(commit.revision)} on {code(commit.branch)}, {changed}"
    told["model sha256"] = _value(evidence.model_sha256)
    told |= {f"model {_label(key)}": _value(each) for key, each in evidence.model.items()}
    told["tokenizer"] = _value(evidence.workload.get("tokenizer"))
    told |= {
        f"workload {_label(key)}": _value(each)
        for key, each in evidence.workload.items()
        if key not in _WORKLOAD_ELSEWHERE and each not in (None, "", [], (), {})
    }
    told["tokens"] = f"{receipt.tokens_generated} generated of {receipt.tokens_requested} requested"
    told["output"] = (
        code(generated(evidence.tokens, evidence.token_source)) if evidence.tokens else "–"
    )
    told["backend"] = escape(receipt.backend)
    return table(["what", "value"], [[key, each] for key, each in told.items()])


def _build(evidence: Evidence, receipt: Receipt) -> str:
    rows = [["command", _value(evidence.workload.get("build"))]]
    if evidence.program is not None:
        rows.append(["program", " · ".join(map(code, program_notes(evidence.program)))])
    rows += [
        [code(name), _value(value)]
        for name, value in sorted(receipt.environment.items())
        if name not in evidence.requested_environment
    ]
    return table(["what", "value"], rows)


def _environment(evidence: Evidence) -> str:
    asked, got = evidence.requested_environment, evidence.effective_environment
    rows = [
        [code(name), _value(asked.get(name)), _value(got.get(name))]
        for name in sorted({*asked, *got})
    ]
    return table(["variable", "requested", "effective"], rows) if rows else ""


def _profiler(profile: ProfileRecord | None) -> str:
    if profile is None:
        return ""
    overhead = profile.overhead_pct
    told: dict[str, str] = {
        "profiler": code(f"{profile.profiler} {profile.profiler_version}".strip()),
        "event": code(profile.event),
        "rate": f"{figures.count(profile.rate_hz)} Hz",
        "call graph": code(profile.call_graph),
        "Python": code(profile.python),
        "samples": figures.count(profile.samples),
        "processes": figures.count(len(profile.processes)),
        "lost": figures.count(profile.lost),
        "errors": figures.count(profile.errors),
        "complete stacks": figures.share(profile.completeness),
        "overhead": "not measured" if overhead is None else f"{figures.percent(overhead)} CPU",
        "profile.folded sha256": code(profile.folded_sha256),
    }
    rows = [[key, each] for key, each in told.items()]
    rows += [["degraded", escape(reason)] for reason in profile.degraded]
    return table(["what", "value"], rows)


def _evidence(evidence: Evidence, receipt: Receipt, verdict: Verdict | None) -> str:
    kernels = [
        f"{code(seen.name)} ({escape(seen.told_by or seen.source)}, {figures.count(seen.count)})"
        for seen in evidence.kernels
    ]
    told: dict[str, str] = {
        "grade": escape(verdict.grade) if verdict is not None else "not judged",
        "receipt sha256": code(evidence.receipt_sha256),
        "receipt timestamp": code(receipt.timestamp),
        "nonce": code(evidence.nonce),
        "token digest": code(evidence.token_digest),
        "token source": code(evidence.token_source),
        "kernels seen": ", ".join(kernels) or "–",
        "flamegate": code(evidence.flamegate_version),
    }
    return table(["what", "value"], [[key, each] for key, each in told.items()])
