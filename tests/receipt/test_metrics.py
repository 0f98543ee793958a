"""Figures from token times and from engines' reports, their formulas, and the spread of shares."""

import math
from random import Random

import pytest

from pytest_flamegate.core.clocks import Interval
from pytest_flamegate.core.json import replace
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Block, ClockScope, Role, Run
from pytest_flamegate.profile.difference import SPREAD
from pytest_flamegate.receipt import metrics, reported
from pytest_flamegate.receipt.metrics import meaning_of
from pytest_flamegate.receipt.policies import policy_for
from pytest_flamegate.receipt.rules.rule import has_tokens
from pytest_flamegate.receipt.types import KernelSighting, Metric, ProcessProfile
from tests.made import bundle, metric

SHARES = {"gemv": 0.6, "attn": 0.25, "norm": 0.1, "copy": 0.05}
RATE = metric(value=2000.0, samples=640)
RECIPE = {"engine": "benchmark", "calls": 50, "elements": 512, "bytes": 4096, "flops": 1024}
RUN = bundle().evidence.runs[0]
"""A timed run of four tokens a sequence."""


def test_a_kernel_rate_counts_the_work_of_all_calls() -> None:
    found = metrics.kernel_rates(RECIPE, [RATE])
    assert [(each.name, each.value, each.unit) for each in found] == [
        ("kernel_calls_per_second", 100_000.0, "calls/s"),
        ("kernel_elements_per_second", 51_200_000.0, "elements/s"),
        ("kernel_bytes_per_second", 409_600_000.0, "B/s"),
        ("kernel_gflops", pytest.approx(0.1024), "GFLOP/s"),
    ]
    assert tuple(each.name for each in found) == metrics.KERNEL_RATE_NAMES
    assert {each.provenance for each in found} == {"derived"}
    assert all(meaning_of(each.formula) for each in found)


@pytest.mark.parametrize("scope", ["sequence", "process"])
def test_every_figure_of_a_run_has_a_formula_in_words(scope: ClockScope) -> None:
    found = metrics.figures([RUN], scope, 5)
    assert {"quiet_s_per_token", "cpu_s_per_token"} <= {each.name for each in found}
    assert [each.formula for each in found if meaning_of(each.formula) is None] == []


@pytest.mark.parametrize(
    "changes",
    [{"engine": "python"}, *({"calls": odd} for odd in (None, True, 0, 1e3, 1 << 80))],
)
def test_another_recipe_gives_no_kernel_rates(changes: dict[str, object]) -> None:
    assert metrics.kernel_rates({**RECIPE, **changes}, [RATE]) == ()
    assert metrics.kernel_rates(RECIPE, [replace(RATE, name="load_ms")]) == ()
    fewer = metrics.kernel_rates({**RECIPE, "elements": "512"}, [RATE])
    assert "kernel_elements_per_second" not in [each.name for each in fewer]


def processes(spread: float) -> list[ProcessProfile]:
    """Processes whose shares vary ``spread`` times as much as independent samples would."""
    chance = Random(11)
    made = []
    for pid in range(40):
        # Samples in clumps of n vary by the square root of n more.
        clump = round(spread**2)
        names = chance.choices(list(SHARES), list(SHARES.values()), k=2000 // clump)
        own = {name: clump * names.count(name) for name in SHARES}
        made.append(ProcessProfile(pid, sum(own.values()), own))
    return made


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_a_wider_spread_than_usual_is_found(spread: float) -> None:
    # Profiles of one program spread more than independent samples would.
    found = metrics.spread_of(processes(spread))
    assert found == pytest.approx(max(SPREAD, spread), rel=0.25)


def test_one_process_has_no_spread() -> None:
    for seen in ([], [ProcessProfile(1, 10, {"f": 10})], [ProcessProfile(1, 0, {"f": 10})] * 2):
        assert metrics.spread_of(seen) == SPREAD


def run_of(*sequences: tuple[int, ...], role: Role = "timed", has_decode: bool = False) -> Run:
    decode = Interval(sum(sum(gaps[1:]) for gaps in sequences) + 1, 1, None)
    whole = Interval(sum(map(sum, sequences)) + 1, 1, None)
    block = Block(whole, sequences, decode=decode if has_decode else None)
    return replace(RUN, role=role, blocks=(block,))


@pytest.mark.parametrize(
    ("has_decode", "sequences", "rate"),
    [
        (False, [(500, 500), (400, 600)], 4 / 2000e-9),
        (True, [(9000, 250), (9000,)], 1 / 250e-9),
    ],
)
def test_rate_from_token_times(
    has_decode: bool, sequences: list[tuple[int, ...]], rate: float
) -> None:
    runs = (run_of(*sequences, has_decode=has_decode), run_of((1,), role="profiled"))
    found, made = metrics.rate_of(runs), metrics.tokens_per_second(runs)
    assert found is not None
    assert found.tokens_per_second == made.value == pytest.approx(rate)
    formula = "decode-tokens/decode-time" if has_decode else "tokens/total"
    assert found.formula == made.formula == formula


def test_tokens_are_counted_over_blocks_and_sequences_of_any_length() -> None:
    with_decode = run_of((9, 1, 1), (9,), has_decode=True)
    assert (with_decode.tokens, with_decode.judged_tokens) == (4, 2)
    mixed = replace(RUN, blocks=(*with_decode.blocks, *run_of((5, 5)).blocks))
    assert (mixed.tokens, mixed.judged_tokens, mixed.lengths) == (6, 4, frozenset({1, 2, 3}))


@pytest.mark.parametrize("sequences", [[], [()], [(0,)], [(0, 0)]])
def test_no_rate_without_times(sequences: list[tuple[int, ...]]) -> None:
    assert metrics.rate_of((run_of(*sequences),)) is None
    assert metrics.rate_of((run_of((5, 5), role="profiled"),)) is None


def runs(*reports: Report) -> list[Run]:
    """One timed run for each report."""
    return [replace(RUN, reported=(report,)) for report in reports]


def reporting(*values: float, name: str = "decode_ms", source: str = "log") -> list[Run]:
    return runs(*(Report(source, {name: value}) for value in values))


def read(report: Report, *others: Report) -> dict[str, Metric]:
    """Return the figures of three reports by name."""
    found = reported.engine_metrics(runs(report, *(others or (report, report))))
    return {each.name: each for each in found}


@pytest.mark.parametrize("name", reported.FIGURES)
def test_each_figure_becomes_a_metric_of_its_own(name: str) -> None:
    (found,) = reported.engine_metrics(reporting(3.0, 1.0, 8.0, name=name))
    assert (found.name, found.value) == (f"engine_{name}", 3.0)
    assert found.formula == f"log:{name}/median"
    assert (found.unit, found.direction) == reported.FIGURES[name]
    assert (found.clock, found.samples, found.provenance) == ("wall", 3, "ingested")
    assert reported.of_engine(found)
    assert meaning_of(found.formula) is not None or found.unit == "tokens"
    assert reported.source_of(found) == "log"


def test_three_reports_of_one_source_are_enough() -> None:
    assert reported.engine_metrics(reporting(1.0, 2.0)) == ()
    sequences = tuple(Report("log", {"decode_ms": value}) for value in (1.0, 2.0, 4.0, 100.0))
    (found,) = reported.engine_metrics([replace(RUN, reported=sequences)])
    assert (found.value, found.samples) == (3.0, 4)
    one, other = reporting(1.0, 2.0, 3.0, source="b"), reporting(5.0, 6.0, 7.0, source="a")
    assert [(each.formula, each.value) for each in reported.engine_metrics([*one, *other])] == [
        ("a:decode_ms/median", 6.0),
        ("b:decode_ms/median", 2.0),
    ]
    assert reported.engine_metrics([*one[:2], *other[:2]]) == ()


def test_a_rate_of_nothing_is_no_rate_and_a_time_of_nothing_is_a_time() -> None:
    assert reported.engine_metrics(reporting(0.0, 0.0, 0.0, name="tokens_per_second")) == ()
    (found,) = reported.engine_metrics(reporting(0.0, 0.0, 0.0, name="sample_us"))
    assert found.value == 0.0


@pytest.mark.parametrize(
    ("tokens", "counted"), [(4, "n"), (3, "(n-1)"), (5, "(n+1)"), (9, "predicted-tokens")]
)
def test_the_formula_of_a_derived_rate_states_its_tokens(tokens: float, counted: str) -> None:
    report = Report("log", {"tokens": tokens, "decode_ms": 2.0})
    found = read(report)["engine_decode_tokens_per_second"]
    assert (found.value, found.provenance) == (500.0 * tokens, "derived")
    assert found.formula == f"log:{counted}/decode-time/median"
    assert meaning_of(found.formula) is not None
    # Of two counts, the formula is true of both.
    other = Report("log", {"tokens": 40.0, "decode_ms": 2.0})
    found = read(report, other, report)["engine_decode_tokens_per_second"]
    assert found.formula == "log:predicted-tokens/decode-time/median"


def test_the_prompt_has_a_rate_too_unless_the_engine_reports_one() -> None:
    stated = {"prompt_tokens": 6.0, "prefill_ms": 3.0}
    name = "prefill_tokens_per_second"
    found = read(Report("log", stated))[f"engine_{name}"]
    assert (found.value, found.provenance) == (2000.0, "derived")
    found = read(Report("log", {**stated, name: 1990.0}))[f"engine_{name}"]
    assert (found.value, found.provenance) == (1990.0, "ingested")


@pytest.mark.parametrize("spent_ms", [0.0, 5e-324])
def test_no_time_gives_no_rate(spent_ms: float) -> None:
    found = read(Report("log", {"tokens": 4.0, "decode_ms": spent_ms}))
    assert "engine_decode_tokens_per_second" not in found
    assert all(math.isfinite(each.value) for each in found.values())


def test_a_reported_figure_is_compared_with_the_observed_one() -> None:
    found = bundle().with_reports(counted=-1).evidence.metrics
    rate = next(each for each in found if each.name == "engine_decode_tokens_per_second")
    observed = reported.observed_as(rate, found)
    assert observed is not None
    assert rate.value == pytest.approx(observed.value, rel=0.02)


def test_kernels_are_counted_over_all_runs_by_their_source() -> None:
    reports = [
        Report("a", {}, {"ROPE": 2, "MUL_MAT": 9, "NEVER": 0}),
        Report("a", {}, {"MUL_MAT": 1, "rms_norm": 4}),
        Report("b", {}, {"ROPE": 1}),
    ]
    assert reported.engine_kernels(runs(*reports), {"rms_norm"}) == (
        KernelSighting("MUL_MAT", "engine", 10, "a"),
        KernelSighting("ROPE", "engine", 2, "a"),
        KernelSighting("ROPE", "engine", 1, "b"),
    )
    many = {f"k{number}": number for number in range(1, 100)}
    found = reported.engine_kernels(runs(Report("a", {}, many)), ())
    assert (len(found), found[0].name) == (64, "k99")
    for name in ("gemv\u202e", " gemv", "g\nv", "漢" * 50, "x" * 129):  # no names
        assert reported.engine_kernels(runs(Report("a", {}, {name: 2})), ()) == ()


@pytest.mark.parametrize(
    ("policy", "observed", "is_named", "backend", "added"),
    [
        ("generic", "rms_norm", True, "cpu", "mock_gemv"),
        ("generic", "rms_norm", False, "cpu", "i2s_gemv mock_gemv"),
        ("generic", "rms_norm", True, "cuda", "cuda_gemm_fp16 mock_gemv"),
        ("generic", "rms_norm", False, "cuda", "i2s_gemv cuda_gemm_fp16 cuda_sync mock_gemv"),
        # A profiler that sees Python alone shows nothing of the engine's policy.
        ("ggml", "ggml_vec_dot_q4_1_q8_1", True, "cpu", "mock_gemv"),
        ("ggml", "attention", True, "cpu", "i2s_gemv mock_gemv"),
    ],
)
def test_a_reported_kernel_is_claimed_if_the_profile_shows_too_little(
    policy: str, observed: str, is_named: bool, backend: str, added: str
) -> None:
    names = ("i2s_gemv", "cuda_gemm_fp16", "cuda_sync", "mock_gemv")
    sightings = [KernelSighting(name, "engine", 5, "log") for name in names]
    found = reported.claimed_kernels(
        [*sightings, KernelSighting(observed, "profile", 5)],
        named_by_profile=is_named,
        backend=backend,  # type: ignore[arg-type]
        policy=policy_for(policy),
    )
    assert found == (observed, *added.split())


TPOT = metric(
    "time_per_output_token_ms",
    formula="(latency-ttft)/(n-1)",
    unit="ms",
    direction="lower_is_better",
)
ITL = replace(TPOT, name="inter_token_latency_ms", formula="token-gap")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("formula", "latency/n"), ("unit", "s"), ("clock", "cpu")),
        ("direction", "higher_is_better"),
    ],
)
def test_a_field_in_which_two_figures_differ_is_named(field: str, value: str) -> None:
    other = replace(TPOT, **{field: value})
    (difference,) = metrics.differing_formulas([TPOT, ITL], [other])
    assert (difference.quantity, difference.field) == ("time_per_output_token", field)
    assert difference.values == (getattr(TPOT, field), value)
    assert difference.message.endswith(f"{value}.")


def test_figures_without_a_namesake_differ_in_nothing() -> None:
    p95 = replace(ITL, name="inter_token_latency_p95_ms", formula="other")
    for one, other in (
        ([TPOT, ITL], [replace(ITL, value=9.0), TPOT]),
        ([], [TPOT]),
        ([TPOT], []),
        ([ITL], [p95]),
    ):
        assert metrics.differing_formulas(one, other) == []


def test_figures_of_other_tools_and_sources_are_compared_with_their_own() -> None:
    theirs = replace(RATE, name="output_tokens_per_second", formula="output-tokens/duration")
    (difference,) = metrics.differing_formulas([RATE, ITL], [theirs])
    assert difference.quantity == "tokens_per_second"
    assert difference.values == ("tokens/total", "output-tokens/duration")
    one, two = (replace(TPOT, formula=f"{source}:decode_ms/median") for source in ("a", "b"))
    assert metrics.differing_formulas([one, two], [two]) == []
    assert metrics.differing_formulas([one], [two]) != []


def test_a_decode_without_a_sequence_has_no_tokens() -> None:
    (block, *_) = RUN.blocks
    decoded = replace(block, decode=block.interval, decode_tokens=3)
    assert has_tokens(replace(RUN, blocks=(decoded,)))
    assert not has_tokens(replace(RUN, blocks=(replace(decoded, sequences_ns=()),)))
