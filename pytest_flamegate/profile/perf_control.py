"""Telling a running ``perf record`` when to sample: two pipes, a word and an answer."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pytest_flamegate.workload.readable import readable

if TYPE_CHECKING:
    from pytest_flamegate.workload.process import Child

_POLL_S = 0.02


class Control:
    """The pipes of ``--control``: ``fd:`` and not ``fifo:``, whose paths may hold no comma."""

    def __init__(self) -> None:
        self._theirs_in, self._ours_out = os.pipe()
        self._ours_in, self._theirs_out = os.pipe()
        self._open = [self._ours_out, self._ours_in]

    @property
    def argv(self) -> tuple[str, ...]:
        """Options of ``perf record``: begin with sampling off, and obey the pipes."""
        return ("-D", "-1", "--control", f"fd:{self._theirs_in},{self._theirs_out}")

    @property
    def pass_fds(self) -> tuple[int, int]:
        """The ends that perf inherits."""
        return self._theirs_in, self._theirs_out

    def handed_over(self) -> None:
        """Close perf's ends here, so that its end is seen when it goes."""
        os.close(self._theirs_in)
        os.close(self._theirs_out)

    def tell(self, word: str, child: Child, timeout_s: float) -> bool:
        """Send a command and wait for the acknowledgement; False if perf ends or is silent."""
        try:
            os.write(self._ours_out, word.encode() + b"\n")
        except BrokenPipeError:
            return False
        answer = b""
        deadline = time.monotonic() + timeout_s
        while b"ack\n" not in answer and time.monotonic() < deadline:
            if readable(self._ours_in, _POLL_S):
                read = os.read(self._ours_in, 64)
                if not read:
                    return False
                answer += read
            elif child.poll() is not None:
                return False
        return b"ack\n" in answer

    def close(self) -> None:
        """Close this end."""
        while self._open:
            os.close(self._open.pop())
