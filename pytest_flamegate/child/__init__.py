"""Code that runs inside the observed process: it loads the engine and generates on command."""

from __future__ import annotations
