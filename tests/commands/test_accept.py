"""``flamegate accept``: a waiver counts in its own change, covers what it names, and ends."""

from __future__ import annotations

import re
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.commands import accept, check
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.run import required_check
from tests.commands.asked import SLOWER_NS, Repository, ask
from tests.doors.project import workload, write_toy
from tests.run import fakes

TODAY = date(2026, 11, 23)
ACCEPT = ("accept", "toy", "--reason=agreed", "--until=2026-12-01")
DONE = 8
"""Days after ``TODAY`` by which ``ACCEPT`` has ended, and one more."""


def set_day(monkeypatch: pytest.MonkeyPatch, day: date) -> None:
    for module in (required_check, check, accept):
        monkeypatch.setattr(module, "today_utc", lambda: day)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    set_day(monkeypatch, TODAY)


def find_waiver(repo: Repository) -> Path:
    """Return the only waiver."""
    (found,) = (repo.path / ".flamegate/waivers").glob("*.toml")
    return found


def row_of(name: str, repo: Repository) -> str:
    """Return the row of a workload in the table of the page."""
    (found,) = (line for line in repo.page().splitlines() if line.startswith(f"| `{name}` |"))
    return found


def test_a_slowdown_is_accepted_in_the_change_that_brings_its_waiver(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.path / "pytest.ini").write_text("[pytest]\n")
    repo.declare()
    repo.run(2, "accept", "toy", "--reason=x", "--until=2026-12-01")  # nothing was measured
    repo.world.token_ns = SLOWER_NS
    repo.check(1)
    for reason, until in ((" ", "2026-12-01"), ("x", "2020-01-01"), ("x", "1 December")):
        repo.run(2, "accept", "toy", f"--reason={reason}", f"--until={until}")
    misspelt = repo.run(2, "accept", "tyo", "--reason=x", "--until=2026-12-01").err
    assert "Did you mean 'toy'? Or measure first" in misspelt
    accept = "accept", "toy", '--reason=a "better" model', "--until=2026-12-01"
    assert "git add .flamegate/waivers" in repo.run(0, *accept).out
    below = repo.path / "sub"
    below.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(below)
        assert "git add ../.flamegate/waivers\n" in repo.run(0, *accept).out
    assert "E_UNCOMMITTED" in repo.check(2).err
    repo.commit()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error" not in repo.check(0, base="HEAD~2").out
    assert repo.sentence().endswith("slower as accepted: toy")
    assert "| regressed, accepted |" in row_of("toy", repo)
    assert repo.debt()[0].startswith("1 accepted slowdown, 2")
    assert repo.debt()[1].endswith('until 2026-12-01: a "better" model')
    # It covers no more than was measured, and counts only in the change that adds it.
    repo.world.token_ns = 2 * SLOWER_NS
    assert "::error" in repo.check(1, base="HEAD~2").out
    assert "toy's waiver accepts at most 2" in repo.sentence()
    repo.world.token_ns = SLOWER_NS
    waiver = find_waiver(repo)
    waiver.write_text(waiver.read_text().replace("better", "much better"))
    repo.commit()
    repo.check(1)
    assert "accepted" not in repo.sentence()
    set_day(monkeypatch, TODAY + timedelta(days=30))
    repo.check(1, base="HEAD~3")
    assert "the waiver of toy ended on 2026-12-01" in repo.sentence()
    assert repo.debt()[1].startswith("ended on 2026-12-01: toy")
    text = waiver.read_text()
    for changed in (
        'workload = "toy"',
        text.replace('workload = "toy"', 'workload = "other"'),
        text.replace("until = 2026", "until = 9999"),
        text.replace("until = 2026", "until = 2025"),
        re.sub(r"change_pct = \S+", "change_pct = -99.0", text),
    ):
        waiver.write_text(changed)
        repo.commit()
        assert "E_BAD_WAIVER" in repo.check(2, base="HEAD~3").err


@pytest.mark.parametrize("place", [".flamegate", "perf"])
def test_a_waiver_that_git_ignores_is_in_no_commit(repo: Repository, place: str) -> None:
    (repo.path / ".gitignore").write_text(f"{place}\nbuild/\n")
    (repo.path / "pytest.ini").write_text(f"[pytest]\nflamegate_dir = {place}\n")
    base = repo.declare()
    # A clone in an ignored directory, as builds make them, is none of the commit's files.
    clone = repo.path / "build/dep"
    clone.mkdir(parents=True)
    repo.git("init", "-q", str(clone))
    repo.world.token_ns = SLOWER_NS
    (repo.path / "other.py").write_text("")
    repo.git("add", "other.py")
    repo.git("commit", "-qm", "a change")
    repo.check(1, base=base)
    repo.run(0, *ACCEPT)
    printed = repo.check(2, base=base).err
    assert "E_UNCOMMITTED: The waiver 'toy" in printed
    repo.git("add", "-f", f"{place}/waivers")
    repo.git("commit", "-qm", "accepted")
    repo.check(0, base=base)
    repo.git("update-index", "--assume-unchanged", *repo.git("ls-files", place).split())
    assert "E_UNCOMMITTED" in repo.check(2, base=base).err


def test_a_waiver_of_a_slowdown_of_the_base_accepts_no_other_one(repo: Repository) -> None:
    start = repo.declare()
    repo.world.token_ns = SLOWER_NS
    base = repo.commit()
    repo.check(1, base=start)
    repo.run(0, *ACCEPT)
    repo.commit()
    repo.check(0, base=start)
    repo.check(1, base=base)
    assert "accepted" not in repo.sentence()


@pytest.mark.parametrize("linked", [".flamegate/waivers", ".flamegate/waivers/toy.toml"])
def test_a_linked_waiver_is_an_error(repo: Repository, linked: str) -> None:
    """Who may change the target of a link is not who may change a waiver."""
    path = repo.path / linked
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(repo.path / "elsewhere")
    repo.commit()
    assert f"{path.name} is a link" in repo.check(2).err


def test_other_tokens_are_accepted_uncompared_and_no_others_pass(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.declare(workload("toy"), workload("more"))
    repo.declare(workload("toy"), workload("more"))
    accept = ("accept", "toy", "--reason=SIMD sums in another order", "--until=2026-12-01")
    repo.world.tokens = repo.world.base_tokens[:-1]
    repo.check(4)
    repo.run(2, *accept)  # it did less
    repo.world.tokens = (*repo.world.base_tokens[:-1], "9")
    assert "flamegate accept" in repo.check(4).out
    assert "toy (not comparable: other tokens." in repo.sentence()
    assert "accepted: toy NOT COMPARED: other tokens" in repo.run(0, *accept).out
    waiver = find_waiver(repo)
    assert "pct" not in waiver.read_text()
    repo.commit()
    repo.check(4, base="HEAD~2")  # more has none
    assert "more (not comparable" in repo.sentence()
    assert "toy" not in repo.sentence()
    other = waiver.read_text().replace('"toy"', '"more"')
    (repo.path / ".flamegate/waivers/more.toml").write_text(other)
    repo.commit()
    for more in ((), (f"--receipts={repo.path.parent / 'uploaded'}",)):
        printed = repo.check(0, *more, base="HEAD~3").out
        if not more:
            repo.upload()
        loud = "2 NOT COMPARED: other tokens, as accepted: toy, more"
        assert repo.sentence().endswith(f"2 required workloads, {loud}")
        assert loud in printed
        assert f"{loud}**" in repo.page()
        assert repo.debt()[0].startswith("2 with other tokens, accepted and NOT COM")
    repo.world.tokens = (*repo.world.base_tokens[:-1], "8")
    repo.check(4, base="HEAD~3")
    assert "the waiver of toy accepts other tokens than these" in repo.sentence()
    repo.world.tokens = repo.world.base_tokens[:-1]
    repo.check(4, base="HEAD~3")
    assert "not only by the tokens" in repo.sentence()
    # It accepts no slowdown, and ends.
    repo.world.tokens, repo.world.token_ns = repo.world.base_tokens, SLOWER_NS
    repo.check(1, base="HEAD~3")
    assert "toy (regressed)" in repo.sentence()
    repo.world.tokens = (*repo.world.base_tokens[:-1], "9")
    set_day(monkeypatch, TODAY + timedelta(days=30))
    repo.check(4, base="HEAD~3")
    assert "the waiver of toy ended on 2026-12-01" in repo.sentence()
    waiver.write_text(waiver.read_text() + "change_pct = -5.0\n")
    repo.commit()
    assert "E_BAD_WAIVER" in repo.check(2, base="HEAD~4").err


def test_a_required_workload_may_go_if_a_waiver_of_the_change_says_so(repo: Repository) -> None:
    repo.git("config", "user.name", "A. Person")
    repo.declare(workload("toy"), workload("more"))
    repo.declare(workload("toys"), workload("more"))
    assert "flamegate accept toy --reason TEXT --until DATE" in repo.check(2).out
    assert "accepted: toy NO LONGER REQUIRED" in repo.run(0, *ACCEPT).out
    assert "E_UNCOMMITTED" in repo.check(2).err
    repo.commit()
    counted = "counts now, as a waiver accepts: the head's policy of toy"
    assert counted in repo.check(0, base="HEAD~2").out
    assert repo.verdicts() == {"more": "pass"}
    assert repo.verdicts("new") == {"toys": "no_baseline"}
    loud = "1 NOT COMPARED: other policy, as accepted: toy"
    assert repo.sentence().endswith(f"1 required workload, none past its threshold, {loud}")
    about = "toy NO LONGER REQUIRED, by A. Person until 2026-12-01: agreed"
    assert repo.debt() == [
        "1 accepted change of the policy, oldest 0 days",
        f"new in this change: {about}",
    ]
    runs = repo.upload()
    repo.check(0, f"--receipts={runs}", base="HEAD~2")
    assert repo.verdicts() == {"more": "pass"}
    # Another workload needs its own, and once merged it is a record and counts no more.
    repo.declare(workload("toys"))
    repo.check(2, base="HEAD~3")
    assert "more (error: the head does not declare it. If that is meant" in repo.sentence()
    repo.declare(workload("toy"), workload("toys"))
    repo.declare(workload("toys"))
    repo.check(2)
    assert "toy (error: the head does not declare it. If" in repo.sentence()
    # The last one may go too.
    repo.declare("# no workload")
    repo.check(2)
    repo.run(0, "accept", "toys", "--reason=agreed", "--until=2026-12-01")
    repo.commit()
    repo.check(0, base="HEAD~2")
    assert "0 required workloads, 1 NOT COMPARED: other policy, as accepted: toys" in (
        repo.sentence()
    )


def test_a_policy_that_is_accepted_counts_as_it_was_accepted_and_no_other(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.declare(workload("toy", tokens_per_second='"60%"'))
    repo.check(0)
    assert "E_NO" in repo.run(2, *ACCEPT, "--dir=nowhere").err
    assert "E_NOT_ACCEPTED" in repo.run(2, *ACCEPT).err  # nothing failed
    repo.world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), at="warm up")
    repo.check(5)
    assert "toy: tokens_per_second_pct 5.0 → 60.0" in repo.run(0, *ACCEPT).out
    waiver = find_waiver(repo)
    assert "# toy: tokens_per_second_pct 5.0 → 60.0\n" in waiver.read_text()
    repo.commit()
    repo.world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), times=0)
    repo.world.token_ns = SLOWER_NS
    repo.check(0, base="HEAD~2")
    assert repo.verdicts() == {"toy": "pass"}
    assert repo.sentence().endswith("by the policy of the head, as accepted: toy")
    runs = shutil.copytree(repo.path / ".flamegate/latest", repo.path.parent / "uploaded")
    repo.check(0, f"--receipts={runs}", base="HEAD~2")
    set_day(monkeypatch, TODAY + timedelta(DONE + 1))
    repo.check(1, f"--receipts={runs}", base="HEAD~2")
    assert "toy (the waiver of toy ended on 2026-12-01)" in repo.sentence()
    set_day(monkeypatch, TODAY)
    repo.declare(workload("toy", tokens_per_second='"70%"'))
    repo.check(1, base="HEAD~3")
    assert "toy (the waiver of toy accepts another declaration than this one)" in repo.sentence()
    waiver.write_text(waiver.read_text() + 'tokens = "' + "0" * 64 + '"\n')
    repo.commit()
    assert "E_BAD_WAIVER" in repo.check(2, base="HEAD~4").err


@pytest.mark.parametrize(
    ("base", "head"),
    [({"max_token": "3"}, {}), ({}, {"prompt": '"3+3="'}), ({}, {"seed": "1"})],
    ids=["broken base", "prompt", "seed"],
)
def test_other_work_that_is_accepted_is_measured_alone(
    repo: Repository, base: dict[str, str], head: dict[str, str]
) -> None:
    repo.declare(workload("toy", **base))
    repo.declare(workload("toy", **head))
    if not base:
        repo.world.fail(ToolError("E_CANNOT_START", "The base's prompt is too long.", ""), times=1)
    printed = repo.check(2 if base else 4)
    assert not base or "flamegate accept toy --reason" in printed.out
    assert "the head declares it otherwise. If that is meant: flamegate accept" in printed.out
    assert "declared otherwise" in repo.run(0, *ACCEPT).out
    repo.commit()
    repo.check(0, base="HEAD~2")
    assert repo.verdicts() == {}
    assert repo.verdicts("new") == {"toy": "no_baseline"}
    assert repo.sentence().endswith(
        "0 required workloads, 1 NOT COMPARED: other policy, as accepted: toy"
    )


def test_each_change_has_its_own_waiver_and_the_debt_counts_all_of_them(repo: Repository) -> None:
    world, start = repo.world, repo.git("rev-parse", "HEAD")
    for _ in range(2):
        world.base_token_ns, world.token_ns = world.token_ns, round(1.1 * world.token_ns)
        repo.declare()
        base = repo.git("rev-parse", "HEAD~1")
        repo.check(1, base=base)
        assert "replaced" not in repo.run(0, *ACCEPT).out
        waiver = repo.path / f".flamegate/waivers/toy-{repo.git('rev-parse', 'HEAD')[:12]}.toml"
        repo.commit()
        # Accepted again in the same change, it is counted once.
        repo.check(0, base=base)
        replaced = f"replaced, because this change added it: {waiver.relative_to(repo.path)}"
        assert replaced in repo.run(0, *ACCEPT).out
        repo.commit()
        repo.check(0, base=base)
    assert repo.debt()[0].startswith("2 accepted slowdowns, 1")
    # A fixed reference has neither slowdown: together they are accepted, and no more than that.
    world.base_token_ns = fakes.TOKEN_NS
    repo.check(0, base=start)
    assert repo.sentence().endswith("slower as accepted: toy")
    world.token_ns = round(1.1 * world.token_ns)
    repo.check(1, base=start)
    assert "toy's waivers accept at most 1" in repo.sentence()
    # A file of an earlier version is named by its workload alone.
    waivers = sorted((repo.path / ".flamegate/waivers").glob("*.toml"))
    waivers[0].rename(waivers[0].with_name("toy.toml"))
    waivers[1].rename(waivers[1].with_name("other.toml"))
    repo.commit()
    assert "other.toml is of 'toy'" in repo.check(2, base=start).err


def test_a_slowdown_is_tested_again_when_its_waiver_has_ended(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = repo.declare()
    repo.declare(workload("toy"), "# slower")
    repo.world.token_ns = SLOWER_NS
    repo.check(1, base=start)
    repo.run(0, *ACCEPT)
    release = repo.commit()
    head = repo.declare(workload("toy"), "# later")
    assert head != release
    set_day(monkeypatch, TODAY + timedelta(DONE + 1))
    # A reference from before it has no such slowdown.
    repo.check(1, base=start)
    assert "toy (the waiver of toy ended on 2026-12-01)" in repo.sentence()
    repo.world.token_ns = fakes.TOKEN_NS
    repo.check(0, base=start)
    gone = "ended on 2026-12-01, gone, and may be deleted: toy 2"
    assert repo.debt()[1].startswith(gone)
    # A reference that has it too says nothing, so the commit before it is measured.
    repo.check(0, base=release)
    assert f"flamegate run toy --against={start[:12]}" in repo.debt()[1]
    repo.check(0, "--ended", base=release)
    assert repo.debt()[1].startswith(gone)
    assert [row["verdict"] for row in repo.answer()["ended"]] == ["pass"]
    set_day(monkeypatch, TODAY)
    repo.check(0, "--ended", base=release)
    assert repo.answer()["ended"] == []
    set_day(monkeypatch, TODAY + timedelta(DONE + 1))
    # The release is as slow as the head, so only the commit before the slowdown shows it.
    repo.world.token_ns = SLOWER_NS
    monkeypatch.setattr(check, "gate_all", slow_release(repo.world, start, vars(check)["gate_all"]))
    repo.check(0, base=release)
    printed = repo.check(1, "--ended", base=release).out
    place = f"toy against {start[:12]}"
    still = "regressed: a slowdown whose waiver has ended is still there"
    assert f"{place} ({still})" in repo.sentence()
    assert f"flamegate run toy --against={start[:12]}" in printed
    assert "| **regressed** |" in row_of(place, repo)
    waiver = find_waiver(repo)
    waiver.write_text(waiver.read_text().replace(start, "0" * 40))
    repo.commit()
    repo.check(2, "--ended", base=release)
    assert "(error: a slowdown whose waiver has ended may still be there)" in repo.sentence()
    assert "E_BAD_OPTION" in repo.check(2, "--ended", "--receipts=x").err


def slow_release(world: fakes.World, start: str, gate_all: Any) -> Any:
    """Return ``gate_all`` in a world in which every base but ``start`` is as slow as the head."""

    def gate(settings: Settings, entries: Any, *trees: Any) -> Any:
        world.base_token_ns = fakes.TOKEN_NS if settings.against == start else world.token_ns
        return gate_all(settings, entries, *trees)

    return gate


def test_ten_slowdowns_of_one_percent_are_ten_percent_against_a_fixed_reference(
    repo: Repository,
) -> None:
    world, reference = repo.world, repo.git("rev-parse", "HEAD")
    for number in range(10):
        world.base_token_ns, world.token_ns = world.token_ns, round(1.01 * world.token_ns)
        repo.declare(workload("toy"), f"# change {number}")
        repo.check(0)
        (row,) = repo.answer()["required"]
        assert row["change_pct"] == pytest.approx(-1.0, abs=0.8)
    world.base_token_ns = fakes.TOKEN_NS
    repo.check(1, base=reference)
    (row,) = repo.answer()["required"]
    low, high = row["interval_pct"]
    assert low < 100.0 * (1.01**-10 - 1.0) < high < -5.0


@pytest.mark.measures
@pytest.mark.nightly
def test_ten_measured_slowdowns_of_one_percent(clone: Repository) -> None:
    """No answer of a busy machine is wrong but one: that they are not slower by 5 % in sum."""
    rounds = [round(8000 * 1.01**number) for number in range(11)]
    commits = []
    for each in rounds:
        write_toy(clone.path, each)
        commits.append(clone.declare(workload("toy", target="steady", max_tokens="24")))
    assert ask("check", f"--base={commits[-2]}") != 1
    assert ask("check", f"--base={commits[0]}") in (1, 4)
    (row,) = clone.answer()["required"]
    low, high = row["interval_pct"]
    assert low < 100.0 * (1.01**-10 - 1.0) + 1.0
    assert high < 0.0 or row["verdict"] == "inconclusive"
