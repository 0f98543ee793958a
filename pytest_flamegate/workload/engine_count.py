"""Tokens by the engine's own count, where nobody could tell them apart in what it wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.refusals import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_flamegate.workload.reported import Report
    from pytest_flamegate.workload.spec import Workload
    from pytest_flamegate.workload.streamed import Answer

UNIT = "engine"


def by_engine(found: Answer, workload: Workload) -> Answer:
    """Return the answer in tokens by the engine's own count; ``found`` holds its bytes.

    ``ToolError``: ``E_NO_COUNT`` where no report counts any, and what ``check_count`` refuses.
    """
    tokens = _counted(found.reported, workload.name)
    check_count(workload, tokens)
    return replace(
        found,
        tokens=_texts(found.tokens, tokens),
        gaps_ns=_gaps(found.gaps_ns, tokens),
        decode=found.decode if tokens > 1 else None,
        window_ns=found.window_ns if tokens > 1 else None,
    )


def _counted(reports: Sequence[Report], name: str) -> int:
    for report in reports:
        if (tokens := report.figures.get("tokens")) is not None:
            return int(tokens)
    raise ToolError(
        "E_NO_COUNT",
        f"The tokens of {name!r} are to be counted by the engine, and it did not say how many.",
        "Have it print llama.cpp's performance lines or write a receipt (receipt = PATH), say "
        "how to find the count (pattern), or count by another token_unit.",
    )


def _texts(pieces: Sequence[str], tokens: int) -> tuple[str, ...]:
    """Return the bytes of ``pieces`` as text at the first of so many tokens.

    Where one token ends and the next begins was not seen; the whole text still has to be the
    same in every run.
    """
    text = bytes(map(int, pieces)).decode("utf-8", "backslashreplace")
    return (text, *[""] * (tokens - 1))


def _gaps(gaps_ns: Sequence[int], tokens: int) -> tuple[int, ...]:
    """Return the time to the first token, then the time of all others at the second.

    ``gaps_ns`` is of bytes. Nobody saw the times between: noughts stand there.
    """
    first, rest = gaps_ns[0], sum(gaps_ns[1:])
    return (first + rest,) if tokens == 1 else (first, rest, *[0] * (tokens - 2))
