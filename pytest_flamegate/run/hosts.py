"""What a code host shows at a line or as a figure: GitHub's annotations, GitLab's reports.

JUnit reports get a verdict's figures as properties of its test. GitLab reads findings in the format
of its Code Quality reports, and figures as OpenMetrics text.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_flamegate.core.json import encode_json
from pytest_flamegate.engines.declare import FILE_NAME
from pytest_flamegate.gate.verdict import KINDS, Verdict
from pytest_flamegate.report.markdown import step_summary
from pytest_flamegate.report.terminal import error_annotation
from pytest_flamegate.report.text import plural, visible
from pytest_flamegate.run.present import ResultView, choose_one_each, rows

FINDINGS, FIGURES = "code-quality.json", "metrics.txt"
_LONG = 1000
_MOST_ANNOTATIONS = 10
_HELP = {
    "check_passed": "1 if the check passed.",
    "passed": "1 if the workload does not fail the check.",
    "tokens_per_second": "Mean rate of a side.",
    "rate_change_percent": "Change of the rate against the base, and its interval.",
}


def list_properties(workload: str, verdict: Verdict) -> list[tuple[str, object]]:
    """Return the verdict as properties of a test case: of pytest's JUnit report, for example.

    The name of the workload is the first: a test may gate several.

    Change and interval are those of the rate in percent, negative if it is slower; they are
    missing if nothing was compared.
    """
    rate = verdict.signal()
    figures = {
        "workload": workload,
        "verdict": verdict.verdict,
        "grade": verdict.grade,
        "clock": "quiet" if rate is not None else None,
        "rate": rate and rate.current and f"{rate.current:.6g} {rate.unit}",
        "change_pct": rate and rate.change_pct,
        "low_pct": rate and rate.ci_low_pct,
        "high_pct": rate and rate.ci_high_pct,
    }
    return [
        (f"flamegate_{name}", round(value, 3) if isinstance(value, float) else value)
        for name, value in figures.items()
        if value is not None
    ]


def report_to_github(results: Sequence[ResultView], page: str | None = None) -> list[str]:
    """Append ``page``, or else the table, to the job's summary; return the lines of its log.

    They are a workflow command for each result that failed its test, but at most ten, the last of
    which counts the others: GitHub ignores more of a step. There are none outside of GitHub.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return []
    failed = [one for one in results if one.fails]
    shown = failed if len(failed) <= _MOST_ANNOTATIONS else failed[: _MOST_ANNOTATIONS - 1]
    lines = [
        error_annotation(one.file, one.line, f"flamegate: {one.report.name}", one.report.headline)
        for one in shown
    ]
    if others := [one.report.name for one in failed[len(shown) :]]:
        title = f"flamegate: {plural(len(others), 'workload')} more"
        lines.append(error_annotation("", None, title, f"Failed too: {', '.join(others)}"))
    try:
        if path := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write((page or step_summary(rows(results))) + "\n")
    except OSError as error:
        lines.append(f"GITHUB_STEP_SUMMARY cannot be written: {error}")
    return lines


def encode_findings(results: Sequence[ResultView]) -> bytes:
    """Return the results that fail as a Code Quality report: a JSON array of findings."""
    return encode_json([_describe_finding(one) for one in results if one.fails])


def _describe_finding(one: ResultView) -> dict[str, object]:
    word = one.report.verdict.verdict if one.report.verdict else "error"
    check = f"flamegate/{word}"
    kind = KINDS[word]
    failed = "major" if kind.is_valid else "critical"
    return {
        "description": visible(f"{one.report.name}: {one.report.headline}", _LONG),
        "check_name": check,
        # Equal ones are one finding to GitLab, so that of a workload stays the same between runs.
        "fingerprint": hashlib.sha256(f"{one.report.name}\0{check}".encode()).hexdigest(),
        "severity": failed if kind.tone == "bad" else "minor",
        "location": {"path": one.file or FILE_NAME, "lines": {"begin": max(one.line or 1, 1)}},
    }


def encode_figures(results: Sequence[ResultView], *, passed: bool) -> bytes:
    """Return the rates of both sides and their change as OpenMetrics text."""
    figures: dict[str, list[str]] = {"check_passed": [f" {int(passed)}"]}
    for one in choose_one_each(results):  # a series has one value
        for name, sample in _list_figures(one):
            figures.setdefault(name, []).append(sample)
    lines = []
    for name, samples in figures.items():
        lines += [f"# TYPE flamegate_{name} gauge", f"# HELP flamegate_{name} {_HELP[name]}"]
        lines += [f"flamegate_{name}{sample}" for sample in samples]
    return "\n".join([*lines, "# EOF\n"]).encode()


def _list_figures(one: ResultView) -> Iterator[tuple[str, str]]:
    name = visible(one.report.name, _LONG).replace("\\", "\\\\").replace('"', '\\"')
    label = f'workload="{name}"'
    yield "passed", f"{{{label}}} {int(not one.fails)}"
    rate = one.report.verdict.signal() if one.report.verdict else None
    if rate is None:
        return
    for side, value in (("base", rate.baseline), ("head", rate.current)):
        if value is not None:
            yield "tokens_per_second", f'{{{label},side="{side}"}} {value:.6g}'
    ends = {"estimate": rate.change_pct, "low": rate.ci_low_pct, "high": rate.ci_high_pct}
    for bound, value in ends.items():
        if value is not None:
            yield "rate_change_percent", f'{{{label},bound="{bound}"}} {value:.6g}'
