"""Every parser of another tool's output, as a function of bytes: one entry of ``PARSERS`` each."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pytest_flamegate.graph.tensors import read_digests, write_digests
from pytest_flamegate.graph.traces import read_trace
from pytest_flamegate.profile.formats import parse_profile, traces
from pytest_flamegate.profile.profilers import perf_data, pyspy, tools
from pytest_flamegate.profile.profilers.callgrind import parse_callgrind
from pytest_flamegate.profile.profilers.perf_data import parse_script
from pytest_flamegate.receipt.imports.reading import FORMATS, detect_import_format
from tests.graph.test_tensors import recorded
from tests.graph.traces import made
from tests.profile.profiles import DATA

RESULTS = Path(__file__).parent.parent / "receipt" / "imports" / "data"
LIMIT_S = 0.050


class Parser(NamedTuple):
    """``read`` takes any bytes; ``samples`` are valid, ``tokens`` what its grammar is made of.

    ``slots`` are what stands before and after a place where any name may stand; ``limit_s``
    is the CPU time that 64 KiB may take.
    """

    read: Callable[[bytes], object]
    samples: tuple[bytes, ...]
    tokens: tuple[bytes, ...]
    slots: tuple[tuple[bytes, bytes], ...] = ()
    limit_s: float = LIMIT_S


def _callgrind(data: bytes) -> object:
    return parse_callgrind(io.TextIOWrapper(io.BytesIO(data), "utf-8", "surrogateescape"))


def _words(data: bytes) -> object:
    pyspy.remove_own_lines(data)
    quoted = tools.failure_error("perf", data, 1).reason
    numbers = pyspy.count_failures(data), perf_data.parse_stats(data)
    return quoted, numbers, b"sample_freq" in data and perf_data.parse_evlist(data)


def _result(data: bytes) -> object:
    """Any of the readers that knows the bytes, or the one of JSON that looks into most."""
    found = detect_import_format(data)
    return (found or FORMATS[0]).read(data)


def _split(text: str) -> tuple[bytes, ...]:
    """Return pieces of a grammar, which stand between vertical bars."""
    return tuple(piece.encode() for piece in text.split("|"))


JSON = (
    *_split('[]|{}|[|{|]|}|,|:|"|[],|{},|"a":|null,|1,|-1|1e999|NaN|true|[0],|0.5,|"\\ud800"'),
    b"9" * 40, b"9" * 5000, b'{"name":"a","file":"b"},',
)  # fmt: skip
EVENT = b'{"ph":"X","name":"f","cat":"cpu_op","pid":1,"tid":1,"ts":1.5,"dur":2},'
EVENTS = _split('"ph":"X",|"ts":|"dur":|"args":|"cat":|"kernel",|1e15,')
NODE = (
    b'{"ph":"X","name":"n_kernel_time","cat":"Node","pid":1,"tid":1,"ts":1,"dur":2,'
    b'"args":{"op_name":"MatMul","provider":"CPUExecutionProvider"}},'
)
_GPU = (
    b'{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":1,"dur":2,"args":{"stream":7,'
    b'"correlation":7,"grid":[32,4,1],"block":[256,1,1],"shared memory":0}},'
)
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
    *_split(
        " const| [clone x]|.part.1|.constprop|@@GLIBC_2.34|::h0123456789abcdef|+0x1f|(int, char)"
        "|((|))|operator()|py::f:/x.py| at 0x7f|1|\\| (/usr/lib/libc.so.6)| ([kernel.kallsyms])"
        "|[unknown]"
        "| (/tmp/jitted-1-2.so)|/lib/python3|/lib/modules/a.ko|/site-packages/|é\u202e"
    ),
    b"\xff",
    b"a" * 300,
)
PARSERS: dict[str, Parser] = {
    "perf script": Parser(
        lambda data: parse_script([data], ("/home/x/",)),
        tuple(path.read_bytes() for path in sorted(DATA.glob("perf-script-*.txt"))),
        (
            *_SYMBOLS,
            _FRAME,
            *_split("\n|\n\n|\t| 7/7  1.000000: cpu-clock:|\n\t 0 a (b)"),
            b"  7/7  1.000000: PERF_RECORD_LOST lost 9",
            b"  7/7  1.5: cpu-clock:  55 f (/x)\n",
        ),
        (
            (_SAMPLE, b" (/usr/lib/libc.so.6)\n\n"),
            (_SAMPLE + b"f (/", b")\n\n"),
            (_SAMPLE + b"py::f:/", b" (/tmp/jitted-7-1.so)\n\n"),
        ),
    ),
    "words of perf and py-spy": Parser(
        _words,
        (
            b"py-spy> Sampling process 100 times a second.\n\nout\n\npy-spy> Stopped sampling\n"
            b"py-spy> Wrote speedscope file to 'x'. Samples: 95 Errors: 5\n",
            b"Error:\nNo permission to enable cycles event.\nStack backtrace:\n 0: x\n",
            *(path.read_bytes() for path in sorted(DATA.glob("evlist-*.txt"))),
        ),
        (
            *_split(
                "py-spy> |py-spy> Wrote |Samples: 1 Errors: 2|\n| |: |sample_freq }: |CALLCHAIN"
            ),
            *_split(", sample_type: |sample_stack_user: |THROTTLE events:|UN|[ perf record: "),
            *(b"9" * 30, b"\x1b[31m", b"Stack backtrace:", b"Events enabled"),
        ),
    ),
    "callgrind": Parser(
        _callgrind,
        ((DATA / "callgrind-small.out").read_bytes(),),
        (
            *_SYMBOLS,
            *_split(
                "fn=(1) f\n|fn=(1)\n|fn=|ob=(2) x\n|cfn=(1)\n|calls=1 0\n|+1 2\n|* 1\n|\n|\r|'2"
            ),
            *_split("totals: 1\n|part: 1\n|events: Ir\n|events: A B Ir\n|positions: line\n"),
            b"positions: " + b"x " * 30 + b"\n",
            b"9" * 19,
        ),
        (
            (_CALLGRIND + b"fn=(1) ", b"\n1 5\ntotals: 5\n"),
            (_CALLGRIND + b"fn=", b"\n1 5\ntotals: 5\n"),
            (_CALLGRIND + b"ob=(1) ", b"\nfn=f\n1 5\ntotals: 5\n"),
            (b"version: 1\nevents: Ir ", b"\nfn=f\n1 5\ntotals: 5\n"),
            (b"version: 1\nevents: Ir\npositions: ", b"\nfn=f\n1 5\ntotals: 5\n"),
        ),
        limit_s=2 * LIMIT_S,  # it reads calls too
    ),
    "speedscope": Parser(
        parse_profile,
        ((DATA / "py-spy-speedscope.json").read_bytes(), _EVENTED[0] + _EVENTED[1]),
        (
            *(*JSON, *_SYMBOLS),
            *_split('"shared":|"profiles":|"frames":|"samples":|"weights":|"unit":"seconds"'),
            *_split('{"type":"O","frame":0,"at":0},|"events":['),
        ),
        (
            _EVENTED,
            (_SPEEDSCOPE, b'","name":"f"}]}}'),
            (_SPEEDSCOPE + b'a.py","name":"', b'"}]}}'),
            (b'{"shared":{"frames":[]},"profiles":[{"samples":[],"weights":[],"name":"', b'"}]}'),
        ),
    ),
    "folded": Parser(
        parse_profile,
        (b"a;b;c 12\na;b 3\n", b"f (m.py);g [l.so];h [kernel] 12\nf (m.py) 3\n 1\n"),
        (*_SYMBOLS, *_split(";| | 1\n|a;b_[k] 5\n|0.5|\n|f (m);| (m)| [l]| [kernel]")),
        ((b"", b" 1\n"), (b"a;", b" 1\n"), (b"f (", b") 1\n"), (b"f [", b"] 1\n")),
        0.200,  # 64 KiB hold 9,000 new names in lines of seven bytes, at 9 µs each
    ),
    **{
        f"import {path.name}": Parser(
            _result,
            (path.read_bytes(),),
            (*JSON, b"|", b" | ", *_split('\n|\r\n|","|\t| ± |tg1|0|inf')),
            ((b'{"avg_ts":1,"n_gen":1,"n_prompt":', b"}"), (b"n_prompt,n_gen,avg_ts\n1,1,", b"\n")),
            1.0,
        )
        for path in sorted(RESULTS.glob("*.*"))
        if path.suffix == ".csv" or path.stem in ("llama-bench", "vllm-serve", "aiperf")
    },
    "torch.profiler": Parser(
        lambda data: (
            traces.count_kernels(data),
            traces.read_torch_trace(data, ("/home/x/",)),
        ),
        ((DATA / "torch-trace.json").read_bytes(), (DATA / "torch-trace-stacks.json").read_bytes()),
        (*JSON, *EVENTS, EVENT, *_SYMBOLS),
        (
            (b'{"traceEvents":[', EVENT[:-1] + b"]}"),
            (b'{"traceEvents":[{"name":"', b'",' + EVENT[1:-1] + b"]}"),
        ),
        2 * LIMIT_S,  # two readings
    ),
    "onnxruntime": Parser(
        lambda data: (traces.count_kernels(data), traces.read_onnx_trace(data)),
        ((DATA / "onnx-trace.json").read_bytes(),),
        (*JSON, *EVENTS, NODE, b'"op_name":', b'"provider":'),
        ((b"[", NODE[:-1] + b"]"), (b'[{"name":"', b'",' + NODE[1:-1] + b"]")),
        2 * LIMIT_S,
    ),
    "bricks of traces": Parser(
        read_trace,
        (made.TORCH, made.VIZTRACER, made.ONNX_PARALLEL, b'{"traceEvents":[' + _GPU[:-1] + b"]}"),
        (*JSON, *EVENTS, EVENT, _GPU, NODE, b'"grid":[1,1,1],', b'"bytes":'),
        (
            (b'{"schemaVersion":1,"traceEvents":[', _GPU[:-1] + b"]}"),
            (b'[{"name":"', b'",' + EVENT[1:-1] + b"]"),
        ),
    ),
    "digests": Parser(
        read_digests,
        (write_digests(recorded(values_bytes=1000)),),
        (*JSON, *_split('"shape":|"values":|"AAAA",|"sha256":|[1,1],|"layer":0,')),
    ),
}
