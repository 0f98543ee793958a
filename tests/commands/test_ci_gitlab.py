"""``flamegate doctor --ci`` on GitLab's pipelines: their traps, and the templates of jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.asked import Captured, find_traps, read_workflow

DOCS = Path(__file__).parents[2] / "docs"
PIPELINE = "flamegate.gitlab-ci.yml"
RULE = '    - if: $CI_PIPELINE_SOURCE == "merge_request_event"\n'
AFTER = """\
    - flamegate check --base "$base" --earlier .flamegate/attempts
  # A retry is judged together with the attempts before it.
  after_script:
"""


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("  timeout: 30m\n", "  only: {changes: [src]}\n", "E_CI_SKIPPED"),
        (RULE, "    - changes: [src]\n", "E_CI_SKIPPED"),
        (RULE, "    - {if: $CI_COMMIT_MESSAGE =~ /no/, when: never}\n", "E_CI_SKIPPED"),
        ("  timeout: 30m\n", "  when: manual\n", "E_CI_SKIPPED"),
        ("  timeout: 30m\n", "  allow_failure: true\n", "E_CI_IGNORED"),
        ('--base "$base"', '--base "$base" || true', "E_CI_IGNORED"),
        ('    GIT_DEPTH: "0"', '    GIT_DEPTH: "50"', "E_CI_SHALLOW"),
        ("  timeout: 30m\n", "  id_tokens: {A: {aud: b}}\n", "E_CI_RIGHTS"),
        ("/flamegate@v1.0.0", "/pytest-flamegate", "E_CI_NOT_PINNED"),
        ("flamegate check", "flamegate run", "E_CI_NO_CHECK"),
        ("  timeout: 30m\n", "  when: on_failure\n", "E_CI_SKIPPED"),
        (RULE, f"{RULE}      when: on_failure\n", "E_CI_SKIPPED"),
        (RULE, '    - if: $CI_COMMIT_BRANCH == "main"\n', "E_CI_SKIPPED"),
        (RULE, '    - if: $CI_PIPELINE_SOURCE == "schedule"\n', "E_CI_NO_CHECK"),
        ('== "schedule"', '== "schedule"\n    - if: $NIGHT', "E_CI_SKIPPED"),
        (RULE, "    - if: $CI_COMMIT_TITLE =~ /perf/\n", "E_CI_SKIPPED"),
        (f"  rules:\n{RULE}", "  only: [main]\n", "E_CI_SKIPPED"),
        (
            f"  rules:\n{RULE}",
            "  only: {variables: [$A]}\n",
            "E_CI_SKIPPED",
        ),
        (f"  rules:\n{RULE}", "  except: [/^wip/]\n", "E_CI_SKIPPED"),
        (AFTER, '  after_script:\n    - flamegate check --base "$base"\n', "E_CI_IGNORED"),
    ],
)
def test_a_trap_in_a_pipeline_is_found(
    tmp_path: Path, capsys: Captured, old: str, new: str, code: str
) -> None:
    own = tmp_path / ".gitlab" / PIPELINE
    own.parent.mkdir()
    own.write_text(read_workflow("gitlab", PIPELINE))
    include = "include:\n  - local: /.gitlab/flamegate.gitlab-ci.yml\n  - local: ../out.yml\n"
    (tmp_path / ".gitlab-ci.yml").write_text(include)
    assert find_traps(tmp_path, capsys) == (0, [])
    own.write_text(own.read_text().replace(old, new, 1))
    exit_code, traps = find_traps(tmp_path, capsys)
    assert (exit_code, [each for each, _ in traps]) == (2, [code])


def test_a_job_of_two_files_has_the_keys_of_both(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "check.yml").write_text(read_workflow("gitlab", PIPELINE))
    root = "include: check.yml\nflamegate:\n  variables: {A: b}\n"
    (tmp_path / ".gitlab-ci.yml").write_text(root)
    assert find_traps(tmp_path, capsys) == (0, [])
    (tmp_path / ".gitlab-ci.yml").write_text(f"{root}  only: [main]\n  rules:\n")
    assert [each for each, _ in find_traps(tmp_path, capsys)[1]] == ["E_CI_SKIPPED"]


def test_a_job_that_no_merge_request_avoids_is_no_trap(tmp_path: Path, capsys: Captured) -> None:
    text = read_workflow("gitlab", PIPELINE)
    for old, new in (
        (RULE, "    - when: manual\n"),
        ("  timeout: 30m\n", "  when: manual\n  allow_failure: false\n"),
        (RULE, f"    - if: $CI_COMMIT_TAG\n      when: never\n{RULE}"),
        (RULE, "    - if: $A == 'b' || $CI_PIPELINE_SOURCE  == 'merge_request_event'\n"),
        (f"  rules:\n{RULE}", "  only: [main, merge_requests]\n  except: [tags]\n"),
    ):
        (tmp_path / ".gitlab-ci.yml").write_text(text.replace(old, new, 1))
        assert find_traps(tmp_path, capsys) == (0, [])


def test_of_several_documents_the_last_counts(tmp_path: Path, capsys: Captured) -> None:
    text = read_workflow("gitlab", PIPELINE)
    (tmp_path / ".gitlab-ci.yml").write_text(f"spec: {{inputs: {{}}}}\n---\n{text}")
    assert find_traps(tmp_path, capsys) == (0, [])


def test_templates_aliases_and_merged_keys_are_followed(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text(
        """\
.soft: {extends: .soft, allow_failure: true}
.deep: &deep
  variables: {GIT_DEPTH: 0}
check:
  <<: *deep
  extends: [.soft, .missing]
  script: [flamegate check --base main]
loop: &loop [*loop]
"""
    )
    assert find_traps(tmp_path, capsys) == (2, [("E_CI_IGNORED", ".gitlab-ci.yml:1")])


@pytest.mark.parametrize(
    ("key", "has_trap"),
    [
        ("", True),
        ("  only: [branches]\n", True),
        ("  rules: [if: $CI_COMMIT_BRANCH]\n", True),
        ("  only: [merge_requests]\n", False),
        ("workflow: {rules: [when: always]}\n", False),
        ("  rules: [if: $CI_COMMIT_BRANCH]\nworkflow: {rules: [when: always]}\n", True),
    ],
)
def test_a_job_of_branches_is_missing_in_the_pipelines_of_merge_requests(
    tmp_path: Path, capsys: Captured, key: str, *, has_trap: bool
) -> None:
    pipeline = tmp_path / ".gitlab-ci.yml"
    check = f"check:\n  script: [flamegate check]\n  variables: {{GIT_DEPTH: 0}}\n{key}"
    pipeline.write_text(check)
    assert find_traps(tmp_path, capsys) == (0, [])
    pipeline.write_text(f"other:\n  script: [make]\n  only: [merge_requests]\n{check}")
    traps = [each for each, _ in find_traps(tmp_path, capsys)[1]]
    assert traps == (["E_CI_SKIPPED"] if has_trap else [])


def test_templates_are_merged_like_gitlabs(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / ".gitlab/more").mkdir(parents=True)
    (tmp_path / ".gitlab-ci.yml").write_text("include: '/.gitlab/**/*.yml'\n")
    (tmp_path / ".gitlab/check.yml").write_text(
        """\
.template:
  variables: {GIT_DEPTH: 0}
  script: [flamegate check --base main]
  rules: [$CI_COMMIT_BRANCH]
.rules: {rules: [if: $CI_MERGE_REQUEST_IID]}
check:
  extends: .template
  variables: {A: b}
  script: [pwd, !reference [.template, script], !reference [.no, script]]
  rules: [!reference [.rules, rules]]
"""
    )
    assert find_traps(tmp_path, capsys) == (0, [])
    (tmp_path / ".gitlab/more/check.yml").write_text(
        "late:\n  variables: {GIT_DEPTH: 0}\n  only: merge_requests\n  script:\n  - set +e\n"
        "  - !reference [.template, script]\n"
    )
    assert [each for each, _ in find_traps(tmp_path, capsys)[1]] == ["E_CI_IGNORED"]


@pytest.mark.parametrize("count", [60, 1500])
def test_many_templates_take_no_time(tmp_path: Path, capsys: Captured, count: int) -> None:
    jobs = [f"j{n}: {{extends: [j{n - 1}, j{n - 1}]}}\n" for n in range(count, 0, -1)]
    jobs += [
        f".r{n}: {{script: [{f'!reference [.r{n + 1}, script], ' * 2}]}}\n" for n in range(count)
    ]
    jobs += [
        "j0: {script: [flamegate check, !reference [.r0, script]], variables: {GIT_DEPTH: 0}}\n"
    ]
    (tmp_path / ".gitlab-ci.yml").write_text("".join(jobs))
    assert find_traps(tmp_path, capsys) == (0, [])
