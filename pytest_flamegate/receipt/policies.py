"""Kernel policies: what an engine's kernel names say. A policy is data, one file each.

A new policy is one file in ``kernel_policies/`` and its name in ``POLICY_NAMES``.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import quote

if TYPE_CHECKING:
    from collections.abc import Iterable


POLICY_NAMES = ("bitnet", "embedded", "ggml", "torch", "generic")
DEFAULT_POLICY = "bitnet"


@dataclass(frozen=True, slots=True)
class Names:
    """A set of kernel names, as patterns that match whole names."""

    exact: re.Pattern[str] | None
    any_case: re.Pattern[str] | None

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Names:
        """Compile ``patterns``, of which one must match; no patterns match nothing."""
        joined = "|".join(f"(?:{pattern})" for pattern in patterns)
        if not joined:
            return cls(None, None)
        return cls(re.compile(joined), re.compile(joined, re.IGNORECASE))

    def __contains__(self, name: str) -> bool:
        """Say whether the name stands in the set as written: what credit needs."""
        return self.exact is not None and self.exact.fullmatch(name) is not None

    def resembles(self, name: str) -> bool:
        """Say whether it does in any case: what suspicion needs."""
        return self.any_case is not None and self.any_case.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """What kernel names of one engine mean. There is one object for each policy.

    ``claims_quantized`` says that every receipt under this policy claims quantised
    compute. ``cpu_wanted`` and ``gpu_wanted`` say in words what a run must name.
    """

    name: str
    engines: tuple[str, ...]
    aliases: tuple[str, ...]
    summary: str
    claims_quantized: bool
    cpu_wanted: str
    gpu_wanted: str
    gpu: Names
    gpu_auxiliary: Names
    never_gpu: Names
    cpu: Names
    fallback: Names

    def names_gpu(self, kernel: str) -> bool:
        """Say whether ``kernel`` speaks of a GPU, in whatever case and role."""
        return _roles(self, kernel).names_gpu

    def shows_gpu_compute(self, kernel: str) -> bool:
        """Say whether ``kernel`` shows that a GPU computed: no waiting, copying or fallback."""
        return _roles(self, kernel).shows_gpu_compute

    def shows_cpu_compute(self, kernel: str) -> bool:
        """Say whether ``kernel`` is what a CPU run of this engine must name."""
        return _roles(self, kernel).shows_cpu_compute

    def is_fallback(self, kernel: str) -> bool:
        """Say whether ``kernel`` is a slow stand-in for a quantised kernel."""
        return _roles(self, kernel).is_fallback


class _Roles(NamedTuple):
    names_gpu: bool
    shows_gpu_compute: bool
    shows_cpu_compute: bool
    is_fallback: bool


# Several rules ask each name, and the receipts of one engine repeat its names.
@lru_cache(maxsize=16_384)
def _roles(policy: Policy, kernel: str) -> _Roles:
    never = policy.never_gpu.resembles(kernel)
    auxiliary = policy.gpu_auxiliary.resembles(kernel)
    fallback = policy.fallback.resembles(kernel)
    gpu = not never and (auxiliary or policy.gpu.resembles(kernel))
    return _Roles(
        gpu,
        kernel in policy.gpu and not auxiliary and not never and not fallback,
        kernel in policy.cpu and not gpu and not fallback,
        fallback,
    )


def policy_for(name: str | None = None) -> Policy:
    """Return the policy called ``name``, the default for None; UsageError if there is none.

    An alias names the same policy as its own name does.
    """
    if name is None:
        name = DEFAULT_POLICY
    if name in POLICY_NAMES:
        return _load(name)
    for known in POLICY_NAMES:
        if name in _load(known).aliases:
            return _load(known)
    names = [each for known in POLICY_NAMES for each in (known, *_load(known).aliases)]
    raise UsageError(
        "E_UNKNOWN_POLICY",
        f"There is no kernel policy {quote(name)}.",
        f"Choose one of {', '.join(names)}.",
    )


def policy_of_engine(engine: str | None) -> Policy:
    """Return the policy of ``engine``, the default for None; UsageError for an unknown one."""
    if engine is None:
        return policy_for(None)
    for name in POLICY_NAMES:
        if engine in _load(name).engines:
            return _load(name)
    known = ", ".join(engine for name in POLICY_NAMES for engine in _load(name).engines)
    raise UsageError(
        "E_UNKNOWN_ENGINE",
        f"No kernel policy is known for the engine {quote(engine)}.",
        f"Name one of these engines ({known}), or choose the policy yourself.",
    )


@cache
def _load(name: str) -> Policy:
    directory = resources.files("pytest_flamegate.receipt") / "kernel_policies"
    data = tomllib.loads((directory / f"{name}.toml").read_text("utf-8"))
    return Policy(
        name=name,
        engines=tuple(data["engines"]),
        aliases=tuple(data.get("aliases", ())),
        summary=data["summary"],
        claims_quantized=data["claims_quantized"],
        cpu_wanted=data["cpu_wanted"],
        gpu_wanted=data["gpu_wanted"],
        gpu=Names.of(data["gpu"]),
        gpu_auxiliary=Names.of(data["gpu_auxiliary"]),
        never_gpu=Names.of(data["never_gpu"]),
        cpu=Names.of(data["cpu"]),
        fallback=Names.of(data["fallback"]),
    )
