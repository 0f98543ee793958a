"""Workloads of a file, for tests that declare what they need."""

from pathlib import Path

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines.declare import read_declarations


def read_file(path: Path) -> tuple[Workload, ...]:
    """Return the workloads declared in ``path``; raise any error in one of them."""
    found = read_declarations(path)
    for invalid in found.invalid:
        raise invalid.error
    return found.workloads
