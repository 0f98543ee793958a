"""The required check: the policy of the base, how a head would change it, and the result.

The judge reads the policy from the base, so that a change cannot relax the check that judges it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import (
    FlamegateError,
    UndecidedError,
    UsageError,
    worst_code,
)
from pytest_flamegate.core.files import real_path
from pytest_flamegate.core.git import query
from pytest_flamegate.core.text import format_value, suggest
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.gate.verdict import PASSES, headline
from pytest_flamegate.models.discover import find_model, find_tokenizer
from pytest_flamegate.models.files import model_files
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.rerun import compare_recipes
from pytest_flamegate.report.text import plural
from pytest_flamegate.run.publish import Outcome, shorten_options
from pytest_flamegate.run.waivers import Waiver, find_other_tokens, today_utc

CHECK_VERSION = "1.0.0"
_DIGEST = 12
SETTINGS = (
    *("profiler", "budget", "config", "dir", "instructions", "strict", "share_drift"),
    *("tokens_per_second", "hotspots", "peak_gflops", "require_grade"),
)
"""The keys of pytest's configuration file that belong to the policy."""

Entry = Workload | InvalidWorkload


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A value of the policy that the head changes; it counts once the change is merged.

    ``workload`` is empty for a setting of the whole run.
    """

    workload: str
    key: str
    base: str
    head: str

    def __str__(self) -> str:
        return f"{self.workload or 'settings'}: {self.key} {self.base} → {self.head}"


@dataclass(frozen=True, slots=True)
class BasePolicy:
    """The workloads that the check measures, and the differences between base and head.

    Attributes:
        required: The base's workloads, to be run in the head's tree. One that the head lacks, or
            declares with an error, is an ``InvalidWorkload``.
        new: The head's workloads that the base does not have.
        changes: What the head declares otherwise than the base.
    """

    required: tuple[Entry, ...]
    new: tuple[Entry, ...] = ()
    changes: tuple[PolicyChange, ...] = ()


def compare_policies(
    base: Sequence[Entry],
    head: Sequence[Entry],
    base_name: str,
    place: Callable[[Path], Path],
) -> BasePolicy:
    """Return the base's workloads as they run in the working tree, and the differences.

    ``place`` returns the counterpart there of a directory of the base.

    A build of the head is used if the base has none: a change may introduce it. Any other key
    counts as the base declares it.
    """
    declared = {each.name: each for each in head}
    digest_model = cache(_digest_model)
    required: list[Entry] = []
    changes: list[PolicyChange] = []
    for entry in base:
        found = declared.pop(entry.name, None)
        if isinstance(entry, InvalidWorkload) or isinstance(found, InvalidWorkload):
            required.append(found if isinstance(found, InvalidWorkload) else entry)
        elif found is None:
            required.append(_missing(entry, list(declared), base_name))
        else:
            changes += _compare(entry, found)
            old, new = (digest_model(each.model, each.directory) for each in (entry, found))
            if old and new and old != new:
                content = f"content of {entry.model}"
                changes.append(PolicyChange(entry.name, content, old[:_DIGEST], new[:_DIGEST]))
            build = entry.build or found.build
            directory = place(entry.directory)
            required.append(replace(entry, directory=directory, source=found.source, build=build))
    return BasePolicy(tuple(required), tuple(declared.values()), tuple(changes))


def compare_settings(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[PolicyChange]:
    """Return the settings of the policy that differ between two configuration files."""
    return [
        PolicyChange("", f"flamegate_{name}", _show(base.get(name)), _show(head.get(name)))
        for name in SETTINGS
        if base.get(name) != head.get(name)
    ]


def _missing(entry: Workload, others: Sequence[str], base_name: str) -> InvalidWorkload:
    error = UsageError(
        "E_REQUIRED_WORKLOAD",
        f"{base_name} requires the workload {entry.name!r}, and the head does not declare it.",
        f"Declare it again; merge its removal by itself, without this check. "
        f"{suggest(entry.name, others) if others else ''}".rstrip(),
    )
    return InvalidWorkload(entry.name, error, None)


def _compare(base: Workload, head: Workload) -> Iterator[PolicyChange]:
    for name, old, new in compare_recipes(_list_keys(base), _list_keys(head)):
        if name != "source":
            yield PolicyChange(base.name, name, _show(old), _show(new))


def _digest_model(model: str | None, directory: Path) -> str:
    """Return a digest of the declared model's files as git tracks them; empty if there are none.

    They are the file or the files of the directory, the other parts, the tokenizer, and what links
    among them lead to in the repository. What git does not track is the same for both sides.
    """
    top = query(directory, "rev-parse", "--show-toplevel") if model else None
    if not model or not top:
        return ""
    found = [directory / model]
    if found[0].is_dir():
        found += [each for each in found[0].rglob("*") if each.is_symlink()]
    else:
        with suppress(FlamegateError):
            found += model_files(find_model(model, directory))
            found.append(find_tokenizer(directory, found[-1]))
    paths = {real_path(each) for each in found}
    inside = [f":(literal){each}" for each in paths if each.is_relative_to(real_path(Path(top)))]
    listed = query(Path(top), "ls-files", "-s", "-z", "--", *inside) if inside else ""
    objects = [entry.split()[1] for entry in (listed or "").split("\0") if entry]
    return hashlib.sha256(" ".join(objects).encode()).hexdigest() if objects else ""


def _list_keys(workload: Workload) -> dict[str, object]:
    """Return everything that a declaration chooses."""
    limits = {each.name: getattr(workload.thresholds, each.name) for each in fields(Thresholds)}
    return {**recipe(workload), "profile": workload.sampling, **limits}


def _show(value: object) -> str:
    if value in (None, []):
        return "(none)"
    if isinstance(value, Mapping):
        return format_value({key: str(each) for key, each in value.items()})
    return format_value(value) if isinstance(value, str | int | float | list) else str(value)


@dataclass(frozen=True, slots=True)
class Check:
    """The result: both commits, the policy, and the outcome of each of its workloads in order.

    ``waivers`` are those of the change itself; ``debt`` describes them and those merged before.
    ``earlier`` is the number of attempts before this one.
    """

    base: str
    head: str
    policy: BasePolicy
    required: tuple[Outcome, ...]
    new: tuple[Outcome, ...]
    waivers: tuple[Waiver, ...] = ()
    debt: tuple[str, ...] = ()
    earlier: int = 0

    def _find_waiver(self, outcome: Outcome) -> Waiver | None:
        """Return the waiver that this change adds for such a verdict on the workload, if any."""
        name, verdict = outcome.workload.name, outcome.verdict
        of_name = (each for each in self.waivers if each.workload == name)
        return next((each for each in of_name if each.concerns(verdict)), None)

    def passes(self, outcome: Outcome) -> bool:
        """Whether a required workload passes, by itself or because it is accepted as it is."""
        if outcome.verdict.verdict in PASSES and not outcome.exit_code:
            return True
        waiver = self._find_waiver(outcome)
        return waiver is not None and _find_excess(waiver, outcome) is None

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The required workloads that did not pass, and new ones that do not work."""
        broken = [each for each in self.new if each.verdict.verdict in ("error", "dishonest")]
        return (*(each for each in self.required if not self.passes(each)), *broken)

    @property
    def accepted(self) -> tuple[Outcome, ...]:
        """The required workloads that pass only because a waiver accepts them as they are."""
        return tuple(each for each in self.required if each.exit_code and self.passes(each))

    @property
    def exit_code(self) -> int:
        """The exit code of the worst workload."""
        # A required workload that nothing was compared with has the code 0 by itself.
        return worst_code(each.exit_code or UndecidedError.exit_code for each in self.failed)

    @property
    def sentence(self) -> str:
        """The answer: how many required workloads passed, and which failed."""
        count = plural(len(self.required), "required workload")
        by = f"by the policy of {self.base[:12]}"
        if self.earlier:
            by = f"in attempt {self.earlier + 1}, with all earlier ones, {by}"
        if self.failed:
            names = ", ".join(map(self._describe_failure, self.failed))
            return f"check failed {by}: {names}; {count}"
        if not self.required:
            return f"check passed, and required nothing: {self.base[:12]} declares no workload"
        slower = [e.workload.name for e in self.accepted if e.verdict.verdict == "regressed"]
        others = [e.workload.name for e in self.accepted if e.verdict.verdict != "regressed"]
        answers = [count]
        if slower:
            answers.append(f"slower as accepted: {', '.join(slower)}")
        elif len(others) < len(self.required):
            answers.append(f"none {'of those compared ' if others else ''}past its threshold")
        if others:
            names = ", ".join(others)
            answers.append(f"{len(others)} NOT COMPARED: other tokens, as accepted: {names}")
        return f"check passed {by}: {', '.join(answers)}"

    def _describe_failure(self, outcome: Outcome) -> str:
        word = outcome.verdict.verdict.replace("_", " ")
        if _other_tokens(outcome) is not None:
            word += ": other tokens. If they are meant, accept them: flamegate accept"
        elif outcome.error is not None and outcome.error.code == "E_TARGET_NOT_FOUND":
            word += ": the base's target is gone. Keep the old name importable for one change"
        waiver = self._find_waiver(outcome)
        excess = _find_excess(waiver, outcome) if waiver else None
        return f"{outcome.workload.name} ({excess or word})"

    def document(self) -> dict[str, Any]:
        """Return the result as the content of ``check.json``."""
        return {
            "check_version": CHECK_VERSION,
            "base": self.base,
            "head": self.head,
            "passed": self.exit_code == 0,
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            "attempt": self.earlier + 1,
            "required": [_row(each) for each in self.required],
            "new": [_row(each) for each in self.new],
            "waivers": list(self.debt),
            "policy_changes": [asdict(each) for each in self.policy.changes],
        }


def _other_tokens(outcome: Outcome) -> str | None:
    return find_other_tokens(outcome.verdict, outcome.baseline, outcome.evidence)


def _find_excess(waiver: Waiver, outcome: Outcome) -> str | None:
    return waiver.find_excess(outcome.verdict, _other_tokens(outcome), today_utc())


def _row(outcome: Outcome) -> dict[str, Any]:
    verdict, rate = outcome.verdict, outcome.verdict.signal()
    return {
        "workload": outcome.workload.name,
        "verdict": verdict.verdict,
        "headline": shorten_options(headline(verdict)),
        "exit_code": outcome.exit_code,
        "change_pct": rate and rate.change_pct,
        "interval_pct": rate and [rate.ci_low_pct, rate.ci_high_pct],
        "grade": verdict.grade,
        "reasons": [reason.code for reason in verdict.reasons],
    }
