"""Python functions are found by the names that a profile shows."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from pytest_flamegate.child.functions import find_function, format_function
from pytest_flamegate.core.errors import UsageError
from tests.child.modules import module

SOURCE = """
import functools
from json import dumps

def softmax(x): return x
def soft_max_rows(x): return x

def logged(function):
    @functools.wraps(function)
    def wrapper(*args): return function(*args)
    return wrapper

def hidden(function):
    def wrapper(*args): return function(*args)
    return wrapper

@logged
def wrapped(x): return x

@hidden
def behind(x): return x

@functools.lru_cache
def cached(x): return x

class Model:
    def forward(self, x): return x
    @staticmethod
    def pick(x): return x
    @classmethod
    def load(cls): return cls()
    @property
    def width(self): return 1
    @width.setter
    def width(self, value): pass
    class Head:
        def forward(self, x): return x
        def project(self, x): return x

def made(k):
    def inner(x): return x * k
    return inner

TABLE = {k: made(k) for k in range(3)}
nameless = lambda x: x
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module(tmp_path, monkeypatch, SOURCE)


FOUND = {
    "toy:softmax": ("softmax", "toy:softmax", "toy.softmax"),
    "toy:wrapped": ("wrapped",),
    "toy:behind": ("behind",),
    "toy:cached": ("cached",),
    "toy:Model.forward": ("Model.forward",),
    "toy:Model.Head.forward": ("toy:Model.Head.forward", "Head.forward"),
    "toy:Model.Head.project": ("project",),
    "toy:Model.pick": ("pick",),
    "toy:Model.load": ("load",),
    "toy:Model.width": ("width",),
    "toy:made.inner": ("inner", "toy:made.inner"),
    "toy:<lambda>": ("<lambda>",),
}


def test_names_as_profiles_show_them(toy: ModuleType) -> None:
    for function, frames in FOUND.items():
        for frame in frames:
            assert {format_function(each) for each in find_function(frame, [toy])} == {function}
    # Every object of a function, such as each closure, and getter and setter.
    counts = [len(find_function(frame, [toy])) for frame in ("inner", "width", "softmax")]
    assert counts == [3, 2, 1]


@pytest.mark.parametrize(
    ("frame", "functions"),
    [
        ("forward", ("toy:Model.forward", "toy:Model.Head.forward")),
        ("wrapper", ("toy:logged.wrapper", "toy:hidden.wrapper")),
    ],
)
def test_ambiguous_names_list_the_functions(
    toy: ModuleType, frame: str, functions: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match="E_AMBIGUOUS_FRAME") as caught:
        find_function(frame, [toy])
    for each in functions:
        assert each in caught.value.problem
        assert find_function(each, [toy])


@pytest.mark.parametrize(
    ("frame", "similar"),
    [
        ("softmx", "toy:softmax"),
        ("toy:softmx", "toy:softmax"),
        ("toy.sofmax", "toy:softmax"),
        ("Model.foward", "toy:Model.forward"),
        *[
            (frame, "")
            for frame in ("elsewhere:softmax", ":softmax", ".toy:softmax", "math:sqrt", "len")
        ],
        *[(frame, "") for frame in ("dumps", "qqqqqqqq", "", "max")],
    ],
)
def test_unknown_names_suggest_similar_ones(toy: ModuleType, frame: str, similar: str) -> None:
    with pytest.raises(UsageError, match="E_UNKNOWN_FRAME") as caught:
        find_function(frame, [toy])
    assert repr(frame) in caught.value.problem
    assert similar in caught.value.problem
    assert "module:qualname" in caught.value.remedy


def test_named_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("def softmax(x): return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = find_function("imported_late:softmax", [])
    assert found.__globals__["softmax"] is found
    assert find_function("json:dumps", []) == (json.dumps,)


def test_project_has_precedence_over_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def softmax(x): return x\ndef only_there(x): return x\n"
    library = module(tmp_path / "lib/site-packages", monkeypatch, source, "library")
    project = module(tmp_path, monkeypatch, "def softmax(x): return x\n", "project")
    assert find_function("softmax", [library, project]) == (project.softmax,)
    assert find_function("only_there", [library, project]) == (library.only_there,)
    assert find_function("library:softmax", [project]) == (library.softmax,)
