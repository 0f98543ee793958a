"""Which functions are called more or less often, and which callers cause it."""

from collections.abc import Mapping

from pytest_flamegate.child.call_counts import CountedCalls, EdgeCalls
from pytest_flamegate.core.json import replace
from pytest_flamegate.profile.calls import CallCounts, find_call_changes, name_calls

TOKENS = 11  # ten of them in decode


def counts(
    decode: Mapping[str, int], prefill: Mapping[str, int] | None = None, tokens: int = TOKENS
) -> CallCounts:
    """Calls by ``caller>callee``; a callee alone is called by no function of the workload."""

    def read(calls: Mapping[str, int]) -> dict[tuple[str, str], int]:
        edges = {edge.rpartition(">")[::2]: number for edge, number in calls.items()}
        return {(caller or "(workload)", callee): n for (caller, callee), n in edges.items()}

    before = read(prefill or {"generate": 1})
    after = read(decode)
    files = {callee: "engine.py" for _, callee in {**before, **after}}
    return CallCounts(tokens, before, after, files)


def changes(base: CallCounts, head: CallCounts, **costs: float) -> list[str]:
    return [
        f"{each.function} {each.phase} {each.baseline:g} {each.current:g} {'+'.join(each.callers)}"
        for each in find_call_changes(base, head, costs)
    ]


STEP = {"generate>step": 10, "step>project": 10, "project>norm": 40, "step>norm": 20}


def test_a_second_call_is_the_cause_and_what_it_calls_follows() -> None:
    more = {**STEP, "step>project": 20, "project>norm": 80}
    assert changes(counts(STEP), counts(more)) == ["project decode 1 2 step", "norm decode 6 10 "]
    assert changes(counts(more), counts(STEP))[0] == "project decode 2 1 step"


def test_equal_counts_are_no_change() -> None:
    assert changes(counts(STEP), counts(dict(STEP))) == []


def test_a_new_function_is_caused_by_its_caller_and_not_by_itself() -> None:
    new = {**STEP, "step>check": 10, "check>norm": 30}
    assert changes(counts(STEP), counts(new)) == ["check decode 0 1 step", "norm decode 6 9 "]
    assert changes(counts(new), counts(STEP)) == ["check decode 1 0 step", "norm decode 9 6 "]


def test_a_caller_that_began_in_prefill_and_the_workload_itself_are_causes() -> None:
    """A generator is called once, and calls for each token."""
    twice = {**STEP, "generate>step": 20, "step>project": 20, "project>norm": 80, "step>norm": 40}
    assert changes(counts(STEP), counts(twice))[0] == "step decode 1 2 generate"
    found = changes(counts(STEP), counts(STEP, {"generate": 2}))
    assert found == ["generate prefill 1 2 (workload)"]
    # The loop of a thread is called before anything is counted.
    loops = [counts({"loop>step": number}) for number in (10, 20)]
    assert changes(*loops) == ["step decode 1 2 loop"]


def test_calls_that_move_to_another_caller_change_nothing() -> None:
    other = {**STEP, "project>norm": 50, "step>norm": 10}
    assert changes(counts(STEP), counts(other)) == []


def test_the_largest_cost_comes_first_by_the_bare_name() -> None:
    more = {**STEP, "step>Model.small": 10, "step>large": 20, "step>other": 30}
    found = changes(counts(STEP), counts(more), small=-9.0, large=2.0)
    assert [each.split()[0] for each in found] == ["Model.small", "large", "other"]


def test_a_function_that_moved_to_another_file_is_the_same() -> None:
    base = counts(STEP)
    moved = replace(base, files={**base.files, "project": "layers.py"})
    assert changes(base, moved) == []
    twice = replace(counts({**STEP, "step>project": 20}), files=moved.files)
    assert find_call_changes(base, twice, {})[0].file == "layers.py"
    assert find_call_changes(twice, base, {})[0].file == "engine.py"


def test_what_varies_or_has_other_tokens_is_not_compared() -> None:
    more = counts({**STEP, "step>project": 20})
    varying = replace(more, varying=frozenset({"project"}))
    assert changes(counts(STEP), varying) == changes(varying, counts(STEP)) == []
    assert changes(counts(STEP), replace(more, tokens=12)) == []
    assert changes(counts(STEP, tokens=0), replace(more, tokens=0)) == []


def test_a_single_token_has_calls_all_the_same() -> None:
    one, two = counts({"generate>step": 1}, tokens=1), counts({"generate>step": 2}, tokens=1)
    assert changes(one, two) == ["step decode 1 2 generate"]


ROOT = "/home/me/project/"


def test_functions_are_named_as_frames_and_flamegates_own_are_left_out() -> None:
    serve, tokens = "/x/pytest_flamegate/child/serve.py", "/x/pytest_flamegate/child/wire.py"
    file, generated = f"{ROOT}src/engine.py", "<lambda\n of <Model object at 0x7f3a>>"
    calls = (
        EdgeCalls("measured_sequences", serve, "Model.step", file, 1, 10, varies=False),
        EdgeCalls("", "", "Model.step", file, 1, 0, varies=False),
        EdgeCalls("Model.step", file, generated, file, 2, 20, varies=True),
        EdgeCalls("Model.step", file, "list.append", "", 3, 30, varies=False),
        EdgeCalls("measured_sequences", serve, "list.append", "", 1, 11, varies=False),
        EdgeCalls("measured_sequences", serve, "tokens_of", tokens, 1, 0, varies=False),
    )
    found = name_calls(CountedCalls(11, calls), (ROOT, "/x/"))
    outer, generated = ("(workload)", "Model.step"), r"<lambda\x0a of <Model object>>"
    inner, append = ("Model.step", generated), ("Model.step", "list.append")
    assert found.prefill == {outer: 2, inner: 2, append: 3}
    assert found.decode == {outer: 10, inner: 20, append: 30}
    assert found.varying == {generated}
    assert found.files == {"Model.step": "engine.py", generated: "engine.py", "list.append": ""}
