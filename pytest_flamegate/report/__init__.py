"""What people see: flame graphs, pages, terminal text and CI annotations.

Nothing is judged or measured here: every figure comes from the verdict, the receipt,
the evidence or the profile. A new kind of report is one new file.
"""

from __future__ import annotations

from pytest_flamegate.report.ci import error_annotation, step_summary
from pytest_flamegate.report.difference_svg import difference_svg
from pytest_flamegate.report.flame_html import flamegraph_html
from pytest_flamegate.report.flame_svg import flamegraph
from pytest_flamegate.report.markdown import GuideEntry, flamegraph_markdown, guide_readme
from pytest_flamegate.report.sections import picture_subtitle
from pytest_flamegate.report.terminal import (
    Outcome,
    failure_section,
    preamble,
    summary,
    verification_text,
)

__all__ = [
    "GuideEntry",
    "Outcome",
    "difference_svg",
    "error_annotation",
    "failure_section",
    "flamegraph",
    "flamegraph_html",
    "flamegraph_markdown",
    "guide_readme",
    "picture_subtitle",
    "preamble",
    "step_summary",
    "summary",
    "verification_text",
]
