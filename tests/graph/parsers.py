"""The parsers of this room, for the fuzzer: foreign traces, and files of digests."""

from pytest_flamegate.graph.tensors import read_digests
from pytest_flamegate.graph.traces import read_trace
from tests.graph.test_tensors import FILE as DIGESTS
from tests.graph.traces import made
from tests.profile.parser import EVENT, EVENTS, JSON, NODE, Parser

_GPU = (
    b'{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":1,"dur":2,"args":{"stream":7,'
    b'"correlation":7,"grid":[32,4,1],"block":[256,1,1],"shared memory":0}},'
)
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
    "digests": Parser(
        read_digests,
        (DIGESTS,),
        (*JSON, b'"shape":', b'"values":', b'"AAAA",', b'"sha256":', b"[1,1],", b'"layer":0,'),
    ),
}
