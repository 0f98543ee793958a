"""``python -m pytest_flamegate``: the same as the command ``flamegate``."""

from __future__ import annotations

import sys

from pytest_flamegate.cli import main

if __name__ == "__main__":
    sys.exit(main())
