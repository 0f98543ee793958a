"""A function by the name that was given, in what a profile shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_flamegate.profile.model import Frame
from pytest_flamegate.run.selftest import find_share, is_called_by, is_same_function


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
    assert is_same_function(given, shown) is same


def test_a_share_is_of_all_that_a_function_calls() -> None:
    profile = sealed(main__heavy__dot=60, main__heavy=20, main__light=15, main=5)
    assert find_share("heavy", profile) == 0.8
    assert find_share("toy:light", profile) == 0.15
    assert find_share("nothing", profile) is None
    assert find_share("heavy", None) is None


def test_what_it_calls_stands_for_it_where_most_of_that_is_its_own() -> None:
    profile = sealed(main__heavy__dot=60, main__light__dot=20, main__heavy__copy=1, main__copy=9)
    assert is_called_by("heavy", "dot", profile)
    assert not is_called_by("light", "dot", profile)
    assert not is_called_by("heavy", "copy", profile)
    assert not is_called_by("heavy", "absent", profile)
    assert not is_called_by("heavy", "dot", None)
