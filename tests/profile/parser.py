"""What a parser is to the fuzzer, and what formats that several parsers read are made of."""

from collections.abc import Callable
from typing import NamedTuple

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


JSON = (
    b"[]", b"{}", b"[", b"{", b"]", b"}", b",", b":", b'"', b"[],", b"{},", b'"a":', b"null,",
    b"1,", b"-1", b"1e999", b"NaN", b"9" * 40, b"9" * 5000, b'{"name":"a","file":"b"},',
    b'"\\ud800"', b"[0],", b"0.5,", b"true",
)  # fmt: skip
EVENT = b'{"ph":"X","name":"f","cat":"cpu_op","pid":1,"tid":1,"ts":1.5,"dur":2},'
NODE = (
    b'{"ph":"X","name":"n_kernel_time","cat":"Node","pid":1,"tid":1,"ts":1,"dur":2,'
    b'"args":{"op_name":"MatMul","provider":"CPUExecutionProvider"}},'
)
EVENTS = (b'"ph":"X",', b'"ts":', b'"dur":', b'"args":', b'"cat":', b'"kernel",', b"1e15,")
