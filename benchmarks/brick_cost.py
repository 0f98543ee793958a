"""The cost of a brick, next to other tools that time calls of the same function.

    python -m benchmarks.brick_cost [--rounds 60]

All variants take turns in one process, a round each, and each round is compared with the
round of its base just before: printed are the median of these paired differences, and the
difference of the cheapest rounds, for noise only ever adds.
"""

from __future__ import annotations

import argparse
import cProfile
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from benchmarks.tables import Table, as_text
from pytest_flamegate.bricks import BrickProfiler, brick

CALLS = 2_000
KEPT = 1_000_000


class Empty:
    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


EMPTY = Empty()


def empty() -> None:
    for _ in range(CALLS):
        with EMPTY:
            pass


def marked() -> None:
    for _ in range(CALLS):
        with brick("RmsNorm", elements=64, layer=3):
            pass


def marked_in_full() -> None:
    for _ in range(CALLS):
        with brick("RmsNorm", elements=64, layer=3, bytes=512, flops=256, category="Norm"):
            pass


def work() -> None: ...


def calls() -> None:
    for _ in range(CALLS):
        work()


def marked_calls() -> None:
    for _ in range(CALLS):
        with brick("work"):
            work()


def _timed(block: Callable[[], None], around: Callable[[], AbstractContextManager[Any]]) -> int:
    with around():
        began = time.perf_counter_ns()
        block()
        return time.perf_counter_ns() - began


Variant = tuple["Callable[[], None]", "Callable[[], AbstractContextManager[Any]]"]


def added_ns(base: Variant, other: Variant, rounds: int) -> tuple[float, float]:
    """Return the extra time of ``other`` over ``base`` for each call: median, cheapest."""
    pairs = [(_timed(*base), _timed(*other)) for _ in range(rounds)]
    cheapest = min(pair[1] for pair in pairs) - min(pair[0] for pair in pairs)
    return statistics.median(b - a for a, b in pairs) / CALLS, cheapest / CALLS


def peers() -> dict[str, Variant | None]:
    """Return functions that time each call of ``work`` by other tools, None if not installed."""
    return {
        "flamegate brick": (marked_calls, BrickProfiler),
        "cProfile": (calls, cProfile.Profile),
        "viztracer": _installed(_viztracer),
        "OpenTelemetry span": _installed(_open_telemetry),
        "line_profiler": _installed(_line_profiler),
    }


def _installed(make: Callable[[], Variant]) -> Variant | None:
    try:
        return make()
    except ImportError:
        return None


def _viztracer() -> Variant:
    tracer = import_module("viztracer").VizTracer

    def quiet() -> AbstractContextManager[Any]:
        made: AbstractContextManager[Any] = tracer(
            tracer_entries=10 * CALLS, verbose=0, output_file="/dev/null"
        )
        return _Switched(made.start, made.stop)  # type: ignore[attr-defined]

    return calls, quiet


class _Switched:
    """A recorder that can be turned on and off, and writes nothing."""

    def __init__(self, on: Callable[[], Any], off: Callable[[], Any]) -> None:
        self.on, self.off = on, off

    def __enter__(self) -> None:
        self.on()

    def __exit__(self, *raised: object) -> None:
        self.off()


def _open_telemetry() -> Variant:
    trace = import_module("opentelemetry.sdk.trace")
    tracer = trace.TracerProvider().get_tracer("benchmark")

    def spans() -> None:
        for _ in range(CALLS):
            with tracer.start_as_current_span("work"):
                work()

    return spans, nullcontext


def _line_profiler() -> Variant:
    profiler = import_module("line_profiler").LineProfiler()
    wrapped: Callable[[], None] = profiler(work)

    def lines() -> None:
        for _ in range(CALLS):
            wrapped()

    return lines, nullcontext


def cost_table(rounds: int) -> Table:
    on: Callable[[], AbstractContextManager[Any]] = BrickProfiler
    rows: list[tuple[str, ...]] = []
    base: Variant = (empty, nullcontext)
    for name, variant in {
        "brick, off": (marked, nullcontext),
        "brick, on": (marked, on),
        "brick with bytes, flops, category, on": (marked_in_full, on),
        "brick, on, calls kept": (marked, lambda: BrickProfiler(keep_calls=CALLS)),
    }.items():
        rows.append((f"{name} (over an empty with)", *_figures(added_ns(base, variant, rounds))))
    for name, peer in peers().items():
        words = ("not installed", "") if peer is None else ()
        figures = words if peer is None else _figures(added_ns((calls, nullcontext), peer, rounds))
        rows.append((f"{name} (over a bare call)", *figures))
    return Table("ns a call", ("what", "median", "cheapest"), tuple(rows))


def _figures(added: tuple[float, float]) -> tuple[str, str]:
    return f"{added[0]:+,.0f}", f"{added[1]:+,.0f}"


def memory_table() -> Table:
    rows = []
    for keep in (0, KEPT):
        before = psutil.Process().memory_info().rss
        with BrickProfiler(keep_calls=keep) as profiler:
            for _ in range(KEPT // CALLS):
                marked()
            taken = psutil.Process().memory_info().rss - before
            began = time.perf_counter()
            recorded = profiler.recorded()
            report_s = time.perf_counter() - began
        assert sum(total.calls for total in recorded.totals) == KEPT
        what = "every call kept" if keep else "aggregated"
        rows.append((what, f"{taken / 1e6:.2f}", f"{report_s:.3f}"))
    return Table(f"{KEPT:,} bricks", ("", "MB", "recorded(), s"), tuple(rows))


def decode_table(rounds: int) -> Table:
    """Return the cost of marks and of cProfile for a sequence of the embedded engine, in %."""
    from pytest_flamegate.child.embedded.serving import load_engine
    from pytest_flamegate.engines.gguf import SHIPPED_MODEL

    engine = load_engine({"model": str(Path(SHIPPED_MODEL))})

    def decode() -> None:
        for _ in engine("What is 2+2?", 10):
            pass

    def marked_off() -> AbstractContextManager[Any]:
        return engine.mark_bricks()

    class On:
        def __enter__(self) -> None:
            self.marks = engine.mark_bricks()
            self.marks.__enter__()
            self.profiler = BrickProfiler()
            self.profiler.__enter__()

        def __exit__(self, *raised: object) -> None:
            self.profiler.__exit__(None, None, None)
            self.marks.__exit__(None, None, None)

    rows = []
    for name, around in {
        "marked, off": marked_off,
        "marked, on": On,
        "cProfile": cProfile.Profile,
    }.items():
        _timed(decode, around)
        pairs = [(_timed(decode, nullcontext), _timed(decode, around)) for _ in range(rounds)]
        ratios = [100.0 * (b / a - 1.0) for a, b in pairs]
        cheapest = 100.0 * (min(b for _, b in pairs) / min(a for a, _ in pairs) - 1.0)
        rows.append((name, f"{statistics.median(ratios):+.2f}", f"{cheapest:+.2f}"))
    return Table("added to the embedded decode, %", ("", "median", "cheapest"), tuple(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    print(as_text(cost_table(rounds)), end="\n\n", flush=True)
    print(as_text(memory_table()), end="\n\n", flush=True)
    print(as_text(decode_table(rounds)))


if __name__ == "__main__":
    main()
