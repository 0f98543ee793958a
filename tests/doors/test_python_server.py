"""A server that is a Python program: its frames are seen from its own start on."""

import json
import sys

import pytest

from tests.doors.project import SEEN, Project

SERVER = """\
import http.server
import json
import sys


def work(rounds):
    total = 0
    for each in range(rounds):
        total += each * each
    return total


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        body = b'{"data": [{"id": "m"}]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for each in range(asked["max_tokens"]):
            work(40_000)
            event = json.dumps({"choices": [{"index": 0, "text": f" {each}"}]}).encode()
            self.wfile.write(b"data: " + event + b"\\n\\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\\n\\n")


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.measures
def test_its_profile_is_complete_and_names_what_computes(project: Project) -> None:
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
    assert found["kernels"][0]["name"] == "work"
    assert (found["token_source"], len(found["tokens"])) == ("sse:chunk", 20)
