"""Kernel policies: the meaning of an engine's kernel names. A policy is data, one file each.

A new policy is one file in ``kernel_policies/`` and its name in ``POLICY_NAMES``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import quote
from pytest_flamegate.engines import ENGINES

POLICY_NAMES = ("bitnet", "embedded", "ggml", "torch", "generic")
DEFAULT_POLICY = "bitnet"
_NAMES = ("gpu", "gpu_auxiliary", "never_gpu", "cpu", "fallback")


@dataclass(frozen=True, slots=True)
class Names:
    """A set of kernel names, as patterns that match whole names."""

    exact: re.Pattern[str]
    any_case: re.Pattern[str]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Names:
        """Compile ``patterns``, of which one must match; no patterns match nothing."""
        joined = "|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)"
        return cls(re.compile(joined), re.compile(joined, re.IGNORECASE))

    def __contains__(self, name: str) -> bool:
        """Whether the name as written is in the set."""
        return self.exact.fullmatch(name) is not None

    def resembles(self, name: str) -> bool:
        """Whether the name in any case is in the set."""
        return self.any_case.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """The meaning of one engine's kernel names. There is one object for each policy.

    ``cpu_wanted`` and ``gpu_wanted`` describe in words the kernel that a run must name.
    """

    name: str
    aliases: tuple[str, ...]
    summary: str
    cpu_wanted: str
    gpu_wanted: str
    gpu: Names
    gpu_auxiliary: Names
    never_gpu: Names
    cpu: Names
    fallback: Names

    def names_gpu(self, kernel: str) -> bool:
        """Whether ``kernel`` names a GPU, in any case and role."""
        return _roles(self, kernel).names_gpu

    def shows_gpu_compute(self, kernel: str) -> bool:
        """Whether ``kernel`` shows that a GPU computed: no waiting, copying or fallback."""
        return _roles(self, kernel).shows_gpu_compute

    def shows_cpu_compute(self, kernel: str) -> bool:
        """Whether ``kernel`` is one that a CPU run of this engine must name."""
        return _roles(self, kernel).shows_cpu_compute

    def is_fallback(self, kernel: str) -> bool:
        """Whether ``kernel`` is a slow replacement of a quantised kernel."""
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
    name = DEFAULT_POLICY if name is None else name
    for known in POLICY_NAMES:
        if name == known or name in _load(known).aliases:
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
    if engine in ENGINES:
        return policy_for(ENGINES[engine].kernel_policy)
    try:
        return policy_for(engine)  # receipts of other tools name an engine like its policy
    except UsageError:
        known = ", ".join(dict.fromkeys((*ENGINES, *POLICY_NAMES)))
        raise UsageError(
            "E_UNKNOWN_ENGINE",
            f"No kernel policy is known for the engine {quote(engine)}.",
            f"Name one of these engines ({known}), or choose the policy yourself.",
        ) from None


@cache
def _load(name: str) -> Policy:
    directory = resources.files("pytest_flamegate.receipt") / "kernel_policies"
    data = tomllib.loads((directory / f"{name}.toml").read_text("utf-8"))
    texts: Any = {key: data[key] for key in ("summary", "cpu_wanted", "gpu_wanted")}
    names: Any = {key: Names.of(data[key]) for key in _NAMES}
    return Policy(name, tuple(data.get("aliases", ())), **texts, **names)
