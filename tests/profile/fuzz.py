"""Throw mutated bytes at every parser, as fast as they read them.

``python -m tests.profile.fuzz --inputs 1000000`` does it once, on one core, and says what
came of it; ``test_fuzz.py`` does a little of it, always the same.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_flamegate.core.errors import FlamegateError
from tests.profile.parser import Parser
from tests.profile.parsers import PARSERS

INPUT_BYTES = 65536
MEMORY_TIMES = 10
ALLOWANCE_BYTES = 1 << 20
"""For tables that are filled once, and what the interpreter takes for any call."""
_TRIES = 3
BIG_EVERY = 50
_MEMORY_EVERY = 4
_INTERESTING = (b"0", b"-1", b"1", b"4294967296", b"9" * 18, b"9" * 40, b"1e309", b"0x", b"\0")


@dataclass
class Tally:
    """What came of one parser's inputs. ``broken`` holds what was wrong and the input."""

    inputs: int = 0
    read: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    worst_s: float = 0.0
    worst_memory: float = 0.0
    broken: list[tuple[str, bytes]] = field(default_factory=list)


def read(parser: Parser, data: bytes) -> str:
    """Return ``read``, or the code of the refusal; anything else passes through."""
    try:
        parser.read(data)
    except FlamegateError as error:
        return error.code
    return "read"


def cpu_s(parser: Parser, data: bytes) -> float:
    """Return the CPU time of one reading, the least of some: a busy machine adds to it."""
    least = float("inf")
    for _ in range(_TRIES):
        began = time.process_time()
        read(parser, data)
        least = min(least, time.process_time() - began)
        if least <= parser.limit_s:
            break
    return least


def peak_bytes(parser: Parser, data: bytes) -> int:
    """Return the most memory that one reading takes, in bytes."""
    tracemalloc.start()
    try:
        read(parser, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def allowed_bytes(data: bytes) -> int:
    """Return how much memory reading ``data`` may take."""
    return MEMORY_TIMES * len(data) + ALLOWANCE_BYTES


def mutated(parser: Parser, chance: random.Random, *, big: bool) -> bytes:
    """Return bytes that are a little like what the parser reads; ``big`` ones fill 64 KiB."""
    if chance.random() < 0.02:
        return chance.randbytes(chance.choice((0, 1, 16, 300, INPUT_BYTES if big else 600)))
    if parser.slots and chance.random() < 0.4:
        before, after = chance.choice(parser.slots)
        room = (INPUT_BYTES if big else chance.randrange(600)) - len(before + after)
        return before + _repeated(parser, parser.samples[0], room, chance) + after
    data = chance.choice(parser.samples)
    if not big and len(data) > 1500:
        start = data.rfind(b"\n", 0, chance.randrange(len(data))) + 1
        if b"\n\n" in data:
            start = data.rfind(b"\n\n", 0, start) + 2 if start else 0
        data = data[start : start + chance.randrange(1500)]
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        data = _mutation(parser, data, chance)
    return _filled(parser, data, chance) if big else data[:4096]


def _mutation(parser: Parser, data: bytes, chance: random.Random) -> bytes:
    start, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    near = min(end, start + chance.choice((1, 2, 8, 64)))
    match chance.randrange(8):
        case 0:
            new = chance.choice(parser.tokens)
        case 1:
            new = chance.randbytes(chance.choice((1, 1, 2, 4)))
        case 2:
            new = b""
        case 3:
            new = chance.choice(_INTERESTING)
        case 4:
            new, near = data[start:near] * chance.choice((2, 3, 30)), near
        case 5:
            return data[:end]
        case 6:
            other = chance.choice(parser.samples)
            return data[:start] + other[chance.randint(0, len(other)) :]
        case _:
            lines = data.split(b"\n")
            chance.shuffle(lines)
            return b"\n".join(lines)
    return data[:start] + new + data[near:]


def _filled(parser: Parser, data: bytes, chance: random.Random) -> bytes:
    """Return 64 KiB of ``data`` with one thing in it repeated."""
    filling = _repeated(parser, data, INPUT_BYTES - min(len(data), INPUT_BYTES // 2), chance)
    at = chance.choice((0, len(data), chance.randint(0, len(data))))
    return (data[:at] + filling + data[at:])[:INPUT_BYTES]


def _repeated(parser: Parser, data: bytes, room: int, chance: random.Random) -> bytes:
    """Return ``room`` bytes of one thing again and again: what is slow, is slow at that."""
    pieces = [chance.choice(parser.tokens) for _ in range(chance.choice((1, 1, 2, 3)))]
    if data and chance.random() < 0.3:
        start = chance.randrange(len(data))
        pieces = [data[start : start + chance.choice((1, 3, 20, 200, 2000))]]
    piece = b"".join(pieces)
    if chance.random() < 0.3:  # every repetition another name
        filling = b"".join(b"%s%x" % (piece, n) for n in range(room // (len(piece) + 4)))
    else:
        filling = piece * (room // len(piece))
    if chance.random() < 0.5:  # no pattern that is anchored at the end matches
        filling += chance.choice(parser.tokens)
    return filling[: max(room, 0)]


def fuzz(parser: Parser, inputs: int, chance: random.Random, big_every: int = BIG_EVERY) -> Tally:
    """Have ``parser`` read that many inputs, one in ``big_every`` of them of 64 KiB."""
    tally = Tally(inputs=inputs)
    for number in range(inputs):
        big = number % big_every == 0
        data = mutated(parser, chance, big=big)
        began = time.process_time()
        try:
            answer = read(parser, data)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            tally.broken.append((repr(error)[:200], data))
            continue
        spent_s = time.process_time() - began
        if spent_s > parser.limit_s:
            spent_s = cpu_s(parser, data)
        tally.worst_s = max(tally.worst_s, spent_s)
        if spent_s > parser.limit_s:
            tally.broken.append((f"{spent_s * 1e3:.0f} ms", data))
        if answer == "read":
            tally.read += 1
        else:
            tally.refused[answer] += 1
        if big and number % (_MEMORY_EVERY * big_every) == 0:
            _weigh(tally, parser, data)
    return tally


def _weigh(tally: Tally, parser: Parser, data: bytes) -> None:
    peak = peak_bytes(parser, data)
    tally.worst_memory = max(tally.worst_memory, peak / max(len(data), INPUT_BYTES // 2))
    if peak > allowed_bytes(data):
        tally.broken.append((f"{peak} bytes for {len(data)}", data))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz the parsers in turn; 1 where any broke."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.profile.fuzz")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="over all parsers together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--big-every", type=int, default=BIG_EVERY, help="inputs to one of 64 KiB")
    parser.add_argument("--only", choices=sorted(PARSERS))
    parser.add_argument("--keep", type=Path, help="directory for the inputs that broke a parser")
    options = parser.parse_args(arguments)
    chosen = {options.only: PARSERS[options.only]} if options.only else PARSERS
    each = -(-options.inputs // len(chosen))
    broken = 0
    print(f"{'parser':<16}{'inputs':>9}{'read':>9}{'refused':>9}{'worst':>11}{'memory':>9}  broken")
    for name, target in chosen.items():
        chance = random.Random(f"{options.seed} {name}")
        tally = fuzz(target, each, chance, options.big_every)
        broken += len(tally.broken)
        print(
            f"{name:<16}{tally.inputs:>9}{tally.read:>9}{tally.refused.total():>9}"
            f"{tally.worst_s * 1e3:>8.1f} ms{tally.worst_memory:>7.1f} ×  {len(tally.broken)}",
            flush=True,
        )
        for what, count in Counter(what for what, _ in tally.broken).most_common(5):
            print(f"    {count} × {what}")
        for number, (_, data) in enumerate(tally.broken[:20] if options.keep else ()):
            options.keep.mkdir(parents=True, exist_ok=True)
            options.keep.joinpath(f"{name.replace(' ', '-')}-{number}").write_bytes(data)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
