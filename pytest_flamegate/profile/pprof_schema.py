"""The messages of pprof's ``profile.proto``, as far as they are written.

Built from their description at run time, so that no generated code has to fit the
version of protobuf that is installed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pytest_flamegate.errors import ToolError

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
"""Number and type of each field; ``*`` before a type: any number of them."""


@cache
def profile_message() -> Any:
    """Return the class of the message ``Profile``.

    Raises ``ToolError`` ``E_NO_PROTOBUF`` where the package is not installed.
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
