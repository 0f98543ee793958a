"""A small server that speaks OpenAI's protocol, and can misbehave in each way there is.

``python -m tests.engines.servers PORT [WAY]`` answers with the tokens ``t0 t1 …`` and computes a
little for each. It ends by itself after a while, whatever becomes of the test.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HOST = "127.0.0.1"
LIVES_S = 120
STRICT = "extra fields not permitted: cache_prompt"


def compute() -> None:
    """Use a millisecond of CPU, as a model would."""
    end_s = time.thread_time() + 0.001
    while time.thread_time() < end_s:
        sum(range(100))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    way = ""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.way == "never healthy":
            self.plain(503, b"{}")
        elif self.way == "denied":
            self.plain(401, b"{}")
        elif self.path == "/v1/models":
            self.plain(200, b'{"data": [{"id": "tiny"}]}')
        else:
            self.plain(404 if self.way == "no health" else 200, b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"500": 500, "404": 404, "401": 401}.get(self.way)
        if self.way == "wants a key" and self.headers["Authorization"] != "Bearer s3cr3t-of-mine":
            status = 401
        if status is not None:
            self.plain(status, b'{"error": {"message": "it hurts"}}')
        elif (self.way == "strict" and "cache_prompt" in asked) or self.way == "stubborn":
            self.plain(400, json.dumps({"detail": STRICT}).encode())
        elif self.way == "redirect":
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.way == "no stream":
            self.plain(200, b'{"choices": [{"text": "all at once"}]}')
        elif self.way == "no http":
            self.wfile.write(b"\x00\x01 what is this\r\n\r\n")
            self.close_connection = True
        else:
            self.stream(asked)

    def plain(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, asked: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.instead()
        count = asked["max_tokens"] + (3 if self.way == "too many" else 0)
        made = 0 if self.way == "empty" else count
        step = 2 if self.way == "merged" else 1
        for first in range(0, made, step):
            compute()
            if self.way == "dies" and first == 2:
                os._exit(7)
            if self.way == "cut" and first == 2:
                return
            text = "".join(f"t{index} " for index in range(first, min(first + step, made)))
            self.event(json.dumps(self.choice(asked, text)))
        self.event(json.dumps(self.last(made)))
        if self.way != "no done":
            self.event("[DONE]")

    def instead(self) -> None:
        """Stream what is no token, where that is the way."""
        if self.way == "silent":
            time.sleep(LIVES_S)
        elif self.way == "garbage":
            self.event("{not json")
        elif self.way == "error in stream":
            self.event('{"error": {"message": "out of memory"}}')
        elif self.way == "endless line":
            for _ in range(64):
                self.wfile.write(b"data: " + b"x" * 65536)

    def last(self, made: int) -> dict[str, Any]:
        told: dict[str, Any] = {"completion_tokens": made, "prompt_tokens": 3}
        if self.way == "cached":
            told["prompt_tokens_details"] = {"cached_tokens": 2}
        if self.way == "undercounts":
            told["completion_tokens"] = 1
        last: dict[str, Any] = {"choices": [], "usage": told}
        if self.way == "contradicts":
            last["timings"] = {"predicted_n": made + 5}
        return last

    def choice(self, asked: dict[str, Any], text: str) -> dict[str, Any]:
        if "messages" in asked:
            return {"choices": [{"delta": {"content": text}, "finish_reason": None}]}
        return {"choices": [{"text": text, "finish_reason": None}]}

    def event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()


def hold_the_port(port_of: socket.socket) -> None:
    """Leave a child behind that holds the port, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        os.set_inheritable(port_of.fileno(), True)
        time.sleep(LIVES_S)
        os._exit(0)


def compute_elsewhere() -> None:
    """Leave the computing to a child: what the parent itself does is nothing beside it."""
    if os.fork() == 0:
        end_s = time.monotonic() + LIVES_S
        while time.monotonic() < end_s:
            sum(range(1000))
        os._exit(0)


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
    if way == "computes elsewhere":
        compute_elsewhere()
    server = ThreadingHTTPServer((HOST, int(arguments[0])), Handler)
    server.daemon_threads = True
    if way == "holds the port":
        hold_the_port(server.socket)
    threading.Timer(LIVES_S, server.shutdown).start()
    server.serve_forever(poll_interval=0.01)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
