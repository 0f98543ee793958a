"""How figures are written: each with its unit, the digits that it deserves, no more."""

from __future__ import annotations

import math

from pytest_flamegate.errors import ReceiptError


def count(value: int) -> str:
    """Return a whole number with thousands separated: ``1,312``."""
    return f"{value:,}"


def plural(value: int, one: str, many: str | None = None) -> str:
    """Return ``1 sample`` or ``1,312 samples``."""
    return f"{count(value)} {one if value == 1 else many or one + 's'}"


def share(value: float) -> str:
    """Return a share of 0 to 1 in percent: ``71.6 %``; what rounds to nothing is ``< 0.1 %``."""
    if 0 < value < 0.0005:
        return "< 0.1 %"
    return f"{100 * value:.1f} %" if math.isfinite(value) else "not finite"


def percent(value: float) -> str:
    """Return a figure that is in percent already: ``1.9 %``."""
    return f"{tidy(value)} %"


_UNHEARD_OF = 18
"""Powers of ten that no time, rate or count of ours has."""


def tidy(value: float, digits: int = 1) -> str:
    """Return ``value`` rounded to ``digits`` decimals without a trailing ``.0`` or a ``-0``."""
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:,.{digits}f}"
    if abs(value) >= 10.0**_UNHEARD_OF:
        return significant(value)
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def significant(value: float, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits: ``0.5126``, ``518``.

    An exponent has only what nobody measures: it would be a line of noughts.
    """
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    # The exponent of the rounded value: 9.996 has one digit before the point less than 10.0.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    if abs(exponent) >= _UNHEARD_OF:
        return f"{value:.{digits - 1}e}"
    decimals = digits - 1 - exponent
    return f"{value:,.{max(decimals, 0)}f}"


def seconds(value: float) -> str:
    """Return a time given in seconds in the unit that reads best: ``1.95 ms``, ``62 µs``."""
    if not math.isfinite(value):
        return "not finite"
    size = abs(value)
    if size == 0:
        return "0 s"
    for floor, scale, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs")):
        # Just below a step rounding would show "1,000 µs".
        if size >= floor * 0.9995:
            return f"{significant(value * scale)} {unit}"
    return f"{significant(value * 1e9)} ns"


def per_token(value: float) -> str:
    """Return seconds for each token: ``1.95 ms/token``."""
    return f"{seconds(value)}/token"


def micros(value: float) -> str:
    """Return seconds as bare microseconds, for a column headed ``µs/token``."""
    scaled = value * 1e6
    if abs(scaled) >= 9.95:
        return tidy(scaled, 0)
    text = significant(scaled, 2)
    return text.rstrip("0").rstrip(".") if "." in text else text


def require_cost(cpu_s_per_token: float | None) -> None:
    """Refuse a cost that no token can have: ``ReceiptError`` ``E_BAD_FIGURE``."""
    if cpu_s_per_token is None or (math.isfinite(cpu_s_per_token) and cpu_s_per_token > 0):
        return
    raise ReceiptError(
        "E_BAD_FIGURE",
        f"The CPU time for each token is {cpu_s_per_token!r} s.",
        "Measure again; a run that used no CPU time generated nothing.",
    )
