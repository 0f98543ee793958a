"""``flamegate accept``: a waiver counts in its own change, covers what it names, and ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.commands import accept, check
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.run import required_check
from tests.commands.asked import Command, ask, commit
from tests.commands.test_check import SLOWER_NS, result, verdicts
from tests.doors.project import workload, write_toy
from tests.run import fakes
from tests.workload.repositories import git

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


def find_waiver(project: Path) -> Path:
    """Return the only waiver."""
    (found,) = (project / ".flamegate/waivers").glob("*.toml")
    return found


def sentence(project: Path) -> str:
    return str(result(project)["sentence"])


def debt(project: Path) -> list[str]:
    return list(result(project)["waivers"])


def test_a_slowdown_is_accepted_in_the_change_that_brings_its_waiver(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_day(monkeypatch, TODAY)
    declare(workload("toy"))
    assert ask("accept", "toy", "--reason=x", "--until=2026-12-01") == 2  # nothing was measured
    world.token_ns = SLOWER_NS
    assert ask("check", "--base=HEAD~1") == 1
    for wrong in (("--reason= ", "--until=2026-12-01"), ("--reason=x", "--until=2020-01-01")):
        assert ask("accept", "toy", *wrong) == 2
    assert ask("accept", "toy", '--reason=a "better" model', "--until=2026-12-01") == 0
    assert "git add .flamegate/waivers" in command.read().out
    assert "E_UNCOMMITTED" in command(2, "check", "--base=HEAD~1").err
    commit(project)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error" not in command(0, "check", "--base=HEAD~2").out
    found = result(project)
    assert found["sentence"].endswith("slower as accepted: toy")
    assert "| `toy` | regressed, accepted |" in (project / ".flamegate/check.md").read_text()
    assert found["waivers"][0].startswith("1 accepted slowdown, 2")
    assert found["waivers"][1].endswith('until 2026-12-01: a "better" model')
    # It covers no more than was measured, and counts only in the change that adds it.
    world.token_ns = 2 * SLOWER_NS
    assert "::error" in command(1, "check", "--base=HEAD~2").out
    assert "toy's waiver accepts at most 2" in result(project)["sentence"]
    world.token_ns = SLOWER_NS
    waiver = find_waiver(project)
    waiver.write_text(waiver.read_text().replace("better", "much better"))
    commit(project)
    assert ask("check", "--base=HEAD~1") == 1
    assert "accepted" not in result(project)["sentence"]
    set_day(monkeypatch, TODAY + timedelta(days=30))
    assert ask("check", "--base=HEAD~3") == 1
    assert "the waiver of toy ended on 2026-12-01" in result(project)["sentence"]
    assert result(project)["waivers"][1].startswith("ended on 2026-12-01: toy")
    text = waiver.read_text()
    for changed in (
        'workload = "toy"',
        text.replace('workload = "toy"', 'workload = "other"'),
        text.replace("until = 2026", "until = 9999"),
    ):
        waiver.write_text(changed)
        commit(project)
        assert "E_BAD_WAIVER" in command(2, "check", "--base=HEAD~3").err


def test_other_tokens_are_accepted_uncompared_and_no_others_pass(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_day(monkeypatch, TODAY)
    declare(workload("toy"), workload("more"))
    declare(workload("toy"), workload("more"))
    accept = ("accept", "toy", "--reason=SIMD sums in another order", "--until=2026-12-01")
    world.tokens = world.base_tokens[:-1]
    assert ask("check", "--base=HEAD~1") == 4
    assert ask(*accept) == 2  # it did less
    world.tokens = (*world.base_tokens[:-1], "9")
    printed = command(4, "check", "--base=HEAD~1").out
    assert "flamegate accept" in printed
    assert "toy (not comparable: other tokens." in result(project)["sentence"]
    assert "accepted: toy NOT COMPARED: other tokens" in command(0, *accept).out
    waiver = find_waiver(project)
    assert "pct" not in waiver.read_text()
    commit(project)
    assert ask("check", "--base=HEAD~2") == 4  # more has none
    assert "more (not comparable" in result(project)["sentence"]
    assert "toy" not in result(project)["sentence"]
    other = waiver.read_text().replace('"toy"', '"more"')
    (project / ".flamegate/waivers/more.toml").write_text(other)
    commit(project)
    runs = project.parent / "uploaded"
    for more in ((), (f"--receipts={runs}",)):
        assert ask("check", "--base=HEAD~3", *more) == 0
        if not more:
            shutil.move(project / ".flamegate/latest", runs)
        loud = "2 NOT COMPARED: other tokens, as accepted: toy, more"
        assert result(project)["sentence"].endswith(f"2 required workloads, {loud}")
        assert loud in command.read().out
        assert f"{loud}**" in (project / ".flamegate/check.md").read_text()
        assert result(project)["waivers"][0].startswith("2 with other tokens, accepted and NOT COM")
    world.tokens = (*world.base_tokens[:-1], "8")
    assert ask("check", "--base=HEAD~3") == 4
    assert "the waiver of toy accepts other tokens than these" in result(project)["sentence"]
    world.tokens = world.base_tokens[:-1]
    assert ask("check", "--base=HEAD~3") == 4
    assert "not only by the tokens" in result(project)["sentence"]
    # It accepts no slowdown, and ends.
    world.tokens, world.token_ns = world.base_tokens, SLOWER_NS
    assert ask("check", "--base=HEAD~3") == 1
    assert "toy (regressed)" in result(project)["sentence"]
    world.tokens = (*world.base_tokens[:-1], "9")
    set_day(monkeypatch, TODAY + timedelta(days=30))
    assert ask("check", "--base=HEAD~3") == 4
    assert "the waiver of toy ended on 2026-12-01" in result(project)["sentence"]
    waiver.write_text(waiver.read_text() + "change_pct = -5.0\n")
    commit(project)
    assert "E_BAD_WAIVER" in command(2, "check", "--base=HEAD~4").err


def test_a_required_workload_may_go_if_a_waiver_of_the_change_says_so(
    project: Path, world: fakes.World, declare: Callable[..., str], command: Command
) -> None:
    git(project, "config", "user.name", "A. Person")
    declare(workload("toy"), workload("more"))
    declare(workload("toys"), workload("more"))
    printed = command(2, "check", "--base=HEAD~1")
    assert "flamegate accept toy --reason TEXT --until DATE" in printed.out
    printed = command(0, *ACCEPT)
    assert "accepted: toy NO LONGER REQUIRED" in printed.out
    assert "E_UNCOMMITTED" in command(2, "check", "--base=HEAD~1").err
    commit(project)
    printed = command(0, "check", "--base=HEAD~2")
    assert "counts now, as a waiver accepts: the head's policy of toy" in printed.out
    assert verdicts(project) == {"more": "pass"}
    assert verdicts(project, "new") == {"toys": "no_baseline"}
    loud = "1 NOT COMPARED: other policy, as accepted: toy"
    assert sentence(project).endswith(f"1 required workload, none past its threshold, {loud}")
    about = "toy NO LONGER REQUIRED, by A. Person until 2026-12-01: agreed"
    assert debt(project) == [
        "1 accepted change of the policy, oldest 0 days",
        f"new in this change: {about}",
    ]
    runs = shutil.move(project / ".flamegate/latest", project.parent / "uploaded")
    assert ask("check", "--base=HEAD~2", f"--receipts={runs}") == 0
    assert verdicts(project) == {"more": "pass"}
    # Another workload needs its own, and once merged it is a record and counts no more.
    declare(workload("toys"))
    assert ask("check", "--base=HEAD~3") == 2
    assert "more (error: the head does not declare it. If that is meant" in sentence(project)
    declare(workload("toy"), workload("toys"))
    declare(workload("toys"))
    assert ask("check", "--base=HEAD~1") == 2
    assert "toy (error: the head does not declare it. If" in sentence(project)
    # The last one may go too.
    declare("# no workload")
    assert ask("check", "--base=HEAD~1") == 2
    assert ask("accept", "toys", "--reason=agreed", "--until=2026-12-01") == 0
    commit(project)
    assert ask("check", "--base=HEAD~2") == 0
    assert "0 required workloads, 1 NOT COMPARED: other policy, as accepted: toys" in (
        sentence(project)
    )


def test_a_policy_that_is_accepted_counts_as_it_was_accepted_and_no_other(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(workload("toy", tokens_per_second='"60%"'))
    assert ask("check", "--base=HEAD~1") == 0
    assert "E_NO" in command(2, *ACCEPT, "--dir=nowhere").err
    assert "E_NOT_ACCEPTED" in command(2, *ACCEPT).err  # nothing failed
    world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), at="warm up")
    assert ask("check", "--base=HEAD~1") == 5
    printed = command(0, *ACCEPT).out
    assert "toy: tokens_per_second_pct 5.0 → 60.0" in printed
    waiver = find_waiver(project)
    assert "# toy: tokens_per_second_pct 5.0 → 60.0\n" in waiver.read_text()
    commit(project)
    world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), times=0)
    world.token_ns = SLOWER_NS
    assert ask("check", "--base=HEAD~2") == 0
    assert verdicts(project) == {"toy": "pass"}
    assert sentence(project).endswith("by the policy of the head, as accepted: toy")
    runs = shutil.copytree(project / ".flamegate/latest", project.parent / "uploaded")
    assert ask("check", "--base=HEAD~2", f"--receipts={runs}") == 0
    set_day(monkeypatch, TODAY + timedelta(DONE + 1))
    assert ask("check", "--base=HEAD~2", f"--receipts={runs}") == 1
    assert "toy (the waiver of toy ended on 2026-12-01)" in sentence(project)
    set_day(monkeypatch, TODAY)
    declare(workload("toy", tokens_per_second='"70%"'))
    assert ask("check", "--base=HEAD~3") == 1
    assert "toy (the waiver of toy accepts another declaration than this one)" in sentence(project)
    waiver.write_text(waiver.read_text() + 'tokens = "' + "0" * 64 + '"\n')
    commit(project)
    assert "E_BAD_WAIVER" in command(2, "check", "--base=HEAD~4").err


@pytest.mark.parametrize(
    ("base", "head"),
    [({"max_token": "3"}, {}), ({}, {"prompt": '"3+3="'}), ({}, {"seed": "1"})],
    ids=["broken base", "prompt", "seed"],
)
def test_other_work_that_is_accepted_is_measured_alone(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    base: dict[str, str],
    head: dict[str, str],
) -> None:
    declare(workload("toy", **base))
    declare(workload("toy", **head))
    if not base:
        world.fail(ToolError("E_CANNOT_START", "The base's prompt is too long.", ""), times=1)
    printed = command(2 if base else 4, "check", "--base=HEAD~1")
    assert not base or "flamegate accept toy --reason" in printed.out
    assert "the head declares it otherwise. If that is meant: flamegate accept" in printed.out
    assert ask(*ACCEPT) == 0
    assert "declared otherwise" in command.read().out
    commit(project)
    assert ask("check", "--base=HEAD~2") == 0
    assert verdicts(project) == {}
    assert verdicts(project, "new") == {"toy": "no_baseline"}
    assert sentence(project).endswith(
        "0 required workloads, 1 NOT COMPARED: other policy, as accepted: toy"
    )


def test_each_change_has_its_own_waiver_and_the_debt_counts_all_of_them(
    project: Path, world: fakes.World, declare: Callable[..., str], command: Command
) -> None:
    start = git(project, "rev-parse", "HEAD")
    for _ in range(2):
        world.base_token_ns, world.token_ns = world.token_ns, round(1.1 * world.token_ns)
        declare(workload("toy"))
        base = git(project, "rev-parse", "HEAD~1")
        assert ask("check", f"--base={base}") == 1
        assert ask(*ACCEPT) == 0
        assert "replaced" not in command.read().out
        waiver = project / f".flamegate/waivers/toy-{git(project, 'rev-parse', 'HEAD')[:12]}.toml"
        commit(project)
        # Accepted again in the same change, it is counted once.
        assert ask("check", f"--base={base}") == 0
        assert ask(*ACCEPT) == 0
        printed = command.read().out
        assert f"replaced, because this change added it: {waiver.relative_to(project)}" in printed
        commit(project)
        assert ask("check", f"--base={base}") == 0
    assert debt(project)[0].startswith("2 accepted slowdowns, 1")
    # A fixed reference has neither slowdown: together they are accepted, and no more than that.
    world.base_token_ns = fakes.TOKEN_NS
    assert ask("check", f"--base={start}") == 0
    assert sentence(project).endswith("slower as accepted: toy")
    world.token_ns = round(1.1 * world.token_ns)
    assert ask("check", f"--base={start}") == 1
    assert "toy's waivers accept at most 1" in sentence(project)
    # A file of an earlier version is named by its workload alone.
    waivers = sorted((project / ".flamegate/waivers").glob("*.toml"))
    waivers[0].rename(waivers[0].with_name("toy.toml"))
    waivers[1].rename(waivers[1].with_name("other.toml"))
    commit(project)
    assert "other.toml is of 'toy'" in command(2, "check", f"--base={start}").err


def test_a_slowdown_is_tested_again_when_its_waiver_has_ended(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = declare(workload("toy"))
    declare(workload("toy"), "# slower")
    world.token_ns = SLOWER_NS
    assert ask("check", f"--base={start}") == 1
    assert ask(*ACCEPT) == 0
    release = commit(project)
    head = declare(workload("toy"), "# later")
    assert head != release
    set_day(monkeypatch, TODAY + timedelta(DONE + 1))
    # A reference from before it has no such slowdown.
    assert ask("check", f"--base={start}") == 1
    assert "toy (the waiver of toy ended on 2026-12-01)" in sentence(project)
    world.token_ns = fakes.TOKEN_NS
    assert ask("check", f"--base={start}") == 0
    gone = "ended on 2026-12-01, gone, and may be deleted: toy 2"
    assert debt(project)[1].startswith(gone)
    # A reference that has it too says nothing, so the commit before it is measured.
    assert ask("check", f"--base={release}") == 0
    assert f"flamegate run toy --against={start[:12]}" in debt(project)[1]
    assert ask("check", f"--base={release}", "--ended") == 0
    assert debt(project)[1].startswith(gone)
    assert [row["verdict"] for row in result(project)["ended"]] == ["pass"]
    set_day(monkeypatch, TODAY)
    assert ask("check", f"--base={release}", "--ended") == 0
    assert result(project)["ended"] == []
    set_day(monkeypatch, TODAY + timedelta(DONE + 1))
    # The release is as slow as the head, so only the commit before the slowdown shows it.
    world.token_ns = SLOWER_NS
    monkeypatch.setattr(check, "gate_all", slow_release(world, start, vars(check)["gate_all"]))
    assert ask("check", f"--base={release}") == 0
    printed = command(1, "check", f"--base={release}", "--ended").out
    place = f"toy against {start[:12]}"
    still = "regressed: a slowdown whose waiver has ended is still there"
    assert f"{place} ({still})" in sentence(project)
    assert f"flamegate run toy --against={start[:12]}" in printed
    assert f"| `{place}` | **regressed** |" in (project / ".flamegate/check.md").read_text()
    waiver = find_waiver(project)
    waiver.write_text(waiver.read_text().replace(start, "0" * 40))
    commit(project)
    assert ask("check", f"--base={release}", "--ended") == 2
    assert "(error: a slowdown whose waiver has ended may still be there)" in sentence(project)
    assert "E_BAD_OPTION" in command(2, "check", "--base=HEAD~1", "--ended", "--receipts=x").err


def slow_release(world: fakes.World, start: str, gate_all: Any) -> Any:
    """Return ``gate_all`` in a world in which every base but ``start`` is as slow as the head."""

    def gate(settings: Settings, entries: Any, *trees: Any) -> Any:
        world.base_token_ns = fakes.TOKEN_NS if settings.against == start else world.token_ns
        return gate_all(settings, entries, *trees)

    return gate


def test_ten_slowdowns_of_one_percent_are_ten_percent_against_a_fixed_reference(
    project: Path, world: fakes.World, declare: Callable[..., str]
) -> None:
    reference = git(project, "rev-parse", "HEAD")
    for number in range(10):
        world.base_token_ns, world.token_ns = world.token_ns, round(1.01 * world.token_ns)
        declare(workload("toy"), f"# change {number}")
        assert ask("check", "--base=HEAD~1") == 0
        (row,) = result(project)["required"]
        assert row["change_pct"] == pytest.approx(-1.0, abs=0.8)
    world.base_token_ns = fakes.TOKEN_NS
    assert ask("check", f"--base={reference}") == 1
    (row,) = result(project)["required"]
    low, high = row["interval_pct"]
    assert low < 100.0 * (1.01**-10 - 1.0) < high < -5.0


@pytest.mark.measures
@pytest.mark.nightly
def test_ten_measured_slowdowns_of_one_percent(project: Path, declare: Callable[..., str]) -> None:
    """No answer of a busy machine is wrong but one: that they are not slower by 5 % in sum."""
    rounds = [round(8000 * 1.01**number) for number in range(11)]
    commits = []
    for each in rounds:
        write_toy(project, each)
        commits.append(declare(workload("toy", target="steady", max_tokens="24")))
    assert ask("check", f"--base={commits[-2]}") != 1
    assert ask("check", f"--base={commits[0]}") in (1, 4)
    (row,) = result(project)["required"]
    low, high = row["interval_pct"]
    assert low < 100.0 * (1.01**-10 - 1.0) + 1.0
    assert high < 0.0 or row["verdict"] == "inconclusive"
