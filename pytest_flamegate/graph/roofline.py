"""How close a decode comes to this machine's memory bandwidth: a roofline with one point.

Decoding reads every weight once per token, so bytes per token times tokens per second is a part
of the read bandwidth. All figures are derived from the evidence and from a bandwidth that was
measured before; they are shown and never gated. An input that is not known is left out, never 0.
"""

from pytest_flamegate.core.text import significant
from pytest_flamegate.observe.machine import Bandwidth, find_instruction_set
from pytest_flamegate.receipt.types import Evidence


def describe_roofline(
    evidence: Evidence, bandwidth: Bandwidth | None, peak_flops: float | None = None
) -> str:
    """Return one line: the part of the ``bandwidth`` with all its inputs, or why there is none.

    Empty without both bytes per token and a decode rate. Work on a GPU is not compared with the
    memory of its host. ``peak_flops`` is the machine's peak, in operations per second.
    """
    # Facts of the engine come first: it may read other bytes than its file has.
    weights = _parse_fact(evidence, "weights_bytes_per_token")
    if weights is None and isinstance(of_file := evidence.model.get("bytes_per_token"), int):
        weights = of_file or None
    kv_bytes, rate = _compute_kv_bytes(evidence), _find_decode_rate(evidence)
    if weights is None and rate is None:
        return ""
    on_gpu = evidence.device is not None and any(run.active for run in evidence.device.runs)
    if on_gpu:
        bandwidth = None
    per_token = None if weights is None else weights + (kv_bytes or 0)
    cache = bandwidth.cache_bytes if bandwidth is not None else None
    flops = _parse_fact(evidence, "flops_per_token")
    speed = "" if rate is None else f"{significant(rate)} tokens/s"
    parts = [", ".join(filter(None, (_describe_bytes(weights, kv_bytes), speed)))]
    if weights and cache and weights <= cache:
        parts.append(f"the weights fit into its {cache >> 20} MiB of cache")
    if flops and per_token:
        parts.append(f"{significant(flops / per_token, 2)} operations a byte")
    if flops and per_token and bandwidth is not None and peak_flops:
        is_memory = flops / per_token < peak_flops / bandwidth.bytes_per_second
        if per_token * (rate or 0) <= bandwidth.bytes_per_second:
            parts.append(f"bound by {'memory' if is_memory else 'compute'}")
    parts += ["CUDA" if on_gpu else find_instruction_set(), "derived, never gated"]
    return f"{_compare(per_token, rate, bandwidth)}: {'; '.join(filter(None, parts))}"


def _compare(per_token: float | None, rate: float | None, bandwidth: Bandwidth | None) -> str:
    """Return the part of the bandwidth; none above 1, if not all bytes came from memory."""
    if per_token is None or rate is None or bandwidth is None:
        inputs = {
            "the weights' bytes per token": per_token,
            "a decode rate": rate,
            "a measured bandwidth": bandwidth,
        }
        missing = " and ".join(name for name, value in inputs.items() if value is None)
        return f"not compared with the read bandwidth, for lack of {missing}"
    read = per_token * rate
    fraction = read / bandwidth.bytes_per_second
    if fraction > 1:
        return (
            f"not compared with the read bandwidth: the decode would read {fraction:.2f} times "
            f"its {bandwidth.describe()}, so the weights may fit into a cache, or several tokens "
            "share one read"
        )
    return (
        f"at {100 * fraction:.0f} % of this machine's read bandwidth ({read / 1e9:.1f} of "
        f"{bandwidth.describe()})"
    )


def _describe_bytes(weights: int | None, kv_bytes: float | None) -> str:
    if weights is None:
        return ""
    if kv_bytes is None:
        return f"{_format_bytes(weights)} of weights a token (its KV cache is not known)"
    return f"{_format_bytes(weights)} of weights and {_format_bytes(kv_bytes)} of KV cache a token"


def _format_bytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _find_decode_rate(evidence: Evidence) -> float | None:
    """Return the measured tokens per second after the first token."""
    rates = {
        metric.name: metric.value
        for metric in evidence.metrics
        if metric.provenance == "measured"
        and (metric.name != "tokens_per_second" or metric.formula == "decode-tokens/decode-time")
    }
    rate = rates.get("decode_tokens_per_second", rates.get("tokens_per_second", 0.0))
    return rate if rate > 0 else None


def _compute_kv_bytes(evidence: Evidence) -> float | None:
    """Return the bytes of keys and values that a token of the decode reads on average.

    The token at position ``p`` (from 0) attends to ``p + 1`` positions; the decode runs from the
    position after the prompt to the last but one token.
    """
    per_position = _parse_fact(evidence, "kv_bytes_per_position")
    value = {metric.name: metric.value for metric in evidence.metrics}
    rate, first_ms = value.get("prefill_tokens_per_second"), value.get("time_to_first_token_ms")
    if not per_position or rate is None or first_ms is None or len(evidence.tokens) < 2:
        return None
    # The prompt's length follows exactly from rate and time of its prefill.
    if not 0 < rate * first_ms < 1e12:
        return None
    return per_position * (round(rate * first_ms / 1e3) + len(evidence.tokens) / 2)


def _parse_fact(evidence: Evidence, name: str) -> int | None:
    """Return a whole number above 0 that the engine reported; None for anything else."""
    text = evidence.engine.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        return None
    return int(text) or None
