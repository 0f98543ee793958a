"""A function by the name that was given, in what a profile shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.profile.model import Frame
from pytest_flamegate.run.selftest import below, means, share_of


def sealed(**stacks: int) -> Any:
    """A profile of stacks written ``a__b``, root first, with their samples."""
    found = {
        tuple(Frame(name, "toy.py", "python") for name in stack.split("__")): samples
        for stack, samples in stacks.items()
    }
    profile = SimpleNamespace(stacks=found, samples=sum(stacks.values()))
    return SimpleNamespace(side=SimpleNamespace(profile=profile))


@pytest.mark.parametrize(
    ("given", "shown", "same"),
    [
        ("softmax", "softmax", True),
        ("Layer.forward", "Layer.forward", True),
        ("forward", "Layer.forward", True),
        ("model.Layer.forward", "Layer.forward", True),
        ("model:Layer.forward", "Layer.forward", True),
        ("model:Layer.forward", "Other.forward", False),
        ("soft", "softmax", False),
        ("max", "softmax", False),
        ("softmax", "max", False),
    ],
)
def test_the_name_that_was_given(given: str, shown: str, same: bool) -> None:
    assert means(given, shown) is same


def test_a_share_is_of_all_that_a_function_calls() -> None:
    profile = sealed(main__heavy__dot=60, main__heavy=20, main__light=15, main=5)
    assert share_of("heavy", profile) == 0.8
    assert share_of("toy:light", profile) == 0.15
    assert share_of("nothing", profile) is None
    assert share_of("heavy", None) is None


def test_what_it_calls_stands_for_it_where_most_of_that_is_its_own() -> None:
    profile = sealed(main__heavy__dot=60, main__light__dot=20, main__heavy__copy=1, main__copy=9)
    assert below("heavy", "dot", profile)
    assert not below("light", "dot", profile)
    assert not below("heavy", "copy", profile)
    assert not below("heavy", "absent", profile)
    assert not below("heavy", "dot", None)
