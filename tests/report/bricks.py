"""Bricks to be shown; figures made up, shapes real."""

from __future__ import annotations

from dataclasses import replace

from pytest_flamegate.graph.table import tabulate_runs
from pytest_flamegate.report.bricks import BrickView
from tests.bricks.factory import make_run, make_totals

TREE = (
    "Layer 0",
    "├── RmsNorm  9.0µs (64 elem)",
    "└── QkvProjection  200.0µs (4096 elem)",
    "    └── batched_gemv  <<<32,256,1>>> smem=4096B",
)


def shown(name: str = "QkvProjection", *, top: int = 20, text: str = "") -> BrickView:
    """Three processes, 94 % in bricks; ``name`` is the costliest, ``text`` every sentence."""
    passes = [
        make_run(
            replace(
                make_totals("QkvProjection", [190_000, 210_000], layer=0, elements=4096), name=name
            ),
            make_totals("DownProjection", [110_000, 130_000], layer=0),
            make_totals("RmsNorm", [9_000] * 10, layer=0),
            make_totals("LmHead", [210_000]),
            wall_ns=1_000_000,
            tokens=2,
            pid=pid,
        )
        for pid in (11, 12, 13)
    ]
    return BrickView(
        table=tabulate_runs(passes, top=top),
        tree=(*TREE, text) if text else TREE,
        critical_path=text or "critical path: QkvProjection → LmHead, 410 µs of 500 µs",
        roofline=text or "at 61 % of this machine's read bandwidth (19.5 of 32.0 GB/s, 1 thread)",
        notes=(text,) if text else (),
        full_command=text or "flamegate bricks .flamegate/latest/decode",
    )
