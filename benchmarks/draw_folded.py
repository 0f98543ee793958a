"""Draw folded stacks: the package's own path from text to picture.

python -m benchmarks.draw_folded FOLDED PICTURE
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.fold_script import profile_of
from pytest_flamegate.profile.frames import parse_folded
from pytest_flamegate.report.flame import Drawn
from pytest_flamegate.report.flame_svg import flamegraph


def main(folded: Path, picture: Path) -> None:
    """Read one file, write the other."""
    stacks = parse_folded(folded.read_text(encoding="utf-8"))
    profile = profile_of(stacks)
    svg = flamegraph(Drawn(folded.stem, profile), subtitle="")
    picture.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
