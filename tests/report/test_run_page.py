from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_flamegate.gate import Reason, Verdict
from pytest_flamegate.gate.document import StoredVerdict
from pytest_flamegate.observe.build import Program
from pytest_flamegate.report import sections
from pytest_flamegate.report.flame_html import Drawn
from pytest_flamegate.report.run_page import Reported, run_page
from tests.report import factory, verdicts


def reported(verdict: Verdict, name: str = "decode", **changes: object) -> Reported:
    given: dict[str, object] = {
        "receipt": factory.receipt(),
        "evidence": factory.evidence(),
        "drawn": Drawn(name, factory.profile(), 1.93e-3, categorise=factory.categorise),
        "again": "pytest flamegate.toml::decode --flamegate",
        "accept": "pytest flamegate.toml::decode --flamegate --flamegate-update",
    } | changes
    return Reported(name, StoredVerdict.of(verdict), **given)  # type: ignore[arg-type]


def words(page: str) -> str:
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_the_verdict_comes_first() -> None:
    verdict = verdicts.regressed()
    told = words(run_page([reported(verdict)], title="run"))
    sentence = StoredVerdict.of(verdict).headline.partition(": ")[2].partition("<")[0]
    order = ["decode regressed", sentence,
             verdict.reasons[0].code, "Signals", "Where it went", "Where the time goes", "Metrics",
             "How sure", "What ran, and on what", "What to do next"]  # fmt: skip
    places = [told.index(part) for part in order]
    assert places == sorted(places)


def test_figures_are_those_of_the_verdict() -> None:
    verdict = verdicts.regressed()
    told = words(run_page([reported(verdict)], title="run"))
    for cost in verdict.attribution:
        assert cost.name in told
    assert verdict.grade in told
    assert "AMD EPYC 7B13" in told
    assert "time per output token (TPOT)" in told
    assert "--flamegate-update" in told


def test_what_all_have_in_common_stands_on_top() -> None:
    first = factory.evidence()
    later = replace(
        first, created="2026-01-02T05:00:00Z", commit=None, machine={"cpu_model": "other"}
    )
    about = r'<h1>run</h1><p class="muted">(.*?)</p>'
    top = []
    for second in (first, later):
        shown = [reported(verdicts.no_baseline(), evidence=each) for each in (first, second)]
        top.append(re.findall(about, run_page(shown, title="run"))[0].split(" · "))
    (revision,) = sections.revision(first)
    machine = ", ".join(sections.hardware(first))
    assert top[0] == ["2 workloads", machine, revision, first.created, "flamegate 0.1.0"]
    assert top[1] == [
        "2 workloads", "2 different machines", "2 different revisions",
        "2026-01-02T03:04:06Z to 2026-01-02T05:00:00Z", "flamegate 0.1.0",
    ]  # fmt: skip


def test_the_program_and_the_engine_are_named() -> None:
    evidence = replace(
        factory.evidence(),
        program=Program("target/release/bitnet", "ab" * 32, 1234, inside=True),
        engine={"library": "llama.cpp b1 <x>"},
    )
    told = run_page([reported(verdicts.regressed(), evidence=evidence)], title="run")
    assert "target/release/bitnet" in words(told)
    assert f"sha256 {'ab' * 32}" in words(told)
    assert "llama.cpp b1 &lt;x&gt;" in told


def test_each_workload_has_a_flame_graph_of_its_own() -> None:
    page = run_page([reported(verdicts.regressed(), name) for name in "ab"], title="run")
    assert re.findall(r'data-flame="([^"]+)"', page) == ["flame-1", "flame-2"]
    assert re.findall(r'application/json" id="([^"]+)"', page) == ["flame-1", "flame-2"]
    assert re.findall(r'href="#([^"]+)"', page) == ["workload-1", "workload-2"]
    assert page.count("<script>") == page.count("<style>") == 1


def test_what_was_never_measured_says_why() -> None:
    verdict = Verdict.unjudged(
        "error", [Reason("E_BUILD", "The build failed.")], grade="SELF_REPORTED"
    )
    bare = Reported(
        "decode", StoredVerdict.of(verdict), warnings=("The history does not have this run.",)
    )
    told = words(run_page([bare], title="run"))
    assert "E_BUILD The build failed." in told
    assert "The history does not have this run." in told
    assert "Where the time goes" not in told


def test_nothing_was_measured() -> None:
    assert words(run_page([], title="run")).endswith("No workload was measured.")


@pytest.mark.parametrize("hostile", ["<script>x</script>", '"><img src=x>', "a\u202eb\x00"])
def test_text_from_outside_stays_text(hostile: str) -> None:
    verdict = Verdict.unjudged("error", [Reason("E_X", hostile)], grade=hostile)
    page = run_page([reported(verdict, hostile, warnings=(hostile,), again=hostile)], title=hostile)
    harmless = run_page([reported(Verdict.unjudged("error", [Reason("E_X", "m")], grade="g"), "n",
                                  warnings=("w",), again="a")], title="t")  # fmt: skip
    assert re.findall(r"<[a-z0-9]+", page) == re.findall(r"<[a-z0-9]+", harmless)


def test_variants_stand_side_by_side_before_each_by_itself() -> None:
    pair = [reported(verdicts.no_baseline(), f"decode[{name}]") for name in ("i2s", "qk256")]
    told = words(run_page([*pair, reported(verdicts.no_baseline(), "other")], title="run"))
    assert told.count("Variants of decode") == 1
    side = told.index("Variants of decode")
    assert told.index("function, µs/token") > side
    assert told.index("decode[qk256] no baseline", side) > side
    alone = words(run_page([reported(verdicts.no_baseline(), "decode")], title="run"))
    assert "Variants of" not in alone
