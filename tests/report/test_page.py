"""The page of a run, its interactive flame graph, and sections rendered three times."""

import base64
import hashlib
import itertools
import re
from dataclasses import replace
from typing import Any

from hypothesis import given

from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict, headline
from pytest_flamegate.profile.model import Frame, Profile, Stack
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report import markdown, markup, page
from pytest_flamegate.report.flame import Drawn, colour_hotspots
from pytest_flamegate.report.flame_html import PARTS, REST, flame_data
from pytest_flamegate.report.page import flamegraph_html, run_page
from pytest_flamegate.report.run_report import RunReport, run_sections, summary_section
from pytest_flamegate.report.sections import Table, cell_text
from pytest_flamegate.report.terminal import section_lines
from tests.report import factory, verdicts
from tests.report.factory import compared, report, slowed
from tests.report.test_flame import STACKS


def words(text: str) -> str:
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_every_cell_of_every_table_is_in_all_three_renderings() -> None:
    """One model: no renderer has a table, a column or a row of its own."""
    run = report(verdicts.in_pairs(), drawn=None, bricks=factory.shown_bricks())
    seen = set()
    for section in (summary_section([run]), *run_sections(run)):
        lines = " ".join(" ".join(section_lines(section)).split())
        html = words(page.render_section(section, "flame-1"))
        text = markdown.render_section(section).replace("\u00a0", " ").replace("\\", "")
        tables = [block for block in section.blocks if isinstance(block, Table)]
        seen |= {section.title for table in tables if table.rows}
        for cell in (cell_text(cell) for table in tables for row in table.rows for cell in row):
            plain = " ".join(cell.split())
            assert plain in lines
            assert plain in text.replace("&gt;", ">") or "|" in plain
            assert plain in html.replace("&#39;", "'").replace("&gt;", ">")
    assert seen == {
        *("", "Where it went (µs/token)", "Lines (µs/token)", "Calls (exact)", "Compared"),
        *("Where the time goes", "Phases (not gated)", "Bricks", "Throughput and latency"),
        *("What ran, and on what", "Evidence"),
    }


def test_the_first_cell_of_a_row_is_its_heading_and_figures_are_marked() -> None:
    shown = markup.table(["a", "b"], [["1", "2"]], right=[1])
    assert '<th scope="col">a</th><th scope="col" class="figure">b</th>' in shown
    assert '<th scope="row">1</th><td class="figure">2</td>' in shown


def test_a_changed_run_opens_on_the_difference() -> None:
    found = compared(slowed("rms_norm", 2.0))
    for difference, compares in ((found, True), (found, False), (None, True)):
        drawn = Drawn("t", factory.profile(), 2e-3, difference, opens_compared=compares)
        shown = run_page([report(verdicts.regressed(), drawn=drawn)], title="run")
        assert ('class="flame compared"' in shown) is (difference is not None and compares)
        assert "decode regressed 6.2 % slower (5.1" in words(shown)


def test_the_top_has_the_facts_that_all_runs_share() -> None:
    first = factory.evidence()
    later = replace(first, created="2026-01-02T05:00:00Z", commit=None, machine={"cpu_model": "x"})

    def top(second: Evidence) -> list[str]:
        runs = [report(verdicts.no_baseline(), evidence=each) for each in (first, second)]
        page = run_page(runs, title="run")
        (about,) = re.findall(r'<h1>run</h1><p class="muted">(.*?)</p>', page)
        return str(about).split(" · ")

    assert top(first) == [
        "2 workloads", "AMD EPYC, 2 cores", "4f2c91a + 2 uncommitted files", first.created,
        "flamegate 0.1.0",
    ]  # fmt: skip
    assert top(later)[1:4] == [
        "2 different machines", "2 different revisions", f"{first.created} to {later.created}"
    ]  # fmt: skip


def test_a_workload_that_was_never_measured_gives_its_reason() -> None:
    failed = Reason("E_BUILD", "The build failed.")
    verdict = Verdict("error", (failed,), grade="SELF_REPORTED")
    warnings = ("The history does not have this run.",)
    bare = RunReport("decode", verdict, headline(verdict), warnings=warnings)
    shown = words(run_page([bare], title="run"))
    assert "E_BUILD The build failed." in shown
    assert warnings[0] in shown
    assert "Where the time goes" not in shown
    assert words(run_page([], title="run")).endswith("No workload was measured.")


# The interactive flame graph


def draw(profile: Profile) -> str:
    return flamegraph_html(Drawn("embedded::10tok", profile, factory.TOKEN_S), subtitle="s")


def test_the_policy_lets_in_what_stands_there_and_nothing_else() -> None:
    text = draw(factory.profile())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    code = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
    assert sorted(re.findall(r"'sha256-([^']+)'", policy)) == sorted(
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in code
    )
    assert policy.startswith("default-src 'none'; ")
    assert sum(len(each.encode()) for each in code) <= 60_000
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch\(|XMLHttpRequest|eval\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", page.script())
    assert "localStorage" not in page.script()


# Data


def data_of(profile: Profile) -> Any:
    drawn = Drawn("t", profile)
    colouring, spots = colour_hotspots(drawn)
    return flame_data(drawn, spots, colouring)


def expand(label: str) -> list[str]:
    """Return the names of a box: ``a › b ×2`` is a, b, b."""
    names: list[str] = []
    for part in label.split(" › "):
        name, _, times = part.partition(" ×")
        names += [name] * int(times or 1)
    return names


def stacks_of(data: Any) -> dict[tuple[str, ...], int]:
    """Read the stacks back as the page does: the depth alone determines every caller."""
    found: dict[tuple[str, ...], int] = {}
    stack: list[str] = []
    paths = data["paths"]
    for depth, frame, own in zip(paths["depth"], paths["frame"], paths["own"], strict=True):
        stack[depth:] = [data["names"][data["frames"]["name"][frame]]]
        if own:
            found[tuple(name for part in stack for name in expand(part))] = own
    return found


@given(STACKS)
def test_every_stack_reads_back(stacks: dict[Stack, int]) -> None:
    data = data_of(factory.profile(stacks))
    names = {tuple(frame.name for frame in stack): count for stack, count in stacks.items()}
    assert stacks_of(data) == names
    assert data["total"] == sum(stacks.values())
    assert data["left"] == 0


def test_functions_count_recursion_once_and_are_separated_by_their_whole_names() -> None:
    fib, other = factory.python("fib", "a.py"), factory.python("fib", "b.py")
    data = data_of(factory.profile({(fib, fib): 3, (other,): 2}))
    assert data["names"] == ["fib"]
    assert data["functions"] == {"own": [5], "all": [5]}
    assert data["modules"] == ["a.py", "b.py"]
    names = ["a\u202eb", *("x" * 500 + number for number in "01")]
    data = data_of(factory.profile({(factory.python(name),): 1 for name in names}))
    assert "a\\u202eb" in data["names"]
    assert len(data["names"]) == len(data["paths"]["own"]) == 3


@given(STACKS)
def test_too_small_paths_are_one(stacks: dict[Stack, int]) -> None:
    hot: Stack = (factory.python("hot"),)
    data = data_of(factory.profile({**stacks, hot: 20 * PARTS}))
    read = stacks_of(data)
    assert sum(read.values()) == data["total"]
    least = data["total"] / PARTS
    small = {stack[0] for stack in stacks if sum_below(stacks, stack[0]) < least}
    assert not {frame.name for frame in small} & {stack[0] for stack in read}
    assert read.get((REST.name,), 0) == sum(sum_below(stacks, frame) for frame in small)
    depths = data["paths"]["depth"]
    assert all(after <= before + 1 for before, after in itertools.pairwise(depths))
    assert (data["left"] > 0) == any(REST.name in stack for stack in read)


def sum_below(stacks: dict[Stack, int], root: Frame) -> int:
    return sum(count for stack, count in stacks.items() if stack[0] == root)
