"""Every parser of another tool's output, as a function of bytes: one entry of ``PARSERS`` each."""

from __future__ import annotations

import io
import struct
import tempfile
from pathlib import Path

from pytest_flamegate.core.text import decode_name
from pytest_flamegate.profile.folded import parse_folded
from pytest_flamegate.profile.formats.registry import parse_profile
from pytest_flamegate.profile.formats.traces import (
    count_onnx_kernels,
    count_torch_kernels,
    read_onnx_trace,
    read_torch_trace,
)
from pytest_flamegate.profile.profilers import errors, perf_data, pyspy
from pytest_flamegate.profile.profilers.callgrind_file import parse_callgrind
from pytest_flamegate.profile.profilers.perf_data import KNOWN
from pytest_flamegate.profile.profilers.perf_script import parse_script
from pytest_flamegate.receipt.imports import FORMATS, detect_import_format
from tests.graph.parsers import BRICK_PARSERS
from tests.profile.parser import EVENT, EVENTS, JSON, LIMIT_S, NODE, Parser
from tests.profile.profiles import DATA

RESULTS = Path(__file__).parent.parent / "receipt" / "imports" / "data"


def _scrub(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=_SHM) as directory:
        path = Path(directory, "jit.dump")
        path.write_bytes(data)
        perf_data.scrub_names(path)
        if len(path.read_bytes()) != len(data):
            raise AssertionError("scrubbing changed the length")


def _callgrind(data: bytes) -> object:
    return parse_callgrind(io.TextIOWrapper(io.BytesIO(data), "utf-8", "surrogateescape"))


def _result(data: bytes) -> object:
    """Any of the readers that knows the bytes, or the one of JSON that looks into most."""
    found = detect_import_format(data)
    return (found or FORMATS[0]).read(data)


def _said(data: bytes) -> str:
    return errors.failure_error("perf", data, 1, KNOWN).reason


def _jitdump() -> bytes:
    header = struct.pack("=4I2Q2I", 0x4A695444, 1, 40, 62, 0, 7, 0, 0)[:40]
    body = b"\x11" * 40 + b"py::f\n:/x.py\0\x48\x0a"
    load = struct.pack("=2IQ", 0, 16 + len(body), 1) + body
    return header + load + struct.pack("=2IQ", 4, 20, 1) + b"abcd" + load


_SHM = "/dev/shm" if Path("/dev/shm").is_dir() else None
_FRAME = b"\t    55d0c0de1234 "
_SAMPLE = b"  7/7  1.000000: cpu-clock:\n" + _FRAME
_SPEEDSCOPE = b'{"profiles":[],"shared":{"frames":[{"file":"'
_CALLGRIND = b"version: 1\nevents: Ir\n"
_EVENTED = (
    b'{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":'
    b'[{"name":"a"}]},"profiles":[{"type":"evented","name":"x","unit":"none","startValue":0,'
    b'"endValue":9,"events":[{"type":"O","frame":0,"at":0},',
    b'{"type":"C","frame":0,"at":5}]}]}',
)
_SYMBOLS = (
    b" const", b" [clone x]", b".part.1", b".constprop", b"@@GLIBC_2.34", b"::h0123456789abcdef",
    b"+0x1f", b"(int, char)", b"((", b"))", b"operator()", b"py::f:/x.py", b" at 0x7f", b"1", b"\\",
    b" (/usr/lib/libc.so.6)", b" ([kernel.kallsyms])", b" (/tmp/jitted-1-2.so)", b"/lib/python3",
    b"/lib/modules/a.ko", b"/site-packages/", b"[unknown]", "é\u202e".encode(), b"\xff", b"a" * 300,
)  # fmt: skip
PARSERS: dict[str, Parser] = {
    "perf script": Parser(
        lambda data: parse_script([data], ("/home/x/",)),
        tuple(path.read_bytes() for path in sorted(DATA.glob("perf-script-*.txt"))),
        (
            *_SYMBOLS,
            _FRAME,
            b"\n",
            b"\n\n",
            b"\t",
            b" 7/7  1.000000: cpu-clock:",
            b"\n\t 0 a (b)",
            b"  7/7  1.000000: PERF_RECORD_LOST lost 9",
            b"  7/7  1.5: cpu-clock:  55 f (/x)\n",
        ),
        (
            (_SAMPLE, b" (/usr/lib/libc.so.6)\n\n"),
            (_SAMPLE + b"f (/", b")\n\n"),
            (_SAMPLE + b"py::f:/", b" (/tmp/jitted-7-1.so)\n\n"),
        ),
    ),
    "perf evlist": Parser(
        perf_data.parse_evlist,
        tuple(path.read_bytes() for path in sorted(DATA.glob("evlist-*.txt"))),
        (
            b"sample_freq }: ",
            b", sample_type: ",
            b"sample_stack_user: ",
            b"CALLCHAIN",
            b": ",
            b"\n",
        ),
    ),
    "perf stats": Parser(
        perf_data.parse_stats,
        (b"Aggregated stats:\n  SAMPLE events: 10\n  UNTHROTTLE events:  3  ( 0.1%)\n",),
        (b"THROTTLE events:", b" ", b"UN", b"9" * 30, b"\n"),
    ),
    "speedscope": Parser(
        pyspy.parse_recording,
        ((DATA / "py-spy-speedscope.json").read_bytes(),),
        (
            *JSON,
            b'"shared":',
            b'"profiles":',
            b'"frames":',
            b'"samples":',
            b'"weights":',
            *_SYMBOLS,
        ),
        (
            (_SPEEDSCOPE, b'","name":"f"}]}}'),
            (_SPEEDSCOPE + b'a.py","name":"', b'"}]}}'),
            (b'{"shared":{"frames":[]},"profiles":[{"samples":[],"weights":[],"name":"', b'"}]}'),
            (b'{"shared":{"frames":[', b']},"profiles":[]}'),
        ),
    ),
    "py-spy's words": Parser(
        lambda data: (pyspy.count_failures(data), pyspy.remove_own_lines(data)),
        (
            b"py-spy> Sampling process 100 times a second. Press Control-C to exit.\n\nout\n"
            b"\npy-spy> Stopped sampling because Control-C pressed\n"
            b"py-spy> Wrote speedscope file to 'x'. Samples: 95 Errors: 5\n",
        ),
        (b"py-spy> ", b"py-spy> Wrote ", b"Samples: 1 Errors: 2", b"\n", b" ", b"9" * 20),
    ),
    "a tool's words": Parser(
        _said,
        (b"Error:\nNo permission to enable cycles event.\n", b"Stack backtrace:\n 0: x\n"),
        (
            b"[ perf record: ",
            b"Events enabled",
            b"py-spy> ",
            b"\x1b[31m",
            b"Stack backtrace:",
            b"\n",
        ),
    ),
    "callgrind": Parser(
        _callgrind,
        ((DATA / "callgrind-small.out").read_bytes(),),
        (
            *_SYMBOLS,
            b"fn=(1) f\n",
            b"fn=(1)\n",
            b"fn=",
            b"ob=(2) x\n",
            b"cfn=(1)\n",
            b"calls=1 0\n",
            b"+1 2\n",
            b"* 1\n",
            b"totals: 1\n",
            b"part: 1\n",
            b"events: Ir\n",
            b"events: A B Ir\n",
            b"positions: line\n",
            b"positions: " + b"x " * 30 + b"\n",
            b"9" * 19,
            b"'2",
            b"\n",
            b"\r",
        ),
        (
            (_CALLGRIND + b"fn=(1) ", b"\n1 5\ntotals: 5\n"),
            (_CALLGRIND + b"fn=", b"\n1 5\ntotals: 5\n"),
            (_CALLGRIND + b"ob=(1) ", b"\nfn=f\n1 5\ntotals: 5\n"),
            (b"version: 1\nevents: Ir ", b"\nfn=f\n1 5\ntotals: 5\n"),
            (b"version: 1\nevents: Ir\npositions: ", b"\nfn=f\n1 5\ntotals: 5\n"),
        ),
    ),
    "folded": Parser(
        lambda data: parse_folded(decode_name(data)),
        (b"f (m.py);g [l.so];h [kernel] 12\nf (m.py) 3\n 1\n",),
        (
            *_SYMBOLS,
            b";",
            b" ",
            b"f (m);",
            b" (m)",
            b" [l]",
            b" [kernel]",
            b" 1\n",
            b"\n",
            b"a [b];" * 9,
        ),
        ((b"", b" 1\n"), (b"f (", b") 1\n"), (b"f [", b"] 1\n")),
    ),
    "import speedscope": Parser(
        parse_profile,
        ((DATA / "py-spy-speedscope.json").read_bytes(), _EVENTED[0] + _EVENTED[1]),
        (
            *JSON,
            b'{"type":"O","frame":0,"at":0},',
            b'"events":[',
            b'"unit":"seconds"',
            b'"weights":',
        ),
        (_EVENTED, (_SPEEDSCOPE, b'","name":"f"}]}}')),
    ),
    "import folded": Parser(
        parse_profile,
        (b"a;b;c 12\na;b 3\n", b"f (m.py);g [l.so] 3\n"),
        (*_SYMBOLS, b";", b" ", b" 1\n", b"a;b_[k] 5\n", b"0.5", b"\n"),
        ((b"", b" 1\n"), (b"a;", b" 1\n")),
        0.200,  # 64 KiB hold 9,000 new names in lines of seven bytes, at 9 µs each
    ),
    **{
        f"import {path.name}": Parser(
            _result,
            (path.read_bytes(),),
            (
                *JSON,
                b"|",
                b" | ",
                b"\n",
                b"\r\n",
                b'","',
                b"\t",
                b" \xc2\xb1 ",
                b"tg1",
                b"0",
                b"inf",
            ),
            ((b'{"avg_ts":1,"n_gen":1,"n_prompt":', b"}"), (b"n_prompt,n_gen,avg_ts\n1,1,", b"\n")),
            1.0,
        )
        for path in sorted(RESULTS.glob("*.*"))
        if path.suffix == ".csv" or path.stem in ("llama-bench", "vllm-serve", "aiperf")
    },
    "torch.profiler": Parser(
        lambda data: (count_torch_kernels(data), read_torch_trace(data, ("/home/x/",))),
        ((DATA / "torch-trace.json").read_bytes(), (DATA / "torch-trace-stacks.json").read_bytes()),
        (*JSON, *EVENTS, EVENT, *_SYMBOLS),
        (
            (b'{"traceEvents":[', EVENT[:-1] + b"]}"),
            (b'{"traceEvents":[{"name":"', b'",' + EVENT[1:-1] + b"]}"),
        ),
        2 * LIMIT_S,  # two readings
    ),
    "onnxruntime": Parser(
        lambda data: (count_onnx_kernels(data), read_onnx_trace(data)),
        ((DATA / "onnx-trace.json").read_bytes(),),
        (*JSON, *EVENTS, NODE, b'"op_name":', b'"provider":'),
        ((b"[", NODE[:-1] + b"]"), (b'[{"name":"', b'",' + NODE[1:-1] + b"]")),
        2 * LIMIT_S,
    ),
    **BRICK_PARSERS,
    "jitdump": Parser(
        _scrub, (_jitdump(),), (b"\0\0\0\0", b"\x10\0\0\0", b"\xff" * 4, b"\n", b"DTiJ")
    ),
}
