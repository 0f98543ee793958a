from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from pytest_flamegate.gate import Comparability, compare
from pytest_flamegate.gate.comparability import engine_differences
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import MACHINE, PROFILE, WORKLOAD, baseline, evidence


def now(**changes: Any) -> Evidence:
    return evidence(**{"profile": PROFILE, **changes})


def machine(**changes: str) -> Evidence:
    return now(machine=MappingProxyType({**MACHINE, **changes}))


def workload(**changes: object) -> Evidence:
    return now(workload=MappingProxyType({**WORKLOAD, **changes}))


def profiler(**changes: Any) -> Evidence:
    made = now()
    assert made.profile is not None
    return replace(made, profile=replace(made.profile, **changes))


def metric(**changes: Any) -> Evidence:
    made = now()
    return replace(made, metrics=(replace(made.metrics[0], **changes),))


def differences(current: Evidence, old: Evidence | None = None) -> list[tuple[str, str]]:
    found = compare(old or baseline(profile=PROFILE), current)
    return [(difference.code, difference.field) for difference in found.differences]


@pytest.mark.parametrize(
    ("current", "code", "field"),
    [
        (machine(cpu_model="Intel Xeon"), "E_MACHINE_DIFFERS", "machine cpu_model"),
        (machine(kernel="6.2.0"), "E_MACHINE_DIFFERS", "machine kernel"),
        (machine(blas="OpenBLAS"), "E_MACHINE_DIFFERS", "machine blas"),
        (machine(python="CPython 3.12.1"), "E_MACHINE_DIFFERS", "Python"),
        (machine(python="PyPy 3.11.9"), "E_MACHINE_DIFFERS", "Python"),
        (now(model_sha256="b" * 64), "E_MODEL_DIFFERS", "model sha256"),
        (now(model_sha256=None), "E_MODEL_DIFFERS", "model sha256"),
        (workload(prompt="3+3="), "E_WORKLOAD_DIFFERS", "workload prompt"),
        (workload(max_tokens=11), "E_WORKLOAD_DIFFERS", "workload max_tokens"),
        (workload(engine="command"), "E_WORKLOAD_DIFFERS", "workload engine"),
        (workload(command=("a", "b")), "E_WORKLOAD_DIFFERS", "workload command"),
        (workload(threads=2), "E_WORKLOAD_DIFFERS", "workload threads"),
        (now(token_source="ids"), "E_FORMULA_DIFFERS", "token source"),
        (now(tokens=("52", "10", "82", "58")), "E_TOKENS_DIFFER", "token 2"),
        (now(tokens=("52", "10")), "E_TOKENS_DIFFER", "token 2"),
        (
            now(token_digest="u" * 64),
            "E_TOKENS_DIFFER",
            "token digest",
        ),
        (
            now(requested_environment=MappingProxyType({"OMP_NUM_THREADS": "2"})),
            "E_ENVIRONMENT_DIFFERS",
            "environment OMP_NUM_THREADS",
        ),
        (now(clock_scope="process"), "E_CLOCK_DIFFERS", "clock scope"),
        (now(process={"delay_ns": None}), "E_CLOCK_DIFFERS", "run delay"),
        (now(process={"reference_us": None}), "E_CLOCK_DIFFERS", "reference kernel"),
        (metric(formula="n/t"), "E_FORMULA_DIFFERS", "formula of tokens_per_second"),
        (
            metric(direction="lower_is_better"),
            "E_DIRECTION_DIFFERS",
            "direction of tokens_per_second",
        ),
        (metric(unit="tokens/min"), "E_FORMULA_DIFFERS", "unit of tokens_per_second"),
        (profiler(profiler="perf"), "E_PROFILER_DIFFERS", "profiler"),
        (profiler(event="cpu-clock"), "E_PROFILER_DIFFERS", "profiler event"),
        (profiler(rate_hz=999), "E_PROFILER_DIFFERS", "profiler rate_hz"),
        (profiler(call_graph="fp"), "E_PROFILER_DIFFERS", "profiler call_graph"),
        (profiler(call_graph="python+native"), "E_PROFILER_DIFFERS", "profiler call_graph"),
        (profiler(call_graph="python+nonblocking"), "E_PROFILER_DIFFERS", "profiler call_graph"),
        (profiler(python="CPython 3.12.0"), "E_MACHINE_DIFFERS", "Python"),
        (now(profile=None), "E_PROFILER_DIFFERS", "profiler"),
    ],
)
def test_each_difference_has_its_name(current: Evidence, code: str, field: str) -> None:
    found = differences(current)
    assert found[0] == (code, field)
    # What token differs first, and then both digests.
    assert found[1:] in ([], [(code, "token digest")])


@pytest.mark.parametrize(
    "current",
    [
        now(),
        machine(python="CPython 3.11.10"),
        profiler(python="CPython 3.11.2", profiler_version="0.5", folded_sha256="0" * 64),
        workload(
            name="other",
            source="elsewhere",
            timeout_s=9,
            thresholds={"x": 1},
            injection={"frame": "gemv", "extra_pct": 10},
            build=("make",),
            model="other/path.gguf",
        ),
        workload(command=[]),
        metric(value=3.0, samples=1),
        now(metrics=()),
        now(effective_environment=MappingProxyType({"SEEN": "1"})),
    ],
)
def test_what_does_not_matter_is_no_difference(current: Evidence) -> None:
    assert compare(baseline(profile=PROFILE), current) == Comparability()


def test_an_absent_machine_field_is_a_difference_both_ways() -> None:
    less = baseline(machine=MappingProxyType({"arch": "x86_64"}))
    assert {code for code, _ in differences(evidence(), less)} == {
        "E_MACHINE_DIFFERS",
    }
    assert compare(evidence(), less).differences[0].current == "absent"


def test_all_differences_are_told_in_a_fixed_order() -> None:
    current = replace(workload(prompt="x"), model_sha256=None, clock_scope="process")
    assert [code for code, _ in differences(current)] == [
        "E_WORKLOAD_DIFFERS",
        "E_MODEL_DIFFERS",
        "E_CLOCK_DIFFERS",
    ]


def test_the_message_names_both_values() -> None:
    difference = compare(baseline(), evidence(tokens=("52", "11", "81", "58"))).differences[0]
    assert difference.message == "token 1 differs: '10' at the baseline, '11' now."


def test_long_values_are_cut_to_where_they_differ() -> None:
    same = "p" * 500
    old = baseline(workload=MappingProxyType({**WORKLOAD, "prompt": same + "left" + same}))
    found = compare(old, workload(prompt=same + "right" + same)).differences[0]
    assert "left" in found.baseline
    assert "right" in found.current
    assert len(found.baseline) < 70


def test_plain_data_compares_alike_before_and_after_json() -> None:
    written = workload(command=("run", "it"), options={"b": (1, 2), "a": None})
    read = replace(
        baseline(profile=PROFILE),
        workload={**WORKLOAD, "command": ["run", "it"], "options": {"a": None, "b": [1, 2]}},
    )
    assert differences(written, read) == []


def test_what_an_engine_says_of_itself_is_noted_and_forbids_nothing() -> None:
    old = now(engine=MappingProxyType({"library": "x 1", "system": "AVX2"}))
    new = now(engine=MappingProxyType({"library": "x 2", "system": "AVX2", "build": "b"}))
    assert differences(new, old) == []
    assert [(each.field, each.baseline, each.current) for each in engine_differences(old, new)] == [
        ("engine build", "absent", "b"),
        ("engine library", "x 1", "x 2"),
    ]
    assert engine_differences(old, old) == ()


def test_figures_that_an_engine_tells_are_held_against_those_of_the_same_source() -> None:
    """By another source, or of n tokens in place of n - 1, they are other figures of one name."""

    def telling(formula: str) -> Evidence:
        own = replace(
            evidence().metrics[0],
            name="engine_decode_tokens_per_second",
            formula=formula,
            provenance="derived",
        )
        return now(metrics=(*evidence().metrics, own))

    told = telling("llama.cpp:perf:(n-1)/decode-time/median")
    for formula in ("llama.cpp:perf:n/decode-time/median", "server:(n-1)/decode-time/median"):
        assert differences(telling(formula), told) == [
            ("E_FORMULA_DIFFERS", "formula of engine_decode_tokens_per_second")
        ]
    assert differences(told, told) == []
    # One side may tell of itself and the other not: what is judged was observed on both.
    assert differences(told, now()) == differences(now(), told) == []
