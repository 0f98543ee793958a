"""What is about to be written, without what looks like a secret.

It is taken out where text still is text: before it is encoded, escaped or digested. What
is made of that afterwards is looked through once more as a whole.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pytest_flamegate.errors import FlamegateError, NoBaselineError, ToolError, UndecidedError
from pytest_flamegate.gate import Reason, refused
from pytest_flamegate.workload.digest import generated
from pytest_flamegate.workload.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.gate import Verdict
    from pytest_flamegate.profile import Frame, Profile, Stack
    from pytest_flamegate.receipt.types import Evidence, Receipt
    from pytest_flamegate.workload.observation import Observation
    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.spec import Workload


def of_profile(profile: Profile, redactor: Redactor) -> Profile:
    """Return ``profile`` without secrets in the names of its functions and files."""
    frames = {frame for stack in profile.stacks for frame in stack}
    whole = "\n".join(f"{frame.name}\n{frame.module}" for frame in frames)
    if redactor.surely(whole, "profile") == whole:
        return profile
    clean = {frame: _frame(frame, redactor) for frame in frames}
    stacks: Counter[Stack] = Counter()
    for stack, count in profile.stacks.items():
        stacks[tuple(clean[frame] for frame in stack)] += count
    return replace(profile, stacks=dict(stacks))


def _frame(frame: Frame, redactor: Redactor) -> Frame:
    name, module = (redactor.surely(each, "profile") for each in (frame.name, frame.module))
    return frame._replace(name=name, module=module)


def of_reports(seen: Observation, redactor: Redactor) -> Observation:
    """Return ``seen`` without secrets in what engines say of themselves: names, all of it.

    Two names that are the same without their secrets count together, of figures the last stays.
    """
    runs = tuple(
        replace(run, reported=tuple(_report(report, redactor) for report in run.reported))
        if run.reported
        else run
        for run in seen.runs
    )
    return seen if runs == seen.runs else replace(seen, runs=runs)


def _report(report: Report, redactor: Redactor) -> Report:
    def clean(name: str) -> str:
        return redactor.surely(name, "evidence.runs.reported")

    kernels: Counter[str] = Counter()
    for name, count in report.kernels.items():
        kernels[clean(name)] += count
    figures = {clean(name): value for name, value in report.figures.items()}
    return replace(report, source=clean(report.source), figures=figures, kernels=dict(kernels))


def of_claim(
    receipt: Receipt | None, evidence: Evidence, redactor: Redactor
) -> tuple[Receipt | None, Evidence]:
    """Return both without secrets; the evidence says where one was taken out.

    ``ToolError`` ``E_SECRET_IN_OUTPUT`` where the engine itself wrote one: without it the
    tokens would not be those that were seen.
    """
    text = generated(evidence.tokens, evidence.token_source)
    if Redactor(redactor.values).surely(text, "") != text:
        raise ToolError(
            "E_SECRET_IN_OUTPUT",
            f"The output of {evidence.workload.get('name')!r} holds what looks like a secret: a "
            "token of a known form, or the value of a variable with a name like a secret's.",
            "Keep it out of what the engine writes, or out of its environment.",
        )
    receipt = redactor.clean(receipt, "receipt")
    evidence = redactor.clean(evidence, "evidence")
    return receipt, replace(evidence, redacted=tuple(redactor.places))


def of_verdict(verdict: Verdict, redactor: Redactor) -> Verdict:
    """Return ``verdict`` without secrets; its reasons may quote what a program said."""
    reasons = tuple(
        replace(each, message=redactor.text(each.message, "verdict")) for each in verdict.reasons
    )
    return redactor.clean(replace(verdict, reasons=reasons), "verdict")


def verdict_on(error: FlamegateError, workload: Workload) -> Verdict:
    """Return the verdict of a run that failed; what a program said stands in it without secrets."""
    redactor = Redactor.of(os.environ, workload.env)
    name: Literal["no_baseline", "inconclusive", "error"] = "error"
    if isinstance(error, UndecidedError):
        name = "no_baseline" if isinstance(error, NoBaselineError) else "inconclusive"
    return refused(
        name,
        [Reason(error.code, redactor.text(f"{error.what} {error.todo}", "verdict"))],
        grade="SELF_REPORTED",
    )


def require_none(files: Mapping[str, bytes], redactor: Redactor) -> None:
    """Look through the very bytes that will be written.

    ``ToolError`` ``E_SECRET``: what is found here came by a way that nobody thought of.
    """
    for name, data in files.items():
        text = data.decode("utf-8", "replace")
        if Redactor(redactor.values).surely(text, "") != text:
            raise ToolError(
                "E_SECRET",
                f"Nothing was written: {name} would hold what looks like a secret.",
                "Unset the variable that holds it while measuring, and report this.",
            )
