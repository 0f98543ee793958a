"""A profile as pprof reads it: a compressed ``profile.proto``.

A Python function stands in its file, a native one in the mapping of its library; the
first mapping is the program itself. No address, no line and no time of day is written.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

from pytest_flamegate.profile.fold import label
from pytest_flamegate.profile.imported import UNKNOWN_TEXT
from pytest_flamegate.profile.pprof_schema import profile_message
from pytest_flamegate.profile.text import escape

if TYPE_CHECKING:
    from pytest_flamegate.profile.model import Frame, Profile, Unit

_SAMPLE_TYPES: dict[Unit, tuple[str, str]] = {
    "samples": ("samples", "count"),
    "instructions": ("instructions", "count"),
    "nanoseconds": ("time", "nanoseconds"),
    "bytes": ("space", "bytes"),
}
_S = 1_000_000_000


def write_pprof(profile: Profile, name: str) -> bytes:
    """Return ``profile`` as the bytes of a pprof file; equal profiles give equal bytes.

    The period is that of the sampling rate, in nanoseconds. Raises ``ToolError``
    ``E_NO_PROTOBUF`` where the package protobuf is not installed.
    """
    message = profile_message()()
    texts: dict[str, int] = {"": 0}
    functions: dict[Frame, int] = {}
    libraries: dict[str | None, int] = {None: 1}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    kind, unit = _SAMPLE_TYPES[profile.unit]
    message.sample_type.add(type=text(kind), unit=text(unit))
    for stack, count in sorted(profile.stacks.items()):
        numbers = [functions.setdefault(frame, len(functions) + 1) for frame in stack]
        message.sample.add(location_id=reversed(numbers), value=[count])
    for frame, number in functions.items():
        python = frame.kind == "python"
        within = None if python else frame.module
        library = libraries.setdefault(within, len(libraries) + 1)
        place = message.location.add(id=number, mapping_id=library)
        place.line.add(function_id=number)
        message.function.add(
            id=number,
            name=text(frame.name),
            # Another one than the name: pprof takes "<module>" for C++ to be shortened else.
            system_name=text(label(frame)),
            filename=text(frame.module) if python else 0,
        )
    program = escape(name)  # that of a file may hold bytes that are no text
    for within, number in libraries.items():
        message.mapping.add(id=number, filename=text(within or program), has_functions=True)
    if profile.rate_hz > 0:
        message.period_type.type = text(profile.event)
        message.period_type.unit = text("nanoseconds")
        message.period = round(_S / profile.rate_hz)
    message.duration_nanos = profile.duration_ns
    message.comment.extend(text(comment) for comment in _comments(profile))
    message.string_table.extend(texts)
    return gzip.compress(message.SerializeToString(deterministic=True), mtime=0)


def _comments(profile: Profile) -> list[str]:
    known = [] if profile.profiler == UNKNOWN_TEXT else [profile.profiler, profile.profiler_version]
    told = [" ".join(filter(None, known))]
    if profile.call_graph != UNKNOWN_TEXT:
        told.append(f"call graph {profile.call_graph}")
    return [*filter(None, told), *profile.degraded]
