"""A small server that speaks OpenAI's protocol, and can misbehave in each way there is.

``python -m tests.engines.servers PORT [WAY]`` answers with the tokens ``t0 t1 …`` and computes a
little for each. It ends by itself after a while, whatever becomes of the test.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
LIVES_S = 120
FIRST = {
    "garbage": b"data: {not json\n\n",
    "error in stream": b'data: {"error": {"message": "out of memory"}}\n\n',
    "endless line": b"data: " + b"x" * (1 << 22),
}
"""Is streamed before the first token."""
USAGE: dict[str, dict[str, Any]] = {
    "cached": {"prompt_tokens_details": {"cached_tokens": 2}},
    "undercounts": {"completion_tokens": 1},
}


def compute(seconds: float) -> None:
    """Use so much CPU time, as a model would."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        sum(range(100))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    way = ""
    answered = False

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        models = self.path == "/v1/models"
        body = b'{"data": [{"id": "tiny"}]}' if models else b"{}"
        status = {"never healthy": 503, "denied": 401}.get(self.way, 200)
        self.plain(404 if self.way == "no health" and not models else status, body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        way = self.way
        if way == "wants a key" and self.headers["Authorization"] != "Bearer s3cr3t-of-mine":
            way = "401"
        rejected = [name for name in ("cache_prompt", "seed") if name in asked and way == "strict"]
        if way in ("500", "404", "401"):
            self.plain(int(way), b'{"error": {"message": "it hurts"}}')
        elif rejected or way == "stubborn":
            detail = f"extra fields not permitted: {rejected[0] if rejected else 'cache_prompt'}"
            self.plain(400, json.dumps({"detail": detail}).encode())
        elif way == "redirect":
            self.plain(307, b"", Location="/elsewhere")
        elif way == "no stream":
            self.plain(200, b'{"choices": [{"text": "all at once"}]}')
        elif way == "no http":
            self.wfile.write(b"\x00\x01 what is this\r\n\r\n")
            self.close_connection = True
        else:
            self.stream(asked)

    def plain(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def stream(self, asked: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if self.way == "silent":
            time.sleep(LIVES_S)
        self.wfile.write(FIRST.get(self.way, b""))
        made = asked["max_tokens"] + {"too many": 3, "empty": -asked["max_tokens"]}.get(self.way, 0)
        merges = self.way == "merged" or (self.way == "merges later" and Handler.answered)
        Handler.answered = True
        step = 2 if merges else 1
        for first in range(0, made, step):
            compute(0.001)
            if self.way == "dies" and first == 2:
                os._exit(7)
            if self.way == "cut" and first == 2:
                return
            text = "".join(f"t{index} " for index in range(first, min(first + step, made)))
            text = asked["prompt"] if self.way == "echoes" else text
            piece = {"delta": {"content": text}} if "messages" in asked else {"text": text}
            self.event(json.dumps({"choices": [{**piece, "finish_reason": None}]}))
        usage: dict[str, Any] = {"completion_tokens": made, "prompt_tokens": 3}
        usage |= USAGE.get(self.way, {})
        timings = {"timings": {"predicted_n": made + 5}} if self.way == "contradicts" else {}
        self.event(json.dumps({"choices": [], "usage": usage, **timings}))
        if self.way != "no done":
            self.event("[DONE]")

    def event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()


def main(arguments: list[str]) -> int:
    way = arguments[1] if len(arguments) > 1 else ""
    if way == "exits":
        sys.stderr.write("no such model\n")
        return 3
    Handler.way = way
    signal.alarm(LIVES_S)
    if way == "ignores SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if way == "never listens":
        time.sleep(LIVES_S)
    # A child does the computing: what the parent itself uses is nothing beside it.
    if way == "computes elsewhere" and os.fork() == 0:
        compute(LIVES_S)
        os._exit(0)
    server = ThreadingHTTPServer((HOST, int(arguments[0])), Handler)
    server.daemon_threads = True
    if way == "holds the port" and os.fork() == 0:
        os.setsid()
        os.set_inheritable(server.socket.fileno(), True)
        time.sleep(LIVES_S)
        os._exit(0)
    threading.Timer(LIVES_S, server.shutdown).start()
    server.serve_forever(poll_interval=0.01)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
