"""What a replay showed, in one line and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.crosscheck_replay import rates

if TYPE_CHECKING:
    from pytest_flamegate.receipt import Verification

_TOKENS = {"E_REPLAY_TOKENS": "differ", "W_REPLAY_NOT_DETERMINISTIC": "not compared"}


def replay_line(found: Verification) -> str | None:
    """Return ``replayed here: 8 processes, digest equal, …``; None where nothing was run."""
    replayed = found.replayed
    if replayed is None:
        return None
    tokens = _tokens(found)
    digest = "digest " + ("differs" if tokens == "differ" else tokens)
    return f"replayed here: {replayed.processes} processes, {digest}, {rates(replayed.rate)}"


def replay_document(found: Verification) -> dict[str, object] | None:
    """Return the same as plain data; rates are tokens per second, null where not compared."""
    replayed = found.replayed
    if replayed is None:
        return None
    rate = replayed.rate
    return {
        "processes": replayed.processes,
        "tokens": _tokens(found),
        "rate": rate.answer,
        "claimed_tokens_per_second": rate.claimed,
        "tokens_per_second": rate.here,
        "low": rate.low,
        "high": rate.high,
        "wall_tokens_per_second": rate.wall,
    }


def _tokens(found: Verification) -> str:
    codes = [each.code for each in (*found.refusals, *found.warnings)]
    return next((word for code, word in _TOKENS.items() if code in codes), "equal")
