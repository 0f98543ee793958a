"""``quant_dispatch: tensor=… format=… kernel=NAME``: which kernel works on which tensor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_flamegate.workload.sources.base import bad_figure, bad_source, told

if TYPE_CHECKING:
    from pytest_flamegate.workload.sources.base import Heard, Told

MOST_KERNELS = 1000
_LINE = re.compile(r"\bquant_dispatch\b[:\s]*(.*)")
_KERNEL = re.compile(r"\bkernel\s*=\s*\"?([\w.:+<>-]{1,128})")
_BARE = re.compile(r"([\w.:+<>-]{1,128})\s*(?:[x×*]\s*\d|$|\s\w+=)")
_COUNT = re.compile(r"(?:\bcount\s*=\s*|(?<!\S)[x×*]\s*)([^\s,;]+)")
_MOST_COUNTED = 10**12


class QuantDispatch:
    """One line a dispatch; ``count=N`` says that a line stands for so many.

    The name is what ``kernel=`` gives, else the first word.
    """

    name = "quant_dispatch"
    markers = (b"quant_dispatch",)

    def read(self, heard: Heard) -> Told | None:
        """Return how often each kernel was dispatched."""
        kernels: dict[str, int] = {}
        for line in heard.lines:
            if (found := _LINE.search(line)) is None:
                continue
            named = _KERNEL.search(found[1]) or _BARE.match(found[1])
            if named is None:
                continue
            kernels[named[1]] = kernels.get(named[1], 0) + self._count(found[1])
            if len(kernels) > MOST_KERNELS:
                raise bad_source(
                    self.name,
                    f"names more than {MOST_KERNELS} kernels",
                    "Print the name of the kernel after kernel=, and the tensor's elsewhere.",
                )
        return told(self.name, {}, kernels) if kernels else None

    def _count(self, line: str) -> int:
        counted = _COUNT.search(line)
        if counted is None:
            return 1
        if not re.fullmatch(r"[0-9]{1,13}", counted[1]) or int(counted[1]) > _MOST_COUNTED:
            raise bad_figure(self.name, f"{counted[1][:40]!r} for a kernel's count")
        return int(counted[1])
