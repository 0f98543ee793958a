"""A target with torch.profiler around it: what ran is written down, and nothing is timed."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.tokens import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Generate = Callable[[str, int], Iterable[Any]]


def traced_by_torch(target: Generate, directory: str) -> Generate:
    """Return ``target`` with a trace of each of its calls written into ``directory``.

    Raises ``ToolError`` ``E_NO_TORCH`` where torch cannot be imported.
    """
    try:
        from torch import profiler  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ToolError(
            "E_NO_TORCH",
            f'kernel_trace = "torch" needs torch, which cannot be imported: {error}.',
            'Install torch beside the target, or say kernel_trace = "target" and let it write a '
            "trace itself.",
        ) from None
    numbers = count()

    def generate(prompt: str, max_tokens: int) -> Iterable[Any]:
        with profiler.profile(activities=profiler.supported_activities()) as seen:
            tokens = list(tokens_of(target(prompt, max_tokens)))
        seen.export_chrome_trace(f"{directory}/torch-{next(numbers)}.json.gz")
        return tokens

    return generate
