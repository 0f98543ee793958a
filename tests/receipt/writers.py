"""One of several processes that write to the same place at once.

Run as ``python -m tests.receipt.writers KIND DIRECTORY TAG TIMES``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_flamegate.receipt import store

NAMES = ("receipt.json", "evidence.json", "profile.folded")


def main(kind: str, place: Path, tag: str, times: int) -> None:
    """Write ``times`` times, each time something that names ``tag``."""
    for index in range(times):
        text = f"{tag}-{index}".encode()
        if kind == "publish":
            store.publish(place / "run", dict.fromkeys(NAMES, text))
        elif kind == "append":
            store.append_line(place / "history.jsonl", text * 50)
        else:
            counter = place / "counter"
            with store.lock(place / "lock", 30.0):
                count = int(counter.read_text()) if counter.exists() else 0
                store.write_atomic(counter, str(count + 1).encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
