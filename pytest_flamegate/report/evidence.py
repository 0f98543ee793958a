"""The sections of the evidence: figures, the program and the machine, and the proof of it all."""

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.text import list_some, significant
from pytest_flamegate.receipt.metrics import KERNEL_RATE_NAMES, meaning_of, value_of
from pytest_flamegate.receipt.reported import observed_as, of_engine, source_of
from pytest_flamegate.receipt.types import Evidence, Metric, Receipt
from pytest_flamegate.report import sections, text
from pytest_flamegate.report.text import visible

# Short notes


def workload_notes(evidence: Evidence) -> list[str]:
    """Return short notes on the workload: engine, model, prompt, tokens."""
    recipe, model = evidence.workload, evidence.model
    notes = [f"{recipe['engine']} engine"] if recipe.get("engine") else []
    # A program that loads no model file has "engine:command" there, which the first note says.
    if model.get("path") and not str(model["path"]).startswith("engine:"):
        notes.append(str(model["path"]).rsplit("/", 1)[-1])
    if recipe.get("prompt"):
        notes.append(f"prompt “{visible(str(recipe['prompt']), 60)}”")
    if isinstance(prompts := recipe.get("prompts"), (list, tuple)):
        notes.append(f"{len(prompts)} prompts")
    if isinstance(tokens := recipe.get("max_tokens"), int):
        notes.append(text.plural(tokens, "token"))
    return notes


def machine_note(evidence: Evidence) -> str:
    """Return the CPU and its cores: ``AMD EPYC 7B13, 2 cores``."""
    model = evidence.machine.get("cpu_model", "unknown CPU")
    cores = evidence.machine.get("cpu_cores")
    return f"{model}, {cores} {'core' if cores == '1' else 'cores'}" if cores else model


def revision_note(commit: Commit | None) -> str:
    """Return the short commit and how many files differ from it; empty outside a repository."""
    if commit is None:
        return ""
    more = text.plural(commit.uncommitted, "uncommitted file")
    return f"{commit.revision[:7]} + {more}" if commit.uncommitted else commit.revision[:7]


def picture_subtitle(evidence: Evidence, receipt: Receipt | None) -> str:
    """Return the line under a picture's title: workload, rate, machine, commit."""
    notes = workload_notes(evidence)
    if receipt is not None:
        quiet_s = value_of(evidence.metrics, "quiet_s_per_token")
        rate = 1.0 / quiet_s if quiet_s else receipt.tokens_per_second
        notes.append(f"{significant(rate)} tokens/s{', quiet clock' if quiet_s else ''}")
    notes += [machine_note(evidence), revision_note(evidence.commit)]
    return " · ".join(filter(None, notes))


# A kernel benchmark


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def kernel_line(evidence: Evidence) -> str | None:
    """Return a kernel benchmark's rates in one line; None if it is no benchmark."""
    found = {metric.name: metric for metric in evidence.metrics if metric.name in KERNEL_RATE_NAMES}
    if not found:
        return None
    notes = [_rate(found[name]) for name in KERNEL_RATE_NAMES if name in found]
    calls = evidence.workload.get("calls")
    notes.append(f"{text.plural(calls, 'call')} a round" if isinstance(calls, int) else "")
    if evidence.workload.get("setup"):
        notes.append("its setup is measured with each call")
    return " · ".join(filter(None, notes))


def _rate(metric: Metric) -> str:
    value, unit = metric.value, metric.unit
    if unit == "B/s" or not unit[:1].isupper():
        for size, letter in _PREFIXES:
            if value >= size:
                return f"{significant(value / size)} {letter}{'' if unit == 'B/s' else ' '}{unit}"
    return f"{significant(value)} {unit}"


# Figures


_TITLES: Mapping[str, str] = MappingProxyType(tomllib.loads(text.read_asset("titles.toml")))
"""The usual names of figures."""
_SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_ENGINE_RATES = ("engine_decode_tokens_per_second", "engine_tokens_per_second")
_MOST_FIGURES, _MOST_KERNELS = 60, 4


def metric_title(metric: Metric) -> str:
    """Return a metric's usual name; its own if there is none."""
    return _TITLES.get(metric.name, metric.name.replace("_", " "))


def metric_value(metric: Metric) -> str:
    """Return a metric's value with its unit, times in the unit that reads best."""
    if metric.unit in _SCALES:
        return text.seconds(metric.value * _SCALES[metric.unit])
    if metric.unit == "tokens":
        return f"{text.tidy(metric.value)} tokens"
    return f"{significant(metric.value)} {metric.unit}"


def metric_section(evidence: Evidence) -> sections.Section:
    """Return the measured figures; the gated clock comes first."""
    metrics = [metric for metric in evidence.metrics if not of_engine(metric)]
    metrics.sort(key=lambda metric: metric.name != "quiet_s_per_token")
    rows = [
        (metric_title(metric), metric_value(metric), sections.Code(metric.formula), metric.clock,
         text.count(metric.samples), metric.provenance)
        for metric in metrics
    ]  # fmt: skip
    head = ("figure", "value", "formula", "clock", "samples", "provenance")
    table = sections.Table(head, rows, right=(1, 4))
    return sections.make_section("Throughput and latency", [table], folded=True)


def engine_section(evidence: Evidence) -> sections.Section:
    """Return the figures that the engine reports about itself, next to the measured ones."""
    reported = [metric for metric in evidence.metrics if of_engine(metric)]
    rows = []
    for metric in reported[:_MOST_FIGURES]:
        measured = observed_as(metric, evidence.metrics)
        observed = sections.NONE if measured is None else metric_value(measured)
        source, definitions = visible(source_of(metric), 80), _definitions(metric, measured)
        rows.append((metric_title(metric), source, metric_value(metric), observed, definitions))
    if len(reported) > _MOST_FIGURES:
        more = f"{len(reported) - _MOST_FIGURES:,} more, in evidence.json"
        rows.append((more, sections.NONE, sections.NONE, sections.NONE, ""))
    head = ("figure", "reported by", "engine", "observer", "definitions")
    note = (
        "Medians of the engine's own figures. They are shown next to the measured ones and "
        "never gated."
    )
    about = sections.Paragraph(note, muted=True) if rows else None
    table = sections.Table(head, rows, right=(2, 3))
    return sections.make_section("The engine's own figures", [about, table], folded=True)


def _definitions(metric: Metric, measured: Metric | None) -> str:
    meanings = {
        "engine": meaning_of(metric.formula),
        "observer": meaning_of(measured.formula) if measured is not None else None,
    }
    return "; ".join(f"{source}: {meaning}" for source, meaning in meanings.items() if meaning)


def engine_lines(evidence: Evidence, receipt: Receipt | None) -> list[str]:
    """Return a line on the engine's own rate, and one on kernels that no profiler saw."""
    lines = []
    rates = [metric for name in _ENGINE_RATES for metric in evidence.metrics if metric.name == name]
    if rates:
        measured = observed_as(rates[0], evidence.metrics)
        figures = [metric_value(rates[0])]
        if measured is not None:
            figures.append(f"observed {metric_value(measured)}")
            if measured.clock != rates[0].clock:
                # A side of a pair waits for the other one, which only the engine counts.
                clocks = (rates[0].clock, measured.clock)
                figures = [f"{a} ({b} clock)" for a, b in zip(figures, clocks, strict=True)]
        definitions = _definitions(rates[0], measured)
        lines.append(
            f"reported by the engine ({visible(source_of(rates[0]), 80)}, not gated): "
            f"{', '.join(figures)}{f' ({definitions})' if definitions else ''}"
        )
    profiled = {each.name for each in evidence.kernels if each.source == "profile"}
    claimed = receipt.kernels if receipt is not None else ()
    if unseen := [name for name in claimed if name not in profiled]:
        names = list_some(unseen, _MOST_KERNELS, show=lambda name: visible(name, 40))
        lines.append(f"kernels that only the engine reports, in no profile: {names}")
    return lines


# Workload, machine, build and proof


_ELSEWHERE = frozenset({"name", "source", "build", "env", "model", "tokenizer"})


def run_section(evidence: Evidence, receipt: Receipt | None) -> sections.Section:
    """Return the workload, its program, the machine and the environment."""
    commit, tokens = evidence.commit, evidence.tokens
    facts: list[tuple[str, sections.Cell]] = [("generated", sections.Code(evidence.created))]
    if commit is None:
        facts.append(("commit", "not in a repository"))
    else:
        changed = text.plural(commit.uncommitted, "uncommitted file")
        facts.append(("commit", f"{commit.revision} on {commit.branch}, {changed}"))
    facts.append(("model sha256", _value(evidence.model_sha256)))
    recipe = {n: each for n, each in evidence.workload.items() if n not in _ELSEWHERE}
    known = {n: each for n, each in recipe.items() if each not in (None, "", [], (), {})}
    facts += [*_facts("model", evidence.model), *_facts("workload", known)]
    if receipt is not None:
        counts = f"{receipt.tokens_generated} generated of {receipt.tokens_requested} requested"
        facts += [("tokens", counts), ("backend", receipt.backend)]
    facts.append(("output", sections.Code(evidence.text) if tokens else sections.NONE))
    facts += [*_facts("machine", evidence.machine), *_facts("engine's", evidence.engine)]
    facts.append(("build", _value(evidence.workload.get("build"))))
    if (program := evidence.program) is not None:
        notes = [program.path, f"sha256 {program.sha256}"]
        notes.append(f"{text.count(program.size_bytes)} bytes")
        if (interpreter := program.interpreter) is not None:
            notes.append(f"run by {interpreter.path}, sha256 {interpreter.sha256[:12]}")
        if (build := program.build) is not None:
            notes.append("built for this run" if build.ran else "build skipped")
            notes += [f"{name}={value}" for name, value in build.environment.items()]
        facts.append(("program", " · ".join(notes)))
    asked, found = evidence.requested_environment, evidence.effective_environment
    rows = [
        (sections.Code(n), _value(asked.get(n)), _value(found.get(n)))
        for n in sorted({*asked, *found})
    ]
    variables = sections.Table(("variable", "requested", "effective"), rows)
    return sections.make_section(
        "What ran, and on what", [sections.table_of_facts(facts), variables], folded=True
    )


def proof_section(evidence: Evidence, receipt: Receipt | None, grade: str) -> sections.Section:
    """Return how the profile was taken, and the digests by which the run can be checked."""
    kernels = [
        f"{kernel.name} ({kernel.told_by or kernel.source}, {text.count(kernel.count)})"
        for kernel in evidence.kernels
    ]
    facts: list[tuple[str, sections.Cell]] = [
        ("grade", grade),
        ("receipt sha256", sections.Code(evidence.receipt_sha256)),
        ("receipt timestamp", sections.Code(receipt.timestamp) if receipt else sections.NONE),
        ("nonce", sections.Code(evidence.nonce)),
        ("token digest", sections.Code(evidence.token_digest)),
        ("token source", sections.Code(evidence.token_source)),
        ("kernels seen", ", ".join(kernels) or sections.NONE),
        ("flamegate", sections.Code(evidence.flamegate_version)),
    ]
    if (profile := evidence.profile) is not None:
        overhead = profile.overhead_pct
        facts += [
            ("profiler", sections.Code(f"{profile.profiler} {profile.profiler_version}".strip())),
            ("event", f"{profile.event} at {text.count(profile.rate_hz)} Hz"),
            ("call graph", sections.Code(profile.call_graph)),
            ("samples", text.count(profile.samples)),
            ("lost", f"{text.count(profile.lost)}, {text.plural(profile.errors, 'error')}"),
            ("complete stacks", text.share(profile.completeness)),
            ("overhead", "not measured" if overhead is None else f"{text.percent(overhead)} CPU"),
            ("profile.folded sha256", sections.Code(profile.folded_sha256)),
        ]
        facts += [("degraded", reason) for reason in profile.degraded]
    return sections.make_section("Evidence", [sections.table_of_facts(facts)], folded=True)


def _facts(kind: str, values: Mapping[str, object]) -> list[tuple[str, sections.Cell]]:
    return [(f"{kind} {name}".replace("_", " "), _value(each)) for name, each in values.items()]


def _value(value: object) -> sections.Cell:
    """Return a plain value as a cell; a list of words as the command that they are."""
    match value:
        case None | "" | [] | ():
            return sections.NONE
        case str():
            return sections.Code(value)
        case bool():
            return "yes" if value else "no"
        case int():
            return text.count(value)
        case float():
            return significant(value)
        case Sequence() if all(isinstance(each, str) for each in value):
            return sections.Code(shlex.join(value))
        case Mapping():
            value = {str(name): each for name, each in value.items()}
    return sections.Code(json.dumps(value, sort_keys=True, default=str, ensure_ascii=False))
