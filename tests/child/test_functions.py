"""Python functions are found by the names that a profile shows."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        ("softmax", "toy:softmax"),
        ("toy:softmax", "toy:softmax"),
        ("toy.softmax", "toy:softmax"),
        ("wrapped", "toy:wrapped"),
        ("behind", "toy:behind"),
        ("cached", "toy:cached"),
        ("Model.forward", "toy:Model.forward"),
        ("toy:Model.Head.forward", "toy:Model.Head.forward"),
        ("Head.forward", "toy:Model.Head.forward"),
        ("project", "toy:Model.Head.project"),
        ("pick", "toy:Model.pick"),
        ("load", "toy:Model.load"),
        ("width", "toy:Model.width"),
        ("inner", "toy:made.inner"),
        ("toy:made.inner", "toy:made.inner"),
        ("<lambda>", "toy:<lambda>"),
    ],
)
def test_names_as_profiles_show_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: str, found: str
) -> None:
    toy = module(tmp_path, monkeypatch, SOURCE)
    assert {format_function(each) for each in find_function(frame, [toy])} == {found}


@pytest.mark.parametrize(("frame", "count"), [("inner", 3), ("width", 2), ("softmax", 1)])
def test_all_objects_of_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: str, count: int
) -> None:
    assert len(find_function(frame, [module(tmp_path, monkeypatch, SOURCE)])) == count


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("forward", ("toy:Model.forward", "toy:Model.Head.forward")),
        ("wrapper", ("toy:logged.wrapper", "toy:hidden.wrapper")),
    ],
)
def test_ambiguous_names_list_the_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: str, words: tuple[str, ...]
) -> None:
    toy = module(tmp_path, monkeypatch, SOURCE)
    with pytest.raises(UsageError) as caught:
        find_function(frame, [toy])
    assert caught.value.code == "E_AMBIGUOUS_FRAME"
    for word in words:
        assert word in caught.value.problem
        assert find_function(word, [toy])


@pytest.mark.parametrize(
    ("frame", "near"),
    [
        ("softmx", "toy:softmax"),
        ("toy:softmx", "toy:softmax"),
        ("toy.sofmax", "toy:softmax"),
        ("Model.foward", "toy:Model.forward"),
        ("elsewhere:softmax", None),
        (":softmax", None),
        (".toy:softmax", None),
        ("math:sqrt", None),
        ("len", None),
        ("dumps", None),
        ("qqqqqqqq", None),
        ("", None),
        ("max", None),
    ],
)
def test_unknown_names_suggest_similar_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frame: str, near: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        find_function(frame, [module(tmp_path, monkeypatch, SOURCE)])
    assert caught.value.code == "E_UNKNOWN_FRAME"
    assert repr(frame) in caught.value.problem
    assert "module:qualname" in caught.value.remedy
    assert near is None or near in caught.value.problem


def test_named_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("def softmax(x): return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = find_function("imported_late:softmax", [])
    assert format_function(found) == "imported_late:softmax"
    assert found.__globals__["softmax"] is found


def test_standard_library_by_its_module() -> None:
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
