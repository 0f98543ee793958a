"""``flamegate doctor --ci``: traps in GitHub's workflows and in GitLab's pipeline.

A trap is a place in which a slower commit can pass the required check, or in which the code of a
change gets rights that it must not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_flamegate.commands import common
from pytest_flamegate.commands.ci_files import (
    CHECK,
    FETCHES,
    CiFile,
    Trap,
    YamlList,
    YamlTable,
    find_ignored,
    find_in_commands,
    read_document,
    scalars,
    shallow_trap,
)
from pytest_flamegate.commands.ci_github import GITHUB, find_github_traps
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.report.text import plural

GITLAB = ".gitlab-ci.yml"
_LISTED = 4
TRAPPED = 2
"""Exit code if any trap is found."""
_AUTHORS = re.compile(r"\$CI_(?:COMMIT_(?:MESSAGE|TITLE|DESCRIPTION)|MERGE_REQUEST_\w+)")
"""GitLab's variables that the author of a merge request chooses."""


def run(directory: Path) -> int:
    """Print the traps of the repository around ``directory``; return 0 if it has none, else 2."""
    top = git.query(directory, "rev-parse", "--show-toplevel")
    root = Path(top) if top else directory
    workflows = [
        read_document(path, root)
        for path in sorted((root / GITHUB).glob("*"))
        if path.suffix in (".yml", ".yaml")
    ]
    pipeline = _read_pipeline(root)
    if not workflows and not pipeline:
        raise UsageError(
            "E_CI_NO_CHECK",
            f"There is neither a workflow in {GITHUB} nor a {GITLAB}.",
            "Write them: flamegate init.",
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
            pending += [local] if isinstance(local, str) and local else []
    return list(found.values())


def find_gitlab_traps(pipeline: Sequence[CiFile]) -> Iterator[Trap]:
    """Yield the traps of a GitLab pipeline and of the files that it includes."""
    # An included file comes first, because the file that includes it replaces its values.
    documents = {
        name: (each, each.content.table(name))
        for each in reversed(pipeline)
        for name in each.content
    }
    checks = False
    for name, (document, _) in documents.items():
        table = _with_templates(name, documents, ())
        scripts = [
            each
            for key in ("before_script", "script", "after_script")
            for each in scalars(table.get(key))
        ]
        if name.startswith(".") or not any(CHECK.search(each) for each in scripts):
            continue
        checks = True
        yield from _find_gitlab_skips(document, name, table)
        yield from find_ignored(document, scripts, pipefail=True)
        for key in ("secrets", "id_tokens"):
            if key in table:
                yield document.trap(
                    "E_CI_RIGHTS",
                    table.line_of(key),
                    f"Job {name}: it runs the code of the change, which can read its {key}.",
                    "Use them in a job that runs nothing of the change.",
                )
        variables = (table.table("variables"), *(e.content.table("variables") for e in pipeline))
        depth = next((each.text("GIT_DEPTH") for each in variables if "GIT_DEPTH" in each), "20")
        if depth != "0" and not any(FETCHES.search(each) for each in scripts):
            remedy = 'Write GIT_DEPTH: "0" below variables: of the job.'
            yield shallow_trap(document, table.line, remedy)
    if not checks:
        yield Trap(
            "E_CI_NO_CHECK",
            "No job of the pipeline runs flamegate check.",
            "Write one: flamegate init.",
            GITLAB,
        )
    for document in pipeline:
        yield from find_in_commands(document, document.content)


def _with_templates(
    name: str, documents: dict[str, tuple[CiFile, YamlTable]], above: tuple[str, ...]
) -> YamlTable:
    """Return the keys of a job over those of the jobs that it extends."""
    own = documents[name][1]
    merged = YamlTable()
    merged.line = own.line
    for template in scalars(own.get("extends")):
        if template in documents and template not in (*above, name):
            found = _with_templates(template, documents, (*above, name))
            merged.update(found)
            merged.lines |= found.lines
    merged.update(own)
    merged.lines |= own.lines
    return merged


def _find_gitlab_skips(document: CiFile, name: str, table: YamlTable) -> Iterator[Trap]:
    for rule in (table, *table.tables("rules"), table.table("only"), table.table("except")):
        if "changes" in rule:
            yield document.trap(
                "E_CI_FILTERED",
                rule.line_of("changes"),
                f"Job {name}: changes: leaves it out for some changes, and the pipeline passes.",
                "Remove changes: the check always runs.",
            )
        # A manual job of a rule blocks the pipeline until somebody starts it.
        is_manual = rule is table and rule.text("when") == "manual"
        is_chosen = rule.text("when") == "never" and _AUTHORS.search(rule.text("if"))
        if (is_manual and rule.text("allow_failure") != "false") or is_chosen:
            yield document.trap(
                "E_CI_SKIPPED",
                rule.line_of("when"),
                f"Job {name}: it does not run unless somebody wants it to, and the pipeline "
                "passes without it.",
                "Remove this rule: the check always runs.",
            )
        if "allow_failure" in rule and rule.text("allow_failure") != "false":
            yield document.trap(
                "E_CI_IGNORED",
                rule.line_of("allow_failure"),
                f"Job {name}: allow_failure lets the pipeline pass although the check failed.",
                "Remove allow_failure.",
            )
