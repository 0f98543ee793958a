from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_flamegate.profile import Frame, label
from pytest_flamegate.profile.normalise import native_frame, prefixes, python_frame

ROOTS = ("/home/me/project/", "/home/me/")
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
        ("/srv/a;b.py", "a\\x3bb.py"),
        ("/srv/copy (1).py", "copy\\x20(1).py"),
        ("/srv/copy [1].py", "copy\\x20[1].py"),
    ],
)
def test_python_files_are_the_same_on_every_machine(file: str, module: str) -> None:
    assert python_frame("f", file, ROOTS) == Frame("f", module, "python")


def test_addresses_leave_python_names() -> None:
    assert python_frame("<a.B object at 0x7f1>", "x.py").name == "<a.B object>"


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
        ("f", "//anon", Frame("f", "anon", "native")),
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
    assert native_frame(symbol, library, ROOTS) == expected


def test_prefixes_are_longest_first_and_never_the_whole_disk(tmp_path: Path) -> None:
    found = prefixes(tmp_path / "deep" / "down")
    assert f"{tmp_path}/deep/down/" in found
    assert list(found) == sorted(found, key=len, reverse=True)
    assert "/" not in prefixes(Path("/"))


@given(st.text(), st.text())
def test_every_frame_can_be_written_down(name: str, place: str) -> None:
    for frame in (python_frame(name, place, ROOTS), native_frame(name, place, ROOTS)):
        if frame is not None:
            assert label(frame)
