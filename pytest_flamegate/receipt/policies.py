"""Kernel policies: the meaning of an engine's kernel names. A policy is data, one file each.

A new policy is one file in ``kernel_policies/`` and its name in ``POLICY_NAMES``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import quote
from pytest_flamegate.engines import ENGINES

POLICY_NAMES = ("bitnet", "embedded", "ggml", "torch", "generic")
DEFAULT_POLICY = "bitnet"
_NAMES = ("gpu", "gpu_auxiliary", "never_gpu", "cpu", "fallback")


class Roles(NamedTuple):
    """The meaning of a kernel's name.

    Attributes:
        names_gpu: It names a GPU, in any case and role.
        shows_gpu_compute: It shows that a GPU computed: no waiting, copying or fallback.
        shows_cpu_compute: It is one that a CPU run of this engine must name.
        is_fallback: It is a slow replacement of a quantised kernel.
    """

    names_gpu: bool
    shows_gpu_compute: bool
    shows_cpu_compute: bool
    is_fallback: bool


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """The meaning of one engine's kernel names. There is one object for each policy.

    ``cpu_wanted`` and ``gpu_wanted`` describe in words the kernel that a run must name. The
    patterns of each set of names match whole names, as written or in any case.
    """

    name: str
    aliases: tuple[str, ...]
    cpu_wanted: str
    gpu_wanted: str
    exact: Mapping[str, re.Pattern[str]]
    any_case: Mapping[str, re.Pattern[str]]

    def roles(self, kernel: str) -> Roles:
        """Return the meaning of the name ``kernel``."""
        return _find_roles(self, kernel)


# Several rules ask each name, and the receipts of one engine repeat its names.
@lru_cache(maxsize=16_384)
def _find_roles(policy: Policy, kernel: str) -> Roles:
    resembled = {name for name, pattern in policy.any_case.items() if pattern.fullmatch(kernel)}
    equal = {name for name, pattern in policy.exact.items() if pattern.fullmatch(kernel)}
    is_fallback = "fallback" in resembled
    names_gpu = "never_gpu" not in resembled and not resembled.isdisjoint({"gpu", "gpu_auxiliary"})
    return Roles(
        names_gpu,
        names_gpu and "gpu" in equal and "gpu_auxiliary" not in resembled and not is_fallback,
        "cpu" in equal and not names_gpu and not is_fallback,
        is_fallback,
    )


def policy_for(name: str | None = None) -> Policy:
    """Return the policy of this name or alias, the default for None; UsageError if none."""
    name = DEFAULT_POLICY if name is None else name
    for known in POLICY_NAMES:
        if name == known or name in _load(known).aliases:
            return _load(known)
    names = [each for known in POLICY_NAMES for each in (known, *_load(known).aliases)]
    raise UsageError(
        "E_BAD_OPTION",
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
    # No patterns match nothing.
    patterns = {key: "|".join(f"(?:{each})" for each in data[key]) or "(?!)" for key in _NAMES}
    return Policy(
        name,
        tuple(data.get("aliases", ())),
        data["cpu_wanted"],
        data["gpu_wanted"],
        {key: re.compile(pattern) for key, pattern in patterns.items()},
        {key: re.compile(pattern, re.IGNORECASE) for key, pattern in patterns.items()},
    )
