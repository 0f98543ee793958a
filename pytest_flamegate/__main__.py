"""``python -m pytest_flamegate``: the same as the command ``flamegate``."""

import sys

from pytest_flamegate.cli import main

if __name__ == "__main__":
    sys.exit(main())
