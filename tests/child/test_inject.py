"""Python functions are found by the names of a profile and slowed, by clocks of the test's own."""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from pytest_flamegate.child import inject
from pytest_flamegate.child.inject import find_function, format_function, slow
from pytest_flamegate.config.workload import Injection
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.receipt.compose import recipe
from tests.observe.workloads import make_workload
from tests.observe.workloads import observer as make_observer


def module(
    directory: Path, monkeypatch: pytest.MonkeyPatch, source: str, name: str = "toy"
) -> ModuleType:
    """Load ``source`` as the module ``name``, forgotten again when the test ends."""
    path = directory / f"{name.replace('.', '/')}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    loaded = ModuleType(name)
    loaded.__file__ = str(path)
    monkeypatch.setitem(sys.modules, name, loaded)
    exec(compile(source, str(path), "exec"), vars(loaded))
    return loaded


SOURCE = """
from json import dumps
def softmax(x): return x
def soft_max_rows(x): return x
def logged(function):
    def wrapper(*args): return function(*args)
    return wrapper
def hidden(function):
    def wrapper(*args): return function(*args)
    return wrapper
@logged
@hidden
def behind(x): return x
class Model:
    def forward(self, x): return x
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
FOUND = {
    "toy:softmax": ("softmax", "toy:softmax", "toy.softmax"),
    "toy:behind": ("behind",),
    "toy:Model.forward": ("Model.forward",),
    "toy:Model.Head.forward": ("toy:Model.Head.forward", "Head.forward"),
    "toy:Model.Head.project": ("project",),
    "toy:Model.width": ("width",),
    "toy:made.inner": ("inner", "toy:made.inner"),
    "toy:<lambda>": ("<lambda>",),
}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module(tmp_path, monkeypatch, SOURCE)


def test_names_as_profiles_show_them(toy: ModuleType) -> None:
    for function, frames in FOUND.items():
        for frame in frames:
            assert {format_function(each) for each in find_function(frame, [toy])} == {function}
    # Every object of a function, such as each closure, and getter and setter.
    counts = [len(find_function(frame, [toy])) for frame in ("inner", "width", "softmax")]
    assert counts == [3, 2, 1]
    for frame, functions in {
        "forward": ("toy:Model.Head.forward", "toy:Model.forward"),
        "wrapper": ("toy:hidden.wrapper", "toy:logged.wrapper"),
    }.items():
        with pytest.raises(UsageError, match=f"E_UNKNOWN_FRAME.*{', '.join(functions)}"):
            find_function(frame, [toy])
        assert all(find_function(each, [toy]) for each in functions)


@pytest.mark.parametrize(
    ("frame", "similar"),
    [
        ("softmx", "toy:softmax"),
        ("toy:softmx", "toy:softmax"),
        ("toy.sofmax", "toy:softmax"),
        ("Model.foward", "toy:Model.forward"),
        *[(frame, "") for frame in ("elsewhere:softmax", ":softmax", ".toy:softmax", "math:sqrt")],
        *[(frame, "") for frame in ("len", "dumps", "qqqqqqqq", "", "max")],
    ],
)
def test_unknown_names_suggest_similar_ones(toy: ModuleType, frame: str, similar: str) -> None:
    with pytest.raises(UsageError, match="E_UNKNOWN_FRAME") as caught:
        find_function(frame, [toy])
    assert repr(frame) in caught.value.problem
    assert similar in caught.value.problem
    assert "module:qualname" in caught.value.remedy


def test_the_project_precedes_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def softmax(x): return x\ndef only_there(x): return x\n"
    library = module(tmp_path / "lib/site-packages", monkeypatch, source, "library")
    project = module(tmp_path, monkeypatch, "def softmax(x): return x\n", "project")
    assert find_function("softmax", [library, project]) == (project.softmax,)
    assert find_function("only_there", [library, project]) == (library.only_there,)
    assert find_function("library:softmax", [project]) == (library.softmax,)
    # A module that is named is imported.
    (tmp_path / "imported_late.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = find_function("imported_late:softmax", [])
    assert found.__globals__["softmax"] is found


CPU_NS, STEP_NS = 200, 5_000


class Machine:
    """A CPU clock that advances by the work of the test, by its own reading and by extra work."""

    cpu_ns = 0

    def work(self, ns: int) -> None:
        self.cpu_ns += ns

    def read_cpu_ns(self) -> int:
        self.work(CPU_NS)
        return self.cpu_ns

    def __iter__(self) -> Iterator[None]:
        self.work(STEP_NS)
        return iter(())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(inject, "read_cpu_ns", machine.read_cpu_ns)
    monkeypatch.setattr(inject, "spin_steps", machine)

    monkeypatch.setattr(inject, "measure_overhead", lambda generator: 2.0 * CPU_NS)
    return machine


@pytest.fixture(autouse=True)
def recursion_limit() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)


Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Load:
    """Load source that works on the machine."""

    def loaded(source: str) -> ModuleType:
        monkeypatch.setitem(sys.modules, "machine", machine)
        return module(tmp_path, monkeypatch, "from machine import work\n" + source)

    return loaded


def used_ns(machine: Machine, run: Callable[[], object]) -> int:
    before = machine.cpu_ns
    run()
    return machine.cpu_ns - before


@pytest.mark.parametrize("extra_pct", [5.0, 30.0, 250.0])
@pytest.mark.parametrize("call_ns", [20_000, 90_000, 10_000_000])
def test_extra_work_is_the_declared_share(
    load: Load, machine: Machine, call_ns: int, extra_pct: float
) -> None:
    toy = load("def hot(ns): work(ns)")
    slowed = slow("hot", extra_pct, [toy])
    calls = 100_000_000 // call_ns
    usual = calls * call_ns
    used = used_ns(machine, lambda: [toy.hot(call_ns) for _ in range(calls)])
    assert (used - usual) / usual == pytest.approx(extra_pct / 100, rel=0.02)
    assert list(slowed.checked()) == []
    assert sum(clock.owed_ns for clock in slowed.clocks.values()) <= 50_000


def test_only_the_outermost_call_is_extended(load: Load, machine: Machine) -> None:
    toy = load(
        "def down(n):\n    work(100_000)\n    return up(n - 1) if n else 0\n"
        "def up(n):\n    return 1 + down(n)\n"
        "def deep(n):\n    return 1 + deep(n - 1) if n else 0\n"
        "def walk(n):\n    work(100_000)\n    yield n\n    if n:\n        yield from walk(n - 1)"
    )
    deepest = sys.getrecursionlimit() - 100
    slow("deep", 50, [toy])
    assert toy.deep(deepest) == deepest
    slow("down", 50, [toy])
    slow("walk", 50, [toy])
    results: list[int] = []
    used = used_ns(machine, lambda: results.extend(toy.down(99) for _ in range(5)))
    assert results == [99] * 5
    assert used / (5 * 100 * 100_000) == pytest.approx(1.5, rel=0.01)
    used = used_ns(machine, lambda: results.extend(i for _ in range(10) for i in toy.walk(20)))
    assert results[5:] == list(range(20, -1, -1)) * 10
    assert used / (10 * 21 * 100_000) == pytest.approx(1.5, rel=0.02)


def test_every_resumption_of_a_generator_is_extended(load: Load, machine: Machine) -> None:
    toy = load(
        "def tokens(n):\n    for i in range(n):\n        work(300_000)\n        yield i\n"
        "    work(300_000)\n    return 'end'"
    )
    slow("tokens", 10, [toy])
    generator = toy.tokens(9)
    each: list[int] = []
    for _ in range(9):
        machine.work(1_000_000)  # the caller's own work costs no more than before
        each.append(used_ns(machine, lambda: next(generator)))
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == "end"
    assert sum(each) / (9 * 300_000) == pytest.approx(1.1, rel=0.03)


ECHO = """
log = []
def echo():
    got = None
    while got != 'stop':
        try:
            got = yield got
        except KeyError as error:
            got = error
        finally:
            log.append('turn')
    return 'stopped'
"""


def test_generators_accept_send_throw_and_close(load: Load) -> None:
    toy = load(ECHO)
    slowed = slow("echo", 10, [toy])
    generator = toy.echo()
    assert next(generator) is None
    assert generator.send(1) == 1
    thrown = KeyError("k")
    assert generator.throw(thrown) is thrown
    assert thrown.__context__ is None
    with pytest.raises(ZeroDivisionError):
        generator.throw(ZeroDivisionError)
    assert toy.log == ["turn"] * 3
    generator, closed = toy.echo(), toy.echo()
    assert next(generator) is next(closed) is None
    with pytest.raises(StopIteration) as stopped:
        generator.send("stop")
    assert stopped.value.value == "stopped"
    closed.close()
    assert toy.log == ["turn"] * 5
    (clock,) = slowed.clocks.values()
    assert clock.calls == 8


def test_each_thread_has_a_clock(load: Load) -> None:
    toy = load("def hot(within): within()")
    slowed = slow("hot", 10, [toy])
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        entered.set()
        assert leave.wait(30)

    thread = threading.Thread(target=toy.hot, args=(stay,))
    thread.start()
    assert entered.wait(30)
    toy.hot(lambda: None)  # is not a call within the other thread's call
    leave.set()
    thread.join()
    assert [clock.calls for clock in slowed.clocks.values()] == [1, 1]


REFERENCES = """
import functools
def hot(x): return x + 1
def default(x, f=hot): return f(x)
partial = functools.partial(hot, 1)

@functools.lru_cache
def cached(x): return x + 1

class Base:
    def layer(self, x): return x
class Model(Base):
    def layer(self, x): return super().layer(x) + 1
    @classmethod
    def load(cls, x): return x + 1
    @property
    def width(self): return 2
    def __secret(self, __x): return __x + 1
    def ask(self, x): return self.__secret(x)
model = Model()
bound = model.layer

def made(k):
    def inner(x): return x + k
    return inner
one, two = made(1), made(2)
"""


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        ("hot", "default(1)"),
        ("hot", "partial()"),
        ("cached", "cached(1)"),
        ("Model.layer", "bound(1)"),
        ("load", "Model.load(1)"),
        ("width", "model.width"),
        ("Model.__secret", "model.ask(1)"),
        ("inner", "two(0)"),
    ],
)
def test_every_reference_is_slowed(load: Load, frame: str, call: str) -> None:
    toy = load(REFERENCES)
    slowed = slow(frame, 10, [toy])
    assert eval(call, vars(toy)) == 2
    (clock,) = slowed.clocks.values()
    assert clock.calls == 1


SIGNATURES = {
    "()": ((), {}),
    "(a, /, b, c=3)": ((1,), {"b": 2}),
    "(**kwargs)": ((), {"a": 1, "self": 2}),
    "(a, b=2, /, c=3, *args, d, e=5, **kwargs)": ((1, 2, 3, 4), {"d": 5, "a": 6}),
}


@pytest.mark.parametrize("body", ["return locals()", "yield locals()"])
@pytest.mark.parametrize("signature", SIGNATURES)
def test_arguments_are_as_before(load: Load, signature: str, body: str) -> None:
    toy = load(f"def hot{signature}: {body}\nStopIteration = BaseException = None")
    args, kwargs = SIGNATURES[signature]

    def call() -> object:
        taken = toy.hot(*args, **kwargs)
        return list(taken) if body.startswith("yield") else taken

    usual = call()
    slow("hot", 10, [toy])
    assert call() == usual
    assert str(inspect.signature(toy.hot)) == signature


@pytest.mark.parametrize("keyword", ["return", "yield"])
def test_all_frames_carry_the_functions_name(
    load: Load, machine: Machine, monkeypatch: pytest.MonkeyPatch, keyword: str
) -> None:
    toy = load(
        "import sys\n"
        "class Model:\n    def layer(self):\n        work(1_000_000)\n"
        f"        {keyword} sys._getframe()\n"
        "def first(x): return x if hasattr(x, 'f_code') else next(x)"
    )
    usual = toy.Model.layer.__code__
    spinning = []

    class Steps:
        def __iter__(self) -> Iterator[None]:
            frame = sys._getframe(1)
            assert frame.f_back is not None
            spinning.extend([frame.f_code, frame.f_back.f_code])
            return iter(machine)

    monkeypatch.setattr(inject, "spin_steps", Steps())
    slow("layer", 10, [toy])
    frame = toy.first(toy.Model().layer())
    assert frame.f_code is usual
    assert spinning
    for code in (*spinning, toy.Model.layer.__code__):
        assert code is not usual
        for name in ("co_name", "co_qualname", "co_filename", "co_firstlineno"):
            assert getattr(code, name) == getattr(usual, name)


def test_slowed_calls_are_checked(load: Load) -> None:
    toy = load("def hot(ns): work(ns)\ndef short(ns): work(ns)")
    slowed = slow("hot", 10, [toy])
    for _ in range(10_000):
        toy.hot(4_300)
    assert list(slowed.checked()) == []
    with pytest.raises(UsageError, match="E_CANNOT_SLOW: 'hot' was not called"):
        next(slowed.checked())
    slowed = slow("short", 10, [toy])
    for _ in range(10_000):
        toy.short(3_000)
    with pytest.raises(UsageError, match=r"E_CANNOT_SLOW.* 320 ns"):
        next(slowed.checked())


@pytest.mark.parametrize("source", ["async def hot(): pass", "async def hot(): yield 1"])
def test_asynchronous_functions_are_rejected(load: Load, source: str) -> None:
    toy = load(source)
    before = toy.hot.__code__
    with pytest.raises(UsageError, match=r"E_CANNOT_SLOW: toy:hot"):
        slow("hot", 10, [toy])
    assert toy.hot.__code__ is before


TOY = """
def unused(x):
    return x

def generate(prompt, max_tokens):
    import helper
    for i in range(max_tokens):
        yield helper.softmax(i) if i % 8 == 7 else i
"""


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("measured_sequences", "E_UNKNOWN_FRAME"),
        ("softmax", "E_UNKNOWN_FRAME"),
        ("unused", "E_CANNOT_SLOW"),
        ("helper:softmax", ""),
    ],
)
def test_what_the_child_can_slow(tmp_path: Path, frame: str, code: str) -> None:
    (tmp_path / "injected_toy.py").write_text(TOY)
    (tmp_path / "helper.py").write_text("def softmax(x): return x\n")
    # Much more than the cost of injecting, even if a busy machine makes that milliseconds.
    injection = Injection(frame, 1e6)
    declared = make_workload(
        tmp_path, "python", max_tokens=40, target="injected_toy:generate", injection=injection
    )
    observer = make_observer(declared)
    assert recipe(declared)["injection"] == f"{frame}:+1e+06%"
    with pytest.raises(UsageError, match=code) if code else nullcontext():
        observer.run_timed(0.1)
        assert len(observer.observation().tokens) == 40
