"""Any server with OpenAI's HTTP API: one that is started for the run, or one that runs already."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import limit
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.core.text import format_value
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import Endpoint, Plan

PLACEHOLDERS = ("model", "tokenizer", "seed", "threads", "host", "port")
_RESERVED_FIELDS = frozenset(
    {"max_tokens", "messages", "model", "n", "prompt", "stream", "stream_options"}
)
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")


class OpenAIOptions:
    """Either ``serve``, the command line of a server, or ``url``.

    ``frames`` overrides which frames the profile shows; ``request`` holds further fields of each
    request; ``health`` is the path that answers 200 when the server is ready; ``api_key_env`` is
    the name of an environment variable, never a key.
    """

    serve: Annotated[tuple[str, ...], limit(min_length=1)]
    url: str
    api: Literal["completions", "chat"]
    served_model: str
    request: dict[str, Any]
    health: Annotated[str, limit(pattern=r"^/[!-~]*(?![\s\S])")]
    api_key_env: Annotated[str, limit(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?![\s\S])")]
    frames: Literal["native", "python"]


class OpenAI(base.Engine):
    """Asks a server for completions and reads the tokens as they stream in."""

    name = "openai"
    keys = frozenset({"model", "tokenizer"})
    options = OpenAIOptions
    origin_keys = ("serve", "url")
    variables = base.PROGRAM_VARIABLES

    def sees_python(self, workload: Workload) -> bool:
        """Return what ``frames`` says, else whether a Python interpreter runs the server."""
        if "frames" in workload.options:
            return workload.options["frames"] == "python"
        if argv := _serve(workload):
            return _is_python(argv[0], workload.directory)
        from pytest_flamegate.core import process_system

        origin = Origin.of(str(workload.options["url"]))
        program = process_system.find_server_program(origin.host, origin.port)
        return bool(_PYTHON.fullmatch(program))

    def validate(self, workload: Workload) -> None:
        """Raise ``UsageError`` unless there is one usable server and the request is ours."""
        options = workload.options
        if ("serve" in options) == ("url" in options):
            which = "both serve and url" if "serve" in options else "neither serve nor url"
            raise UsageError(
                "E_BAD_VALUE",
                f"the engine openai needs either serve or url, and has {which}.",
                'Write serve = ["llama-server", "-m", "{model}", "--port", "{port}"] to have one '
                'started, or url = "http://127.0.0.1:8080" for one that runs.',
            )
        if "serve" in options:
            base.check_placeholders(_serve(workload), PLACEHOLDERS, "serve")
            if "port" not in base.find_placeholders(_serve(workload)):
                raise UsageError(
                    "E_BAD_VALUE",
                    "serve starts a server without its port.",
                    'Pass it on in serve: "--port", "{port}". A free one is found for each run.',
                )
        else:
            _check_url(str(options["url"]))
        base.check_tokenizer(workload, _serve(workload), "serve")
        fields: Any = options.get("request", {})
        if reserved := sorted(_RESERVED_FIELDS & fields.keys()):
            raise UsageError(
                "E_BAD_VALUE",
                f"request sets {reserved[0]!r}, which the measurement sets itself.",
                "Remove it: prompt and max_tokens are keys of the workload, the model is "
                "served_model, and one answer is streamed.",
            )
        for name, value in fields.items():
            try:
                json.dumps(value, default=dict, allow_nan=False)
            except (TypeError, ValueError):
                raise base.DeclarationError(
                    f"request.{name} cannot be sent as JSON: {format_value(value)}.",
                    "Write a date or a time as text, in quotes; nan and inf cannot be sent.",
                    "request",
                ) from None

    def model(self, workload: Workload) -> Path | None:
        """Return the model file: declared, or discovered if serve contains {model}."""
        return base.find_model_of(workload, _serve(workload))

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Fill in all placeholders except those of the address, which is not known yet."""
        options: Any = workload.options
        values = base.placeholder_values(workload, _serve(workload), model)
        values |= {"host": "{host}", "port": "{port}"}
        return Endpoint(
            argv=base.fill_placeholders(_serve(workload), values),
            url=options.get("url"),
            chat=options.get("api") == "chat",
            served_model=options.get("served_model"),
            request=options.get("request", {}),
            health=options.get("health"),
            key_variable=options.get("api_key_env"),
        )


def _serve(workload: Workload) -> tuple[str, ...]:
    argv: Any = workload.options.get("serve", ())
    return tuple(argv)


def _check_url(url: str) -> None:
    try:
        Origin.of(url)
    except ValueError as error:
        raise UsageError(
            "E_BAD_VALUE",
            f"url cannot be used: {error}.",
            "Write http://HOST:PORT or https://HOST:PORT, with a path if necessary, and without "
            "user, password or query; api_key_env names the variable that holds a key.",
        ) from None


def _is_python(program: str, directory: Path) -> bool:
    """Whether ``program`` is a Python interpreter, or a script that one runs."""
    from pytest_flamegate.core.process_system import find_executable, read_interpreter

    path = find_executable(program, os.environ, directory)
    runs_it = read_interpreter(path) if path is not None else None
    return any(_PYTHON.fullmatch(Path(each).name) for each in (program, runs_it or ""))


@dataclass(frozen=True, slots=True)
class Origin:
    """The address of a server: scheme, host, port, and the path that all its own begin with."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, url: str) -> Origin:
        """Read ``http://host:port/path``; ``ValueError`` names the problem of another."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it begins with neither http:// nor https://")
        if not parts.hostname:
            raise ValueError("it names no host")
        if parts.port == 0:
            raise ValueError("it names port 0, which no server has")
        if parts.username is not None or parts.password is not None:
            raise ValueError("it contains a user or a password")
        if parts.query or parts.fragment:
            raise ValueError("it contains a query or a fragment")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("it contains a character that no URL has")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        # Every path that is requested begins with /v1 by itself.
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, parts.hostname, port, path)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"
