"""Receipts, evidence and profiles that are a little wrong, made fast and from a seed.

Mutations know two things of JSON: where its bytes are, and where its values stand. So
half of what comes out is malformed, and half well-formed with something odd inside.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tests.made import bundle
from tests.receipt.documents import INVALID, VALID

BLOCK = 500
"""Cases from one seeding: seeding for each would take as long as mutating."""

_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{}]'
)
_SPACE = re.compile(rb"\s*\n\s*")

_RARE = 2000
"""One in so many nasty values is a large one: most of the time goes by at them."""

NASTY = (
    *(b"0", b"-0", b"-0.0", b"1", b"-1", b"2", b"4", b"0.5", b"1.0", b"1e3", b"1e308", b"1e309"),
    *(b"-1e309", b"1e-999999999", b"1e999999999", b"9007199254740993", b"18446744073709551616"),
    *(b"9" * 64, b"9" * 65, b"-" + b"9" * 64, b"9" * 5000, b"0." + b"3" * 62, b"0." + b"3" * 63),
    *(b"01", b"1.", b".5", b"+1", b"0x10", b"1_000", b"NaN", b"Infinity", b"-Infinity", b"nan"),
    *(b"null", b"true", b"false", b"{}", b"[]", b'""', b"[[]]", b"[null]", b'{"":null}', b"[{}]"),
    *(b'" "', b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\x00"'),
    *(b'"\\u202e"', b'"\\u2028"', b'"\xe2\x80\xae"', b'"\xff"', b'"\xed\xa0\x80"', b'"\\x41"'),
    *(
        b'"\\u001b[31m"',
        b'"\x7f"',
        b'"caf\xc3\xa9"',
        b'"\xf0\x9f\x94\xa5"',
        b'"' + b"x" * 200 + b'"',
    ),
    *(b'"cpu"', b'"cuda"', b'"CUDA"', b'"real"', b'"mock"', b'"1.0.0"', b'"1.0"', b'"1.1.0"'),
    *(
        b'"2025-10-13T12:00:00Z"',
        b'"2025-10-13T12:00:00.123456789+00:00"',
        b'"9999-12-31T23:59:59Z"',
    ),
    *(b'"0001-01-01T00:00:00+23:59"', b'"9999-12-31T23:59:59-23:59"', b'"2025-02-29T00:00:00Z"'),
    *(b'"2025-10-13T12:00:60Z"', b'"2025-10-13T24:00:00Z"', b'"$(date)"', b'"failed"', b'"off"'),
    *(b'"i2s_gemv"', b'"gemm_fp16"', b'"mock_kernel"', b'"fp32_matmul"', b'"cuda_sync"', b'"%s%n"'),
    *(b'"embedded"', b'"ggml"', b'"torch"', b'"timed"', b'"profiled"', b'"' + b"0" * 64 + b'"'),
    *(b"[1,2,3]", b"[[1],[2]]", b"[-1]", b"[true]", b"[1.5]", b'["a","b"]', b'{"OS":1}'),
    *(b'{"a":1,"a":1}', b'{"a":1,"\\u0061":1}', b"[" * 65 + b"]" * 65, b"[" * 30 + b"]" * 30),
)
FIELDS = (
    *(
        b'"success":false',
        b'"error":"x"',
        b'"exit_code":1',
        b'"status":"failed"',
        b'"corrections":[1]',
    ),
    *(
        b'"total_time_ms":5',
        b'"total_time_s":-1',
        b'"first_token_latency_ms":1e300',
        b'"prefill_ms":7',
    ),
    *(b'"decode_ns":9', b'"tokens_generated":1', b'"average_token_latency_us":-0.0', b'"path":""'),
    *(
        b'"performance_baseline":{"tokens_per_second":1e300,"total_time_ms":1}',
        b'"kernel_path":"x"',
    ),
    *(b'"test_results":{"failed":1,"total":2,"passed":-3}', b'"parity":[{"mse":1,"tolerance":0}]'),
    *(b'"quantization":{"fallback_count":0,"types_used":["i2_s"]}', b'"quantization":[]', b'"":0'),
    *(
        b'"tokens":1e300',
        b'"load_ms":1e300',
        b'"sample_us":-1',
        b'"told_by":"x"',
        b'"reported":[{}]',
    ),
    *(b'"BITNET_SEED":"x"', b'"X_DETERMINISTIC":"0"', b'"run_delay_ns":null', b'"decode":null'),
)
_FOLDED = (
    *(b"", b" ", b"\n", b"1\n", b" 1\n", b"a (b) 1\n", b"a [b] 2\n", b";a (b) 1\n", b"a (b); 1\n"),
    *(b"a (b) 0\n", b"a (b) -1\n", b"a (b) 1e3\n", b"a (b) 999999999999999\n", b"a (b) 9" * 20),
    *(b"\xff", b"\x00", b"\xe2\x80\xae", b"main (serving.py)", b";" * 40, b"() 1\n", b" [] 1\n"),
)


def _large() -> tuple[bytes, ...]:
    """Values that are long, wide or deep: what a reader's limits are for."""
    return (
        b"[" * 50_000 + b"]" * 50_000,
        b'{"a":' * 20_000,
        b'"' + b"x" * 500_000 + b'"',
        b'"' + b"\\u0041" * 60_000 + b'"',
        b'"' + b"\\ud800" * 10_000 + b'"',
        b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(20_000)) + b"}",
        b"[" + b"1," * 100_000 + b"1]",
        b'["' + b'a","' * 50_000 + b'a"]',
        b"[" + b"[]," * 50_000 + b"[]]",
        b"9" * 500_000,
        b'{"' + b"k" * 300_000 + b'":1}',
    )


LARGE = _large()


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, and where its values, its keys and the insides of its objects stand."""

    data: bytes
    values: tuple[tuple[int, int], ...]
    keys: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, data: bytes) -> Sample:
        """Look through ``data``; whatever it is, something is found in it."""
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
    """What a verifier is given. ``evidence`` and ``folded`` are None for a receipt alone."""

    receipt: bytes
    evidence: bytes | None = None
    folded: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Triple:
    receipt: Sample
    evidence: Sample
    folded: Sample


@cache
def receipts() -> tuple[Sample, ...]:
    """Return the receipts that mutations begin with."""
    files = [path.read_bytes() for path in (*VALID, *INVALID)]
    files += [triple.receipt.data for triple in triples()]
    return tuple(map(Sample.of, files))


@cache
def triples() -> tuple[_Triple, ...]:
    """Return measurements of a few kilobytes, of each kind that the product writes."""
    small = {"timed": 1, "profiled": 1, "blocks": 1, "sequences": 2, "token_ns": 150_000_000}
    kinds = [
        bundle(**small),  # type: ignore[arg-type]
        bundle(**small, clock_scope="process", engine="command", seed=1),  # type: ignore[arg-type]
        bundle(timed=2, profiled=1, token_ns=100_000_000, seed=2),
        bundle(**small).with_evidence(profile=None),  # type: ignore[arg-type]
        bundle(
            timed=2, profiled=1, token_ns=100_000_000, blocks=1, sequences=2, seed=3
        ).with_reports(
            kernels={"MUL_MAT": 9}, counted=0, tokens_per_second=10.0, forward_us=90_000.0
        ),
    ]
    return tuple(
        _Triple(*(Sample.of(_SPACE.sub(b"\n", data)) for data in kind.files.values()))
        for kind in kinds
    )


def cases(seed: int, block: int, evidence_share: float) -> Iterator[Case]:
    """Yield the ``BLOCK`` cases number ``block`` of ``seed``, the same each time."""
    source = random.Random(seed * 1_000_003 + block)
    for _ in range(BLOCK):
        if source.random() >= evidence_share:
            yield Case(mutated(source, source.choice(receipts()), receipts()))
        else:
            yield _with_evidence(source)


def _with_evidence(source: random.Random) -> Case:
    triple = source.choice(triples())
    parts = [triple.receipt, triple.evidence, triple.folded]
    data = [part.data for part in parts]
    which = source.choice((0, 1, 1, 1, 1, 2))
    if which == 2:
        data[2] = _garbled(source, parts[2].data)
    else:
        others = receipts() if which == 0 else tuple(each.evidence for each in triples())
        data[which] = mutated(source, parts[which], others)
    if source.random() < 0.1:
        data[1] = source.choice(triples()).evidence.data
    if source.random() < 0.1:
        data[2] = source.choice(triples()).folded.data
    return Case(*data)


def mutated(source: random.Random, sample: Sample, others: tuple[Sample, ...]) -> bytes:
    """Return the sample's data with one to four things wrong."""
    draw = source.random
    data = source.choice(_WHOLE)(source, sample, others)
    while draw() < 0.3:
        data = source.choice(_BYTES)(source, data)
    return data


def _nasty(source: random.Random) -> bytes:
    if source.randrange(_RARE) == 0:
        return source.choice(LARGE)
    return source.choice(NASTY)


def _swap(source: random.Random, sample: Sample, _: tuple[Sample, ...]) -> bytes:
    """Put nasty values in the place of one or two."""
    start, end = source.choice(sample.values)
    data = sample.data[:start] + _nasty(source) + sample.data[end:]
    if source.random() < 0.3:
        start, end = source.choice(sample.values)
        data = data[:start] + source.choice(NASTY) + data[end:]
    return data


def _move(source: random.Random, sample: Sample, others: tuple[Sample, ...]) -> bytes:
    """Put a value of some document in the place of another."""
    start, end = source.choice(sample.values)
    other = source.choice(others)
    first, last = source.choice(other.values)
    return sample.data[:start] + other.data[first:last] + sample.data[end:]


def _add_field(source: random.Random, sample: Sample, _: tuple[Sample, ...]) -> bytes:
    """Put a field before one that is there: new, or the same key once more."""
    start, end = source.choice(sample.keys)
    key = sample.data[start:end] if source.random() < 0.4 else b""
    field = key + _nasty(source) if key else source.choice(FIELDS)
    return sample.data[:start] + field + b"," + sample.data[start:]


def _rename(source: random.Random, sample: Sample, others: tuple[Sample, ...]) -> bytes:
    """Give a value the key of another one."""
    start, end = source.choice(sample.keys)
    other = source.choice(others)
    first, last = source.choice(other.keys)
    return sample.data[:start] + other.data[first:last] + sample.data[end:]


def _nest(source: random.Random, sample: Sample, _: tuple[Sample, ...]) -> bytes:
    """Wrap a value in lists or objects."""
    start, end = source.choice(sample.values)
    levels = source.choice((1, 2, 61, 62, 63, 64, 65, 200, 2000))
    opening, closing = source.choice(((b"[", b"]"), (b'{"a":', b"}")))
    value = opening * levels + sample.data[start:end] + closing * levels
    return sample.data[:start] + value + sample.data[end:]


def _splice(source: random.Random, sample: Sample, others: tuple[Sample, ...]) -> bytes:
    """Begin with one document and end with another."""
    other = source.choice(others)
    first, last = source.choice(sample.keys)[0], source.choice(other.keys)[0]
    return sample.data[:first] + other.data[last:]


def _as_is(source: random.Random, sample: Sample, _: tuple[Sample, ...]) -> bytes:
    return _flip(source, sample.data)


def _flip(source: random.Random, data: bytes) -> bytes:
    """Change a byte or some."""
    if not data:
        return source.randbytes(4)
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        changed[source.randrange(len(changed))] = source.choice(
            (source.randrange(256), *b'"{}[],:\\0-e.')
        )
    return bytes(changed)


def _cut(source: random.Random, data: bytes) -> bytes:
    """Leave out a piece, or the rest."""
    start = source.randint(0, len(data))
    end = len(data) if source.random() < 0.3 else start + source.choice((1, 2, 8, 64))
    return data[:start] + data[end:]


def _insert(source: random.Random, data: bytes) -> bytes:
    """Put something in somewhere."""
    start = source.randint(0, len(data))
    return data[:start] + source.choice(NASTY) + data[start:]


def _garbled(source: random.Random, data: bytes) -> bytes:
    """Return folded stacks with something wrong."""
    draw = source.random()
    if draw < 0.1:
        return source.choice(_FOLDED) * source.choice((1, 2, 50))
    if draw < 0.5:
        lines = data.splitlines(keepends=True) or [b""]
        lines[source.randrange(len(lines))] = source.choice(_FOLDED)
        return b"".join(lines)
    return source.choice(_BYTES)(source, data)


_WHOLE: tuple[Callable[[random.Random, Sample, tuple[Sample, ...]], bytes], ...] = (
    *(_swap, _swap, _swap, _swap, _move, _move, _add_field, _add_field),
    *(_rename, _nest, _splice, _as_is),
)
_BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (_flip, _cut, _insert)
