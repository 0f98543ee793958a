"""llama.cpp in the process that is observed: one file for each library that brings it."""

from __future__ import annotations
