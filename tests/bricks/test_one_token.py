"""The calls of one token: a tree, and its critical path in a sentence."""

from __future__ import annotations

from pytest_flamegate.graph.text import summarize_token
from tests.bricks.graphs import call


def test_the_sentence_names_what_takes_most_of_the_path() -> None:
    found = summarize_token([call("a", 0, 3000), call("b", 3000, 4000), call("a", 5000, 6000)])
    assert found.tree == ("a  3.0µs", "b  1.0µs", "a  1.0µs")
    assert found.critical_path == "critical path: 5 of 6 µs, of which a 80 %, b 20 %"


def test_more_than_four_names_are_counted() -> None:
    found = summarize_token(
        [call(name, 1000 * n, 1000 * n + 1000) for n, name in enumerate("abcdef")]
    )
    assert found.critical_path.endswith("d 17 % and 2 more")


def test_calls_that_took_no_time_have_a_path_without_names() -> None:
    found = summarize_token([call("a", 5, 5), call("b", 5, 5)])
    assert found.critical_path == "critical path: 0 of 0 µs"
