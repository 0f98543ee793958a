"""Where a run computed, as far as it was seen: ``cpu`` or ``cuda``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_flamegate.receipt.policies import policy_of_engine

if TYPE_CHECKING:
    from pytest_flamegate.receipt.types import Evidence
    from pytest_flamegate.workload.device import DevicesSeen


def backend_of(evidence: Evidence) -> Literal["cpu", "cuda"]:
    """Return ``cuda`` only where two witnesses of different kinds say so, else ``cpu``.

    The device: nodes, kernel driver and NVML agree, and every timed run was seen to
    compute on it. And a kernel: one name at least, of the profile or told by the engine,
    that shows GPU compute under the engine's kernel policy. A profiler of the CPU may see
    none of a GPU's kernels; then the claim stays ``cpu``, and its grade says that this is
    not the whole of it (``W_DEVICE_BUSY``).
    """
    seen = evidence.device
    if seen is None or any(seen.missing()) or any(seen.contradictions()):
        return "cpu"
    timed = sum(run.role == "timed" for run in evidence.runs)
    if not timed or active_runs(seen) < timed:
        return "cpu"
    policy = policy_of_engine(str(evidence.workload["engine"]))
    gpu = any(policy.shows_gpu_compute(sighting.name) for sighting in evidence.kernels)
    return "cuda" if gpu else "cpu"


def active_runs(seen: DevicesSeen) -> int:
    """Return how many timed runs were seen to compute on a device."""
    return sum(run.active for run in seen.runs)
