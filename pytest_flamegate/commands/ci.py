"""``flamegate doctor --ci``: traps in GitHub's workflows and in GitLab's pipeline.

A trap is a place in which a slower commit can pass the required check, or in which the code of a
change gets rights that it must not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.commands.ci_files import (
    FETCHES,
    CiFile,
    CiJob,
    Trap,
    YamlList,
    YamlTable,
    YamlText,
    find_ignored,
    find_in_commands,
    has_check,
    read_document,
    scalars,
    shallow_trap,
)
from pytest_flamegate.commands.ci_github import GITHUB, find_github_traps
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.files import relative
from pytest_flamegate.report.text import plural

GITLAB = ".gitlab-ci.yml"
_LISTED = 4
TRAPPED = 2
"""Exit code if any trap is found."""
_REQUEST = '$CI_PIPELINE_SOURCE == "merge_request_event"'
_MET = ("", _REQUEST, "$CI_MERGE_REQUEST_IID", "$CI_MERGE_REQUEST_ID")
"""Conditions that hold for every merge request."""
_BRANCH = "$CI_COMMIT_BRANCH"
_ELSEWHERE = re.compile(
    r'\$CI_PIPELINE_SOURCE == "(?!merge_request_event")\w+"'
    r"|\$CI_COMMIT_TAG|\$CI_COMMIT_BRANCH && \$CI_OPEN_MERGE_REQUESTS"
)
"""Conditions that hold in no pipeline of a merge request."""
_OTHER_REFS = frozenset({"tags", "schedules", "triggers", "web", "api", "pipelines", "external"})
_STARTS = ("on_success", "always", "delayed")
_MAX_DEPTH = 10
"""GitLab follows no more templates or references from one to the next."""

_Jobs = Mapping[str, CiJob]


def run(directory: Path) -> int:
    """Print the traps of the repository around ``directory``; return 0 if it has none, else 2."""
    root = git.find_top(directory) or directory
    workflows = [
        read_document(path, root)
        for path in sorted((root / GITHUB).glob("*"))
        if path.suffix in (".yml", ".yaml")
    ]
    pipeline = _read_pipeline(root)
    if not workflows and not pipeline:
        raise UsageError(
            "E_CI_NO_CHECK", f"There is neither a workflow in {GITHUB} nor a {GITLAB}."
        )
    traps = [
        *(trap for each in (*workflows, *pipeline) for trap in each.unreadable),
        *(find_github_traps(workflows) if workflows else ()),
        *(find_gitlab_traps(pipeline) if pipeline else ()),
    ]
    for trap in sorted(set(traps), key=lambda trap: (trap.file, trap.line)):
        common.print_text(str(trap))
    names = [each.name for each in (*workflows, *pipeline)]
    found = plural(len(set(traps)), "trap") if traps else "no trap"
    places = ", ".join(names) if len(names) <= _LISTED else plural(len(names), "file")
    common.print_text(f"{found} in {places}")
    return TRAPPED if traps else 0


def _read_pipeline(root: Path) -> list[CiFile]:
    """Return the pipeline and the files of this repository that it includes."""
    pending, found = [GITLAB], dict[str, CiFile]()
    while pending:
        name = pending.pop(0).lstrip("/")
        path = root / name
        if name in found or not path.is_file() or not path.resolve().is_relative_to(root.resolve()):
            continue
        document = found[name] = read_document(path, root)
        include = document.content.get("include")
        for each in include if isinstance(include, YamlList) else [include]:
            local = each.text("local") if isinstance(each, YamlTable) else each
            if isinstance(local, str) and local:
                pending += _find_included(local.lstrip("/"), root)
    return list(found.values())


def _find_included(pattern: str, root: Path) -> list[str]:
    if "*" not in pattern:
        return [pattern]
    try:
        return sorted(relative(each, root) for each in root.glob(pattern))
    except ValueError:
        return []


def find_gitlab_traps(pipeline: Sequence[CiFile]) -> Iterator[Trap]:
    """Yield the traps of a GitLab pipeline and of the files that it includes."""
    jobs: dict[str, CiJob] = {}
    # An included file comes first: the file that includes it replaces its values, key by key.
    for each in reversed(pipeline):
        for name in each.content:
            over = each.content.table(name)
            under = jobs.get(name, CiJob(each, name, YamlTable()))
            document = each if "script" in over else under.document
            jobs[name] = CiJob(document, name, _put_over(under.table, over))
    checks, known = False, dict[str, YamlTable]()
    has_own = _has_request_jobs(pipeline)
    # With rules of the whole pipeline, a job without rules is part of all pipelines.
    has_workflow = any("rules" in each.content.table("workflow") for each in pipeline)
    for name, declared in jobs.items():
        job = replace(declared, table=_with_templates(name, jobs, known))
        scripts, after = (
            [
                each
                for key in keys
                for each in _follow(job.table.get(key), jobs)
                if isinstance(each, YamlText)
            ]
            for keys in (("before_script", "script"), ("after_script",))
        )
        found = _follow(job.table.get("rules"), jobs)
        rules = [each for each in found if isinstance(each, YamlTable)]
        is_for_changes = not rules or not all(map(_is_elsewhere, rules))
        if name.startswith(".") or not is_for_changes:
            continue
        if any(map(has_check, scripts)):
            checks = True
            takes_branches = not has_own or (has_workflow and "rules" not in job.table)
            yield from _find_gitlab_skips(job, rules, takes_branches=takes_branches)
            yield from find_ignored(job.document, scripts)
            yield from _find_gitlab_settings(job, scripts, pipeline)
        elif any(map(has_check, after)):
            checks = True
            yield job.trap(
                "E_CI_IGNORED",
                job.table.line_of("after_script"),
                "GitLab ignores the exit code of after_script.",
                "Run the check in script.",
            )
    if not checks:
        problem = "No job of the pipeline runs flamegate check."
        yield Trap("E_CI_NO_CHECK", problem, file=GITLAB)
    for document in pipeline:
        yield from find_in_commands(document, document.content)


def _with_templates(
    name: str, jobs: _Jobs, known: dict[str, YamlTable], depth: int = 0
) -> YamlTable:
    """Return the keys of a job over those of the jobs that it extends, tables merged like GitLab's.

    ``known`` holds the jobs that are merged already, and those of a circle as far as they are.
    """
    if name in known or depth > _MAX_DEPTH:
        return known.get(name, YamlTable())
    own = jobs[name].table
    merged = known[name] = YamlTable()
    templates = [each for each in scalars(own.get("extends")) if each in jobs]
    for each in (*(_with_templates(one, jobs, known, depth + 1) for one in templates), own):
        _put_over(merged, each)
    return merged


def _put_over(merged: YamlTable, over: YamlTable) -> YamlTable:
    """Put the keys of a job over those that it has so far, tables merged; return ``merged``."""
    merged.line = over.line
    for key, value in list(over.items()):
        is_table = isinstance(value, YamlTable) and isinstance(merged.get(key), YamlTable)
        # Below the tables of a job nothing is read.
        merged[key] = _merge(merged[key], value) if is_table else value
        merged.lines[key] = over.line_of(key)
    return merged


def _merge(under: YamlTable, over: YamlTable) -> YamlTable:
    merged = YamlTable()
    merged.line = over.line
    for each in (under, over):
        merged.update(each)
        merged.lines |= each.lines
    return merged


def _follow(
    value: object, jobs: _Jobs, seen: set[int] | None = None, depth: int = 0
) -> Iterator[YamlText | YamlTable]:
    """Yield the texts and tables of a list, and of the lists that ``!reference`` names in it."""
    seen = set() if seen is None else seen
    if isinstance(value, YamlText | YamlTable):
        yield value
    if not isinstance(value, YamlList) or id(value) in seen or depth > _MAX_DEPTH:
        return
    seen.add(id(value))
    if not value.is_reference:
        for each in value:
            yield from _follow(each, jobs, seen, depth)
        return
    found: object = YamlTable()
    for number, name in enumerate(scalars(value)):
        if number == 0:
            found = jobs[name].table if name in jobs else None
        else:
            found = found.get(name) if isinstance(found, YamlTable) else None
    yield from _follow(found, jobs, seen, depth + 1)


def _find_gitlab_skips(
    job: CiJob, rules: Sequence[YamlTable], *, takes_branches: bool
) -> Iterator[Trap]:
    """Yield what may keep a job from running, or its failure from failing the pipeline."""
    table = job.table
    for rule in (table, *rules, table.table("only"), table.table("except")):
        if "changes" in rule:
            message = "changes: leaves it out for some changes, and the pipeline passes."
            remedy = "Remove the filter: the check always runs."
            yield job.trap("E_CI_SKIPPED", rule.line_of("changes"), message, remedy)
        if "allow_failure" in rule and rule.text("allow_failure") != "false":
            yield job.trap(
                "E_CI_IGNORED",
                rule.line_of("allow_failure"),
                "allow_failure lets the pipeline pass although the check failed.",
                "Remove allow_failure.",
            )
    line = _find_condition(table, rules, takes_branches=takes_branches)
    if line:
        yield job.trap(
            "E_CI_SKIPPED",
            line,
            "it cannot be seen to run for every merge request, and the pipeline passes without it.",
            f"Write as the only one of its rules: - if: {_REQUEST}.",
        )


def _find_gitlab_settings(
    job: CiJob, scripts: Sequence[YamlText], pipeline: Sequence[CiFile]
) -> Iterator[Trap]:
    """Yield the secrets of a job, and its clone if that is shallow."""
    for key in ("secrets", "id_tokens"):
        if key in job.table:
            yield job.trap(
                "E_CI_RIGHTS",
                job.table.line_of(key),
                f"it runs the code of the change, which can read its {key}.",
                "Use them in a job that runs nothing of the change.",
            )
    variables = (job.table.table("variables"), *(e.content.table("variables") for e in pipeline))
    depth = next((each.text("GIT_DEPTH") for each in variables if "GIT_DEPTH" in each), "20")
    if depth != "0" and not any(FETCHES.search(each) for each in scripts):
        yield shallow_trap(job.document, job.table.line)


def _has_request_jobs(pipeline: Sequence[CiFile]) -> bool:
    """Whether merge requests have pipelines of their own: those of branches do not count then."""
    tables = [each for document in pipeline for each in document.content.values()]
    return any(
        "merge_request" in text.lower()
        for table in tables
        if isinstance(table, YamlTable)
        for key in ("rules", "only")
        for text in scalars(table.get(key))
    )


def _condition(rule: YamlTable) -> str:
    return " ".join(rule.text("if").replace("'", '"').split())


def _is_elsewhere(rule: YamlTable) -> bool:
    """Whether a rule is met in no pipeline of a merge request, such as that of a schedule."""
    return _ELSEWHERE.fullmatch(_condition(rule)) is not None


def _find_condition(table: YamlTable, rules: Sequence[YamlTable], *, takes_branches: bool) -> int:
    """Return the line of what keeps a job out of merge requests; 0 if nothing is seen to."""
    when = table.text("when", "on_success")
    # A manual job of a rule blocks the pipeline until somebody starts it.
    is_blocking = when == "manual" and table.text("allow_failure") == "false"
    if when not in _STARTS and not is_blocking:
        return table.line_of("when")
    wanted = {"merge_requests", "branches"} if takes_branches else {"merge_requests"}
    for key, is_accepted in (("only", wanted.intersection), ("except", _OTHER_REFS.issuperset)):
        value = table.get(key)
        refs = value.get("refs") if isinstance(value, YamlTable) else value
        has_variables = isinstance(value, YamlTable) and "variables" in value
        if has_variables or (refs is not None and not is_accepted(scalars(refs))):
            return table.line_of(key)
    for rule in rules:
        condition = _condition(rule)
        when = rule.text("when", "on_success")
        if when == "never" and not _is_elsewhere(rule):
            return rule.line_of("when")
        met = (*_MET, _BRANCH) if takes_branches else _MET
        is_met = any(each.strip() in met for each in condition.split("||"))
        if when != "never" and is_met:
            return 0 if when in (*_STARTS, "manual") else rule.line_of("when")
    is_unstarted = "rules" in table or ("only" not in table and not takes_branches)
    return table.line_of("rules") if is_unstarted else 0
