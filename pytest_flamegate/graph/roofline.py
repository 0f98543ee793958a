"""How close a decode comes to this machine's memory bandwidth: a roofline with one point.

Decoding reads every weight once per token, so bytes per token times tokens per second is a part
of the read bandwidth. All figures are derived from the evidence and from a bandwidth that was
measured before; they are shown and never gated. An input that is not known is None, never 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_flamegate.observe.machine import Bandwidth, format_threads
from pytest_flamegate.receipt.types import Evidence

# Facts that an engine may report, as whole numbers: it may read other bytes than its file has.
WEIGHTS_FACT = "weights_bytes_per_token"
KV_FACT = "kv_bytes_per_position"
FLOPS_FACT = "flops_per_token"

_DECODE_FORMULA = "decode-tokens/decode-time"
_MAX_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Roofline:
    """One decode below the ceilings of its machine; None for a figure that is not known.

    ``weights_bytes`` and ``kv_bytes`` are per token, keys and values at the mean position of the
    decode. ``flops`` are of products with weights, per token; ``peak_flops`` is per second.
    ``backend`` names the GPU interface or the vector instructions that the CPU offers.
    """

    weights_bytes: int | None
    kv_bytes: float | None
    tokens_per_second: float | None
    bandwidth: Bandwidth | None
    flops: int | None
    peak_flops: float | None
    backend: str

    @property
    def bytes_per_token(self) -> float | None:
        """Weights, and keys and values if they are known."""
        return None if self.weights_bytes is None else self.weights_bytes + (self.kv_bytes or 0)

    @property
    def read_bytes_per_second(self) -> float | None:
        """The bytes that the decode reads per second."""
        if self.bytes_per_token is None or self.tokens_per_second is None:
            return None
        return self.bytes_per_token * self.tokens_per_second

    @property
    def fraction_of_bandwidth(self) -> float | None:
        """The part of the bandwidth; above 1 if not all bytes came from memory."""
        if self.read_bytes_per_second is None or self.bandwidth is None:
            return None
        return self.read_bytes_per_second / self.bandwidth.fastest

    @property
    def arithmetic_intensity(self) -> float | None:
        """Operations per byte that is read."""
        return self.flops / self.bytes_per_token if self.flops and self.bytes_per_token else None

    @property
    def bound(self) -> Literal["memory", "compute"] | None:
        """The limit that the decode runs into first."""
        intensity, ceiling = self.arithmetic_intensity, self.bandwidth
        if intensity is None or ceiling is None or self.peak_flops is None:
            return None
        if (self.fraction_of_bandwidth or 0) > 1:
            return None
        return "memory" if intensity < self.peak_flops / ceiling.fastest else "compute"


def compute_roofline(
    evidence: Evidence,
    bandwidth: Bandwidth | None,
    *,
    instructions: str = "",
    peak_flops: float | None = None,
) -> Roofline | None:
    """Return the roofline of the decode in ``evidence``; None without bytes per token and rate.

    Args:
        evidence: The evidence of a run.
        bandwidth: The measured bandwidth of the machine. It is not used if the decode ran on a
            GPU, which does not read its host's memory.
        instructions: The vector instructions that the CPU offers, for display.
        peak_flops: Peak of the machine, in operations per second.
    """
    counted = evidence.model.get("bytes_per_token")
    is_counted = isinstance(counted, int) and 0 < counted < _MAX_BYTES
    weights = _parse_fact(evidence, WEIGHTS_FACT) or (counted if is_counted else None)
    rate = _find_decode_rate(evidence)
    if weights is None and rate is None:
        return None
    on_gpu = evidence.device is not None and any(run.active for run in evidence.device.runs)
    has_peak = peak_flops and math.isfinite(peak_flops) and not on_gpu
    return Roofline(
        weights_bytes=int(weights) if weights is not None else None,
        kv_bytes=_compute_kv_bytes(evidence),
        tokens_per_second=rate,
        bandwidth=None if on_gpu else bandwidth,
        flops=_parse_fact(evidence, FLOPS_FACT),
        peak_flops=peak_flops if has_peak else None,
        backend="CUDA" if on_gpu else instructions,
    )


def describe_roofline(it: Roofline) -> str:
    """Return one line: the fraction with all its inputs, or why there is none."""
    cache = it.bandwidth.cache_bytes if it.bandwidth is not None else None
    fraction, read = it.fraction_of_bandwidth, it.read_bytes_per_second
    if fraction is None or read is None or it.bandwidth is None:
        inputs = (
            ("the weights' bytes per token", it.weights_bytes),
            ("a decode rate", it.tokens_per_second),
            ("a measured bandwidth", it.bandwidth),
        )
        missing = [name for name, value in inputs if value is None]
        head = f"not compared with the read bandwidth, for lack of {' and '.join(missing)}"
    elif fraction > 1:
        size = f" of {cache >> 20} MiB" if cache else ""
        head = (
            f"not compared with the read bandwidth: the decode would read {fraction:.2f} times "
            f"its {it.bandwidth.fastest / 1e9:.1f} GB/s, so the weights may fit into a "
            f"cache{size}, or several tokens share one read"
        )
    else:
        head = (
            f"at {100 * fraction:.0f} % of this machine's read bandwidth ({read / 1e9:.1f} of "
            f"{it.bandwidth.fastest / 1e9:.1f} GB/s, {format_threads(it.bandwidth.threads)})"
        )
    rate = "" if it.tokens_per_second is None else f"{_format(it.tokens_per_second, 3)} tokens/s"
    parts = [", ".join(part for part in (_describe_bytes(it), rate) if part)]
    if it.weights_bytes and cache and it.weights_bytes <= cache:
        parts.append(f"the weights fit into its {cache >> 20} MiB of cache")
    if it.arithmetic_intensity is not None:
        parts.append(f"{_format(it.arithmetic_intensity, 2)} operations a byte")
    if it.bound is not None:
        parts.append(f"bound by {it.bound}")
    return f"{head}: {'; '.join(filter(None, [*parts, it.backend, 'derived, never gated']))}"


def _describe_bytes(it: Roofline) -> str:
    if it.weights_bytes is None:
        return ""
    weights = f"{_format_bytes(it.weights_bytes)} of weights"
    if it.kv_bytes is None:
        return f"{weights} a token (its KV cache is not known and left out)"
    return f"{weights} and {_format_bytes(it.kv_bytes)} of KV cache a token"


def _format(value: float, digits: int) -> str:
    """Return ``digits`` significant digits without an exponent: ``0.48``, ``315``, ``2,140``."""
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def _format_bytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


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
