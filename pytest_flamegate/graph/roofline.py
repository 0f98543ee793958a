"""How near a decode comes to what this machine's memory gives: a roofline of one point.

Decoding reads every weight once a token, so bytes a token times tokens a second is a part of the
read bandwidth. All of it is derived from what stands in the evidence and from a bandwidth that
was measured beside it: shown, never gated. What is not known is absent, and named in
``missing``; nothing is taken as 0, and no bound is told without an arithmetic intensity and both
ceilings.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import statistics
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

import psutil

from pytest_flamegate.core import cache, process
from pytest_flamegate.core.errors import ToolError, UndecidedError, UsageError
from pytest_flamegate.graph.read_memory import READS
from pytest_flamegate.observe.machine import identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_flamegate.observe.gpu import DevicesSeen


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_NEON = frozenset({"neon", "asimd"})


def find_cache_bytes(cpus: Iterable[int], root: Path = Path("/sys")) -> int | None:
    """Return the bytes of the last-level caches that ``cpus`` use, each cache counted once.

    None where the kernel does not tell it of each of them. A hypervisor may tell less than
    there is.
    """
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        levels = []
        for index in (root / f"devices/system/cpu/cpu{cpu}/cache").glob("index[0-9]*"):
            size = _size_bytes(_line(index / "size"))
            level = _line(index / "level")
            if size and level.isdecimal() and _line(index / "type") in ("Data", "Unified"):
                levels.append((int(level), _line(index / "shared_cpu_list") or str(cpu), size))
        if not levels:
            return None
        level_number, shared, size = max(levels)
        found[level_number, shared] = size
    return sum(found.values()) or None


def find_available_bytes(root: Path = Path("/")) -> int:
    """Return the memory that may be taken without anybody being pushed out.

    It is what the kernel calls available, and no more than the control groups of this process,
    version 1 or 2, leave.
    """
    left = [int(psutil.virtual_memory().available)]
    for group in _groups(root):
        for limit_name, used_name in _CGROUP_FILES:
            limit, used = _line(group / limit_name), _line(group / used_name)
            if limit.isdecimal() and used.isdecimal():
                left.append(max(0, int(limit) - int(used)))
    return min(left)


def find_instruction_set(root: Path = Path("/")) -> str:
    """Return the widest vector instructions that the CPU offers, be they used or not.

    ``AVX-512``, ``AVX2``, ``NEON``, else ``scalar``; empty where nothing tells the CPU's flags.
    """
    flags: set[str] = set()
    for line in _text(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            flags |= set(value.lower().split())
    if not flags:
        # On Arm of 64 bits NEON is no option.
        return "NEON" if platform.machine() in ("arm64", "aarch64") else ""
    if "avx512f" in flags:
        return "AVX-512"
    if "avx2" in flags:
        return "AVX2"
    return "NEON" if flags & _NEON else "scalar"


def _groups(root: Path) -> Iterable[Path]:
    """Yield the control groups that may limit this process's memory, and those they are in."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        group = base / path.lstrip("/")
        yield from (each for each in (group, *group.parents) if each.is_relative_to(base))


def _size_bytes(text: str) -> int:
    digits, unit = text[:-1], text[-1:].upper()
    return int(digits) * _UNITS[unit] if digits.isdecimal() and unit in _UNITS else 0


def _line(path: Path) -> str:
    return _text(path).strip()


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


CACHES = 4
"""How many times the last-level caches an array is."""
ASSUMED_CACHE_BYTES = 64 << 20
"""The last-level cache of a machine that does not tell it: larger than most."""
MEASURE_S = 1.2
_TIMEOUT_S = 30.0
_KEPT_FOR = timedelta(days=7)
_VERSION = "1"
_FILE = "bandwidth-1"
_LINE = re.compile(r"([0-9a-f]{64}) ([0-9a-zT:.+,-]{20,300})", re.ASCII)
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes that ``threads`` threads together read from memory in a second.

    ``bytes_per_second`` is of the fastest of ``repeats`` passes over ``array_bytes``, as STREAM
    has it; ``median`` and ``low`` (the slowest) are bytes per second too, and what lies between
    is other processes' doing. ``cache_bytes`` are the last-level caches of the cores that read,
    None where nothing told and ``ASSUMED_CACHE_BYTES`` was taken. ``measured_at`` is RFC 3339;
    ``cached`` says that it was measured in an earlier run.
    """

    bytes_per_second: float
    low: float
    median: float
    method: str
    array_bytes: int
    repeats: int
    threads: int
    measured_at: str
    cached: bool
    cache_bytes: int | None = None

    @property
    def words(self) -> str:
        """``31.7 GB/s by 1 thread (median 29.4, slowest 17.2 of 120 passes over 134 MB …)``."""
        cache = "an assumed cache" if self.cache_bytes is None else "its cache"
        return (
            f"{self.bytes_per_second / 1e9:.1f} GB/s by {format_threads(self.threads)} (median "
            f"{self.median / 1e9:.1f}, slowest {self.low / 1e9:.1f} of {self.repeats} passes over "
            f"{self.array_bytes / 1e6:,.0f} MB, {CACHES} × {cache}; {self.method})"
        )


def format_threads(threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{threads} thread{'s' * (threads != 1)}"


def measure_bandwidth(threads: int = 1, *, fresh: bool = False) -> Bandwidth:
    """Return what was measured here in the last seven days, else measure it, in about 2 s.

    More ``threads`` than there are cores to use count as one for each core. ``fresh`` measures
    in any case. Raises ``UsageError`` E_BANDWIDTH_THREADS for less than one thread; ``ToolError``
    E_BANDWIDTH_MEMORY where the array is more than half of the memory that is available, for a
    smaller one would lie in the cache, E_BANDWIDTH_FAILED where the process that measures fails.
    """
    cpus = _cpus(threads)
    if not fresh and (kept := _kept(cpus)) is not None:
        return kept
    caches = None if cpus[0] is None else find_cache_bytes(cpu or 0 for cpu in cpus)
    slice_bytes = -(-CACHES * (caches or ASSUMED_CACHE_BYTES) // len(cpus)) // 64 * 64 + 64
    _require_memory(slice_bytes * len(cpus))
    measured = _measured(cpus, slice_bytes, caches)
    _keep(cpus, measured)
    return measured


def find_known_bandwidth(threads: int = 1) -> Bandwidth | None:
    """Return what was measured here in the last seven days; nothing is measured."""
    return _kept(_cpus(threads))


def _cpus(threads: int) -> list[int | None]:
    """Return the core of each thread, the lowest ones; None where none can be chosen."""
    if threads < 1:
        raise UsageError(
            "E_BANDWIDTH_THREADS",
            f"The read bandwidth of {threads} threads was asked for.",
            "Ask for one thread or more.",
        )
    if not hasattr(os, "sched_getaffinity"):
        return [None] * min(threads, os.cpu_count() or 1)
    return list(sorted(os.sched_getaffinity(0))[:threads])


def _require_memory(needed_bytes: int) -> None:
    there = find_available_bytes()
    if needed_bytes > there // 2:
        raise ToolError(
            "E_BANDWIDTH_MEMORY",
            f"The read bandwidth was not measured: that takes {needed_bytes >> 20} MiB ({CACHES} "
            f"times the last-level cache), more than half of the {there >> 20} MiB available.",
            "End other processes or raise the memory limit; a smaller array would lie in the "
            "cache.",
        )


def _measured(cpus: list[int | None], slice_bytes: int, caches: int | None) -> Bandwidth:
    cores = ",".join("-" if cpu is None else str(cpu) for cpu in cpus)
    argv = [sys.executable, "-P", "-m", "pytest_flamegate.graph.read_memory"]
    argv += [str(slice_bytes), str(MEASURE_S), cores]
    done = process.run(argv, timeout_s=_TIMEOUT_S, env={**os.environ, **_ONE_THREAD})
    passes = {} if done.timed_out else _passes(done.stdout.decode("ascii", "replace"))
    if done.returncode or not passes:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f"ran for more than {_TIMEOUT_S:g} s" if done.timed_out else "failed"
        raise ToolError(
            "E_BANDWIDTH_FAILED",
            f"The process that measures the read bandwidth {why}"
            f"{f': {ascii(said[-1])[1:200]}' if said else ''}.",
            "Run it again when the machine is less busy; nothing is gated on it.",
        )
    method = max(passes, key=lambda name: max(passes[name]))
    rates = passes[method]
    return Bandwidth(
        bytes_per_second=max(rates),
        low=min(rates),
        median=statistics.median(rates),
        method=method,
        array_bytes=slice_bytes * len(cpus),
        repeats=len(rates),
        threads=len(cpus),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cached=False,
        cache_bytes=caches,
    )


def _passes(text: str) -> dict[str, list[float]]:
    """Return the bytes per second of every pass by method; nothing of a line that is none."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        name, _, figures = line.partition(" ")
        try:
            pass_bytes, *seconds = map(float, figures.split())
        except ValueError:
            continue
        sound = all(0 < each < math.inf for each in (pass_bytes, *seconds))
        if name in READS and seconds and sound:
            found[name] = [pass_bytes / each for each in seconds]
    return found


def _key(cpus: list[int | None]) -> str:
    """Return what a figure holds for: this machine as it stands, these cores, this method."""
    told = [_VERSION, repr(cpus), *(f"{name}={value}" for name, value in identity().items())]
    return hashlib.sha256("\n".join(told).encode("utf-8", "surrogateescape")).hexdigest()


def _keep(cpus: list[int | None], it: Bandwidth) -> None:
    rates = (f"{rate:.0f}" for rate in (it.bytes_per_second, it.low, it.median))
    counts = (str(n) for n in (it.array_bytes, it.repeats, it.cache_bytes or 0))
    told = ",".join([it.measured_at, it.method, *rates, *counts])
    cache.write_cached(_FILE, _LINE, _key(cpus), told)


def _kept(cpus: list[int | None]) -> Bandwidth | None:
    """Return what is kept, if it is sound and not too old: a virtual machine may move."""
    try:
        told = (cache.read_cached(_FILE, _LINE, _key(cpus)) or "").split(",")
        at, method, *figures = told
        age = datetime.now(UTC) - datetime.fromisoformat(at)
        best, low, median, array_bytes, repeats, caches = map(int, figures)
    except (ValueError, TypeError):
        return None
    sound = method in READS and 0 < low <= median <= best and array_bytes > 0 and repeats > 0
    if not sound or not timedelta(0) <= age <= _KEPT_FOR:
        return None
    return Bandwidth(
        best, low, median, method, array_bytes, repeats, len(cpus), at, True, caches or None
    )


WEIGHTS_FACT = "weights_bytes_per_token"
KV_FACT = "kv_bytes_per_position"
FLOPS_FACT = "flops_per_token"
"""What an engine may tell of itself, as whole numbers: it may read other bytes than its file."""

_DECODE = "decode-tokens/decode-time"
_LARGEST = 1 << 62


class _Figure(Protocol):
    """A metric of evidence, as far as it is read here."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def formula(self) -> str: ...
    @property
    def provenance(self) -> str: ...


class _Evidence(Protocol):
    """Evidence, as far as it is read here: this room knows nothing of the one that holds it."""

    @property
    def engine(self) -> Mapping[str, str]: ...
    @property
    def model(self) -> Mapping[str, str | int]: ...
    @property
    def metrics(self) -> Sequence[_Figure]: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def device(self) -> DevicesSeen | None: ...


@dataclass(frozen=True, slots=True)
class Roofline:
    """One decode under the ceilings of its machine; None is not known, with a word in ``missing``.

    ``bytes_per_token`` are of weights, ``kv_bytes_per_token`` of keys and values at the mean
    position of the decode. ``flops_per_token`` are of products with weights. ``peak_flops`` is
    per second, as it was given. ``provenance`` says of each input where it comes from.
    ``cache_bytes`` are the last-level caches that the bandwidth was measured past; ``refusal``
    is why there is no fraction although its inputs are known.
    """

    bytes_per_token: int | None
    kv_bytes_per_token: float | None
    tokens_per_second: float | None
    bandwidth_bytes_per_second: float | None
    threads: int | None
    fraction_of_bandwidth: float | None
    flops_per_token: int | None
    peak_flops: float | None
    arithmetic_intensity: float | None
    bound: Literal["memory", "compute"] | None
    backend: str
    cache_bytes: int | None = None
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    missing: tuple[str, ...] = ()
    refusal: UndecidedError | None = None

    @property
    def total_bytes_per_token(self) -> float | None:
        """Weights, and keys and values where they are known."""
        if self.bytes_per_token is None:
            return None
        return self.bytes_per_token + (self.kv_bytes_per_token or 0)

    @property
    def read_bytes_per_second(self) -> float | None:
        """What the decode reads in a second."""
        if self.total_bytes_per_token is None or self.tokens_per_second is None:
            return None
        return self.total_bytes_per_token * self.tokens_per_second


def compute_roofline(
    evidence: _Evidence,
    bandwidth: Bandwidth | None,
    *,
    instructions: str = "",
    peak_flops: float | None = None,
) -> Roofline | None:
    """Return where the decode of ``evidence`` stands; None where nothing at all is known of it.

    ``instructions`` are the vector instructions that the CPU offers (``instruction_set``). Work
    that was seen on a device is not held against the memory of its host. A fraction above 1
    is none: then ``refusal`` is ``E_ABOVE_CEILING``. Raises nothing.
    """
    weights, weights_from = _weights(evidence)
    rate = _decode_rate(evidence)
    if weights is None and rate is None:
        return None
    kv = _kv_bytes(evidence)
    flops = _fact(evidence, FLOPS_FACT)
    on_device = evidence.device is not None and any(run.active for run in evidence.device.runs)
    ceiling = None if bandwidth is None or on_device else bandwidth
    peak = peak_flops if peak_flops and math.isfinite(peak_flops) and not on_device else None
    total = None if weights is None else weights + (kv or 0.0)
    fraction = None
    if total is not None and rate is not None and ceiling is not None:
        fraction = total * rate / ceiling.bytes_per_second
    intensity = flops / total if flops and total else None
    bound: Literal["memory", "compute"] | None = None
    if intensity is not None and peak is not None and ceiling is not None:
        bound = "memory" if intensity < peak / ceiling.bytes_per_second else "compute"
    refusal = None
    if fraction is not None and fraction > 1 and ceiling is not None:
        refusal = _above(fraction, ceiling)
        fraction, bound = None, None
    known = {
        "the weights' bytes a token": (weights, weights_from),
        "the KV cache's bytes": (kv, "ingested: the engine's word; derived: mean position"),
        "a decode rate": (rate, "measured"),
        "a measured bandwidth": (ceiling, "measured"),
        "the operations a token": (flops, "ingested: the engine's word"),
        "a peak of operations": (peak, "given"),
    }
    if on_device:
        known["a measured bandwidth"] = (None, "")
    return Roofline(
        bytes_per_token=weights,
        kv_bytes_per_token=kv,
        tokens_per_second=rate,
        bandwidth_bytes_per_second=ceiling.bytes_per_second if ceiling else None,
        threads=ceiling.threads if ceiling else None,
        fraction_of_bandwidth=fraction,
        flops_per_token=flops or None,
        peak_flops=peak,
        arithmetic_intensity=intensity,
        bound=bound,
        backend="CUDA" if on_device else instructions,
        cache_bytes=ceiling.cache_bytes if ceiling else None,
        provenance=MappingProxyType(
            {name: where for name, (value, where) in known.items() if value}
        ),
        missing=tuple(name for name, (value, _) in known.items() if not value),
        refusal=refusal,
    )


def describe_roofline(it: Roofline) -> str:
    """Return one line of text: the fraction with all its inputs, or why there is none."""
    threads = "" if it.threads is None else f", {format_threads(it.threads)}"
    rate = "" if it.tokens_per_second is None else f"{_plain(it.tokens_per_second, 3)} tokens/s"
    read, ceiling = it.read_bytes_per_second, it.bandwidth_bytes_per_second
    if it.refusal is not None:
        head = str(it.refusal).rstrip(".")
    elif it.fraction_of_bandwidth is None or read is None or ceiling is None:
        lacking = [
            name
            for name in ("the weights' bytes a token", "a decode rate", "a measured bandwidth")
            if name in it.missing
        ]
        head = f"not held against the read bandwidth, for lack of {' and '.join(lacking)}"
    else:
        head = (
            f"at {100 * it.fraction_of_bandwidth:.0f} % of this machine's read bandwidth "
            f"({read / 1e9:.1f} of {ceiling / 1e9:.1f} GB/s{threads})"
        )
    parts = [_traffic(it), rate]
    inputs = ", ".join(part for part in parts if part)
    more = [inputs] if inputs else []
    if it.bytes_per_token and it.cache_bytes and it.bytes_per_token <= it.cache_bytes:
        more.append(f"the weights fit into its {it.cache_bytes >> 20} MiB of cache")
    if it.arithmetic_intensity is not None:
        more.append(f"{_plain(it.arithmetic_intensity, 2)} operations a byte")
    if it.bound is not None:
        more.append(f"bound by {it.bound}")
    if it.backend:
        more.append(it.backend)
    return f"{head}: {'; '.join([*more, 'derived, never gated'])}"


def _traffic(it: Roofline) -> str:
    if it.bytes_per_token is None:
        return ""
    weights = f"{_mb(it.bytes_per_token)} of weights"
    if it.kv_bytes_per_token is None:
        return f"{weights} a token (its KV cache, not known, is left out)"
    return f"{weights} and {_mb(it.kv_bytes_per_token)} of KV cache a token"


def _plain(value: float, digits: int) -> str:
    """Return ``digits`` significant digits and never an exponent: ``0.48``, ``315``, ``2,140``."""
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def _mb(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _weights(evidence: _Evidence) -> tuple[int | None, str]:
    told = _fact(evidence, WEIGHTS_FACT)
    if told:
        return told, "ingested: the engine's word"
    counted = evidence.model.get("bytes_per_token")
    if isinstance(counted, int) and 0 < counted < _LARGEST:
        return counted, "counted: the model file"
    return None, ""


def _decode_rate(evidence: _Evidence) -> float | None:
    """Return the tokens a second after the first token, None where only the whole was clocked."""
    rates = {
        metric.name: metric.value
        for metric in evidence.metrics
        if metric.provenance == "measured"
        and (
            metric.name == "decode_tokens_per_second"
            or (metric.name == "tokens_per_second" and metric.formula == _DECODE)
        )
    }
    rate = rates.get("decode_tokens_per_second", rates.get("tokens_per_second"))
    return rate if rate is not None and math.isfinite(rate) and rate > 0 else None


def _kv_bytes(evidence: _Evidence) -> float | None:
    """Return the bytes of keys and values that a token of the decode reads on average.

    The token at position ``p`` (from 0) attends to ``p + 1`` positions; the decode runs from the
    position after the prompt to the last but one token.
    """
    per_position, prompt = _fact(evidence, KV_FACT), _prompt_tokens(evidence)
    if not per_position or prompt is None or len(evidence.tokens) < 2:
        return None
    return per_position * (prompt + len(evidence.tokens) / 2)


def _prompt_tokens(evidence: _Evidence) -> int | None:
    """Return the prompt's length from the rate and the time of its prefill, which are exact."""
    value = {metric.name: metric.value for metric in evidence.metrics}
    rate = value.get("prefill_tokens_per_second")
    first_ms = value.get("time_to_first_token_ms")
    if rate is None or first_ms is None or not 0 < rate * first_ms < 1e12:
        return None
    return round(rate * first_ms / 1e3)


def _fact(evidence: _Evidence, name: str) -> int | None:
    """Return a whole number above 0 that the engine told; None for anything else."""
    told = evidence.engine.get(name, "")
    if not told.isascii() or not told.isdecimal() or len(told) > 18:
        return None
    return int(told) or None


def _above(fraction: float, bandwidth: Bandwidth) -> UndecidedError:
    cache = f" of {bandwidth.cache_bytes >> 20} MiB" if bandwidth.cache_bytes else ""
    return UndecidedError(
        "E_ABOVE_CEILING",
        f"The decode would read {fraction:.2f} times what this machine's memory gives "
        f"({bandwidth.bytes_per_second / 1e9:.1f} GB/s, {format_threads(bandwidth.threads)}), so "
        f"not all of it came from memory: the weights may fit into a cache{cache}, or several "
        "tokens share one reading.",
        "Take a model larger than the cache, and as many threads as the engine has.",
    )
