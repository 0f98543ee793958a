"""What a recording has to tell its parser and the profiler's own file does not hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_flamegate.profile.words import unreadable

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Which process was sampled, samples that failed, and what was not as it should be.

    ``started_ticks`` is the kernel's start time of ``pid``; ``nonblocking`` says that it
    was not paused where pausing was wanted.
    """

    pid: int | None = None
    started_ticks: int | None = None
    nonblocking: bool = False
    errors: int = 0
    degraded: tuple[str, ...] = ()


def path_beside(raw: Path) -> Path:
    """Return where the sidecar of ``raw`` stands."""
    return raw.with_name(raw.name + ".meta.json")


def write(raw: Path, sidecar: Sidecar) -> None:
    """Put the sidecar beside ``raw``."""
    path_beside(raw).write_text(json.dumps(asdict(sidecar)), encoding="utf-8")


def read(raw: Path, profiler: str) -> Sidecar:
    """Read the sidecar of ``raw``; an empty one where there is none (a wrapped command)."""
    try:
        content = path_beside(raw).read_bytes()
    except FileNotFoundError:
        return Sidecar()
    except OSError as error:
        raise unreadable(profiler, f"{path_beside(raw).name}: {error}") from None
    return parse(content, profiler)


def parse(content: bytes, profiler: str) -> Sidecar:
    """Read what ``write`` wrote. Raises ``ProfilerError`` ``E_PROFILER_OUTPUT``."""
    try:
        data: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise unreadable(profiler, f"the notes beside it are no JSON ({error})") from None
    match data:
        case {
            "pid": int() | None as pid,
            "started_ticks": int() | None as started_ticks,
            "nonblocking": bool(nonblocking),
            "errors": int(errors),
            "degraded": list(degraded),
        } if all(isinstance(entry, str) for entry in degraded):
            return Sidecar(pid, started_ticks, nonblocking, errors, tuple(degraded))
    raise unreadable(profiler, "the notes beside it hold something else")


def fresh(directory: Path, stem: str, suffix: str) -> Path:
    """Return a path in ``directory`` (made if absent) at which nothing stands yet."""
    directory.mkdir(parents=True, exist_ok=True)
    number = 0
    while (path := directory / f"{stem}-{number}{suffix}").exists():
        number += 1
    return path
