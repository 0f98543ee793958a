"""The name of a machine class, so that baselines of different hardware never meet."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINE_ID_FIELDS = ("cpu_model", "cpu_cores", "arch", "cpu_flags_sha256")
"""Fields of the machine identity that the id depends on; the others are compared, not named."""

_NOISE_WORDS = frozenset({"cpu", "processor", "core", "cores", "with", "graphics", "r", "tm"})
_MAX_WORDS = 3
_UNKNOWN = "unknown"


def machine_id(identity: Mapping[str, str]) -> str:
    """Return a stable, filesystem-safe name of the machine class, like ``amd-epyc-2c-3f9a1c``.

    Depends on ``MACHINE_ID_FIELDS`` alone, so a kernel update keeps the name (and is
    then reported as a difference). An absent field counts as ``unknown``.
    """
    known = {name: identity.get(name, "").strip() or _UNKNOWN for name in MACHINE_ID_FIELDS}
    canonical = "\n".join(f"{name}={known[name]}" for name in MACHINE_ID_FIELDS)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    cores = re.sub(r"[^0-9]", "", known["cpu_cores"], flags=re.ASCII)[:6] or "x"
    return "-".join([*_model_words(known["cpu_model"]), f"{cores}c", digest])


def _model_words(model: str) -> list[str]:
    """Return the first telling words of a CPU's marketing name."""
    plain = re.sub(r"\((?:r|tm|c)\)", " ", model.lower())
    plain = plain.split("@")[0]
    words = [word for word in re.split(r"[^a-z0-9]+", plain) if word]
    telling = [
        word for word in words if word not in _NOISE_WORDS and not re.fullmatch(r"\d+core", word)
    ]
    return [word[:16] for word in telling[:_MAX_WORDS]] or [_UNKNOWN]
