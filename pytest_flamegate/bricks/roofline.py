"""How near a decode comes to what this machine's memory gives: a roofline of one point.

Decoding reads every weight once a token, so bytes a token times tokens a second is a part of the
read bandwidth. All of it is derived from what stands in the evidence and from a bandwidth that
was measured beside it: shown, never gated. What is not known is absent, and named in
``missing``; nothing is taken as 0, and no bound is told without an arithmetic intensity and both
ceilings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_flamegate.bricks.bandwidth import threads_told
from pytest_flamegate.errors import UndecidedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_flamegate.bricks.bandwidth import Bandwidth
    from pytest_flamegate.workload.device import DevicesSeen

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


def roofline_of(
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


def roofline_sentence(it: Roofline) -> str:
    """Return one line of text: the fraction with all its inputs, or why there is none."""
    threads = "" if it.threads is None else f", {threads_told(it.threads)}"
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
        f"({bandwidth.bytes_per_second / 1e9:.1f} GB/s, {threads_told(bandwidth.threads)}), so not "
        f"all of it came from memory: the weights may fit into a cache{cache}, or several tokens "
        "share one reading.",
        "Take a model larger than the cache, and as many threads as the engine has.",
    )
