"""Code that runs inside the observed process: it loads the engine and generates on command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[[int, Callable[[], None], Callable[[Any], None]], None]
"""Generates sequences: their number, and what to call at each sequence and at each token."""
