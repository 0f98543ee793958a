"""Traps in GitHub's workflows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_flamegate.commands.ci_files import (
    FETCHES,
    MOVES,
    CiFile,
    CiJob,
    Trap,
    YamlTable,
    YamlText,
    find_ignored,
    find_in_commands,
    has_check,
    measures,
    runs_check,
    scalars,
    shallow_trap,
)

GITHUB = ".github/workflows"
_CHANGES = frozenset(
    {"pull_request", "pull_request_target", "merge_group", "workflow_run", "workflow_call"}
)
"""Events of a change that is not merged yet."""
_PRIVILEGED = ("pull_request_target", "workflow_run")
"""Events whose jobs get secrets and a token that may write."""
_HEAD = re.compile(
    r"github\.head_ref|refs/pull/|\bpull/.{1,80}?/(?:head|merge)\b"
    r"|pull_request\.(?:head\b|merge_commit_sha)"
    r"|workflow_run\.(?:head_|pull_requests)"
)
_FETCHED = re.compile(r"\bpull/.{1,80}?/(?:head|merge):(?:refs/heads/)?([\w./-]+)")
"""Group 1 is the local branch that a pull request becomes."""
_CHOSEN = re.compile(
    r"\$\{\{[^}]{0,500}(?:github\.head_ref|(?i:tojson)\(\s*github(?:\.event(?:\.pull_request)?)?\s*\)"
    r"|\.(?:title|body|message|display_title|head_branch|(?:author|committer)\.(?:name|email)"
    r"|head\.(?:ref|label|repo\.(?:default_branch|description|homepage))))"
    r"(?![\w-])"
)
"""A text of the event that its author chooses, as a part of a command."""
_VARIABLE = re.compile(r"\$\{?(\w+)")
_ENV = re.compile(r"\$\{\{\s*env\.(\w+)\s*\}\}")
_CHECKS_OUT = re.compile(
    r"\bgit\b.*\s(?:checkout|switch|reset|merge|rebase|pull|cherry-pick|archive"
    r"|worktree\s+add)\s"
)
_PR_CHECKOUT = re.compile(r"\bgh\s+pr\s+checkout\b")
_DOWNLOADS = re.compile(r"(?:^|/)(?:action-)?download-artifact(?:@|$)")
_GH_DOWNLOADS = re.compile(r"\bgh\s+run\s+download\b(?:.*\s(?:-D|--dir)[\s=]*[\"']?([^\s\"']+))?")
_RUNS = (
    r"(?:^|[;&|(]\s*|\b(?:bash|sh|source|python[\d.]*|node|perl|ruby|exec|env|sudo|cd|make\s+-C"
    r"|chmod\s+\S+|(?:pip[\d.]*|npm)\s+install)\s+(?:-\S+\s+)*|(?:^|\s)\.\s+)[\"']?"
)
_TO_RUNNER = re.compile(r">>?\s*[\"']?\$\{?GITHUB_(?:ENV|PATH|OUTPUT)")
_STATUS = re.compile(r"/statuses/|/check-runs|createCommitStatus|checks\.create")
_FIXED = re.compile(r"[0-9a-f]{40}|v?\d+(?:\.\d+)*(?:[-.]?\w+)?(?:\.\d+)?|sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Job(CiJob):
    """One job of a workflow."""

    @property
    def events(self) -> YamlTable:
        """The events that start the workflow, each with its filters."""
        return _read_events(self.document.content)

    @property
    def steps(self) -> list[YamlTable]:
        return self.table.tables("steps")

    @property
    def scripts(self) -> list[YamlText]:
        return [step["run"] for step in self.steps if isinstance(step.get("run"), YamlText)]

    @property
    def commands(self) -> list[tuple[int, str]]:
        return [each for script in self.scripts for each in script.commands()]

    @property
    def is_for_changes(self) -> bool:
        return not _CHANGES.isdisjoint(self.events)

    @property
    def measures(self) -> bool:
        return self.is_for_changes and any(measures(text) for _, text in self.commands)

    @property
    def judges(self) -> bool:
        return self.is_for_changes and any(
            runs_check(text) and "--receipts" in text for _, text in self.commands
        )

    @property
    def called(self) -> str:
        """The workflow of this repository that the job calls, empty if it calls none."""
        uses = self.table.text("uses")
        return uses.removeprefix("./") if uses.startswith("./") else ""

    @property
    def is_privileged(self) -> bool:
        return any(event in self.events for event in _PRIVILEGED)

    @property
    def around(self) -> tuple[YamlTable, YamlTable]:
        """What holds for all of its steps."""
        return self.table, self.document.content


def find_github_traps(workflows: Sequence[CiFile]) -> Iterator[Trap]:
    """Yield the traps of all workflows of a repository."""
    jobs = [
        _Job(document, name, job)
        for document in workflows
        for name, job in document.content.table("jobs").items()
        if isinstance(job, YamlTable)
    ]
    judging = [job for job in jobs if job.judges]
    measuring = [job for job in jobs if job.measures]
    deciding = judging or measuring
    if not any(map(has_check, (script for job in deciding for script in job.scripts))):
        yield Trap(
            "E_CI_NO_CHECK",
            "No workflow runs flamegate check for a pull request. Inside pytest the change itself "
            "decides what is gated.",
            file=GITHUB,
        )
    # A job that calls a workflow of this repository can be skipped like the jobs in it.
    calling = [job for job in jobs if job.called in {each.document.name for each in deciding}]
    for document in workflows:
        if any(job.document is document for job in (*measuring, *judging, *calling)):
            yield from _find_filters(document)
        yield from find_in_commands(document, document.content)
    for job in jobs:
        yield from _find_job_traps(job, decides=job in deciding or job in calling)
        if "secrets" in job.table and job.called in {each.document.name for each in measuring}:
            yield _secret_trap(job, job.table.line_of("secrets"))


def _find_job_traps(job: _Job, *, decides: bool) -> Iterator[Trap]:
    if decides:
        yield from _find_skips(job)
        yield from _find_ignored(job)
    if job.judges:
        yield from _find_missing_status(job)
    if job.measures:
        yield from _find_rights(job)
    if job.judges or job.measures:
        yield from _find_shallow(job)
    if job.is_privileged:
        yield from _find_head_code(job)
        yield from _find_artifact_code(job)
    if job.judges or job.measures or job.is_privileged:
        yield from _find_moving_actions(job)


def _read_events(content: YamlTable) -> YamlTable:
    """Return ``on``, which may be a name, a list of names or a mapping, as a mapping."""
    found = content.get("on")
    if isinstance(found, YamlTable):
        return found
    events = YamlTable()
    events.line = content.line_of("on")
    for each in scalars(found):
        events[each], events.lines[each] = YamlTable(), each.line
    return events


def _find_filters(document: CiFile) -> Iterator[Trap]:
    """Yield the filters that keep a workflow of the check from starting."""
    events = _read_events(document.content)
    for name in _CHANGES.intersection(events):
        event = events.table(name)
        keys = ["paths", "paths-ignore"]
        if name == "workflow_run":
            # A fork chooses the name of its branch.
            keys += ["branches", "branches-ignore"]
        for key in keys:
            if key in event:
                yield document.trap(
                    "E_CI_SKIPPED",
                    event.line_of(key),
                    f"{key} keeps this workflow from starting for some changes: the check is then "
                    "never reported, or a job of the same name reports instead.",
                    f"Remove {key}: the check always runs.",
                )
    if "pull_request" in events and "merge_group" not in events:
        yield document.trap(
            "E_CI_SKIPPED",
            events.line_of("pull_request"),
            "In a merge queue the check does not run: there is no merge_group among the events.",
            "Add merge_group: below on:.",
        )


def _find_skips(job: _Job) -> Iterator[Trap]:
    if "if" in job.table and _condition(job.table) != "always()":
        yield job.trap(
            "E_CI_SKIPPED",
            job.table.line_of("if"),
            "its if: can skip it, and a skipped job counts as success.",
        )
    elif "needs" in job.table and "if" not in job.table:
        yield job.trap(
            "E_CI_SKIPPED",
            job.table.line_of("needs"),
            "it is skipped if a job that it needs fails, and a skipped job counts as success.",
            "Write if: always(), and let the job fail if files are missing.",
        )
    for step in job.steps:
        if has_check(step.get("run")) and _condition(step) not in ("", "always()", "success()"):
            yield job.trap(
                "E_CI_SKIPPED",
                step.line_of("if"),
                "the if: of this step can skip the check, and the job then succeeds.",
                "Remove the condition.",
            )


def _condition(table: YamlTable) -> str:
    return re.sub(r"[\s${}]", "", table.text("if"))


def _find_ignored(job: _Job) -> Iterator[Trap]:
    for table in (job.table, *job.steps):
        is_own = table is job.table or has_check(table.get("run"))
        if is_own and table.text("continue-on-error", "false") != "false":
            yield job.trap(
                "E_CI_IGNORED",
                table.line_of("continue-on-error"),
                "continue-on-error lets it succeed although the check failed.",
                "Remove continue-on-error.",
            )
    for step in job.steps:
        places = (step, *(each.table("defaults").table("run") for each in job.around))
        shell = next((each.text("shell") for each in places if "shell" in each), "")
        if isinstance(step.get("run"), YamlText):
            yield from find_ignored(job.document, [step["run"]], shell=shell)


def _find_missing_status(job: _Job) -> Iterator[Trap]:
    for step in job.steps:
        text = step.text("run") + step.table("with").text("script")
        if _STATUS.search(text) and _condition(step) != "always()":
            yield job.trap(
                "E_CI_SKIPPED",
                step.line,
                "this step sets the status, and is skipped if a step before it fails: an earlier "
                "status of the same commit then stays.",
            )


def _find_rights(job: _Job) -> Iterator[Trap]:
    """Yield secrets and rights of a job that runs the code of the change."""
    holder = next((each for each in job.around if "permissions" in each), None)
    if holder is None:
        missing = "permissions: is missing, and the repository's default may be to write"
        found = [(job.document.content.line_of("jobs"), missing)]
    elif isinstance(granted := holder["permissions"], YamlTable):
        rights = [name for name in granted if granted.text(name) == "write"]
        found = [(granted.line_of(name), f"with {name}: write") for name in rights]
    else:
        is_all = granted == "write-all"
        found = [(holder.line_of("permissions"), "with write-all")] if is_all else []
    for line, rights_text in found:
        yield job.trap("E_CI_RIGHTS", line, f"it runs the code of the change, {rights_text}.")
    shared = (job.document.content.get("env"), job.table)
    for each in (found for part in shared for found in scalars(part)):
        if re.search(r"\bsecrets\b(?!\.GITHUB_TOKEN\b)", each) and "${{" in each:
            yield _secret_trap(job, each.line)


def _secret_trap(job: _Job, line: int) -> Trap:
    message = "it runs the code of the change, which can read this secret."
    remedy = "Use the secret in a job that runs nothing of the change."
    return job.trap("E_CI_RIGHTS", line, message, remedy)


def _find_shallow(job: _Job) -> Iterator[Trap]:
    if any(FETCHES.search(text) for _, text in job.commands):
        return
    for step in job.steps:
        is_checkout = step.text("uses").startswith("actions/checkout")
        repository = step.table("with").text("repository")
        is_other = repository and "${{" not in repository
        if is_checkout and not is_other and step.table("with").text("fetch-depth", "1") != "0":
            yield shallow_trap(job.document, step.line)


def _find_head_code(job: _Job) -> Iterator[Trap]:
    """Yield the places where a job with rights checks out the code of the change."""
    tables = [each.table("env") for each in (*job.around, *job.steps)]
    names = {name for table in tables for name in table if _HEAD.search(table.text(name))}
    fetched = [name for _, text in job.commands for name in _FETCHED.findall(text)]
    branches = re.compile(rf"(?<![\w/-])(?:{'|'.join(map(re.escape, fetched))})(?![\w/-])")

    def is_head(text: str) -> bool:
        used = {*_VARIABLE.findall(text), *_ENV.findall(text)}
        is_branch = bool(fetched and branches.search(text))
        return bool(_HEAD.search(text) or "FETCH_HEAD" in text or used & names or is_branch)

    lines = [
        step.table("with").line_of(key)
        for step in job.steps
        for key in ("ref", "repository")
        if step.text("uses").startswith("actions/checkout")
        and is_head(step.table("with").text(key))
    ]
    lines += [
        line
        for line, text in job.commands
        if _PR_CHECKOUT.search(text) or (_CHECKS_OUT.search(text) and is_head(text))
    ]
    event = next(each for each in _PRIVILEGED if each in job.events)
    rights = f"and {event} gives it secrets and a token that may write."
    for line in lines:
        yield job.trap("E_CI_HEAD_CODE", line, f"it checks out the code of the change, {rights}")
    actions = [step.table("with").get("script") for step in job.steps]
    for script in (*job.scripts, *(each for each in actions if isinstance(each, YamlText))):
        for line, text in script.commands():
            if _CHOSEN.search(text):
                yield _chosen_trap(job, line, rights)


def _chosen_trap(job: _Job, line: int, rights: str) -> Trap:
    return job.trap(
        "E_CI_HEAD_CODE",
        line,
        f"the author of the change chooses a part of this command, {rights}",
        "Pass the value in env:, and write it as a variable in quotes.",
    )


def _find_artifact_code(job: _Job) -> Iterator[Trap]:
    """Yield the places where a job with rights runs the files of a job without."""
    downloads = [
        (step.line, step.table("with").text("path"))
        for step in job.steps
        if _DOWNLOADS.search(step.text("uses"))
    ]
    commands = list(job.commands)
    for line, text in commands:
        downloads += [(line, path) for path in _GH_DOWNLOADS.findall(text)]
    places = []
    for line, path in downloads:
        place = _shell_path(path)
        if place in ("", ".", "$GITHUB_WORKSPACE"):
            yield job.trap(
                "E_CI_HEAD_CODE",
                line,
                "the uploaded files are unpacked over the checkout, so they can replace programs "
                "that this job runs.",
            )
        else:
            places.append(re.escape(place))
    if not places:
        return
    place = rf"(?:{'|'.join(places)})"
    runs = re.compile(rf"{_RUNS}(?:\./)?{place}(?=[/\"'\s;]|$)")
    key = "working-directory"
    commands += [(each.line_of(key), f"cd {each[key]}") for each in job.steps if key in each]
    for line, text in commands:
        plain = re.sub(r"\$\{(\w+)\}", r"$\1", _shell_path(text))
        if runs.search(plain) or (_TO_RUNNER.search(plain) and re.search(place, plain)):
            yield job.trap(
                "E_CI_HEAD_CODE", line, "it runs files that the code of the change has written."
            )


def _shell_path(text: str) -> str:
    """Return ``text`` with GitHub's directories as the variables of the shell."""
    for name, variable in (("temp", "$RUNNER_TEMP"), ("workspace", "$GITHUB_WORKSPACE")):
        text = re.sub(rf"\$\{{\{{\s*(?:runner|github)\.{name}\s*\}}\}}", variable, text)
    return text.strip().removeprefix("./").rstrip("/")


def _find_moving_actions(job: _Job) -> Iterator[Trap]:
    for table in (job.table, *job.steps):
        uses = table.text("uses")
        if not uses or uses.startswith(("./", "docker://")):
            continue
        action, _, version = uses.partition("@")
        if not _FIXED.fullmatch(version):
            message = f"Job {job.name}: {action} is taken from the branch {version!r}."
            yield job.document.trap("E_CI_NOT_PINNED", table.line_of("uses"), f"{message} {MOVES}")
