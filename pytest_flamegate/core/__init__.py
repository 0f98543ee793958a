"""The parts that every room uses: errors, text, files, locks, processes, clocks, git, JSON."""

from __future__ import annotations

__version__ = "0.1.0"
