"""Timed blocks of one process, with the reference kernel beside them where it can run there."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.workload.lasting import warm
from pytest_flamegate.workload.observation import Block, total
from pytest_flamegate.workload.served import ServedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_flamegate.workload.clocks import Counters
    from pytest_flamegate.workload.lasting import LastingProcess
    from pytest_flamegate.workload.spec import Workload

BLOCKS = 6
REFERENCE_TIMES = 15
PART_TOKENS = 32
PART_REFERENCE_TIMES = 8


def timed_blocks(
    process: LastingProcess,
    workload: Workload,
    seconds: float,
    look: Callable[[], None],
) -> tuple[list[Block], Counters]:
    """Warm ``process`` up and run blocks for about ``seconds``; return them and its counters.

    ``look()`` is called after each block. Nobody runs the reference kernel in the process of a
    server. The peak memory is that before the reference kernel takes its own.
    """
    sequences = warm(process, workload, seconds / BLOCKS)
    end_s = time.monotonic() + seconds
    blocks: list[Block] = []

    def goes_on() -> bool:
        return not blocks or (len(blocks) < BLOCKS and time.monotonic() < end_s)

    if not isinstance(process, ServedProcess):
        while goes_on():
            blocks.append(process.block(sequences))
            look()
        return blocks, process.counters()
    peak_rss_bytes = process.counters().peak_rss_bytes
    process.reference(1)
    if process.stands_still and workload.max_tokens > PART_TOKENS:
        while goes_on():
            blocks.append(_by_parts(process))
    else:
        before = process.reference(REFERENCE_TIMES)
        while goes_on():
            block = process.block(sequences)
            look()
            after = process.reference(REFERENCE_TIMES)
            blocks.append(replace(block, reference=total([before, after])))
            before = after
    return blocks, replace(process.counters(), peak_rss_bytes=peak_rss_bytes)


def _by_parts(process: ServedProcess) -> Block:
    """Generate one sequence in parts, the reference kernel before, between and after them."""
    sequence = process.parted()
    references = [process.reference(PART_REFERENCE_TIMES)]
    while not sequence.ended:
        sequence.part(PART_TOKENS)
        references.append(process.reference(PART_REFERENCE_TIMES))
    return sequence.block(total(references))
