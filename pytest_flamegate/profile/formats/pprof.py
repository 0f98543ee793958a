"""Write a profile for pprof: a compressed ``profile.proto``.

A Python function belongs to its file, a native one to the mapping of its library; the first
mapping is the program itself. No address, line or time of day is written.
"""

from __future__ import annotations

import gzip
from functools import cache
from typing import Any

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.text import escape_name
from pytest_flamegate.profile.folded import format_frame
from pytest_flamegate.profile.formats.imported import UNKNOWN_TEXT
from pytest_flamegate.profile.model import Frame, Profile, Unit

PACKAGE = "perftools.profiles"
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "Profile": {
        "sample_type": (1, "*ValueType"),
        "sample": (2, "*Sample"),
        "mapping": (3, "*Mapping"),
        "location": (4, "*Location"),
        "function": (5, "*Function"),
        "string_table": (6, "*string"),
        "duration_nanos": (10, "int64"),
        "period_type": (11, "ValueType"),
        "period": (12, "int64"),
        "comment": (13, "*int64"),
        "default_sample_type": (14, "int64"),
    },
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Sample": {"location_id": (1, "*uint64"), "value": (2, "*int64")},
    "Mapping": {
        "id": (1, "uint64"),
        "filename": (5, "int64"),
        "has_functions": (7, "bool"),
    },
    "Location": {"id": (1, "uint64"), "mapping_id": (2, "uint64"), "line": (4, "*Line")},
    "Line": {"function_id": (1, "uint64")},
    "Function": {
        "id": (1, "uint64"),
        "name": (2, "int64"),
        "system_name": (3, "int64"),
        "filename": (4, "int64"),
    },
}
"""Number and type of each field; ``*`` marks a repeated one."""


@cache
def profile_message() -> Any:
    """Return the class of the message ``Profile``.

    Raises ``ToolError`` ``E_NO_PROTOBUF`` if the package protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise ToolError(
            "E_NO_PROTOBUF",
            "Writing pprof files needs the package protobuf, which is not installed.",
            "Type: pip install 'pytest-flamegate[pprof]'",
        ) from None
    described = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="flamegate/profile.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            bare = kind.removeprefix("*")
            label = described.LABEL_OPTIONAL if bare == kind else described.LABEL_REPEATED
            entry = message.field.add(name=field, number=number, label=label)
            if bare in _FIELDS:
                entry.type = described.TYPE_MESSAGE
                entry.type_name = f".{PACKAGE}.{bare}"
            else:
                entry.type = described.Type.Value(f"TYPE_{bare.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.Profile"))


_SAMPLE_TYPES: dict[Unit, tuple[str, str]] = {
    "samples": ("samples", "count"),
    "instructions": ("instructions", "count"),
    "nanoseconds": ("time", "nanoseconds"),
    "bytes": ("space", "bytes"),
}
_NS_PER_S = 1_000_000_000


def write_pprof(profile: Profile, title: str) -> bytes:
    """Return ``profile`` as the bytes of a pprof file; equal profiles give equal bytes.

    The period is that of the sampling rate, in nanoseconds. Raises ``ToolError``
    ``E_NO_PROTOBUF`` if the package protobuf is not installed.
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
            # Not the name: pprof would take "<module>" for C++ and shorten it.
            system_name=text(format_frame(frame)),
            filename=text(frame.module) if python else 0,
        )
    program = escape_name(title)  # a file name may hold bytes that are no text
    for within, number in libraries.items():
        message.mapping.add(id=number, filename=text(within or program), has_functions=True)
    if profile.rate_hz > 0:
        message.period_type.type = text(profile.event)
        message.period_type.unit = text("nanoseconds")
        message.period = round(_NS_PER_S / profile.rate_hz)
    message.duration_nanos = profile.duration_ns
    message.comment.extend(text(comment) for comment in _comments(profile))
    message.string_table.extend(texts)
    return gzip.compress(message.SerializeToString(deterministic=True), mtime=0)


def _comments(profile: Profile) -> list[str]:
    known = [] if profile.profiler == UNKNOWN_TEXT else [profile.profiler, profile.profiler_version]
    comments = [" ".join(filter(None, known))]
    if profile.call_graph != UNKNOWN_TEXT:
        comments.append(f"call graph {profile.call_graph}")
    return [*filter(None, comments), *profile.degraded]
