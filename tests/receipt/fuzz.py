"""Throw mutated receipts, evidence and profiles at the verifier, as fast as it answers.

``python -m tests.receipt.fuzz --inputs 10000000`` does it at length on one core and prints
a table; ``test_fuzz.py`` does a slice of it, always the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.tables import Table, as_text
from pytest_flamegate.core.text import Finding
from pytest_flamegate.receipt import Verification, verify_receipt
from tests.receipt.mutations import BLOCK, Case, cases

LIMIT_MS = 50.0
_TRIES = 3
_SAY_EVERY_S = 60.0


@dataclass
class Tally:
    """What came of some inputs; ``broken`` holds what was wrong, where, and the input."""

    inputs: int = 0
    accepted: int = 0
    tracebacks: int = 0
    over_limit: int = 0
    cpu_s: float = 0.0
    slowest_ms: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[str, int, Case]] = field(default_factory=list)

    @property
    def refused(self) -> int:
        """Inputs that got a coded refusal."""
        return self.inputs - self.accepted - self.tracebacks


def answered(answer: Verification) -> None:
    """Assert that an answer is one: consistent, and safe to print."""
    assert "E_INTERNAL" not in {refusal.code for refusal in answer.refusals}
    assert answer.ok is (answer.refusals == ())
    findings: list[Finding] = [*answer.refusals, *answer.warnings]
    for finding in findings:
        assert finding.message.isprintable()
        assert finding.message.isascii()
        assert len(finding.message) < 500


def ask(case: Case) -> Verification:
    """Verify one case."""
    return verify_receipt(case.receipt, evidence=case.evidence, profile_folded=case.folded)


def cpu_ms(case: Case) -> float:
    """Return the CPU milliseconds of one answer, the least of some: a busy machine adds to it."""
    least = float("inf")
    for _ in range(_TRIES):
        began = time.process_time()
        ask(case)
        least = min(least, (time.process_time() - began) * 1e3)
    return least


def take(tally: Tally, block: int, case: Case) -> None:
    """Verify one case and count what came of it."""
    tally.inputs += 1
    began = time.process_time()
    try:
        answer = ask(case)
        spent_ms = (time.process_time() - began) * 1e3
        answered(answer)
    except Exception as error:
        tally.tracebacks += 1
        tally.broken.append((f"{type(error).__name__}: {error}"[:200], block, case))
        return
    tally.cpu_s += spent_ms / 1e3
    tally.accepted += answer.ok
    tally.codes.update({refusal.code for refusal in answer.refusals})
    if spent_ms > LIMIT_MS:
        spent_ms = cpu_ms(case)
        if spent_ms > LIMIT_MS:
            tally.over_limit += 1
            tally.broken.append((f"{spent_ms:.0f} ms of CPU time", block, case))
    tally.slowest_ms = max(tally.slowest_ms, spent_ms)


def fuzz(inputs: int, seed: int, evidence_share: float, *, talk: bool = False) -> Tally:
    """Verify so many mutated cases, whole blocks of them."""
    tally = Tally()
    spoken = time.monotonic()
    # What is filled once (schemas, patterns, policies) is no input's own time.
    for case in cases(seed, -1, 0.5):
        ask(case)
    for block in range(-(-inputs // BLOCK)):
        for case in cases(seed, block, evidence_share):
            take(tally, block, case)
        if talk and time.monotonic() - spoken > _SAY_EVERY_S:
            spoken = time.monotonic()
            print(told(tally, seed), flush=True)
    return tally


def told(tally: Tally, seed: int) -> str:
    """Return the tally as a table, and what was wrong below it."""
    each_us = tally.cpu_s / max(1, tally.inputs) * 1e6
    table = Table(
        f"Mutated receipts, evidence and profiles, seed {seed}",
        ("inputs", "refused", "accepted", "tracebacks", "over 50 ms", "slowest, ms", "mean, µs"),
        (
            (
                f"{tally.inputs:,}",
                f"{tally.refused:,}",
                f"{tally.accepted:,}",
                f"{tally.tracebacks:,}",
                f"{tally.over_limit:,}",
                f"{tally.slowest_ms:.1f}",
                f"{each_us:.0f}",
            ),
        ),
    )
    seen = ", ".join(f"{code} {times:,}" for code, times in tally.codes.most_common())
    lines = [as_text(table), "", f"{len(tally.codes)} codes: {seen}"]
    for what, block, case in tally.broken[:20]:
        lines.append(f"{what} (block {block})")
        lines += [
            f"  {part[:400]!r}" for part in (case.receipt, case.evidence, case.folded) if part
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Fuzz as asked; 0 where there was no traceback and nothing too slow."""
    parser = argparse.ArgumentParser(prog="python -m tests.receipt.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evidence", type=float, default=0.1, help="share of cases with evidence")
    options = parser.parse_args(arguments)
    tally = fuzz(options.inputs, options.seed, options.evidence, talk=True)
    print(told(tally, options.seed))
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
