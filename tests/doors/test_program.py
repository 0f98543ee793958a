"""A compiled program and a server in Python: profiled and gated end to end."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.doors.project import SEEN, Project, require_profiler
from tests.engines import servers
from tests.tools import require

SOURCE = Path(__file__).parents[1] / "workload" / "data" / "ternary.c"
BUILD = ["cc", "-O2", "-g", "-fno-omit-frame-pointer", "-o", "ternary", "ternary.c", "-lm"]
DECLARED = f"""
[workloads.ternary]
build = {json.dumps(BUILD)}
command = ["./ternary", "--prompt", "{{prompt}}", "--max-tokens", "{{max_tokens}}"]
prompt = "2+2="
max_tokens = 160
token_unit = "word"
env = {{ BITNET_TRACE_TIMING = "1", BITNET_TRACE_QUANT = "1" }}
"""


@pytest.mark.measures
def test_a_program_is_profiled_and_its_reports_are_stored(project: Project) -> None:
    require(shutil.which("cc") is not None, "there is no C compiler (cc)")
    require_profiler("perf")
    (project.path / "toy.py").unlink()  # a project with no Python of its own
    shutil.copy(SOURCE, project.path / "ternary.c")
    project.declare(DECLARED)
    result = project.run("--flamegate", "--flamegate-budget=5", "--flamegate-profiler=perf")
    assert result.ret == 0, result.stdout.str()
    assert project.verdict("ternary")["verdict"] == "no_baseline"
    assert "receipt.json" in project.latest("ternary")
    seen = project.document("ternary")
    assert (len(seen["tokens"]), seen["token_source"]) == (160, "stdout:word")
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


@pytest.mark.measures
def test_the_profile_of_a_server_in_python_is_complete(project: Project) -> None:
    shutil.copy(servers.__file__, project.path / "servers.py")
    project.write("server.py", SERVER)
    project.declare(
        f'[workloads.served]\nengine = "openai"\n'
        f'serve = [{json.dumps(sys.executable)}, "server.py", "{{port}}"]\n'
        'prompt = "p"\nmax_tokens = 20\n'
    )
    result = project.run(*SEEN)
    assert "receipts OBSERVED" in result.stdout.str(), result.stdout.str()
    found = project.document("served")
    assert found["profile"]["completeness"] == 1.0
    assert found["kernels"][0]["name"] == "compute"
    assert (found["token_source"], len(found["tokens"])) == ("sse:chunk", 20)
