"""The workflows for GitHub, run: a fork, a merge queue, a re-run, and uploads that are missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pytest_flamegate.commands.init import JUDGE, MEASURE
from tests.doors.github import NAME, Host, JobRun
from tests.doors.project import IGNORED, workload, write_toy
from tests.tools import require
from tests.workload.repositories import git, write

DOCS = Path(__file__).parents[2] / "docs"
COMMENT = "<!-- flamegate -->\n"
Change = Callable[[Path], object]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A repository whose main branch has the workload ``toy`` and both workflows."""
    require(shutil.which("jq") is not None, "jq is missing")
    main = tmp_path / "main"
    main.mkdir()
    git(main, "init", "-q", "-b", "main")
    write_toy(main)
    ignored = f"{IGNORED}.flamegate/\n"
    write(main, {"flamegate.toml": workload("toy"), ".gitignore": ignored})
    for name in (MEASURE, JUDGE):
        write(main, {f".github/workflows/{name}": (DOCS / "github" / name).read_text()})
    git(main, "add", "-A")
    git(main, "commit", "-q", "-m", "began")
    git(main, "clone", "-q", "--bare", str(main), "../upstream.git")
    host = Host(tmp_path)
    # GitHub serves the commits of forks from the repository that they were forked from.
    git(host.bare, "config", "uploadpack.allowAnySHA1InWant", "true")
    host.write()
    return host


def slow_down(clone: Path) -> None:
    write_toy(clone, rounds=6000)


def open_request(host: Host, change: Change, number: int = 7) -> str:
    """Push a change to a fork, and open a pull request; return its head."""
    fork = host.root / f"fork-{number}"
    git(host.root, "clone", "-q", str(host.bare), str(fork))
    change(fork)
    git(fork, "add", "-A")
    git(fork, "commit", "-q", "--allow-empty", "-m", "a change")
    head = git(fork, "rev-parse", "HEAD")
    git(host.bare, "fetch", "-q", str(fork), f"HEAD:refs/pull/{number}/head")
    source = {"sha": head, "ref": "change", "repo": {"id": 2}}
    found = {"number": number, "head": source, "base": {"ref": "main"}}
    host.write(pulls=[*host.state["pulls"], found])
    return head


def run_request(host: Host, head: str, run_id: int = 1, attempt: int = 1) -> bool:
    """Run both workflows for a pull request; return whether the judge's job succeeded."""
    # The run is of the merge with the base, and its workflow file is the change's.
    event = {"sha": "0" * 40, "pull_request": {"head": {"sha": head}, "base": {"ref": "main"}}}
    host.run_job(MEASURE, head, event, run_id, attempt)
    return judge(host, head, "pull_request", run_id, attempt)


def judge(host: Host, head: str, event: str, run_id: int, attempt: int = 1) -> bool:
    main = git(host.bare, "rev-parse", "main")
    run = {"id": run_id, "run_attempt": attempt, "head_sha": head}
    host.write(runs=[*(each for each in host.state["runs"] if each["id"] != run_id), run])
    # The event of a fork's run names no pull request.
    run |= {"event": event, "workflow_id": 5, "pull_requests": []}
    run |= {"head_branch": "change", "head_repository": {"id": 2}}
    judging = 100 + len(host.state["statuses"])
    return host.run_job(JUDGE, main, {"sha": main, "workflow_run": run}, judging)


def test_a_slow_fork_is_failed_and_passes_once_it_is_mended(host: Host) -> None:
    slow = open_request(host, slow_down)
    assert not run_request(host, slow)
    (status,) = host.statuses(slow)
    assert status.startswith("failure: check failed by the policy of ")
    (comment,) = host.state["comments"]
    assert comment["body"].startswith(f"{COMMENT}**check failed by the policy of ")
    assert "[Flame graphs and their difference](https://github.example/" in comment["body"]
    assert host.attested == []
    fork = host.root / "fork-7"
    write_toy(fork)
    git(fork, "commit", "-q", "-am", "mended")
    mended = git(fork, "rev-parse", "HEAD")
    git(host.bare, "fetch", "-q", str(fork), "+HEAD:refs/pull/7/head")
    source = {"sha": mended, "ref": "change", "repo": {"id": 2}}
    host.write(pulls=[{"number": 7, "head": source, "base": {"ref": "main"}}])
    assert run_request(host, mended, run_id=2)
    (status,) = host.statuses(mended)
    assert status.startswith("success: check passed by the policy of ")
    (comment,) = host.state["comments"]  # the same one
    assert comment["body"].startswith(f"{COMMENT}**check passed")
    assert len(host.attested) == 6
    assert set(host.attested) > {"toy/receipt.json", "toy/base-evidence.json"}


@pytest.mark.nightly
def test_an_attempt_that_is_repeated_is_judged_with_the_earlier_ones(host: Host) -> None:
    head = open_request(host, slow_down)
    for attempt, name in ((1, ""), (2, "in attempt 2, with all earlier ones, ")):
        assert not run_request(host, head, attempt=attempt)
        assert host.statuses(head)[-1].startswith(f"failure: check failed {name}by the policy")
    assert len(host.state["comments"]) == 1
    # An attempt whose files are not kept fails the check, whatever the last one says.
    host.write(artifacts=[e for e in host.state["artifacts"] if e["name"] != f"flamegate-{head}"])
    assert not run_request(host, head, attempt=3)
    assert host.statuses(head)[-1] == (
        "failure: check failed: This is attempt 3 at this commit, and 0 of the 2 earlier ones are "
        "here."
    )


@pytest.mark.nightly
def test_a_merge_group_gets_a_status_and_no_comment(host: Host) -> None:
    for number, change in ((7, slow_down), (8, lambda _: None)):
        open_request(host, change, number)
    queue, states = host.root / "queue", []
    git(host.root, "clone", "-q", str(host.bare), str(queue))
    for number in (8, 7):  # the group of 7 stands on that of 8
        git(queue, "fetch", "-q", "origin", f"refs/pull/{number}/head")
        git(queue, "merge", "-q", "--no-ff", "FETCH_HEAD", "-m", f"merge {number}")
        group = git(queue, "rev-parse", "HEAD")
        ref = f"refs/heads/gh-readonly-queue/main/pr-{number}-{group}"
        git(queue, "push", "-q", "origin", f"HEAD:{ref}")
        found = {"head_sha": group, "head_ref": ref, "base_ref": "refs/heads/main"}
        host.run_job(MEASURE, group, {"sha": group, "merge_group": found}, number)
        judge(host, group, "merge_group", number)
        states += [each.partition(":")[0] for each in host.statuses(group)]
    assert states == ["success", "failure"]
    assert host.state["comments"] == []


def without_upload(clone: Path) -> None:
    path = clone / ".github/workflows" / MEASURE
    path.write_text(path.read_text().replace("if: always()", "if: false"))


def another_policy(clone: Path) -> None:
    slow_down(clone)
    toml = (clone / "flamegate.toml").read_text()
    (clone / "flamegate.toml").write_text(f'{toml}tokens_per_second = "90%"\n')


def another_judge(clone: Path) -> None:
    slow_down(clone)
    path = clone / ".github/workflows" / JUDGE
    path.write_text(path.read_text().replace("state=failure", "state=success"))


@pytest.mark.parametrize(
    "change",
    [
        without_upload,
        pytest.param(another_policy, marks=pytest.mark.nightly),
        pytest.param(another_judge, marks=pytest.mark.nightly),
    ],
)
def test_a_change_of_the_check_itself_does_not_pass(host: Host, change: Change) -> None:
    head = open_request(host, change)
    assert not run_request(host, head)
    (status,) = host.statuses(head)
    assert status.startswith("failure: ")


def test_a_head_of_two_requests_is_not_judged(host: Host) -> None:
    head = open_request(host, lambda _: None)
    host.write(
        pulls=[{**each, "number": number} for each in host.state["pulls"] for number in (7, 9)]
    )
    assert not run_request(host, head)
    assert host.statuses(head) == ["failure: not judged"]
    assert host.state["comments"] == []


@pytest.mark.parametrize("other", [{"ref": "copy"}, {"repo": {"id": 3}}, {"repo": None}])
def test_a_stranger_s_request_of_the_same_head_changes_nothing(
    host: Host, other: dict[str, object]
) -> None:
    """The step that finds the change, alone."""
    head = open_request(host, lambda _: None)
    (ours,) = host.state["pulls"]
    host.write(pulls=[{**ours, "number": 6, "head": ours["head"] | other}, ours])
    workflow = yaml.safe_load((DOCS / "github" / JUDGE).read_text())
    steps = workflow["jobs"]["judge"]["steps"]
    (step,) = [each for each in steps if each.get("name") == "Find the change"]
    run = {"head_sha": head, "head_branch": "change", "head_repository": {"id": 2}}
    event = {"sha": head, "workflow_run": run}
    env = {"REPOSITORY": NAME, "HEAD": head, "DEFAULT": "main", "EVENT": "pull_request"}
    job = JobRun(host, host.root / "job", event, 1, env)
    git(host.root, "clone", "-q", "--no-checkout", str(host.bare), str(job.work))
    git(job.work, "fetch", "-q", "origin", head)
    job.run_step(step)
    assert job.env["NUMBER"] == "7"


def test_a_long_page_fits_into_a_comment(host: Host) -> None:
    """GitHub takes 65,536 characters, and the page is cut within one of several bytes."""
    workflow = yaml.safe_load((DOCS / "github" / JUDGE).read_text())
    (step,) = [each for each in workflow["jobs"]["judge"]["steps"] if each.get("name") == "Comment"]
    job = JobRun(host, host.root / "job", {"sha": ""}, 1, {"NUMBER": "7", "REPOSITORY": NAME})
    write(job.work, {".flamegate/check.md": "x" + "é" * 70_000})
    stranger = {"id": 1, "user": {"login": "stranger"}, "body": COMMENT}
    host.write(comments=[stranger])
    job.run_step(step)
    job.run_step(step)  # its own one is changed
    assert host.state["comments"][0] == stranger
    (comment,) = host.state["comments"][1:]
    assert comment["body"].startswith(f"{COMMENT}x{'é' * 29_999}\n\n[Flame graphs")
