"""Student's t distribution from the incomplete beta function, accurate far into the tails."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

# Beyond this many degrees of freedom the first term of the Cornish-Fisher expansion
# is exact to double precision, and the continued fraction would only get slower.
_NORMAL_DF = 1e8
# Below this the three-term series for the ratio of gamma functions is not exact yet.
_ASYMPTOTIC_A = 60.0
_MAX_TERMS = 100_000


def student_t_sf(t: float, df: float) -> float:
    """Return the probability that a Student t variable with ``df`` exceeds ``t``.

    Keeps its relative accuracy where the probability is tiny. ``df`` may be infinite.
    Raises ValueError where ``df`` is not positive or an argument is NaN.
    """
    if not df > 0 or math.isnan(t):
        raise ValueError(f"a t distribution needs df > 0 and a number, got t={t!r}, df={df!r}")
    if t < 0:
        return 1.0 - student_t_sf(-t, df)
    if math.isinf(t):
        return 0.0
    if df >= _NORMAL_DF:
        z = t * max(0.0, 1.0 - (t * t + 1.0) / (4.0 * df))
        return 0.5 * math.erfc(z / math.sqrt(2.0))
    return 0.5 * _incomplete_beta_tail(t, df)


def student_t_cdf(t: float, df: float) -> float:
    """Return the probability that a Student t variable with ``df`` is at most ``t``."""
    return student_t_sf(-t, df)


@lru_cache(maxsize=4096)
def student_t_quantile(p: float, df: float) -> float:
    """Return the value that a Student t variable with ``df`` stays below with probability ``p``.

    Raises ValueError where ``p`` is not strictly between 0 and 1 or ``df`` is not positive.
    """
    if not 0.0 < p < 1.0 or not df > 0:
        raise ValueError(f"a t quantile needs 0 < p < 1 and df > 0, got p={p!r}, df={df!r}")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -_upper_quantile(p, df)
    return _upper_quantile(1.0 - p, df)


def student_t_upper(tail: float, df: float) -> float:
    """Return the value exceeded with probability ``tail``, exact for tiny tails too."""
    return -student_t_quantile(tail, df)


def _upper_quantile(tail: float, df: float) -> float:
    """Solve ``student_t_sf(t, df) == tail`` for a tail below one half: Newton inside a bracket."""
    z = -NormalDist().inv_cdf(tail)
    if df >= _NORMAL_DF:
        return z * (1.0 + (z * z + 1.0) / (4.0 * df))
    low, high = 0.0, max(1.0, 2.0 * z)
    while student_t_sf(high, df) > tail:
        low, high = high, high * 4.0
    t = min(max(z, low), high)
    for _ in range(400):
        mass = student_t_sf(t, df)
        low, high = (t, high) if mass > tail else (low, t)
        step = math.log(mass / tail) * mass / _density(t, df) if mass > 0 else math.inf
        new = t + step
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - t) <= 1e-15 * abs(new):
            return new
        t = new
    return t


def _density(t: float, df: float) -> float:
    """Density of the t distribution."""
    exponent = -0.5 * (df + 1.0) * math.log1p(t * t / df)
    return math.exp(exponent - 0.5 * math.log(df) - _log_beta_half(0.5 * df))


def _incomplete_beta_tail(t: float, df: float) -> float:
    """Return I_x(df/2, 1/2) at x = df / (df + t²): both tails of the t distribution."""
    if t == 0.0:
        return 1.0
    a, b = 0.5 * df, 0.5
    ratio = t / math.sqrt(df)  # squaring t first would lose a tiny one
    square = ratio * ratio
    if square == 0.0:
        return 1.0
    rest = square / (1.0 + square)  # 1 - x, without cancellation
    x = 1.0 / (1.0 + square)
    log_front = b * math.log(rest) - a * math.log1p(square) - _log_beta_half(a)
    front = math.exp(log_front)
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, rest) / b


def _log_beta_half(a: float) -> float:
    """Return ln B(a, 1/2); for a large ``a`` by the asymptotic series, which cannot cancel."""
    if a < _ASYMPTOTIC_A:
        return math.lgamma(a) + math.lgamma(0.5) - math.lgamma(a + 0.5)
    inverse = 1.0 / a
    square = inverse * inverse
    series = inverse * (-1.0 / 8.0 + square * (1.0 / 192.0 - square / 640.0))
    return 0.5 * math.log(math.pi) - 0.5 * math.log(a) - series


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    tiny = 1e-300
    c = 1.0
    d = 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    result = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d = 1.0 / _away_from_zero(1.0 + even * d, tiny)
        c = _away_from_zero(1.0 + even / c, tiny)
        result *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d = 1.0 / _away_from_zero(1.0 + odd * d, tiny)
        c = _away_from_zero(1.0 + odd / c, tiny)
        result *= d * c
        if abs(d * c - 1.0) < 1e-16:
            break
    return result


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
