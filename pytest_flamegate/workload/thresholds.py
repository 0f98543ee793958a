"""Thresholds as people write them: "5%" of tokens per second, "3pp" of a share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pytest_flamegate.errors import UsageError
from pytest_flamegate.workload.spec import DEFAULT_SHARE_PP, Thresholds
from pytest_flamegate.workload.toml_file import told

_FIGURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%|pp)\s*")
_UPPER = {"%": 100.0, "pp": 100.0}


def percent(value: object, where: str) -> float:
    """Return the figure of ``"5%"``; ``UsageError`` ``E_BAD_THRESHOLD`` names ``where``."""
    return _figure(value, "%", where)


def points(value: object, where: str) -> float:
    """Return the figure of ``"3pp"``; ``UsageError`` ``E_BAD_THRESHOLD`` names ``where``."""
    return _figure(value, "pp", where)


def thresholds(tokens_per_second: object, hotspots: object, where: str) -> Thresholds:
    """Return the thresholds declared; what is None keeps its default."""
    given: dict[str, object] = {}
    if tokens_per_second is not None:
        given["tokens_per_second_pct"] = percent(tokens_per_second, f"{where} tokens_per_second")
    if hotspots is not None:
        if not isinstance(hotspots, Mapping):
            raise UsageError(
                "E_BAD_THRESHOLD",
                f"{where} hotspots is {told(hotspots)}, not a table of frames.",
                'Write hotspots = { "rms_norm" = "3pp", "*" = "5pp" }.',
            )
        shares = {"*": DEFAULT_SHARE_PP}
        shares.update({str(k): points(v, f"{where} hotspots.{k}") for k, v in hotspots.items()})
        given["hotspots_pp"] = MappingProxyType(shares)
    return Thresholds(**given)  # type: ignore[arg-type]


def _figure(value: object, unit: str, where: str) -> float:
    match = _FIGURE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] != unit or not 0 < float(match[1]) < _UPPER[unit]:
        raise UsageError(
            "E_BAD_THRESHOLD",
            f"{where} is {told(value)}.",
            f'Write a figure above 0 and below 100 with its unit: "5{unit}".',
        )
    return float(match[1])
