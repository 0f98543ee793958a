"""One process whose bricks are clocked: started, warmed up, commanded, and written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.bricks.record import BrickPass
from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.lasting import warm
from pytest_flamegate.workload.served import ServedProcess

if TYPE_CHECKING:
    from pytest_flamegate.bricks.record import Recorded
    from pytest_flamegate.workload.observation import Block, Run
    from pytest_flamegate.workload.observer import Observer

NOTHING_CLOCKED = frozenset({"E_NO_BRICKS", "E_BRICKS_NOT_SERVED"})
"""What is no failure where bricks were only to be shown."""
_LEFT_OUT = (
    "The last token took more calls of bricks than are kept one by one, so bricks.json holds none "
    "of them; every total is whole."
)


def bricked(observer: Observer, seconds: float) -> tuple[Run, BrickPass, Recorded]:
    """Run one fresh served process for about ``seconds`` with its bricks clocked.

    The run is kept, and supplies no other figure. ``ToolError``: ``E_NO_BRICKS`` where the engine
    marks none, ``E_BAD_BRICKS`` where what it tells of them cannot be read.
    """
    with observer.serve() as served:
        assert isinstance(served, ServedProcess)
        sequences = warm(served, observer.workload, seconds)
        block, told = served.bricked_block(sequences)
        recorded = told.recorded
        if not recorded.totals:
            raise no_bricks(observer.workload.name)
        if told.left_out:
            observer.notes["W_BRICK_CALLS"] = _LEFT_OUT
        run = observer.keep("bricks", served, [block], served.counters())
    return run, _pass(run, block, recorded), recorded


def _pass(run: Run, block: Block, recorded: Recorded) -> BrickPass:
    return BrickPass(
        pid=run.pid,
        started_ticks=run.started_ticks,
        sequences=len(block.sequences_ns),
        tokens=block.tokens,
        decode_tokens=block.tokens - len(block.sequences_ns),
        wall_ns=recorded.wall_ns,
        sync=recorded.sync,
        totals=recorded.totals,
        lanes=recorded.lanes,
        unended=recorded.unended,
    )


def no_bricks(workload: str) -> ToolError:
    """Say how an engine is marked."""
    return ToolError(
        "E_NO_BRICKS",
        f"The engine of {workload!r} marked no brick, so there are none to show or to gate.",
        "Mark it in five lines: (1) from pytest_flamegate.bricks import brick; "
        "(2) around each norm: with brick('RmsNorm', layer=i): x = norm(x); "
        "(3) around attention: with brick('AttentionScore', layer=i): x = attention(x); "
        "(4) around each product: with brick('DownProjection', layer=i): x = down(x); "
        "(5) around the output: with brick('LmHead', elements=n): logits = head(x).",
    )


def not_served(workload: str, engine: str) -> ToolError:
    """Say that bricks are clocked in processes of this tool alone."""
    return ToolError(
        "E_BRICKS_NOT_SERVED",
        f"The engine {engine!r} of {workload!r} generates in no process of this tool, so its "
        "bricks cannot be clocked.",
        "Declare no bricks for it; those of the engines embedded and python can be clocked.",
    )
