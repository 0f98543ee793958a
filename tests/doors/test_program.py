"""Engines and profilers, end to end; of llama.cpp in ``test_llama_cpp``."""

import json
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from pytest_flamegate.receipt import verify_receipt
from tests.doors.project import Project, require_profiler, workload
from tests.engines import servers
from tests.tools import require

SOURCE = Path(__file__).parents[1] / "workload" / "data" / "ternary.c"
BUILD = ["cc", "-O2", "-g", "-fno-omit-frame-pointer", "-o", "ternary", "ternary.c", "-lm"]
DECLARED = f"""
[workloads.ternary]
build = {json.dumps(BUILD)}
command = ["./ternary", "--prompt", "{{prompt}}", "--max-tokens", "{{max_tokens}}"]
prompt = "2+2="
max_tokens = 40
token_unit = "word"
env = {{ BITNET_TRACE_TIMING = "1", BITNET_TRACE_QUANT = "1" }}
profile = {{ call_graph = "fp", rate_hz = 499 }}
"""


@pytest.mark.measures
@pytest.mark.usefixtures("brief")
def test_a_program_is_profiled_and_its_reports_are_stored(project: Project) -> None:
    require(shutil.which("cc") is not None, "there is no C compiler (cc)")
    require_profiler("perf")
    (project.path / "toy.py").unlink()  # a project with no Python of its own
    shutil.copy(SOURCE, project.path / "ternary.c")
    project.declare(DECLARED)
    result = project.ask("--flamegate", "--flamegate-budget=1", "--flamegate-profiler=perf")
    assert result.ret == 0, result.stdout.str()
    assert project.verdict("ternary")["verdict"] == "no_baseline"
    assert "receipt.json" in project.latest("ternary")
    seen = project.document("ternary")
    assert (len(seen["tokens"]), seen["token_source"]) == (40, "stdout:word")
    assert "i2s_gemv" in [each["name"] for each in seen["kernels"]]
    timed = [run["reported"] for run in seen["runs"] if run["role"] == "timed"]
    assert len(timed) >= 3
    for reported in timed:
        sources = {each["source"]: each for each in reported}
        assert sources["quant_dispatch"]["kernels"] == {"i2s_gemv": 6}
        phases = sources["timing"]["figures"]
        assert set(phases) == {"embed_us", "forward_us", "logits_us", "sample_us"}
        assert phases["forward_us"] > phases["logits_us"] + phases["sample_us"]


SERVER = """\
import sys
from http.server import HTTPServer
from servers import Handler

Handler.protocol_version = "HTTP/1.0"
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
SERVED = f"""
[workloads.served]
engine = "openai"
serve = [{json.dumps(sys.executable)}, "server.py", "{{port}}"]
prompt = "p"
max_tokens = 40
"""
EMBEDDED = '[workloads.embedded]\nengine = "embedded"\nprompt = "2+2="\nmax_tokens = 10\n'
nightly = partial(pytest.param, marks=pytest.mark.nightly)


@pytest.mark.measures
@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    ("name", "profiler", "expected"),
    [
        ("served", "py-spy", "compute"),
        nightly("served", "perf", ""),
        nightly("embedded", "py-spy", "ternary_gemv"),
        nightly("embedded", "perf", ""),
        nightly("toy", "py-spy", "hash_round"),
        nightly("toy", "perf", ""),
    ],
)
def test_a_profile_names_the_work(
    project: Project, name: str, profiler: str, expected: str
) -> None:
    require_profiler(profiler)
    shutil.copy(servers.__file__, project.path / "servers.py")
    project.write("server.py", SERVER)
    declared = {"served": SERVED, "embedded": EMBEDDED, "toy": workload("toy")}
    # Under perf samples are of CPU time, of which a busy machine gives little.
    rate = f"[workloads.{name}.profile]\nrate_hz = 999\n" if profiler == "perf" else ""
    project.declare(declared[name], rate)
    result = project.ask("--flamegate", "--flamegate-budget=3", f"--flamegate-profiler={profiler}")
    verified = verify_receipt(project.artifacts / "latest" / name / "receipt.json")
    assert (verified.refusals, verified.grade.name) == ((), "OBSERVED"), result.stdout.str()
    profile = project.document(name)["profile"]
    # Of Python before 3.13 perf sees only the interpreter's own functions.
    assert expected in profile["hotspots"][0]["name"]
    assert profiler == "perf" or profile["completeness"] > 0.9
