"""Receipts, evidence and profiles that are a little wrong, made fast and from a seed.

A mutation knows where the bytes, keys and values of a document are. So half of the results are
malformed, and half are well-formed with something odd inside.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.made import bundle
from tests.receipt.documents import INVALID, VALID

BLOCK = 500
"""The number of cases that share one seed: seeding takes as long as a mutation."""

_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{}]'
)
_SPACE = re.compile(rb"\s*\n\s*")
_RARE = 2000
"""One nasty value in so many is a large one, because those take most of the time."""

NASTY = (
    *b'0 -0 -0.0 1 -1 2 4 0.5 1.0 1e3 1e308 1e309 -1e309 1e-999999999 1e999999999 "" {} []'.split(),
    *b"9007199254740993 01 1. .5 +1 0x10 1_000 NaN Infinity -Infinity null true false".split(),
    *(b"9" * 64, b"9" * 65, b"-" + b"9" * 64, b"9" * 5000, b"0." + b"3" * 62, b"0." + b"3" * 63),
    *b'[[]] [null] [{}] [1,2,3] [[1],[2]] [-1] [true] ["a","b"] {"":null} {"OS":1}'.split(),
    *(b'" "', b'"\\u0000"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\x00"', b'"\\u202e"', b'"\xff"'),
    *(b'"\xed\xa0\x80"', b'"\\x41"', b'"\\u001b[31m"', b'"caf\xc3\xa9"', b'"' + b"x" * 200 + b'"'),
    *b'"cpu" "cuda" "CUDA" "real" "mock" "1.0.0" "1.0" "1.1.0" "$(date)" "failed" "off"'.split(),
    *b'"2025-10-13T12:00:00Z" "2025-10-13T12:00:00.123456789+00:00" "2025-02-29T00:00:00Z"'.split(),
    *b'"0001-01-01T00:00:00+23:59" "9999-12-31T23:59:59-23:59" "2025-10-13T12:00:60Z"'.split(),
    *b'"i2s_gemv" "gemm_fp16" "mock_kernel" "fp32_matmul" "cuda_sync" "%s%n" "embedded"'.split(),
    *(b'"timed"', b'"profiled"', b'"' + b"0" * 64 + b'"', b'{"a":1,"a":1}', b'{"a":1,"\\u0061":1}'),
    *(b"[" * 65 + b"]" * 65, b"[" * 30 + b"]" * 30),
)
FIELDS = (
    *b'"success":false "error":"x" "exit_code":1 "status":"failed" "corrections":[1]'.split(),
    *b'"total_time_ms":5 "total_time_s":-1 "first_token_latency_ms":1e300 "prefill_ms":7'.split(),
    *b'"decode_ns":9 "tokens_generated":1 "average_token_latency_us":-0.0 "path":"" "":0'.split(),
    *b'"kernel_path":"x" "quantization":[] "tokens":1e300 "load_ms":1e300 "told_by":"x"'.split(),
    *b'"performance_baseline":{"tokens_per_second":1e300,"total_time_ms":1}'.split(),
    *(b'"test_results":{"failed":1,"total":2,"passed":-3}', b'"parity":[{"mse":1,"tolerance":0}]'),
    *b'"quantization":{"fallback_count":0,"types_used":["i2_s"]} "reported":[{}]'.split(),
    *b'"BITNET_SEED":"x" "X_DETERMINISTIC":"0" "run_delay_ns":null "decode":null'.split(),
)
_FOLDED = (
    *(b"", b" ", b"\n", b"1\n", b" 1\n", b"a (b) 1\n", b"a [b] 2\n", b";a (b) 1\n", b"a (b); 1\n"),
    *(b"a (b) 0\n", b"a (b) -1\n", b"a (b) 1e3\n", b"a (b) 999999999999999\n", b"a (b) 9" * 20),
    *(b"\xff", b"\x00", b"\xe2\x80\xae", b"main (serving.py)", b";" * 40, b"() 1\n", b" [] 1\n"),
)
_LARGE = (
    *(b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 20_000, b"9" * 500_000),
    *(b'"' + b"x" * 500_000 + b'"', b'"' + b"\\ud800" * 10_000 + b'"'),
    b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(20_000)) + b"}",
    *(b"[" + b"1," * 100_000 + b"1]", b"[" + b"[]," * 50_000 + b"[]]"),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, and the places of its values and of its keys with their colons."""

    data: bytes
    values: tuple[tuple[int, int], ...]
    keys: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, data: bytes) -> Sample:
        """Find the tokens of ``data``, which may be malformed."""
        values, keys, opened = [], [], []
        for match in _TOKEN.finditer(data):
            if match["colon"]:
                keys.append(match.span())
            elif match[0] in b"[{":
                opened.append(match.start())
            elif match[0] not in b"]}":
                values.append(match.span())
            elif opened:
                values.append((opened.pop(), match.end()))
        return cls(data, tuple(values) or ((0, len(data)),), tuple(keys) or ((0, 0),))


@dataclass(frozen=True, slots=True)
class Case:
    """The input of a verifier. ``evidence`` and ``folded`` are None for a receipt alone."""

    receipt: bytes
    evidence: bytes | None = None
    folded: bytes | None = None


@cache
def receipts() -> tuple[Sample, ...]:
    """Return the receipts that mutations begin with."""
    files = [path.read_bytes() for path in (*VALID, *INVALID)]
    return (*map(Sample.of, files), *(parts[0] for parts in measurements()))


@cache
def measurements() -> tuple[tuple[Sample, ...], ...]:
    """Return receipt, evidence and profile of small measurements of each kind."""
    small = {"timed": 1, "profiled": 1, "blocks": 1, "sequences": 2, "token_ns": 150_000_000}
    kinds = [
        bundle(**small),  # type: ignore[arg-type]
        bundle(**small, clock_scope="process", engine="command", seed=1),  # type: ignore[arg-type]
        bundle(timed=2, profiled=1, token_ns=100_000_000, seed=2),
        bundle(**small).with_evidence(profile=None),  # type: ignore[arg-type]
        bundle(**small | {"timed": 2}, seed=3).with_reports(  # type: ignore[arg-type]
            kernels={"MUL_MAT": 9}, counted=0, tokens_per_second=10.0, forward_us=90_000.0
        ),
    ]
    return tuple(
        tuple(Sample.of(_SPACE.sub(b"\n", data)) for data in kind.files.values()) for kind in kinds
    )


def cases(seed: int, block: int, evidence_share: float) -> Iterator[Case]:
    """Yield the ``BLOCK`` cases number ``block`` of ``seed``, the same each time."""
    source = random.Random(seed * 1_000_003 + block)
    for _ in range(BLOCK):
        if source.random() >= evidence_share:
            yield Case(_mutate(source, source.choice(receipts()), receipts()))
            continue
        parts = source.choice(measurements())
        data = [part.data for part in parts]
        which = source.choice((0, 1, 1, 1, 1, 2))
        if which == 2:
            data[2] = _mutate_folded(source, data[2])
        else:
            data[which] = _mutate(source, parts[which], parts[:2])
        yield Case(*data)


def _mutate(source: random.Random, sample: Sample, others: tuple[Sample, ...]) -> bytes:
    """Change a value, a key, a field or some bytes of ``sample``."""
    data, other = sample.data, source.choice(others)
    start, end = source.choice(sample.values)
    key, key_end = source.choice(sample.keys)
    first, last = source.choice(other.values)
    match source.randrange(12):
        case 0 | 1 | 2 | 3:
            return data[:start] + _nasty(source) + data[end:]
        case 4 | 5:
            return data[:start] + other.data[first:last] + data[end:]
        case 6:
            return data[:key] + source.choice(FIELDS) + b"," + data[key:]
        case 7:  # a duplicate key
            return data[:key] + data[key:key_end] + _nasty(source) + b"," + data[key:]
        case 8:  # a value under another key
            first, last = source.choice(other.keys)
            return data[:key] + other.data[first:last] + data[key_end:]
        case 9:
            levels = source.choice((1, 2, 61, 62, 63, 64, 65, 200, 2000))
            opening, closing = source.choice(((b"[", b"]"), (b'{"a":', b"}")))
            return data[:start] + opening * levels + data[start:end] + closing * levels + data[end:]
        case 10:  # the beginning of one document and the end of another
            return data[:key] + other.data[source.choice(other.keys)[0] :]
        case _:
            return _change_bytes(source, data)


def _nasty(source: random.Random) -> bytes:
    return source.choice(NASTY if source.randrange(_RARE) else _LARGE)


def _change_bytes(source: random.Random, data: bytes) -> bytes:
    """Overwrite, cut or insert some bytes."""
    start = source.randint(0, len(data))
    length = source.choice((1, 1, 1, 2, 8, 64, len(data)))
    middle = source.choice((b"", source.randbytes(1), source.choice(b'"{}[],:\\0-e.').to_bytes()))
    return data[:start] + middle + data[start + source.choice((0, len(middle), length)) :]


def _mutate_folded(source: random.Random, data: bytes) -> bytes:
    if source.random() < 0.1:
        return source.choice(_FOLDED) * source.choice((1, 2, 50))
    if source.random() < 0.5:
        return _change_bytes(source, data)
    lines = data.splitlines(keepends=True) or [b""]
    lines[source.randrange(len(lines))] = source.choice(_FOLDED)
    return b"".join(lines)
