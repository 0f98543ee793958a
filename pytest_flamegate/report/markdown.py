"""The page beside a flame graph: what ran, where, how it was seen, and what stands out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.core import text as core_text
from pytest_flamegate.engines.tokens import generated
from pytest_flamegate.gate.headline import headline
from pytest_flamegate.report import text
from pytest_flamegate.report.bricks import TITLE as BRICKS
from pytest_flamegate.report.bricks import bricks_markdown
from pytest_flamegate.report.flame import PALETTE
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.markup import block, code, escape, link, table
from pytest_flamegate.report.sections import (
    HEAD,
    RIGHT,
    by_self_share,
    cost_cells,
    hardware,
    insights,
    metric_title,
    metric_value,
    observed,
    own_rows,
    program_notes,
    signal_cells,
    what_ran,
)
from pytest_flamegate.report.sections import TITLE as OWN_WORD

if TYPE_CHECKING:
    from pytest_flamegate.gate.verdict import Verdict
    from pytest_flamegate.profile.decode import DecodeProfile
    from pytest_flamegate.receipt.types import Evidence, ProfileRecord, Receipt
    from pytest_flamegate.report.bricks import BricksShown


DECODE_TOP = 20
TITLE = "Decode alone (by subtraction)"
_NS = 1e9


def decode_picture(decode: DecodeProfile, name: str) -> str:
    """Return the flame graph as SVG: a frame is as wide as the time it takes of each token."""
    long, short = decode.tokens
    notes = [
        f"{_with_error(decode.cpu_s_per_token, decode.cpu_error_s_per_token)} µs CPU/token",
        f"taken away: {text.share(decode.prefill_share)} of a sequence, "
        f"as those of {text.plural(short, 'token')} take",
        _samples(decode),
        f"{_clipped(decode)} too much, where noise went below 0",
        "derived, never gated",
    ]
    return flamegraph(
        decode.profile,
        title=f"{name}: decode alone, by subtraction: {text.plural(long, 'token')} minus "
        f"{text.count(short)}",
        subtitle=" · ".join(notes),
        cpu_s_per_token=decode.profile.samples / _NS,
    )


def decode_section(decode: DecodeProfile, picture: str) -> str:
    """Return the section's text as Markdown; ``picture`` is the SVG's address from the page."""
    long, short = decode.tokens
    said = (
        f"Sequences of {text.plural(long, 'token')} less sequences of "
        f"{text.plural(short, 'token')} of the same prompt, for each of the "
        f"{text.count(long - short)} tokens between: "
        f"{_with_error(decode.cpu_s_per_token, decode.cpu_error_s_per_token)} µs CPU/token. "
        f"What the shorter ones take, {text.share(decode.prefill_share)} of a longer one, is "
        "taken away. Derived, with standard errors; shown and never gated."
    )
    shown = [row for row in decode.rows if abs(row.self_s) >= row.self_error_s][:DECODE_TOP]
    rows = [
        [
            code(row.name),
            escape(row.category),
            _with_error(row.self_s, row.self_error_s),
            _with_error(row.inclusive_s, row.inclusive_error_s),
            text.share(row.decode_share),
            text.share(row.sampled_share),
        ]
        for row in shown
    ]
    head = ["function", "category", "self µs/token", "with callees µs/token", "of decode",
            "before subtraction"]  # fmt: skip
    left = len(decode.rows) - len(shown)
    less = [
        f"From {_samples(decode)}; errors assume that shares vary "
        f"{core_text.significant(decode.phi)} times as much as independent samples would.",
        f"The picture shows {_clipped(decode)} too much, where noise took a stack below 0.",
    ]
    if left:
        less.append(
            f"{text.plural(left, 'further function')}, cheaper or lost in their error, in "
            "`decode.json`."
        )
    return "\n\n".join(
        [
            said,
            f"!{link('Flame graph of decode alone', picture)}",
            table(head, rows, right=range(2, len(head))),
            " ".join(less),
        ]
    )


def _with_error(value_s: float, error_s: float) -> str:
    return f"{text.micros(value_s)} ± {text.micros(error_s)}"


def _samples(decode: DecodeProfile) -> str:
    long, short = (text.count(each) for each in decode.samples)
    return f"{long} samples of the longer sequences and {short} of the shorter"


def _clipped(decode: DecodeProfile) -> str:
    return f"{text.micros(decode.clipped_s_per_token)} µs/token"


VIEWING = """\
Open the SVG in any browser, or look at it where the repository is hosted: it needs no
JavaScript, and it scales to the width of the window. Hover over a frame for its full
name, module, samples, share and cost; search with the browser's own search (Ctrl+F)."""

READING = f"""\
{VIEWING}

1. Width is the share of the samples: the wider, the more time. Narrow frames seldom
   repay work.
2. Height is the depth of calls. The outermost function is at the bottom, and each
   frame was called by the one under it.
3. What a frame spends itself is what is left open above it. A wide frame with nothing
   on it is where the time goes.
4. Left to right is the order of names, not of time.
5. Colour is the kind of work; the legend gives the share of each kind.
6. A share says nothing about cost alone: when another function gets faster, this one's
   share grows. The cost for each token (µs/token) tells the two apart."""

_WORKFLOW = """\
1. Start with the table of hottest frames in the page beside the picture, and take the
   first one whose cost you can do something about.
2. In the picture, look under it: who calls it, and from how many places?
3. Change one thing.
4. Run `pytest --flamegate`. The verdict says whether tokens per second changed and in
   which function, and how small a change it could have seen.
5. When the change is meant to stay, accept it with `pytest --flamegate --flamegate-update`
   and commit the baseline."""

_COMPARING = """\
Every page has a section "Against the baseline": the figures before and after, each with
its interval, what each function costs for each token, and a picture of the difference
(`diff.svg`). The picture draws both sides at once, on one scale of cost: grey did not
change, orange costs more now, blue less, and a frame that is new or gone says so. A frame
whose callees alone changed is grey. When nothing is certain, it says so.

Any two profiles compare by hand: `flamegate diff BEFORE AFTER -o diff.svg` takes runs,
receipts, folded stacks and speedscope files. Profiles that were not taken alike (profiler,
rate, event, call graph, Python) are refused, because their difference is not the program's;
`--anyway` draws them under a warning. The folded stacks of both sides stand beside every
picture, sorted text with one stack a line."""

_TROUBLE = (
    (
        "No samples, or too few",
        "The run was short. Give it more time: `--flamegate-budget=60` (seconds for each "
        "workload).",
    ),
    (
        "The profiler is not permitted",
        "`flamegate doctor` says what was tried, the profiler's own words and what to type. "
        "Without permission py-spy samples without stopping the process, and the page says "
        "degraded.",
    ),
    (
        "Kernel frames are missing",
        "perf sees user space only where `kernel.perf_event_paranoid` is 2 or more: "
        "`sudo sysctl kernel.perf_event_paranoid=1`.",
    ),
    (
        "Stacks are cut off: complete stacks well below 100 %",
        "The code was built without frame pointers. Build with `-fno-omit-frame-pointer` "
        "(Rust: `-C force-frame-pointers=yes`).",
    ),
    (
        "Names are missing or read like `[libfoo.so]`",
        "The library was stripped. Keep its symbols (Rust: `debug = 1` in the release "
        "profile; C and C++: `-g`).",
    ),
    (
        "Native frames are missing",
        "py-spy shows Python frames and perf shows native ones: choose with "
        "`--flamegate-profiler=perf`.",
    ),
    (
        "The shares differ from run to run",
        "Sampling has an error: the page says how many samples tell a shift of 2 percentage "
        "points from chance. Take more samples before believing less.",
    ),
)


@dataclass(frozen=True, slots=True)
class GuideEntry:
    """One flame graph of a folder; ``picture`` and ``page`` are paths relative to its README.

    ``generated`` is RFC 3339, ``about`` one line on what ran and ``hardware`` on what.
    """

    name: str
    picture: str
    page: str
    generated: str
    about: str
    hardware: str

    @classmethod
    def of(cls, name: str, evidence: Evidence, *, picture: str, page: str) -> GuideEntry:
        """Return the entry of what ``evidence`` saw."""
        return cls(
            name=name,
            picture=picture,
            page=page,
            generated=evidence.created,
            about=", ".join(what_ran(evidence)),
            hardware=", ".join(hardware(evidence)),
        )


GUIDE_TITLE = "# Flame graphs"
"""How every guide begins: a README that does not is somebody else's."""


def guide_readme(entries: Sequence[GuideEntry], *, regenerate: str = "flamegate flamegraph") -> str:
    """Return the README of a folder of flame graphs as Markdown, ending in a line break.

    Lists ``entries`` in the order of their names; ``regenerate`` is the command that
    makes them again. Equal arguments give equal bytes.
    """
    parts = [
        GUIDE_TITLE,
        "CPU flame graphs of inference workloads, each with a page on what ran, where, and "
        "what stands out.",
        "## Current baselines",
        _listed(sorted(entries, key=lambda each: (each.name, each.picture))),
        "## Make them again",
        block(regenerate, "bash"),
        "The build is skipped with `FLAMEGATE_SKIP_BUILD=1`; the profiler is chosen with "
        "`FLAMEGATE_PROFILER`.",
        "## How to view and read them",
        READING,
        "## The colours",
        _colours(),
        "## From a picture to a faster engine",
        _WORKFLOW,
        "## Before and after",
        _COMPARING,
        "## When something is wrong",
        "\n".join(f"- **{what}.** {remedy}" for what, remedy in _TROUBLE),
    ]
    return "\n\n".join(parts) + "\n"


def _listed(entries: Sequence[GuideEntry]) -> str:
    if not entries:
        return "None yet."
    rows = [
        [
            link(each.name, each.picture),
            link("page", each.page),
            escape(each.about) or "–",
            code(each.generated),
            escape(each.hardware) or "–",
        ]
        for each in entries
    ]
    return table(["flame graph", "details", "what ran", "generated", "hardware"], rows)


def _colours() -> str:
    rows = [[code(name), code(each.fill), escape(each.meaning)] for name, each in PALETTE.items()]
    return table(["category", "colour", "what belongs to it"], rows)


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
        *(_section(TITLE, decode_section(decode, decode_picture)) if decode else []),
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
        return text.count(value)
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
            text.count(each.self_samples),
            text.share(each.self_share),
            text.share(each.inclusive_share),
            "–" if each.cpu_s_per_token is None else text.micros(each.cpu_s_per_token),
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
    more = [f"{text.plural(left, 'further frame')} in `evidence.json`."] if left > 0 else []
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
            text.count(metric.samples),
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
        changed = text.plural(commit.uncommitted, "uncommitted file")
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
        "rate": f"{text.count(profile.rate_hz)} Hz",
        "call graph": code(profile.call_graph),
        "Python": code(profile.python),
        "samples": text.count(profile.samples),
        "processes": text.count(len(profile.processes)),
        "lost": text.count(profile.lost),
        "errors": text.count(profile.errors),
        "complete stacks": text.share(profile.completeness),
        "overhead": "not measured" if overhead is None else f"{text.percent(overhead)} CPU",
        "profile.folded sha256": code(profile.folded_sha256),
    }
    rows = [[key, each] for key, each in told.items()]
    rows += [["degraded", escape(reason)] for reason in profile.degraded]
    return table(["what", "value"], rows)


def _evidence(evidence: Evidence, receipt: Receipt, verdict: Verdict | None) -> str:
    kernels = [
        f"{code(seen.name)} ({escape(seen.told_by or seen.source)}, {text.count(seen.count)})"
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
