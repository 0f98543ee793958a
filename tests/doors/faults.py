"""Every way in which each profiler is made to fail, and the code that it must end in."""

from __future__ import annotations

import json
import signal
from typing import Any, NamedTuple

from tests.profile.fakes import (
    PERF,
    PERF_DENIED,
    PERF_OLD,
    PERF_SECCOMP,
    PYSPY,
    SPY_DENIED,
    SPY_NEW_PYTHON,
    SPY_SECCOMP,
    failing,
)

ABSENT = None
_NAMES = ("measured_sequences", "hash_round", "flamegate_spinner")
_STACK = "".join(
    f"\t    55d0c0de1234 py::{name}:/toy.py (/tmp/jitted-7-1.so)\n" for name in reversed(_NAMES)
)
SCRIPT = "".join(f"  7/7  1.{at:06d}: cpu-clock:\n{_STACK}\n" for at in range(40))
SPEEDSCOPE = json.dumps(
    {
        "shared": {"frames": [{"name": name, "file": "toy.py"} for name in _NAMES]},
        "profiles": [
            {
                "type": "sampled",
                "name": 'Thread 7 "MainThread"',
                "samples": [[0, 1, 2]] * 40,
                "weights": [0.01] * 40,
            }
        ],
    }
)
GOOD_PERF: dict[str, Any] = {**PERF, "script": {"out": SCRIPT}}
GOOD_SPY: dict[str, Any] = {**PYSPY, "record": {"do": "serve", "file": SPEEDSCOPE}}
"""Both see the toy engine, and the process that profilers are tried on."""

_KILLED = {"do": "die", "signal": int(signal.SIGKILL)}
_PERF_FULL = {
    "do": "die",
    "err": "failed to write perf data, error: No space left on device\n",
    "code": 255,
}
_SPY_FULL = {"do": "die", "err": "Error: No space left on device (os error 28)\n", "code": 1}
_COUNT = "version: 1\nevents: Ir\nfn=(1) f\n1 5\n"


class Fault(NamedTuple):
    """``plan`` changes that of the fake (``ABSENT``: there is no tool); ``words`` are the tool's.

    ``midway`` is the code where the tool works when it is tried and fails when it measures;
    None where it fails in no such way then.
    """

    plan: dict[str, Any] | None
    code: str
    words: str
    midway: str | None = None


FAULTS: dict[str, dict[str, Fault]] = {
    "perf": {
        "absent": Fault(ABSENT, "E_PROFILER_ABSENT", "no program perf"),
        "no permission": Fault(
            failing(PERF_DENIED), "E_PROFILER_DENIED", "Access to performance monitoring"
        ),
        "seccomp EPERM": Fault(
            failing(PERF_SECCOMP), "E_PROFILER_DENIED", "No permission to enable"
        ),
        "crash": Fault(
            {"record": {"do": "crash"}}, "E_PROFILER_FAILED", "status -11", "E_PROFILER_FAILED"
        ),
        "hang": Fault(
            {"record": {"do": "hang"}}, "E_PROFILER_FAILED", "no answer", "E_PROFILER_FAILED"
        ),
        "truncated output": Fault(
            {"script": {"out": SCRIPT[:-40]}}, "E_PROFILER_OUTPUT", "cut off", "E_PROFILER_OUTPUT"
        ),
        # One empty run among others is none: a short process may pass between two samples.
        "empty output": Fault({"script": {"out": ""}}, "E_NO_SAMPLES", "no sample"),
        "wrong version": Fault(failing(PERF_OLD, 129), "E_PROFILER_VERSION", "unknown option"),
        "disk full": Fault(
            {"record": _PERF_FULL}, "E_PROFILER_OUTPUT", "No space left", "E_PROFILER_OUTPUT"
        ),
        "killed": Fault({"record": _KILLED}, "E_PROFILER_FAILED", "status -9", "E_PROFILER_FAILED"),
    },
    "py-spy": {
        "absent": Fault(ABSENT, "E_PROFILER_ABSENT", "no program py-spy"),
        "no permission": Fault(failing(SPY_DENIED, 1), "E_PROFILER_DENIED", "Permission Denied"),
        "seccomp EPERM": Fault(
            failing(SPY_SECCOMP, 1), "E_PROFILER_DENIED", "Operation not permitted"
        ),
        "crash": Fault(
            {"record": {"do": "crash"}}, "E_PROFILER_FAILED", "status -11", "E_PROFILER_FAILED"
        ),
        "hang": Fault(
            {"record": {"do": "hang"}}, "E_PROFILER_FAILED", "no answer", "E_PROFILER_FAILED"
        ),
        "truncated output": Fault(
            {"record": {"do": "serve", "file": SPEEDSCOPE[:-50]}},
            "E_PROFILER_OUTPUT",
            "not JSON",
            "E_PROFILER_OUTPUT",
        ),
        "empty output": Fault(
            {"record": {"do": "serve", "file": ""}},
            "E_PROFILER_OUTPUT",
            "not JSON",
            "E_PROFILER_OUTPUT",
        ),
        "wrong version": Fault(
            failing(SPY_NEW_PYTHON, 1), "E_PROFILER_VERSION", "Unsupported version of Python"
        ),
        "disk full": Fault(
            {"record": _SPY_FULL}, "E_PROFILER_OUTPUT", "No space left", "E_PROFILER_OUTPUT"
        ),
        "killed": Fault({"record": _KILLED}, "E_PROFILER_FAILED", "status -9", "E_PROFILER_FAILED"),
    },
    "callgrind": {
        "absent": Fault(ABSENT, "E_PROFILER_ABSENT", "no program valgrind"),
        "no permission": Fault(
            {"begun": False, "code": 126, "err": "valgrind: ./engine: Permission denied\n"},
            "E_CANNOT_START",
            "Permission denied",
        ),
        "seccomp EPERM": Fault(
            {
                "begun": False,
                "code": 1,
                "err": "valgrind: mmap(0x58000000, 4096) failed in UME with error 1 "
                "(Operation not permitted).\n",
            },
            "E_PROFILER_DENIED",
            "Operation not permitted",
        ),
        "crash": Fault({"begun": False, "signal": 11}, "E_PROFILER_FAILED", "status -11"),
        "hang": Fault({"hang": True}, "E_TIMEOUT", "did not finish"),
        "truncated output": Fault(
            {"counts": {"1": _COUNT}}, "E_PROFILER_OUTPUT", "it ends before its totals"
        ),
        "empty output": Fault({"counts": {}}, "E_PROFILER_OUTPUT", "it wrote no file"),
        "wrong version": Fault(
            {
                "begun": False,
                "code": 1,
                "err": "valgrind: Unknown option: --command-line-only=yes\n",
            },
            "E_PROFILER_VERSION",
            "Unknown option",
        ),
        # valgrind ends with 0 on a full disk, and leaves a file of no bytes.
        "disk full": Fault({"counts": {"1": ""}}, "E_PROFILER_OUTPUT", "it ends before its totals"),
        "killed": Fault({"signal": 9}, "E_ENGINE_DIED", "killed by signal 9"),
    },
}
KINDS = (
    "absent",
    "no permission",
    "seccomp EPERM",
    "crash",
    "hang",
    "truncated output",
    "empty output",
    "wrong version",
    "disk full",
    "killed",
)
WISHES = ("required", "optional")
CELLS = [
    (profiler, kind, wish) for profiler in FAULTS for kind in FAULTS[profiler] for wish in WISHES
]
MIDWAY = [
    (profiler, kind)
    for profiler, faults in FAULTS.items()
    for kind, fault in faults.items()
    if fault.midway
]
