from __future__ import annotations

import re

import pytest

from pytest_flamegate.gate import machine_id
from pytest_flamegate.gate.comparability import MACHINE_ID_FIELDS
from tests.gate.factory import MACHINE


@pytest.mark.parametrize(
    ("model", "cores", "start"),
    [
        ("AMD EPYC 7763 64-Core Processor", "2", "amd-epyc-7763-2c-"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "8", "intel-xeon-8c-"),
        ("Apple M3 Max", "14", "apple-m3-max-14c-"),
        ("Neoverse-N1", "4", "neoverse-n1-4c-"),
        ("../../etc/passwd", "2", "etc-passwd-2c-"),
        ("龙芯", "2", "unknown-2c-"),
        ("\ud800", "2", "unknown-2c-"),
        ("", "", "unknown-xc-"),
        ("x" * 400, "9" * 40, "xxxxxxxxxxxxxxxx-999999c-"),
    ],
)
def test_names_the_machine_class(model: str, cores: str, start: str) -> None:
    name = machine_id({**MACHINE, "cpu_model": model, "cpu_cores": cores})
    assert name.startswith(start)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert len(name) < 80


def test_is_stable() -> None:
    # A change here would orphan every accepted baseline.
    assert machine_id(MACHINE) == "amd-epyc-7763-2c-01ac1b"


@pytest.mark.parametrize("field", MACHINE_ID_FIELDS)
def test_each_field_of_the_hardware_tells_machines_apart(field: str) -> None:
    assert machine_id({**MACHINE, field: "other"}) != machine_id(MACHINE)
    assert machine_id({k: v for k, v in MACHINE.items() if k != field}) != machine_id(MACHINE)


@pytest.mark.parametrize("field", sorted(set(MACHINE) - set(MACHINE_ID_FIELDS)))
def test_software_does_not_rename_the_machine(field: str) -> None:
    assert machine_id({**MACHINE, field: "other"}) == machine_id(MACHINE)
