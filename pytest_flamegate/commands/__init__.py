"""The commands of the terminal door, one file each.

Each has ``add(subparsers)`` that declares its arguments and sets ``run`` to a
function from the parsed arguments to an exit code.
"""

from __future__ import annotations
