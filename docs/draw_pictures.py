"""Draw the pictures that the documents show: a flame graph of the embedded model, and a difference.

    python docs/draw_pictures.py [DIRECTORY]        (default: docs)

The difference is real: the working tree with ``EXTRA`` more work in ``FRAME`` is compared with
HEAD in interleaved pairs. Nothing is drawn by hand; run it again after a change to the pictures.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from pytest_flamegate.cli import main as flamegate

ROOT = Path(__file__).parents[1]
FRAME, EXTRA = "rms_norm", "+300%"
REGRESSED = 1


def draw(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        plain, slowed = Path(name, "plain"), Path(name, "slowed")
        flamegate(["run", "passage", "--dir", str(plain), "--budget", "40"])
        against = ["--against", "HEAD", "--inject", f"{FRAME}:{EXTRA}", "--budget", "100"]
        answer = flamegate(["run", "passage", "--dir", str(slowed), *against])
        if answer != REGRESSED:
            sys.exit(f"the difference came to {answer} and not to {REGRESSED}: draw it again")
        for source, target in (
            (plain / "latest/passage/flamegraph.svg", "flamegraph.svg"),
            (slowed / "latest/passage/diff.svg", "diff.svg"),
        ):
            shutil.copyfile(source, directory / target)
            print(directory / target)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
