"""The parsers of this room, for the fuzzer: foreign traces, and files of digests."""

from __future__ import annotations

from pytest_flamegate.graph.tensors import read_digests
from pytest_flamegate.graph.traces import read_trace
from tests.graph.test_tensors import FILE as DIGESTS
from tests.graph.traces import made
from tests.profile.parser import EVENT, EVENTS, JSON, LIMIT_S, NODE, Parser

_GPU = (
    b'{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":1,"dur":2,"args":{"stream":7,'
    b'"correlation":7,"grid":[32,4,1],"block":[256,1,1],"shared memory":0}},'
)
_BRICK = (
    b'{"name":"a","count":2,"total_ns":2000,"avg_us":1.00,"min_us":1.00,"max_us":1.00,'
    b'"throughput":1.0,"pct":100.0},'
)
_TRUENO = b'{"total_tokens":1,"total_ns":2000,"total_throughput":1.0,"bricks":['
BRICK_PARSERS: dict[str, Parser] = {
    "bricks of traces": Parser(
        read_trace,
        (made.TORCH, made.VIZTRACER, made.ONNX_PARALLEL, b'{"traceEvents":[' + _GPU[:-1] + b"]}"),
        (*JSON, *EVENTS, EVENT, _GPU, NODE, b'"grid":[1,1,1],', b'"bytes":'),
        (
            (b'{"schemaVersion":1,"traceEvents":[', _GPU[:-1] + b"]}"),
            (b'[{"name":"', b'",' + EVENT[1:-1] + b"]"),
        ),
    ),
    "bricks of trueno": Parser(
        read_trace,
        (made.TRUENO, _TRUENO + _BRICK[:-1] + b"]}"),
        (*JSON, _BRICK, b'"count":', b'"avg_us":', b'"pct":', b'"total_ns":'),
        (
            (_TRUENO, _BRICK[:-1] + b"]}"),
            (_TRUENO + b'{"name":"', b'",' + _BRICK[1:-1] + b"]}"),
        ),
    ),
    "bricks of lines": Parser(
        read_trace,
        (made.LINES, made.LINES + made.DISPATCH, made.DISPATCH),
        (
            b"timing:",
            b"timing: embed_us=1\n",
            b"embed_us=",
            b"forward_us=1e999",
            b"=",
            b" ",
            b"quant_dispatch",
            b"quant_dispatch: kernel=a\n",
            b"kernel=",
            b"count=",
            b" x ",
            b"\n",
            b"count ",
            b"nan",
            b"-1",
            b"9" * 400,
            b"\xff",
        ),
        ((b"timing: ", b"\n" + made.LINES), (b"quant_dispatch: kernel=", b"\n")),
        2 * LIMIT_S,  # two readings
    ),
    "digests": Parser(
        read_digests,
        (DIGESTS,),
        (*JSON, b'"shape":', b'"values":', b'"AAAA",', b'"sha256":', b"[1,1],", b'"layer":0,'),
    ),
}
