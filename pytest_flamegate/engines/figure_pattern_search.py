"""Run by itself: searches a text for the last match of a pattern and prints its named groups."""

from __future__ import annotations

import json
import re
import sys
import warnings


def last(pattern: str, text: str) -> dict[str, str]:
    """Return the named groups that took part in the last match; none where there is no match."""
    warnings.simplefilter("ignore")
    groups: dict[str, str] = {}
    for match in re.finditer(pattern, text, re.MULTILINE):
        found = {name: value for name, value in match.groupdict().items() if value is not None}
        groups = found or groups
    return groups


if __name__ == "__main__":
    sys.stdout.write(json.dumps(last(sys.argv[1], sys.argv[2])))
