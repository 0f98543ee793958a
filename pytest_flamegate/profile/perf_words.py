"""What perf says when it cannot, and what to do."""

from __future__ import annotations

from pytest_flamegate.profile.packages import install
from pytest_flamegate.profile.words import (
    DENIED,
    DISK_FULL,
    GONE,
    OUTPUT,
    RATE,
    SECCOMP,
    VERSION,
    Known,
)

INSTALL = install("perf")
_CONTAINER = (
    "Start the container with --cap-add=PERFMON and a seccomp profile that allows "
    "perf_event_open (docker: --security-opt seccomp=unconfined)."
)
KNOWN = (
    Known("No permission to enable", SECCOMP, _CONTAINER),
    Known("Function not implemented", SECCOMP, _CONTAINER),
    Known(
        "Access to performance monitoring",
        DENIED,
        "Type: sudo sysctl kernel.perf_event_paranoid=1 (in a container: --cap-add=PERFMON); "
        "py-spy needs no such setting.",
    ),
    Known(
        "Permission denied",
        DENIED,
        "Sample a process of your own user, and write to a directory of your own.",
    ),
    Known("not found for kernel", VERSION, INSTALL),
    Known("nknown option", VERSION, f"perf 5.10 or newer is needed. {INSTALL}"),
    Known("unknown switch", VERSION, f"perf 5.10 or newer is needed. {INSTALL}"),
    Known(
        "Maximum frequency rate",
        RATE,
        "Ask for fewer samples a second, or raise kernel.perf_event_max_sample_rate.",
    ),
    Known("No such process", GONE, "The process ended before it could be sampled."),
    Known(
        "No such file or directory",
        "E_CANNOT_START",
        "Check that the program exists and may be executed.",
    ),
    DISK_FULL,
    Known(
        "incompatible file format",
        OUTPUT,
        "Measure again; the recording is damaged or of another perf.",
    ),
)
