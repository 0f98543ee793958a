"""``flamegate check``: judge a commit by the policy of its base."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pytest_flamegate.commands import common
from pytest_flamegate.commands.check_answer import (
    heading,
    publish,
    replace_earlier,
    write_unfinished,
)
from pytest_flamegate.commands.run import gate_all
from pytest_flamegate.config.settings import Settings, read_ini
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import ARTIFACTS
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.core.git import (
    SCAN_S,
    Commit,
    digest_file,
    digest_files,
    find_top,
    list_uncommitted,
    query,
    read_commit,
)
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.observe.worktree import Checkout, open_checkout, open_checkouts
from pytest_flamegate.receipt import Grade
from pytest_flamegate.receipt.baseline import VERDICT
from pytest_flamegate.run.base_policy import (
    SETTINGS,
    Digests,
    Entry,
    compare_policies,
    compare_settings,
)
from pytest_flamegate.run.checkouts import same_commit_error
from pytest_flamegate.run.find_runs import find_attempts, find_runs
from pytest_flamegate.run.publish import Outcome
from pytest_flamegate.run.required_check import Check
from pytest_flamegate.run.session import Session
from pytest_flamegate.run.stored_run import judge_stored_run, missing_run_error
from pytest_flamegate.run.waivers import Waiver, find_new, read_waivers, today_utc


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files of one revision: the working tree, or a checkout of which nothing is run."""

    revision: str
    root: Path
    checkout: Checkout | None = None

    @classmethod
    def check_out(cls, stack: ExitStack, directory: Path, rev: str) -> _Tree:
        """Return ``rev`` of the repository around ``directory``, until ``stack`` ends.

        Its root is that of pytest's configuration for ``directory`` in this revision.
        """
        checkout = stack.enter_context(closing(open_checkout(directory, rev, lfs=False)))
        root = checkout.move_path(directory)
        found = read_ini(root)[0] if root.is_dir() else root
        is_inside = found.is_relative_to(checkout.root)
        return cls(checkout.commit, found if is_inside else root, checkout)

    def place(self, directory: Path) -> Path:
        """Return the counterpart in the working tree of a directory of this one.

        For a policy file outside of the repository it is the root's.
        """
        if self.checkout is None:
            return directory
        is_inside = directory.is_relative_to(self.checkout.root)
        inside = directory if is_inside else self.root
        return self.checkout.project / inside.relative_to(self.checkout.root)

    def move(self, path: Path) -> Path:
        """Return the counterpart of a path of the working tree."""
        return path if self.checkout is None else self.checkout.move_path(path)

    def read_declarations(self, settings: Settings) -> tuple[Entry, ...]:
        """Return the workloads declared here; none without a workload file."""
        config = settings.config and self.move(settings.config)
        try:
            return common.read_declarations(replace(settings, root=self.root, config=config))[1]
        except UsageError as error:
            if self.checkout is None:
                raise
            # As git names a file of a commit; the checkout is gone when this is read.
            problem = error.problem.replace(f"{self.checkout.root}/", f"{self.revision[:12]}:")
            raise UsageError(error.code, problem, error.remedy) from None

    @property
    def values(self) -> dict[str, Any]:
        """The keys in pytest's configuration file."""
        return read_ini(self.root)[1] if self.root.is_dir() else {}


@dataclass(frozen=True, slots=True)
class _CheckedCommits:
    """What is checked: the commits and the policy, in ``check``, which has no outcomes yet.

    ``requirements`` are arguments of ``verify_receipt``; ``attempts`` are the directories of the
    attempts before this one, and ``earlier`` their runs by workload.
    """

    check: Check
    settings: Settings
    requirements: Mapping[str, Any]
    attempts: Sequence[Path] = ()
    earlier: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    def judge(self, directory: Path, entry: Workload) -> Outcome:
        """Judge finished files of this attempt, together with those of the earlier ones."""
        commits = self.check.base, self.check.head
        runs = self.earlier.get(entry.name, ())
        others = {place: [e for e in runs if e.is_relative_to(place)] for place in self.attempts}
        return judge_stored_run(directory, entry, self.settings, commits, self.requirements, others)


@dataclass(slots=True)
class _Unfinished:
    """Where a check that ends with an error answers, and for which commits, as far as known."""

    base: str
    head: str = ""
    settings: Settings | None = None


def run_check(parsed: argparse.Namespace) -> int:
    """Check the working tree; return the exit code of the worst workload."""
    with _answering(parsed) as answer:
        case = _read_case(parsed, _read_requirements(parsed), answer)
        common.print_text("\n".join(heading(case.check)))
        case = _find_earlier(case, parsed)
        if parsed.receipts:
            found = _judge_stored(case, parsed.receipts)
        else:
            found = _measure(case, ended=parsed.ended)
    judged_by = shlex.join(["flamegate", *parsed.words]) if parsed.receipts else None
    publish(found, case.settings, judged_by)
    return found.exit_code


@contextmanager
def _answering(parsed: argparse.Namespace) -> Iterator[_Unfinished]:
    """Write the answer of a check that ends with an error: the judge shows its sentence."""
    answer = _Unfinished(parsed.base)
    with suppress(FlamegateError):
        # The base may name another directory, if there is one.
        answer.settings = common.read_settings(parsed)
        replace_earlier(answer.settings, parsed.base)
    try:
        yield answer
    except FlamegateError as error:
        settings, sentence = answer.settings, f"check failed: {error.problem}"
        with suppress(FlamegateError, OSError):
            if settings is not None and find_top(settings.root) is not None:
                write_unfinished(answer.base, answer.head, settings, sentence, error.exit_code)
        raise


def _read_case(
    parsed: argparse.Namespace, requirements: Mapping[str, Any], answer: _Unfinished
) -> _CheckedCommits:
    """Read what base and head declare; nothing is measured."""
    with ExitStack() as stack:
        # The base chooses the root too: a new pytest.ini must not hide its workload file.
        base = _Tree.check_out(stack, Path.cwd(), parsed.base)
        root = base.place(base.root)
        values = {name: value for name, value in base.values.items() if name in SETTINGS}
        declared_grade = values.get("require_grade")
        grades = requirements["require_grade"], declared_grade and Grade.parse(declared_grade)
        least_grade = max(filter(None, grades), default=Grade.OBSERVED)
        # An open question fails, whether CI is set or not. Receipts need the grade that the judge
        # of stored runs wants: time that no clock shows lowers it, but so does a GPU.
        settings = replace(
            common.read_settings(parsed, (root, values)),
            against=base.revision,
            strict=True,
            least_grade=least_grade.name,
        )
        answer.settings, answer.base = settings, base.revision
        replace_earlier(settings, base.revision)
        # Of a head that is not checked out the files are read, and nothing is run.
        head = (
            _Tree.check_out(stack, root, parsed.head)
            if parsed.head
            else _Tree(_require_clean(root).revision, root)
        )
        answer.head = head.revision
        if base.revision == head.revision:
            raise same_commit_error(
                f"The base {parsed.base} is the commit that is checked ({base.revision[:12]})."
            )
        known, waivers = (read_waivers(each.move(settings.directory)) for each in (base, head))
        own = find_new(waivers, known, root, base.revision)
        merged = tuple(each for each in waivers if each not in own)
        required, declared = (each.read_declarations(settings) for each in (base, head))
        base_name = f"The base {base.revision[:12]}"
        policy = compare_policies(required, declared, base_name, base.place, _accepting(own))
        changes = (*compare_settings(base.values, head.values), *policy.changes)
    policy = replace(policy, changes=changes)
    if not policy.required and not policy.new and not policy.dropped:
        raise UsageError("E_NO_WORKLOADS", "Neither the base nor the head declares a workload.")
    check = Check(base.revision, head.revision, policy, waivers=own, merged=merged)
    return _CheckedCommits(check, settings, {**requirements, "require_grade": least_grade})


def _find_earlier(case: _CheckedCommits, parsed: argparse.Namespace) -> _CheckedCommits:
    """Return the case with the attempts before this one; until it ends, its answer fails."""
    attempts = find_attempts(parsed.earlier, _attempt_number(parsed), case.settings.root)
    if parsed.earlier is not None and not attempts:
        common.print_text(f"no earlier attempt in {parsed.earlier}")
    earlier = find_runs(attempts)
    write_unfinished(case.check.base, case.check.head, case.settings)
    check = replace(case.check, earlier=len(attempts))
    return replace(case, check=check, attempts=attempts, earlier=earlier)


def _measure(case: _CheckedCommits, *, ended: bool) -> Check:
    """Measure the required workloads in pairs and new ones alone; ``ended``: old slowdowns too."""
    settings, policy = case.settings, case.check.policy
    files = digest_files(settings.root)
    outcomes = _measure_pairs(settings, policy.required, case.check.base, case.check.head)
    for index, each in enumerate(outcomes):
        if case.attempts and each.error is None:
            pooled = case.judge(each.directory, each.workload)
            outcomes[index] = replace(
                each, verdict=pooled.verdict, fails=pooled.fails, error=pooled.error
            )
    # There is nothing to compare a new workload with: it is measured alone.
    new = gate_all(replace(settings, against=None), policy.new) if policy.new else []
    old = _measure_ended(settings, policy.required, case.check.merged) if ended else []
    _require_unchanged(files)
    return replace(case.check, required=tuple(outcomes), new=tuple(new), ended=tuple(old))


def _judge_stored(case: _CheckedCommits, directories: Sequence[Path]) -> Check:
    """Judge the stored runs of each required workload; each of several has to pass."""
    session, policy = Session(case.settings), case.check.policy
    runs, outcomes = find_runs(directories), []
    ended = find_runs(directories, (VERDICT,))
    for entry in policy.required:
        stored = runs.get(entry.name, ())
        if isinstance(entry, InvalidWorkload):
            outcomes.append(session.reject(entry))
        elif not stored:
            missing = missing_run_error(entry.name, directories, ended.get(entry.name, ()))
            outcomes.append(session.reject(InvalidWorkload(entry.name, missing, None)))
        else:
            outcomes += [case.judge(each, entry) for each in stored]
    # Once it was merged, a declaration with an error would fail every later check.
    new = [session.reject(each) for each in policy.new if isinstance(each, InvalidWorkload)]
    return replace(case.check, required=tuple(outcomes), new=tuple(new))


def _read_requirements(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of ``verify_receipt``; UsageError for options that exclude each other.

    The grade is that of the option, None without it.
    """
    if parsed.workloads:
        raise UsageError(
            "E_BAD_OPTION",
            f"A check judges all workloads that its base requires, not {parsed.workloads[0]!r} "
            "alone.",
            f"Leave the name out; flamegate run {shlex.quote(parsed.workloads[0])} "
            f"--against={parsed.base} measures one.",
        )
    for name in ("head", "max_age", "kernel_policy", "key"):
        if getattr(parsed, name) and not parsed.receipts:
            raise UsageError(
                "E_BAD_OPTION",
                f"--{name.replace('_', '-')} is for --receipts: without it the commit that is "
                "checked out is measured here.",
                "Leave it out, or name the directories of finished runs: --receipts DIR.",
            )
    if parsed.ended and parsed.receipts:
        raise UsageError(
            "E_BAD_OPTION",
            "--ended measures, and --receipts measures nothing.",
            "Leave one of them out.",
        )
    requirements = common.read_requirements(parsed)
    asked = requirements["require_grade"]
    if asked is not None and asked > Grade.OBSERVED and not parsed.receipts:
        raise UsageError(
            "E_BAD_OPTION",
            f"A receipt that is measured here reaches OBSERVED, and never {asked.name}.",
            "Leave --require-grade out, or name the directories of finished runs: --receipts DIR.",
        )
    return requirements


def _accepting(waivers: Sequence[Waiver]) -> Callable[[str, Digests], bool]:
    """Return whether one of the waivers accepts how the declaration of a workload differs."""
    today = today_utc()
    valid = [each for each in waivers if each.find_problem(today) is None]
    accepted = {(each.workload, each.declarations) for each in valid}
    return lambda name, declarations: (name, declarations) in accepted


def _measure_pairs(
    settings: Settings, required: Sequence[Entry], base: str, head: str
) -> list[Outcome]:
    """Measure both commits in checkouts of one kind, so that no engine knows the head by its place.

    Raises ``ToolError`` ``E_TREE_CHANGED`` if the head's build or engine changes its files.
    """
    if not required:
        return []
    trees = open_checkouts(settings.root, base, head)
    with closing(trees[0]):
        files = digest_files(trees[1].root)
        outcomes = gate_all(settings, required, (trees[0], trees[1]))
        _require_unchanged(files)
    return outcomes


def _require_clean(root: Path) -> Commit:
    """Return the commit that is checked out; UsageError if files differ from it."""
    commit = read_commit(root)
    if commit is None:
        raise UsageError(
            "E_NO_REPOSITORY",
            f"There is no commit checked out at {root}.",
            "Run the check inside a clone of the project's repository.",
        )
    # Artifacts are not counted as files of the code, but an accepted slowdown has to be committed.
    places = f":(glob)**/{ARTIFACTS}/waivers/**"
    waived = query(root, "status", "--porcelain", "-uall", "--", places, timeout_s=SCAN_S)
    # None if git has failed: what it would have listed is unknown.
    if commit.uncommitted or waived != "":
        changed = [
            *(list_uncommitted(root) or ()),
            *(line[3:] for line in (waived or "").split("\n")),
        ]
        names = ", ".join(ascii(each) for each in changed[:3] if each)
        raise UsageError(
            "E_UNCOMMITTED",
            f"Files differ from the commit {commit.revision[:12]} (git status shows them"
            f"{names and ': '}{names}), or the index has git skip them (git ls-files -v), and the "
            "check judges commits.",
        )
    return commit


def _require_unchanged(files: Mapping[Path, str]) -> None:
    """Raise ``ToolError`` if measuring has changed a file of the commit."""
    if changed := [path for path, digest in files.items() if digest_file(path) != digest]:
        raise ToolError(
            "E_TREE_CHANGED",
            f"Measuring changed {len(changed)} files of the commit, such as {changed[0].name}, so "
            "it may have measured other code than the commit's.",
        )


def _measure_ended(
    settings: Settings, required: Sequence[Entry], merged: Sequence[Waiver]
) -> list[tuple[Waiver, Outcome]]:
    """Compare each accepted slowdown whose waiver has ended with the commit before it.

    That commit is older than the base, so comparing with the base says nothing about it.
    """
    found = []
    for waiver in merged:
        if waiver.kind != "slowdown" or not waiver.is_expired(today_utc()):
            continue
        # A workload that is required no longer is not measured for its waiver.
        for entry in required:
            if entry.name != waiver.workload or isinstance(entry, InvalidWorkload):
                continue
            directory = settings.directory / "ended"
            before = replace(settings, against=waiver.base, directory=directory)
            (outcome,) = gate_all(before, [entry])
            name = f"{entry.name} against {waiver.base[:12]}"
            shown = replace(outcome.workload, name=name, source=outcome.workload.node_name)
            found.append((waiver, replace(outcome, workload=shown)))
    return found


def _attempt_number(parsed: argparse.Namespace) -> int | None:
    """Return the number of this attempt, None if it is not known."""
    if parsed.attempt is not None or parsed.receipts:
        return cast("int | None", parsed.attempt)
    number = os.environ.get("GITHUB_RUN_ATTEMPT", "")
    # Python reads no number of thousands of digits, and there are not so many attempts.
    return int(number[:9]) if number.isdecimal() else None
