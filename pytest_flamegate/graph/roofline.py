"""How close a decode comes to this machine's memory bandwidth: a roofline with one point.

Decoding reads every weight once per token, so bytes per token times tokens per second is a part
of the read bandwidth. All figures are derived from the evidence and from a bandwidth that was
measured before; they are shown and never gated. An input that is not known is absent and listed
in ``missing``; none is taken as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.observe.machine import Bandwidth, format_threads
from pytest_flamegate.receipt.types import Evidence

# Facts that an engine may report, as whole numbers: it may read other bytes than its file has.
WEIGHTS_FACT = "weights_bytes_per_token"
KV_FACT = "kv_bytes_per_position"
FLOPS_FACT = "flops_per_token"

_DECODE_FORMULA = "decode-tokens/decode-time"
_MAX_BYTES = 1 << 62
_REPORTED = "ingested: reported by the engine"
_WEIGHTS, _KV = "the weights' bytes per token", "the KV cache's bytes"
_RATE, _BANDWIDTH = "a decode rate", "a measured bandwidth"
_FLOPS, _PEAK = "the operations per token", "a peak of operations"


@dataclass(frozen=True, slots=True)
class Roofline:
    """One decode below the ceilings of its machine; None if a figure is not known.

    ``bytes_per_token`` are of weights, ``kv_bytes_per_token`` of keys and values at the mean
    position of the decode. ``flops_per_token`` are of products with weights. ``peak_flops`` is
    per second, as it was given. ``provenance`` has the source of each input that is known,
    ``missing`` the others. ``cache_bytes`` are the last-level caches that the bandwidth was
    measured past. ``error`` says why there is no fraction although its inputs are known.
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
    error: UndecidedError | None = None

    @property
    def total_bytes_per_token(self) -> float | None:
        """Weights, and keys and values if they are known."""
        if self.bytes_per_token is None:
            return None
        return self.bytes_per_token + (self.kv_bytes_per_token or 0)

    @property
    def read_bytes_per_second(self) -> float | None:
        """The bytes that the decode reads per second."""
        if self.total_bytes_per_token is None or self.tokens_per_second is None:
            return None
        return self.total_bytes_per_token * self.tokens_per_second


def compute_roofline(
    evidence: Evidence,
    bandwidth: Bandwidth | None,
    *,
    instructions: str = "",
    peak_flops: float | None = None,
) -> Roofline | None:
    """Return the roofline of the decode in ``evidence``.

    Args:
        evidence: The evidence of a run.
        bandwidth: The measured bandwidth of the machine. It is not used if the decode ran on a
            GPU, which does not read its host's memory.
        instructions: The vector instructions that the CPU offers, for display.
        peak_flops: Peak of the machine, in operations per second.

    Returns:
        The roofline; None if neither bytes per token nor a rate is known. A fraction above 1 is
        left out, with ``E_ABOVE_CEILING`` as its ``error``.
    """
    weights, weights_from = _find_weights(evidence)
    rate = _find_decode_rate(evidence)
    if weights is None and rate is None:
        return None
    kv = _compute_kv_bytes(evidence)
    flops = _parse_fact(evidence, FLOPS_FACT)
    on_gpu = evidence.device is not None and any(run.active for run in evidence.device.runs)
    ceiling = None if on_gpu else bandwidth
    peak = peak_flops if peak_flops and math.isfinite(peak_flops) and not on_gpu else None
    total = None if weights is None else weights + (kv or 0.0)
    fraction: float | None = None
    error: UndecidedError | None = None
    if total is not None and rate is not None and ceiling is not None:
        fraction = total * rate / ceiling.fastest
        if fraction > 1:
            error = _above_ceiling_error(fraction, ceiling)
            fraction = None
    intensity = flops / total if flops and total else None
    bound: Literal["memory", "compute"] | None = None
    if intensity is not None and peak is not None and ceiling is not None and error is None:
        bound = "memory" if intensity < peak / ceiling.fastest else "compute"
    inputs = {
        _WEIGHTS: (weights, weights_from),
        _KV: (kv, f"{_REPORTED}; derived: mean position"),
        _RATE: (rate, "measured"),
        _BANDWIDTH: (ceiling, "measured"),
        _FLOPS: (flops, _REPORTED),
        _PEAK: (peak, "given"),
    }
    return Roofline(
        bytes_per_token=weights,
        kv_bytes_per_token=kv,
        tokens_per_second=rate,
        bandwidth_bytes_per_second=ceiling.fastest if ceiling else None,
        threads=ceiling.threads if ceiling else None,
        fraction_of_bandwidth=fraction,
        flops_per_token=flops,
        peak_flops=peak,
        arithmetic_intensity=intensity,
        bound=bound,
        backend="CUDA" if on_gpu else instructions,
        cache_bytes=ceiling.cache_bytes if ceiling else None,
        provenance=MappingProxyType(
            {name: source for name, (value, source) in inputs.items() if value}
        ),
        missing=tuple(name for name, (value, _) in inputs.items() if not value),
        error=error,
    )


def describe_roofline(it: Roofline) -> str:
    """Return one line: the fraction with all its inputs, or why there is none."""
    read, ceiling = it.read_bytes_per_second, it.bandwidth_bytes_per_second
    if it.error is not None:
        head = str(it.error).rstrip(".")
    elif it.fraction_of_bandwidth is None or read is None or ceiling is None:
        missing = [name for name in (_WEIGHTS, _RATE, _BANDWIDTH) if name in it.missing]
        head = f"not compared with the read bandwidth, for lack of {' and '.join(missing)}"
    else:
        threads = "" if it.threads is None else f", {format_threads(it.threads)}"
        head = (
            f"at {100 * it.fraction_of_bandwidth:.0f} % of this machine's read bandwidth "
            f"({read / 1e9:.1f} of {ceiling / 1e9:.1f} GB/s{threads})"
        )
    rate = "" if it.tokens_per_second is None else f"{_format(it.tokens_per_second, 3)} tokens/s"
    inputs = ", ".join(part for part in (_describe_bytes(it), rate) if part)
    parts = [inputs] if inputs else []
    if it.bytes_per_token and it.cache_bytes and it.bytes_per_token <= it.cache_bytes:
        parts.append(f"the weights fit into its {it.cache_bytes >> 20} MiB of cache")
    if it.arithmetic_intensity is not None:
        parts.append(f"{_format(it.arithmetic_intensity, 2)} operations a byte")
    if it.bound is not None:
        parts.append(f"bound by {it.bound}")
    if it.backend:
        parts.append(it.backend)
    return f"{head}: {'; '.join([*parts, 'derived, never gated'])}"


def _describe_bytes(it: Roofline) -> str:
    if it.bytes_per_token is None:
        return ""
    weights = f"{_format_bytes(it.bytes_per_token)} of weights"
    if it.kv_bytes_per_token is None:
        return f"{weights} a token (its KV cache is not known and left out)"
    return f"{weights} and {_format_bytes(it.kv_bytes_per_token)} of KV cache a token"


def _format(value: float, digits: int) -> str:
    """Return ``digits`` significant digits without an exponent: ``0.48``, ``315``, ``2,140``."""
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def _format_bytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _find_weights(evidence: Evidence) -> tuple[int | None, str]:
    """Return the bytes of weights per token and their source."""
    reported = _parse_fact(evidence, WEIGHTS_FACT)
    if reported:
        return reported, _REPORTED
    counted = evidence.model.get("bytes_per_token")
    if isinstance(counted, int) and 0 < counted < _MAX_BYTES:
        return counted, "counted: the model file"
    return None, ""


def _find_decode_rate(evidence: Evidence) -> float | None:
    """Return the measured tokens per second after the first token."""
    rates = {
        metric.name: metric.value
        for metric in evidence.metrics
        if metric.provenance == "measured"
        and (
            metric.name == "decode_tokens_per_second"
            or (metric.name == "tokens_per_second" and metric.formula == _DECODE_FORMULA)
        )
    }
    rate = rates.get("decode_tokens_per_second", rates.get("tokens_per_second"))
    return rate if rate is not None and math.isfinite(rate) and rate > 0 else None


def _compute_kv_bytes(evidence: Evidence) -> float | None:
    """Return the bytes of keys and values that a token of the decode reads on average.

    The token at position ``p`` (from 0) attends to ``p + 1`` positions; the decode runs from the
    position after the prompt to the last but one token.
    """
    per_position = _parse_fact(evidence, KV_FACT)
    prompt_tokens = _compute_prompt_tokens(evidence)
    if not per_position or prompt_tokens is None or len(evidence.tokens) < 2:
        return None
    return per_position * (prompt_tokens + len(evidence.tokens) / 2)


def _compute_prompt_tokens(evidence: Evidence) -> int | None:
    """Return the prompt's length from rate and time of its prefill, which are exact."""
    value = {metric.name: metric.value for metric in evidence.metrics}
    rate = value.get("prefill_tokens_per_second")
    first_ms = value.get("time_to_first_token_ms")
    if rate is None or first_ms is None or not 0 < rate * first_ms < 1e12:
        return None
    return round(rate * first_ms / 1e3)


def _parse_fact(evidence: Evidence, name: str) -> int | None:
    """Return a whole number above 0 that the engine reported; None for anything else."""
    text = evidence.engine.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        return None
    return int(text) or None


def _above_ceiling_error(fraction: float, bandwidth: Bandwidth) -> UndecidedError:
    cache = f" of {bandwidth.cache_bytes >> 20} MiB" if bandwidth.cache_bytes else ""
    return UndecidedError(
        "E_ABOVE_CEILING",
        f"The decode would read {fraction:.2f} times the bandwidth of this machine's memory "
        f"({bandwidth.fastest / 1e9:.1f} GB/s, {format_threads(bandwidth.threads)}), so not all "
        f"of it came from memory: the weights may fit into a cache{cache}, or several tokens "
        "share one read.",
        "Use a model larger than the cache, and as many threads as the engine has.",
    )
