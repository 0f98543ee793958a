"""The functions of a profile, ranked by their cost, and errors for too few samples to rank."""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, lru_cache
from pathlib import Path

from pytest_flamegate.config.thresholds import SAMPLE_FLOOR
from pytest_flamegate.core.errors import UndecidedError
from pytest_flamegate.profile.model import Frame, Hotspot, Profile, Stack, merge_profiles

_QUALIFIER = re.compile(r"^.*(?:::|\.)(?=[^:.]+$)")


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """One row of the table: frames of ``kinds`` with such a name or module have ``category``."""

    category: str
    kinds: frozenset[str]
    names: re.Pattern[str] | None
    modules: re.Pattern[str] | None

    def matches(self, frame: Frame) -> bool:
        """Whether ``frame`` belongs to this category."""
        if self.kinds and frame.kind not in self.kinds:
            return False
        if self.modules is not None and self.modules.match(frame.module.lower()):
            return True
        name, names = frame.name.lower(), self.names
        bare = _QUALIFIER.sub("", name)
        return names is not None and any(names.match(each) for each in (name, bare))


@cache
def load_category_rules() -> tuple[CategoryRule, ...]:
    """Return the rows of the table in their order; the last one matches every frame."""
    rows = tomllib.loads(Path(__file__).with_name("category.toml").read_text("utf-8"))["rule"]
    return tuple(
        CategoryRule(
            category=row["category"],
            kinds=frozenset(row.get("kinds", ())),
            names=_compile(row.get("names", ())),
            modules=_compile(row.get("modules", ())),
        )
        for row in rows
    )


@lru_cache(maxsize=65536)
def categorize_frame(frame: Frame) -> str:
    """Return the category of the first rule that matches ``frame``."""
    return next(rule.category for rule in load_category_rules() if rule.matches(frame))


def _compile(globs: Iterable[str]) -> re.Pattern[str] | None:
    parts = [translate(glob) for glob in globs]
    return re.compile("|".join(parts)) if parts else None


def count_by_name(
    stacks: Mapping[Stack, int],
) -> tuple[Counter[str], Counter[str], dict[str, Frame]]:
    """Return each function's own samples, those of all stacks that it occurs in, and its frame.

    Of several frames of one name it is the heaviest, by its own samples first.
    """
    own: Counter[Frame] = Counter()
    within: Counter[Frame] = Counter()
    inclusive: Counter[str] = Counter()
    for stack, samples in stacks.items():
        # Not sets, whose order differs from process to process, and with it that of messages.
        within.update(dict.fromkeys(stack, samples))
        inclusive.update(dict.fromkeys((frame.name for frame in stack), samples))
        own.update(dict.fromkeys(stack[-1:], samples))
    own_by_name: Counter[str] = Counter()
    for frame, samples in own.items():
        own_by_name[frame.name] += samples
    ordered = sorted(within, key=lambda frame: (own[frame], within[frame], frame))
    return own_by_name, inclusive, {frame.name: frame for frame in ordered}


def rank_hotspots(profile: Profile, cpu_s_per_token: float | None = None) -> tuple[Hotspot, ...]:
    """Return every function, the one with the largest self share first.

    Functions of one name are one hotspot, which shows the module, kind and category of its
    heaviest frame. With ``cpu_s_per_token``, the CPU time of one token in seconds, each hotspot
    gets its self share of it.
    """
    own, inclusive, frames = count_by_name(profile.stacks)
    total = profile.samples
    hotspots = []
    for name, frame in frames.items():
        self_share = own[name] / total
        hotspots.append(
            Hotspot(
                name=name,
                module=frame.module,
                kind=frame.kind,
                category=categorize_frame(frame),
                self_samples=own[name],
                inclusive_samples=inclusive[name],
                self_share=self_share,
                inclusive_share=inclusive[name] / total,
                cpu_s_per_token=None if cpu_s_per_token is None else self_share * cpu_s_per_token,
            )
        )
    hotspots.sort(key=lambda spot: (-spot.self_samples, -spot.inclusive_samples, spot.name))
    return tuple(hotspots)


def no_samples_error(profiler: str, errors: int, lost: int) -> UndecidedError:
    """Build the error for a profile without a sample."""
    return UndecidedError(
        "E_NO_SAMPLES", f"{profiler} took no sample ({errors} errors, {lost} lost)."
    )


def pool_profiles(
    profiler: str | None, profiles: Sequence[Profile], max_tokens: int | None = None
) -> tuple[Profile | None, Mapping[str, str]]:
    """Return the sum of all samples, None if there are none, and a note if they are too few.

    ``profiler`` is the name of the one that took them, None if none was asked for.
    With ``max_tokens``, those of one run, the note says how many would suffice.
    """
    if profiler is None:
        return None, {}
    pooled = merge_profiles(profiles) if profiles else None
    taken = sum(profile.samples for profile in profiles)
    if taken >= SAMPLE_FLOOR:
        return pooled, {}
    if not taken:
        errors = sum(profile.errors for profile in profiles)
        error = no_samples_error(profiler, errors, sum(profile.lost for profile in profiles))
    else:
        problem = f"{profiler} took {taken} samples, and {SAMPLE_FLOOR} are needed."
        error = UndecidedError("E_FEW_SAMPLES", problem)
    text = f"{error.problem} {error.remedy}"
    if taken and max_tokens is not None:
        text += f" About max_tokens = {math.ceil(2 * SAMPLE_FLOOR / taken) * max_tokens} is enough."
    return pooled, {error.code: text}
