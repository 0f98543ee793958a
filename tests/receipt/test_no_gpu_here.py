"""A library that says GPU is not a GPU: on a machine without one, no run becomes cuda."""

from __future__ import annotations

import ctypes
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_flamegate.core import process
from pytest_flamegate.observe.gpu_watch import NvidiaDriver
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.receipt.compose import Subject, compose
from pytest_flamegate.receipt.documents import encode_evidence
from pytest_flamegate.receipt.types import Evidence, Receipt
from tests.made import Bundle
from tests.observe.test_observer import observer, python_workload
from tests.profile.profiles import profile, python
from tests.receipt.gpu import seen
from tests.tools import require

KERNEL = "sm80_xmma_gemm"
PACKAGE = """\
from pathlib import Path
Path(__file__).with_name("asked").touch()
def __getattr__(name):
    raise RuntimeError(name)
"""
LIBRARY = """\
#include <string.h>
typedef unsigned int u;
static int say(char *to, u size, const char *text) { strncpy(to, text, size); return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(u flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *to, u size) { return say(to, size, "550.54.15"); }
int nvmlSystemGetNVMLVersion(char *to, u size) { return say(to, size, "12.550.54.15"); }
int nvmlDeviceGetCount_v2(u *count) { *count = 1; return 0; }
"""
ASKED = """\
import json, sys
import pynvml
from pytest_flamegate.observe.gpu_watch import Watch
from pytest_flamegate.observe.gpu_watch import Nvml
pynvml.nvmlInit()
nvml, watch = Nvml(), Watch()
nvml.open(None)
watch.before()
seen = watch.seen([])
print(json.dumps([pynvml.nvmlDeviceGetCount(), nvml.driver, len(nvml.devices), len(seen.devices)]))
"""


@pytest.fixture(autouse=True)
def _no_gpu() -> None:
    if NvidiaDriver().nodes():
        pytest.skip("this machine has a GPU")


def measured(directory: Path) -> Observation:
    """Measure on this machine."""
    watched = observer(python_workload(directory, "four"))
    watched.timed(0.02)
    watched.timed(0.02)
    return watched.observation()


@pytest.fixture(scope="module")
def observation(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    return measured(tmp_path_factory.mktemp("measured"))


def composed(directory: Path, observation: Observation) -> tuple[Receipt, Evidence]:
    """Claim what was observed, with a profile that shows a kernel by a GPU kernel's name."""
    workload = python_workload(directory, "four")
    sampled = profile({(python(KERNEL),): 300})
    machine = {"os": "linux", "arch": "x86_64"}
    subject = Subject(workload, {"path": "model"}, machine, None, "0.1.0", None)
    receipt, evidence = compose(subject, observation, [sampled], sampled, None)
    assert receipt is not None
    return receipt, evidence


def verified(receipt: Receipt, evidence: Evidence) -> Verification:
    triple = Bundle(receipt, evidence, b"").sealed()
    return verify_receipt(triple.files["receipt.json"], evidence=encode_evidence(triple.evidence))


def test_a_package_of_that_name_is_not_even_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "pynvml.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(fake)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    receipt, evidence = composed(tmp_path, measured(tmp_path))
    assert not (fake / "asked").exists()
    assert receipt.kernels == (KERNEL,)
    assert receipt.backend == "cpu"
    assert evidence.device is not None
    assert evidence.device.runs == ()


def test_cuda_claimed_here_is_refused(tmp_path: Path, observation: Observation) -> None:
    receipt, evidence = composed(tmp_path, observation)
    answer = verified(replace(receipt, backend="cuda"), evidence)
    assert "E_NO_DEVICE" in {refusal.code for refusal in answer.refusals}
    assert not answer.ok
    assert answer.grade < Grade.OBSERVED


def test_evidence_that_leaves_the_device_out_is_never_observed(
    tmp_path: Path, observation: Observation
) -> None:
    receipt, evidence = composed(tmp_path, observation)
    answer = verified(replace(receipt, backend="cuda"), replace(evidence, device=None))
    assert "W_DEVICE_NOT_OBSERVED" in {notice.code for notice in answer.warnings}
    assert answer.grade < Grade.OBSERVED


def test_what_was_seen_decides_and_not_this_machine(
    tmp_path: Path, observation: Observation
) -> None:
    """The same runs, seen on a GPU: composed and verified here, where there is none."""
    elsewhere = seen(Bundle(*composed(tmp_path, observation), b""))
    receipt, evidence = composed(tmp_path, replace(observation, device=elsewhere))
    assert receipt.backend == "cuda"
    found = verified(receipt, evidence)
    named = {each.code for each in (*found.refusals, *found.warnings)}
    assert not [code for code in named if "DEVICE" in code or "GPU" in code]


def test_a_library_alone_is_not_believed(tmp_path: Path) -> None:
    """A stub of libnvidia-ml fools NVML's own package, and shows the observer nothing."""
    compiler = shutil.which("cc")
    require(compiler is not None, "no C compiler to make a false library with")
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    made = process.run(
        [str(compiler), "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")],
        timeout_s=60,
    )
    assert made.returncode == 0, made.stderr
    assert ctypes.CDLL(str(library)).nvmlInit_v2() == 0
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    asked = process.run([sys.executable, "-c", ASKED], timeout_s=60, env=environment)
    assert asked.stdout.decode().strip() == '[1, "550.54.15", 0, 0]', asked.stderr
