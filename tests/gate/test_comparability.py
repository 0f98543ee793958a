"""Which differences forbid a comparison, each with its code, and the name of a machine."""

import re
from typing import Any

import pytest

from pytest_flamegate.core.errors import find_remedy
from pytest_flamegate.core.json import replace
from pytest_flamegate.gate.comparability import (
    MACHINE_ID_FIELDS,
    compare,
    condition_differences,
    difference_reasons,
    engine_differences,
    machine_id,
)
from pytest_flamegate.gate.measurement import read_measurement
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.observe.observation import Answer
from pytest_flamegate.receipt.types import Evidence
from tests.gate.factory import MACHINE, PROFILE, WORKLOAD, baseline, evidence


def now(**changes: Any) -> Evidence:
    return evidence(**{"profile": PROFILE, **changes})


def machine(**changes: str) -> Evidence:
    return now(machine={**MACHINE, **changes})


def workload(**changes: object) -> Evidence:
    return now(workload={**WORKLOAD, **changes})


def profiler(**changes: Any) -> Evidence:
    made = now()
    assert made.profile is not None
    return replace(made, profile=replace(made.profile, **changes))


def metric(**changes: Any) -> Evidence:
    made = now()
    return replace(made, metrics=(replace(made.metrics[0], **changes),))


def differences(current: Evidence, old: Evidence | None = None) -> list[tuple[str, str]]:
    found = compare(old or baseline(profile=PROFILE), current)
    return [(difference.code, difference.field) for difference in found]


def answers(**digests: str) -> tuple[Answer, ...]:
    found = {"p0": "t", **digests}
    return tuple(Answer(int(name[1:]), 4, digest * 64) for name, digest in found.items())


def test_answers_to_the_prompts_that_both_were_asked_are_compared() -> None:
    old = now(answers=answers(p2="a", p5="b"))
    assert differences(now(answers=answers(p3="c", p5="b")), old) == []
    for last in ("b", "c"):  # the first is named
        found = differences(now(answers=answers(p2="c", p5=last)), old)
        assert found == [("E_TOKENS_DIFFER", "answer to prompt 3")]
    (found_answer,) = compare(old, now(answers=answers(p2="c", p5="b")))
    assert (found_answer.baseline, found_answer.current) == ("a" * 12, "c" * 12)


OMP = "environment OMP_NUM_THREADS"
IGNORED = (
    *("name", "source", "directory", "timeout_s", "thresholds"),
    *("build", "injection", "model", "tokenizer", "env"),
)


@pytest.mark.parametrize(
    ("current", "code", "field"),
    [
        (machine(cpu_model="Intel Xeon"), "E_MACHINE_DIFFERS", "machine cpu_model"),
        (machine(blas="OpenBLAS"), "E_MACHINE_DIFFERS", "machine blas"),
        (machine(python="CPython 3.12.1"), "E_MACHINE_DIFFERS", "Python"),
        (machine(python="PyPy 3.11.9"), "E_MACHINE_DIFFERS", "Python"),
        (now(model_sha256=None), "E_MODEL_DIFFERS", "model sha256"),
        (workload(prompt="3+3="), "E_WORKLOAD_DIFFERS", "workload prompt"),
        (workload(command=("a", "b")), "E_WORKLOAD_DIFFERS", "workload command"),
        (workload(threads=2), "E_WORKLOAD_DIFFERS", "workload threads"),
        (now(token_source="ids"), "E_FORMULA_DIFFERS", "token source"),
        (now(tokens=("52", "10", "82", "58")), "E_TOKENS_DIFFER", "token 2"),
        (now(tokens=("52", "10")), "E_TOKENS_DIFFER", "token 2"),
        (now(tokens=("52", "10", "81", "58", "9")), "E_TOKENS_DIFFER", "token 4"),
        (now(token_digest="u" * 64), "E_TOKENS_DIFFER", "token digest"),
        (now(requested_environment={"OMP_NUM_THREADS": "2"}), "E_ENVIRONMENT_DIFFERS", OMP),
        (now(clock_scope="process"), "E_CLOCK_DIFFERS", "clock scope"),
        (now(process={"delay_ns": None}), "E_CLOCK_DIFFERS", "run delay"),
        (now(process={"reference_us": None}), "E_CLOCK_DIFFERS", "reference kernel"),
        (metric(formula="n/t"), "E_FORMULA_DIFFERS", "formula of tokens_per_second"),
        (metric(unit="tokens/min"), "E_FORMULA_DIFFERS", "unit of tokens_per_second"),
        (metric(direction="lower"), "E_FORMULA_DIFFERS", "direction of tokens_per_second"),
        (profiler(profiler="perf"), "E_PROFILER_DIFFERS", "profiler"),
        (profiler(event="cpu-clock"), "E_PROFILER_DIFFERS", "profiler event"),
        (profiler(rate_hz=999), "E_PROFILER_DIFFERS", "profiler rate_hz"),
        (profiler(call_graph="fp"), "E_PROFILER_DIFFERS", "profiler call_graph"),
        (profiler(python="CPython 3.12.0"), "E_MACHINE_DIFFERS", "Python"),
        (now(profile=None), "E_PROFILER_DIFFERS", "profiler"),
    ],
)
def test_each_difference_has_its_code(current: Evidence, code: str, field: str) -> None:
    assert differences(current) == [(code, field)]


@pytest.mark.parametrize(
    "current",
    [
        machine(python="CPython 3.11.10"),
        profiler(python="3.11.2", profiler_version="0.5", folded_sha256="0" * 64),
        workload(**dict.fromkeys(IGNORED, "other"), command=[]),
        metric(value=3.0, samples=1),
        now(metrics=()),
        now(effective_environment={"SEEN": "1"}),
        now(requested_environment={"OMP_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1"}),
    ],
)
def test_other_fields_are_not_compared(current: Evidence) -> None:
    assert compare(baseline(profile=PROFILE), current) == ()


def test_an_output_that_comes_at_once_on_one_side_is_named() -> None:
    old = metric(formula="decode-tokens/decode-time")
    found = compare(old, metric(formula="tokens/total"), paired=True)
    (reason,) = difference_reasons(found, paired=True)
    assert reason.code == "E_FORMULA_DIFFERS"
    assert "those of the other all at once, in one run at least: flush" in reason.message


def test_values_of_both_sides_are_shown() -> None:
    mixed, bare = now(), evidence(process={"delay_ns": None})
    mixed = replace(mixed, runs=(*mixed.runs[:3], *bare.runs[3:]))
    (found,) = compare(baseline(profile=PROFILE), mixed)
    assert found.message == "run delay differs: measured at the baseline, in some blocks now."
    (found,) = compare(now(), now(process={"reference_us": None}))
    assert found.message.endswith(": measured at the baseline, not measured now.")
    shorter = compare(baseline(profile=PROFILE), now(tokens=("52", "10")))
    assert shorter[0].message == "token 2 differs: '81' at the baseline, the end now."
    digests = compare(baseline(token_digest="abc" * 9), evidence(token_digest="d" * 64))
    assert (
        digests[-1].message == f"token digest differs: {'abc' * 4} at the baseline, {'d' * 12} now."
    )
    command = now(workload={**WORKLOAD, "command": ["a", "b"]})
    assert [each.message for each in compare(command, workload(command=("a", "c")))] == [
        "workload command differs: ['a', 'b'] at the baseline, ['a', 'c'] now."
    ]
    less = baseline(profile=PROFILE, machine={"python": MACHINE["python"]})
    assert {each.current for each in compare(now(), less)} == {"absent"}
    # Another Python of machine and profiler is reported once.
    python = profiler(python="CPython 3.12.1")
    python = replace(python, machine={**MACHINE, "python": "CPython 3.12.1"})
    assert differences(now(), python) == [("E_MACHINE_DIFFERS", "Python")]
    # Versions of engines are noted and forbid nothing.
    old, new = now(engine={"library": "x 1", "system": "AVX2"}), now(engine={"library": "x 2"})
    assert differences(new, old) == []
    assert [(each.field, each.baseline, each.current) for each in engine_differences(old, new)] == [
        ("engine library", "x 1", "x 2"),
        ("engine system", "AVX2", "absent"),
    ]


def test_reasons_come_in_a_fixed_order_and_the_last_of_a_code_has_the_remedy() -> None:
    current = replace(workload(prompt="x", max_tokens=9), model_sha256=None, token_digest="u" * 64)
    found = compare(baseline(profile=PROFILE), current)
    reasons = difference_reasons(found, paired=False)
    assert [reason.code for reason in reasons] == [
        *("E_WORKLOAD_DIFFERS", "E_WORKLOAD_DIFFERS", "E_MODEL_DIFFERS", "E_TOKENS_DIFFER")
    ]
    remedy = f" {find_remedy('E_WORKLOAD_DIFFERS')}"
    assert reasons[0].message == "workload max_tokens differs: 10 at the baseline, 9 now."
    assert reasons[1].message.endswith(remedy)
    assert reasons[2].message == (
        "model sha256 differs: aaaaaaaaaaa… (model.gguf) at the baseline, absent now. Restore the "
        "model, or accept a new baseline (--flamegate-update)."
    )
    paired = difference_reasons(found, paired=True)
    assert paired[1].message.endswith("only the code may differ.")
    # A base that runs beside the head is no baseline.
    assert paired[0].message == "workload max_tokens differs: 10 at the base, 9 now."


def test_long_values_are_cut_to_the_part_that_differs() -> None:
    same = "p" * 500
    old = baseline(workload={**WORKLOAD, "prompt": same + "left" + same})
    found = compare(old, workload(prompt=same + "right" + same))[0]
    assert found.baseline == "…" + "p" * 10 + "left" + "p" * 45 + "…"
    assert found.current == "…" + "p" * 10 + "right" + "p" * 44 + "…"
    (found,) = compare(workload(prompt="p" * 70), workload(prompt="p" * 70 + "more"))
    assert (found.baseline, found.current) == ("…" + "p" * 10, "…" + "p" * 10 + "more")
    for count, shown in ((58, repr("x" * 58)), (59, "'" + "x" * 58 + "…")):
        (found,) = compare(baseline(), evidence(tokens=("52", "10", "81", "x" * count)))
        assert found.current == shown


@pytest.mark.parametrize(
    ("same", "rest", "shown"),
    [
        (50, "l" * 10, "p" * 50 + "l" * 10),
        (50, "l" * 11, "p" * 50 + "l" * 9 + "…"),
        (51, "l" * 10, "…" + "p" * 10 + "l" * 10),
    ],
)
def test_sixty_characters_are_shown_whole_unless_they_differ_at_the_end(
    same: int, rest: str, shown: str
) -> None:
    old = baseline(workload={**WORKLOAD, "prompt": "p" * same + rest})
    assert compare(old, workload(prompt="p" * same + "r"))[0].baseline == shown


def test_plain_data_compares_alike_before_and_after_json() -> None:
    written = workload(command=("run", "it"), options={"b": (1, 2), "a": None})
    read = replace(
        baseline(profile=PROFILE),
        workload={**WORKLOAD, "command": ["run", "it"], "options": {"a": None, "b": [1, 2]}},
    )
    assert differences(written, read) == []


# --- the state of the machine --------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ({"pressure": 3.0}, {"pressure": 50.0}, False),
        ({"pressure": 3.0}, {"pressure": 50.1}, True),
        ({"pressure": 80.0}, {"pressure": 3.0}, True),
        ({"pressure": 80.0}, {"pressure": 95.0}, False),  # contended twice: the spread shows it
        ({"pressure": None}, {"pressure": 95.0}, False),
        ({"pressure": 95.0}, {"pressure": None}, False),
        ({}, {"reference_us": 6700.0}, False),
        ({}, {"reference_us": 6800.0}, True),  # exp(0.3) times 5000 is 6749
        ({}, {"reference_us": 3750.0}, False),
        ({}, {"reference_us": 3680.0}, True),
        ({}, {"reference_us": None}, False),
    ],
)
def test_contention_and_speed_of_one_side_only(
    old: dict[str, Any], new: dict[str, Any], *, differs: bool
) -> None:
    before, after = (read_measurement(evidence(process=process)) for process in (old, new))
    found = [*condition_differences(before, after)]
    assert [each.code for each in found] == ["E_MACHINE_STATE"] * differs
    verdict = Verdict("not_comparable", (), grade="OBSERVED", differences=tuple(found))
    assert verdict.is_transient is differs


def test_states_of_both_sides_are_shown() -> None:
    before = read_measurement(evidence(process={"pressure": 3.0}))
    after = read_measurement(evidence(process={"pressure": 60.0, "reference_us": 10_000.0}))
    assert [each.message for each in condition_differences(before, after)] == [
        "CPU pressure differs: 3 % at the baseline, 60 % now.",
        "speed of the reference kernel differs: 5.000 ms at the baseline, 10.000 ms now.",
    ]


# --- the name of a machine -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "cores", "start"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "8", "intel-xeon-8c-"),
        ("Apple M3 Max", "14", "apple-m3-max-14c-"),
        ("../../etc/passwd", "2", "etc-passwd-2c-"),
        ("Chip(C) 64Core 9 with more", "2", "chip-9-more-2c-"),
        ("\ud800", "2", "unknown-2c-"),
        ("", "", "unknown-xc-"),
        ("x" * 400, "9" * 40, "xxxxxxxxxxxxxxxx-999999c-"),
    ],
)
def test_names_the_machine_class(model: str, cores: str, start: str) -> None:
    name = machine_id({**MACHINE, "cpu_model": model, "cpu_cores": cores})
    assert name.startswith(start)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert len(name) < 80


def test_the_name_is_stable_and_of_the_hardware_alone() -> None:
    # A change here would orphan every accepted baseline.
    name = machine_id(MACHINE)
    assert name == "amd-epyc-7763-2c-01ac1b"
    others = {field for field in MACHINE if machine_id({**MACHINE, field: "x"}) != name}
    assert others == set(MACHINE_ID_FIELDS)
    assert machine_id({}) == machine_id({"arch": "unknown", "cpu_model": " "})
