"""The interface of a process that loads once and generates on command: environment and errors."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import clocks, process
from pytest_flamegate.core.clocks import Interval, ProcessCounters
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.core.process import OUTPUT_LIMIT_BYTES
from pytest_flamegate.core.process_system import FILLER, read_proc
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.observe.observation import Block
from pytest_flamegate.observe.prompts import PromptQueue
from pytest_flamegate.observe.redact import redact_environment

WARM_TOKENS = 32
MAX_OTHER_SHARE, MAX_UNCLOCKED_SHARE = 0.25, 0.1
"""CPU time of an engine's other processes, relative to the profiled one, that needs no note: if
they were started for the run, and if no clock has it."""
COMPUTING = 0.75
"""An engine whose CPU time is less than this part of its scheduler-adjusted time mostly waits."""
_STILL_NS = 500_000

T_co = TypeVar("T_co", covariant=True)
Sink = Callable[[tuple[str, ...], int], None]


class Window(Protocol[T_co]):
    """A profiler attached to a process. ``close`` may be called again, and after ``stop``."""

    def stop(self) -> T_co:
        """Detach and return the samples. Raises ``ToolError``."""

    def close(self) -> None:
        """Detach in any state; without ``stop`` the samples are discarded."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The pair that a timed run belongs to, the core that it is bound to, and how it is used.

    ``shares_core`` says that the other side of the pair runs on that core at the same time.
    ``prompts`` is the order in which both sides are asked the prompts; empty outside of pairs.
    """

    pair: int | None = None
    cpu: int | None = None
    shares_core: bool = False
    prompts: tuple[int, ...] = ()


ALONE = RunPlace()


class EngineProcess:
    """A child process or a server that generates on command.

    ``sink(tokens, prompt)`` receives the tokens of every whole sequence. ``pid`` is the process
    whose clocks are read; ``load_ns`` is None if it ran before. ``facts`` is the identity that the
    engine reports, and ``notes`` are remarks on how it was observed so far, by code.
    """

    pid: int
    token_source: str
    load_ns: int | None = None

    def __init__(self, workload: Workload, sink: Sink, prompts: PromptQueue) -> None:
        self._workload = workload
        self.prompts = prompts
        self._sink = sink
        self._reports: list[Report] = []
        self.facts: Mapping[str, str] = {}
        self.notes: dict[str, str] = {}
        self.started_at = clocks.utc_now()
        self._child: process.Child | None = None
        self._idle_from: clocks.ClockReading | None = None
        self._late_ns = 0

    def await_ready(self) -> None:
        """Wait until it has loaded and can generate."""
        raise NotImplementedError

    def warm_up(self, tokens: int) -> Interval:
        """Generate one sequence of at most ``tokens`` tokens; return its time."""
        raise NotImplementedError

    def block(self, sequences: int) -> Block:
        """Generate ``sequences`` whole sequences and return their times.

        They are fewer if fewer prompts are left.
        """
        raise NotImplementedError

    def note_few_prompts(self, timed_s: float, wanted_s: float) -> bool:
        """Return whether no prompt is left, and note if that ended the timing early."""
        if self.prompts.left:
            return False
        if timed_s < wanted_s:
            count = len(self._workload.prompts)
            enough = math.ceil(count * wanted_s / max(timed_s, 1e-6))
            self.notes["W_FEW_PROMPTS"] = (
                f"The {count} prompts of {self._workload.name!r} were answered in {timed_s:.2g} s, "
                f"and a process is timed for {wanted_s:.2g} s. None is timed twice, so the result "
                f"is less certain: about {enough} prompts would be enough."
            )
        return True

    def take_late_work(self) -> int:
        """Wait until the process stands still, 0.2 s at most; return what it computed, in ns."""
        end_s = time.monotonic() + 0.2
        before_ns, now_ns = -1, self.read_clocks().cpu_ns
        while now_ns - before_ns > _STILL_NS and time.monotonic() < end_s:
            time.sleep(0.005)
            before_ns, now_ns = now_ns, self.read_clocks().cpu_ns
        self._begin_interval(is_measured=False)
        late_ns, self._late_ns = self._late_ns, 0
        return late_ns

    def profile_block(self, sequences: int) -> Block:
        """Like ``block`` under a profiler: the times of single tokens may mean nothing."""
        return self.block(sequences)

    def close(self, leave_s: float = 1.0) -> None:
        """End it and all it started; it has ``leave_s`` to leave by itself."""
        raise NotImplementedError

    def warm_up_for_block(self, block_s: float) -> int:
        """Warm up; return how many sequences fill about ``block_s``."""
        return max(1, math.floor(block_s / self.measure_sequence_s()))

    def measure_sequence_s(self) -> float:
        """Warm up twice; estimate the time of a sequence from the second, one of 32 tokens."""
        self.warm_up(WARM_TOKENS)
        began_s = time.monotonic()
        self.warm_up(WARM_TOKENS)
        warm_up_s = max(time.monotonic() - began_s, 1e-6)
        return warm_up_s * max(1.0, self._workload.max_tokens / WARM_TOKENS)

    def reports(self) -> tuple[Report, ...]:
        """Return the engine's own figures for its measured sequences so far."""
        return tuple(self._reports)

    def _note_work_beside(self, own_ns: int, others_ns: int) -> None:
        share, missing = MAX_OTHER_SHARE, "py-spy does not see"
        if self._child is None:
            share, missing = MAX_UNCLOCKED_SHARE, "neither py-spy nor a clock sees"
        if others_ns > max(share * own_ns, 1_000_000):
            self.notes["W_WORK_BESIDE"] = (
                f"Other processes of the engine used {others_ns / 1e6:.0f} ms of CPU while process "
                f"{self.pid} used {own_ns / 1e6:.0f} ms. Their work, which {missing}, may be "
                "shown where this process waits for them."
            )

    def counters(self) -> ProcessCounters:
        """Read the counters of the process and, if it was started here, of all that it started."""
        if self._child is None:
            return clocks.read_counters(self.pid)
        return clocks.read_tree_counters(self._child.pid, self._child.marker)

    def read_clocks(self) -> clocks.ClockReading:
        """Read the clocks of the process and, if it was started here, of all that it started."""
        try:
            if self._child is None:
                return clocks.read_clocks(self.pid)
            return clocks.read_tree_clocks(self._child.pid, self._child.marker)
        except ProcessLookupError:
            raise self._gone_error() from None

    def _begin_interval(self, *, is_measured: bool) -> clocks.ClockReading:
        """Read the clocks before a command; what it computed while it had none counts with it.

        That was work of earlier sequences, and the next measured ones pay for it.
        """
        before = self.read_clocks()
        self._began_at_ns = before.at_ns
        idle_from, self._idle_from = self._idle_from or before, None
        self._late_ns += max(0, before.cpu_ns - idle_from.cpu_ns)
        if not is_measured:
            return before
        late_ns, self._late_ns = self._late_ns, 0
        return replace(before, at_ns=before.at_ns - late_ns, cpu_ns=before.cpu_ns - late_ns)

    def _end_interval(self, before: clocks.ClockReading, answer_ns: int) -> Interval:
        """Return the interval of a command that took ``answer_ns`` from its sending to its end.

        The process stood idle for the rest: the observer had not sent it, or not read its end.
        One that mostly waits may have waited meanwhile, and none of its time is left out.
        """
        after = self._idle_from = self.read_clocks()
        idle_ns = after.at_ns - self._began_at_ns - answer_ns
        threads = self._workload.threads
        adjusted = before.interval_to(after, max(0, idle_ns), threads)
        return before.interval_to(after, threads=threads) if mostly_waits(adjusted) else adjusted

    def _gone_error(self) -> ToolError:
        raise NotImplementedError


def mostly_waits(interval: Interval) -> bool:
    """Whether an engine waited for most of the interval, and did not compute."""
    return interval.cpu_ns < COMPUTING * interval.quiet_ns


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """The time that a fresh process takes: ``start_s`` until ready, ``sequence_s`` per sequence.

    ``repeats`` is False for a program: it ends after one sequence, which includes its start.
    """

    start_s: float
    sequence_s: float
    repeats: bool

    def process_s(self, seconds: float) -> float:
        """Return the time of a process that generates for ``seconds``, at least one sequence."""
        if not self.repeats:
            return self.sequence_s
        return self.start_s + max(seconds, self.sequence_s)


def check_token_count(workload: Workload, count: int) -> None:
    """Raise ``E_NO_TOKENS`` for an empty sequence, ``E_TOO_MANY_TOKENS`` above ``max_tokens``."""
    if count == 0:
        raise ToolError("E_NO_TOKENS", f"The engine of {workload.name!r} generated nothing.")
    if count > workload.max_tokens:
        raise ToolError(
            "E_TOO_MANY_TOKENS",
            f"The engine of {workload.name!r} generated at least {count} tokens, and "
            f"{workload.max_tokens} were asked for.",
        )


def check_output_size(workload: Workload, child: process.Child) -> None:
    """Raise ``E_OUTPUT_FLOOD`` if a process writes without end."""
    if child.output_bytes() > OUTPUT_LIMIT_BYTES:
        raise output_flood_error(workload)


def output_flood_error(workload: Workload) -> ToolError:
    """Build the error for output that has no end."""
    return ToolError(
        "E_OUTPUT_FLOOD",
        f"The engine of {workload.name!r} wrote more than {OUTPUT_LIMIT_BYTES >> 20} MiB of "
        "messages, or a single token of more than 64 KiB.",
    )


def timeout_error(workload: Workload) -> ToolError:
    """Build the error for a run that took too long."""
    return ToolError(
        "E_TIMEOUT",
        f"A process of {workload.name!r} did not finish within {workload.timeout_s:g} s.",
    )


class EngineDiedError(ToolError):
    """A process ended early, or closed its pipe if ``status`` is None; ``stderr`` is its output."""

    def __init__(self, workload: Workload, status: int | None, stderr: str) -> None:
        ended = "closed its pipe" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            ended = f"was killed by signal {-status}"
        last_line = f" Its last line: {stderr.splitlines()[-1].rstrip('.')}." if stderr else ""
        super().__init__(
            "E_ENGINE_DIED",
            f"The engine of {workload.name!r} {ended} before it was done.{last_line}",
        )
        self.stderr = stderr


def no_bricks_error(workload: str) -> ToolError:
    """Build the error for an engine without marks; it shows how to mark one."""
    return ToolError(
        "E_NO_BRICKS",
        f"The engine of {workload!r} marked no brick, so there are none to show or to gate.",
        "Mark it in five lines: (1) from pytest_flamegate.bricks import brick; "
        "(2) around each norm: with brick('RmsNorm', layer=i): x = norm(x); "
        "(3) around attention: with brick('AttentionScore', layer=i): x = attention(x); "
        "(4) around each product: with brick('DownProjection', layer=i): x = down(x); "
        "(5) around the output: with brick('LmHead', elements=n): logits = head(x).",
    )


def read_child_error(text: str) -> FlamegateError:
    """Rebuild the error that a child process reported as JSON."""
    code, problem, remedy, is_usage = json.loads(text)  # noqa: TID251 - of its own child
    return (UsageError if is_usage else ToolError)(code, problem, remedy)


_RECORDED = re.compile(
    r"(?:BITNET|BLAS|BLIS|CUBLAS|CUDA|FLAMEGATE|GGML|GOMP|KMP|LLAMA|MALLOC|MKL|NUMEXPR|OMP|"
    r"OPENBLAS|RAYON|ROCR|VLLM)_[A-Z0-9_]{1,64}|"
    r"GLIBC_TUNABLES|GOTO_NUM_THREADS|PYTHONHASHSEED|PYTHONMALLOC|RUST_BACKTRACE|RUST_LOG|"
    r"RUSTFLAGS|TOKENIZERS_PARALLELISM"
)
"""Names that are recorded whenever a process has them: each may change its speed."""
_OWN = frozenset(
    {FILLER, "FLAMEGATE_ENGINE", "FLAMEGATE_LOCK_DIR", "FLAMEGATE_TREE", "FLAMEGATE_VERSION"}
)
"""Variables that this package sets itself; they are not recorded."""


def requested_variables(workload: Workload) -> Mapping[str, str]:
    """Return the variables that this workload runs with, for the record: secrets are removed."""
    return MappingProxyType(dict(sorted(redact_environment(_fill(workload)).items())))


def make_environment(workload: Workload) -> dict[str, str]:
    """Return the whole environment of a child: that of this process and the variables."""
    return {**os.environ, **_fill(workload)}


def _fill(workload: Workload) -> dict[str, str]:
    """Return the engine's variables with threads and seed filled in, then the declared ones.

    A declared variable wins: with ``env = { OMP_NUM_THREADS = "2" }`` two threads run.
    """
    values = {
        name: value.format(threads=workload.threads, seed=workload.seed)
        for name, value in engine(workload.engine).variables.items()
    }
    values.update(workload.env)
    return values


def read_variables(pid: int, workload: Workload) -> Mapping[str, str]:
    """Return the workload's variables as process ``pid`` has them, and others that change speed.

    Values of secrets are removed, and all other variables left out. Empty if the environment
    cannot be read, as that of another user's process.
    """
    found, names = {}, _fill(workload)
    for entry in read_proc(pid, "environ").split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in names or (_RECORDED.fullmatch(name) and name not in _OWN):
            found[name] = value
    return MappingProxyType(dict(sorted(redact_environment(found).items())))
