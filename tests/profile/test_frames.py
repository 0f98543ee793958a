from pathlib import Path

import pytest

from pytest_flamegate.profile import frames
from pytest_flamegate.profile.model import Frame

ROOTS = ("/home/me/project/", "/home/me/")
ELSEWHERE = "/proc/4711/" + "root"
"""The root of a container, as it is seen from outside."""
SO = "/usr/lib/x.so"


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("/home/me/project/src/engine/model.py", "engine/model.py"),
        ("/home/me/other.py", "other.py"),
        ("/home/me/project/.venv/lib/python3.11/site-packages/numpy/core.py", "numpy/core.py"),
        ("/opt/python/3.11.7/lib/python3.11/functools.py", "functools.py"),
        ("./app/run.py", "app/run.py"),
        ("../outside/run.py", "run.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("", ""),
        ("/usr/lib/python3/dist-packages/foo-1.2-py3.11.egg/foo/x.py", "foo/x.py"),
        ("/home/me/.pex/installed_wheels/9f8e/numpy-2.whl/numpy/x.py", "numpy/x.py"),
        (f"{ELSEWHERE}/usr/lib/python3.11/json/x.py", "json/x.py"),
        ("<made for <B object at 0x7f12>>", "<made for <B object>>"),
        ("/srv/a;b.py", "a\\x3bb.py"),
        ("/srv/copy (1).py", "copy\\x20(1).py"),
        ("/srv/copy [1].py", "copy\\x20[1].py"),
    ],
)
def test_python_files_are_the_same_on_every_machine(file: str, module: str) -> None:
    assert frames.make_python_frame("f", file, ROOTS) == Frame("f", module, "python")


def test_addresses_leave_python_names() -> None:
    assert frames.make_python_frame("<a.B object at 0x7f1>", "x.py").name == "<a.B object>"


@pytest.mark.parametrize(
    ("symbol", "library", "expected"),
    [
        ("sgemv", SO, "sgemv [x.so]"),
        ("sgemv+0x1f/0x99", SO, "sgemv [x.so]"),
        ("sgemv", SO + " (deleted)", "sgemv [x.so]"),
        ("[unknown]", SO, "[x.so] [x.so]"),
        ("0x7f2233445566", SO, "[x.so] [x.so]"),
        ("[unknown]", "[unknown]", "[unknown] [unknown]"),
        ("", "", "[unknown] [unknown]"),
        ("f", "/v/numpy.libs/libblas-32a4b2a6.so", "f [libblas.so]"),
        ("f", "/tmp/perf-4711.map", "f [jit]"),
        ("f", "[JIT] tid 4711", "f [jit]"),
        ("LuaJIT 0x7f2233445566", "/tmp/perf-4711.map", "LuaJIT [jit]"),
        ("stub_0x7f2233@[0x7f22]", "/tmp/perf-4711.map", "stub [jit]"),
        ("[0x7f22334455]", "/tmp/perf-4711.map", "[jit] [jit]"),
        ("Lazy:~mul /home/me/app/m.js:7", "/tmp/perf-4711.map", "Lazy:~mul m.js:7 [jit]"),
        ("f", "//anon", "f [anon]"),
        ("f", "/proc/self/fd/7", "f [anon]"),
        ("f", "/dev/fd/7", "f [anon]"),
        ("f", "[anon:.bss]", "f [anon]"),
        ("f", "/memfd:doublemapper (deleted)", "f [anon]"),
        ("clock_gettime", "[vdso]", "clock_gettime [vdso]"),
        ("do_fault", "[kernel.kallsyms]", "do_fault [kernel]"),
        ("finish.isra.0", "[kernel.kallsyms]", "finish [kernel]"),
        ("[unknown]", "[kernel.kallsyms]", "[kernel] [kernel]"),
        ("nf_hook", "/lib/modules/6.1/nf.ko.xz", "nf_hook [kernel]"),
        ("f", "/tmp/nf.ko", "f [nf.ko]"),
        ("f", "/tmp/kernel", "f [\\x6bernel]"),
        ("memcpy@@GLIBC_2.14", SO, "memcpy [x.so]"),
        ("memcpy@plt", SO, "memcpy@plt [x.so]"),
        ("hot.constprop.0.isra.3", SO, "hot [x.so]"),
        ("hot.llvm.9876543210", SO, "hot [x.so]"),
        ("dec[5f3a0123456789ab]::gemv", SO, "dec::gemv [x.so]"),
        ("a[b]", SO, "a[b] [x.so]"),
        ("dec::norm::<dec::token::{closure#1}>", SO, "dec::norm::<dec::token::{closure#1}> [x.so]"),
        ("_ZN3dec4gemv17h0123456789abcdefE", SO, "_ZN3dec4gemv17E [x.so]"),
        ("f()::{lambda()#1}::operator()(int) const", SO, "f()::{lambda()#1}::operator() [x.so]"),
        ("void f<int, (Kind)2>(float*, int) [clone .cold]", SO, "void f<int, (Kind)2> [x.so]"),
        ("ns::mul(int, char const*) const", SO, "ns::mul [x.so]"),
        ("ns::F::operator()(int)", SO, "ns::F::operator() [x.so]"),
        ("(anonymous namespace)::f(void (*)(int))", SO, "(anonymous namespace)::f [x.so]"),
        ("(anonymous namespace)", SO, "(anonymous namespace) [x.so]"),
        ("unbalanced)", SO, "unbalanced) [x.so]"),
        ("py_trampoline_evaluator", "/opt/libpython3.13.so", None),
        ("py::Model.norm:/home/me/project/m.py", "/tmp/jitted-7-42.so", "Model.norm (m.py)"),
        ("py::<module>:<frozen site>", "/tmp/jitted-7-42.so", "<module> (<frozen site>)"),
        ("py::f", "/tmp/jitted-7-42.so", "f ()"),
        ("py::f:/x/y.py", SO, "py::f:/x/y.py [x.so]"),
    ],
)
def test_symbols_are_the_same_in_every_run(symbol: str, library: str, expected: str | None) -> None:
    frame = frames.make_native_frame(symbol, library, ROOTS)
    assert (None if frame is None else frames.format_frame(frame)) == expected


def test_prefixes_are_longest_first_and_never_the_whole_disk(tmp_path: Path) -> None:
    found = frames.path_prefixes(tmp_path / "deep" / "down")
    assert f"{tmp_path}/deep/down/" in found
    assert list(found) == sorted(found, key=len, reverse=True)
    assert "/" not in frames.path_prefixes(Path("/"))
