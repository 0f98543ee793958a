"""By how much the share of a function differs between processes of the same code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_flamegate.gate.shares import HOTSPOT_SHARE, frames_seen, pooled_share
from pytest_flamegate.gate.stats import log_odds, log_odds_variance, mean, sample_variance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.receipt.types import ProcessProfile


@dataclass(frozen=True, slots=True)
class ShareSpread:
    """One hotspot: its share of all samples (0 to 1), and how unlike it is between processes.

    ``phi`` is the variance of the log-odds of its share over processes, as a multiple of
    what independent samples would have (1). A gate that took samples for independent would
    need ``phi`` times as many.
    """

    name: str
    share: float
    phi: float


def share_spreads(processes: Sequence[ProcessProfile]) -> tuple[ShareSpread, ...]:
    """Return the spread of every function with at least 1 % of the samples, hottest first.

    Nothing is said of fewer than two processes with samples.
    """
    sampled = [process for process in processes if process.samples]
    if len(sampled) < 2:
        return ()
    return tuple(
        ShareSpread(name, share, _phi(sampled, name))
        for name in frames_seen(sampled)
        if (share := pooled_share(sampled, name)) >= HOTSPOT_SHARE
    )


def _phi(processes: Sequence[ProcessProfile], name: str) -> float:
    counts = [(process.self_samples.get(name, 0), process.samples) for process in processes]
    binomial = mean([log_odds_variance(count, total) for count, total in counts])
    return sample_variance([log_odds(count, total) for count, total in counts]) / binomial
