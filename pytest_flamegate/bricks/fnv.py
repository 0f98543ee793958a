"""FNV-1a with 64 bits: the hash by which other tools name sources and check tensors."""

from __future__ import annotations

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def fnv1a(data: bytes) -> int:
    """Return the FNV-1a hash of ``data``, 64 bits. No one is hindered from making a collision."""
    found = _OFFSET
    for byte in data:
        found = ((found ^ byte) * _PRIME) & _MASK
    return found
