from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.profile.folded import format_frame
from pytest_flamegate.profile.frames import make_native_frame, make_python_frame, path_prefixes
from pytest_flamegate.profile.model import Frame

ROOTS = ("/home/me/project/", "/home/me/")
ELSEWHERE = "/proc/4711/" + "root"
"""The root of a container, as it is seen from outside."""
SO = "/usr/lib/libx.so.1"


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("/home/me/project/engine/model.py", "engine/model.py"),
        ("/home/me/project/src/engine/model.py", "engine/model.py"),
        ("/home/me/other.py", "other.py"),
        ("/home/me/project/.venv/lib/python3.11/site-packages/numpy/core.py", "numpy/core.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/opt/python/3.11.7/lib/python3.11/functools.py", "functools.py"),
        ("/usr/lib64/python3.12/json/decoder.py", "json/decoder.py"),
        ("/srv/elsewhere/app.py", "app.py"),
        ("./app/run.py", "app/run.py"),
        ("../outside/run.py", "run.py"),
        ("engine.py", "engine.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
        ("<string>", "<string>"),
        ("", ""),
        ("/usr/lib/python3/dist-packages/foo-1.2-py3.11.egg/foo/x.py", "foo/x.py"),
        ("/nix/store/0a1b2c-numpy/lib/python3.11/site-packages/numpy/x.py", "numpy/x.py"),
        ("/home/me/.pex/installed_wheels/9f8e/numpy-2.whl/numpy/x.py", "numpy/x.py"),
        ("/var/lib/docker/overlay2/9f8e/merged/usr/lib/python3.11/json/x.py", "json/x.py"),
        ("/var/lib/docker/overlay2/9f8e/merged/srv/app.py", "app.py"),
        (f"{ELSEWHERE}/usr/lib/python3.11/json/x.py", "json/x.py"),
        ("<made for <B object at 0x7f12>>", "<made for <B object>>"),
        ("/srv/a;b.py", "a\\x3bb.py"),
        ("/srv/copy (1).py", "copy\\x20(1).py"),
        ("/srv/copy [1].py", "copy\\x20[1].py"),
    ],
)
def test_python_files_are_the_same_on_every_machine(file: str, module: str) -> None:
    assert make_python_frame("f", file, ROOTS) == Frame("f", module, "python")


def test_addresses_leave_python_names() -> None:
    assert make_python_frame("<a.B object at 0x7f1>", "x.py").name == "<a.B object>"


@pytest.mark.parametrize(
    ("symbol", "library", "expected"),
    [
        ("sgemv", SO, Frame("sgemv", "libx.so.1", "native")),
        ("sgemv+0x1f", SO, Frame("sgemv", "libx.so.1", "native")),
        ("sgemv+0x1f/0x99", SO, Frame("sgemv", "libx.so.1", "native")),
        ("sgemv", SO + " (deleted)", Frame("sgemv", "libx.so.1", "native")),
        ("[unknown]", SO, Frame("[libx.so.1]", "libx.so.1", "native")),
        ("0x7f2233445566", SO, Frame("[libx.so.1]", "libx.so.1", "native")),
        ("[unknown]", "[unknown]", Frame("[unknown]", "unknown", "native")),
        ("", "", Frame("[unknown]", "unknown", "native")),
        ("f", "/v/numpy.libs/libblas-32a4b2a6.so", Frame("f", "libblas.so", "native")),
        ("f", "/tmp/perf-4711.map", Frame("f", "jit", "native")),
        ("[unknown]", "/tmp/perf-4711.map", Frame("[jit]", "jit", "native")),
        ("f", "[JIT] tid 4711", Frame("f", "jit", "native")),
        ("LuaJIT 0x7f2233445566", "/tmp/perf-4711.map", Frame("LuaJIT", "jit", "native")),
        ("stub_0x7f2233@[0x7f22]", "/tmp/perf-4711.map", Frame("stub", "jit", "native")),
        ("[0x7f22334455]", "/tmp/perf-4711.map", Frame("[jit]", "jit", "native")),
        (
            "LazyCompile:~mul /home/me/app/m.js:7",
            "/tmp/perf-4711.map",
            Frame("LazyCompile:~mul m.js:7", "jit", "native"),
        ),
        ("f", "//anon", Frame("f", "anon", "native")),
        ("f", "/proc/self/fd/7", Frame("f", "anon", "native")),
        ("f", "/proc/4711/fd/7 (deleted)", Frame("f", "anon", "native")),
        ("f", "/dev/fd/7", Frame("f", "anon", "native")),
        ("f", "[heap]", Frame("f", "anon", "native")),
        ("f", "[anon:.bss]", Frame("f", "anon", "native")),
        ("f", f"{ELSEWHERE}/usr/lib/libx.so.1", Frame("f", "libx.so.1", "native")),
        ("f", "/var/lib/docker/overlay2/9f8e/merged" + SO, Frame("f", "libx.so.1", "native")),
        ("f", "/memfd:doublemapper (deleted)", Frame("f", "anon", "native")),
        ("clock_gettime", "[vdso]", Frame("clock_gettime", "vdso", "native")),
        ("do_fault", "[kernel.kallsyms]", Frame("do_fault", "kernel", "system")),
        ("finish.isra.0", "[kernel.kallsyms]", Frame("finish", "kernel", "system")),
        ("[unknown]", "[kernel.kallsyms]", Frame("[kernel]", "kernel", "system")),
        ("nf_hook", "[nf_tables]", Frame("nf_hook", "kernel", "system")),
        ("nf_hook", "/lib/modules/6.1/nf.ko.xz", Frame("nf_hook", "kernel", "system")),
        ("f", "/tmp/nf.ko", Frame("f", "nf.ko", "native")),
        ("f", "[stack]", Frame("f", "anon", "native")),
        ("f", "/tmp/kernel", Frame("f", "\\x6bernel", "native")),
        ("memcpy@@GLIBC_2.14", SO, Frame("memcpy", "libx.so.1", "native")),
        ("memcpy@plt", SO, Frame("memcpy@plt", "libx.so.1", "native")),
        ("hot.constprop.0.isra.3", SO, Frame("hot", "libx.so.1", "native")),
        ("hot.cold", SO, Frame("hot", "libx.so.1", "native")),
        ("hot.part.0.cold.12", SO, Frame("hot", "libx.so.1", "native")),
        ("hot.llvm.9876543210", SO, Frame("hot", "libx.so.1", "native")),
        ("dec[5f3a0123456789ab]::gemv", SO, Frame("dec::gemv", "libx.so.1", "native")),
        ("a[b]", SO, Frame("a[b]", "libx.so.1", "native")),
        (
            "dec::norm::<dec::token::{closure#1}>",
            SO,
            Frame("dec::norm::<dec::token::{closure#1}>", "libx.so.1", "native"),
        ),
        ("_ZN3dec4gemv17h0123456789abcdefE", SO, Frame("_ZN3dec4gemv17E", "libx.so.1", "native")),
        (
            "run()::{lambda(int)#1}::operator()(int) const",
            SO,
            Frame("run()::{lambda(int)#1}::operator()", "libx.so.1", "native"),
        ),
        (
            "void scale<int, (Kind)2>(float*, int) [clone .cold]",
            SO,
            Frame("void scale<int, (Kind)2>", "libx.so.1", "native"),
        ),
        ("std::sort::h0123456789abcdef", SO, Frame("std::sort", "libx.so.1", "native")),
        ("ns::mul(int, char const*) const", SO, Frame("ns::mul", "libx.so.1", "native")),
        ("ns::F::operator()(int)", SO, Frame("ns::F::operator()", "libx.so.1", "native")),
        ("ns::F::operator()", SO, Frame("ns::F::operator()", "libx.so.1", "native")),
        (
            "(anonymous namespace)::f(void (*)(int))",
            SO,
            Frame("(anonymous namespace)::f", "libx.so.1", "native"),
        ),
        ("(anonymous namespace)", SO, Frame("(anonymous namespace)", "libx.so.1", "native")),
        ("unbalanced)", SO, Frame("unbalanced)", "libx.so.1", "native")),
        ("py_trampoline_evaluator", "/opt/libpython3.13.so", None),
        (
            "py::Model.rms_norm:/home/me/project/m.py",
            "/tmp/jitted-7-42.so",
            Frame("Model.rms_norm", "m.py", "python"),
        ),
        (
            "py::<module>:<frozen site>",
            "/tmp/jitted-7-42.so",
            Frame("<module>", "<frozen site>", "python"),
        ),
        ("py::f:engine.py", "/tmp/jitted-7-42.so", Frame("f", "engine.py", "python")),
        ("py::f", "/tmp/jitted-7-42.so", Frame("f", "", "python")),
        ("py::f:/x/y.py", SO, Frame("py::f:/x/y.py", "libx.so.1", "native")),
    ],
)
def test_symbols_are_the_same_in_every_run(
    symbol: str, library: str, expected: Frame | None
) -> None:
    assert make_native_frame(symbol, library, ROOTS) == expected


def test_prefixes_are_longest_first_and_never_the_whole_disk(tmp_path: Path) -> None:
    found = path_prefixes(tmp_path / "deep" / "down")
    assert f"{tmp_path}/deep/down/" in found
    assert list(found) == sorted(found, key=len, reverse=True)
    assert "/" not in path_prefixes(Path("/"))


@given(st.text(), st.text())
def test_every_frame_can_be_written_down(name: str, place: str) -> None:
    for frame in (make_python_frame(name, place, ROOTS), make_native_frame(name, place, ROOTS)):
        if frame is not None:
            assert format_frame(frame)
