"""Any server that speaks OpenAI's protocol: one that is started for the run, or one that runs."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from pytest_flamegate.config.toml import format_value
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import base
from pytest_flamegate.engines.base import Endpoint, Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_flamegate.config.workload import Workload
    from pytest_flamegate.engines.base import Kinds


PLACEHOLDERS = ("model", "tokenizer", "seed", "threads", "host", "port")
APIS = ("completions", "chat")
FRAMES = ("native", "python")
_OURS = frozenset({"max_tokens", "messages", "model", "n", "prompt", "stream", "stream_options"})
"""Fields of a request on which the measurement rests."""
_LATER = frozenset({"host", "port"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"/[!-~]*")
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")


class OpenAI:
    """Asks a server for completions and reads the tokens as they stream in."""

    name = "openai"
    keys = frozenset({"model", "tokenizer"})
    options: Mapping[str, Kinds] = MappingProxyType(
        {
            "serve": (list,),
            "url": (str,),
            "api": (str,),
            "served_model": (str,),
            "request": (dict,),
            "health": (str,),
            "api_key_env": (str,),
            "frames": (str,),
        }
    )

    def sees_python(self, workload: Workload) -> bool:
        """Return what ``frames`` says, else whether a Python interpreter runs the server."""
        if "frames" in workload.options:
            return workload.options["frames"] == "python"
        if argv := _serve(workload):
            return _is_python(argv[0], workload.directory)
        from pytest_flamegate.core import listeners

        return bool(
            _PYTHON.fullmatch(listeners.find_server_program(str(workload.options.get("url", ""))))
        )

    def validate(self, workload: Workload) -> None:
        """Refuse neither or both of serve and url, and values that no server could take."""
        options = workload.options
        if ("serve" in options) == ("url" in options):
            which = "both serve and url" if "serve" in options else "neither serve nor url"
            raise UsageError(
                "E_NO_SERVER",
                f"Workload {workload.name!r} has the engine openai and {which}.",
                'Say serve = ["llama-server", "-m", "{model}", "--port", "{port}"] to have one '
                'started, or url = "http://127.0.0.1:8080" for one that runs.',
            )
        if "serve" in options:
            _check_serve(workload)
        else:
            _check_url(workload)
        for key, known in (("api", APIS), ("frames", FRAMES)):
            if key in options and options[key] not in known:
                raise _bad(workload, key, f"Use one of: {', '.join(known)}.")
        _check_request(workload)
        if not _PATH.fullmatch(str(options.get("health", "/"))):
            raise _bad(workload, "health", "It is a path on the server, such as /health.")
        if not _VARIABLE.fullmatch(str(options.get("api_key_env", "KEY"))):
            raise _bad(workload, "api_key_env", "It is the name of a variable, never a key itself.")

    def model(self, workload: Workload) -> Path | None:
        """Return the model file: declared, or discovered where serve uses {model}."""
        return base.model_of(workload, _serve(workload))

    def plan(self, workload: Workload, model: Path | None) -> Plan:
        """Fill in all placeholders but those of the address, which is not known yet."""
        options = workload.options
        values = base.common(workload, _serve(workload), model)
        values |= {name: f"{{{name}}}" for name in _LATER}
        return Endpoint(
            argv=base.filled(_serve(workload), values),
            url=cast("str | None", options.get("url")),
            chat=options.get("api") == "chat",
            served_model=cast("str | None", options.get("served_model")),
            request=cast("Mapping[str, Any]", options.get("request", MappingProxyType({}))),
            health=cast("str | None", options.get("health")),
            key_variable=cast("str | None", options.get("api_key_env")),
        )

    def prompt_tokens(self, workload: Workload) -> int | None:  # noqa: ARG002
        """Return None: the server tells, once it has been asked."""
        return None


def _serve(workload: Workload) -> tuple[str, ...]:
    return cast("tuple[str, ...]", workload.options.get("serve", ()))


def _check_serve(workload: Workload) -> None:
    argv = _serve(workload)
    if not argv or not all(isinstance(part, str) and "\0" not in part for part in argv):
        raise _bad(workload, "serve", "It is a list of strings: a program and its arguments.")
    base.check(workload, argv, PLACEHOLDERS, "serve")
    if "port" not in base.used(argv):
        raise UsageError(
            "E_NO_PORT",
            f"Workload {workload.name!r} starts a server and does not tell it its port.",
            'Give it one in serve: "--port", "{port}". A free one is found for each run.',
        )


def _check_url(workload: Workload) -> None:
    # Whoever measures no server loads nothing of the network.
    # NESTED

    try:
        Origin.of(str(workload.options["url"]))
    except ValueError as error:
        raise UsageError(
            "E_BAD_URL",
            f"Workload {workload.name!r} has no usable url: {error}.",
            "Write http://HOST:PORT or https://HOST:PORT, with a path if need be, and no user, "
            "password or query; api_key_env names the variable that holds a key.",
        ) from None


def _check_request(workload: Workload) -> None:
    fields = cast("Mapping[str, Any]", workload.options.get("request", {}))
    if taken := sorted(_OURS & fields.keys()):
        raise UsageError(
            "E_BAD_VALUE",
            f"Workload {workload.name!r} sets {taken[0]!r} in request.",
            "What is measured rests on it: prompt and max_tokens are keys of the workload, the "
            "model is served_model, and one answer is streamed.",
        )


def _bad(workload: Workload, key: str, remedy: str) -> UsageError:
    shown = format_value(workload.options.get(key))
    return UsageError("E_BAD_VALUE", f"Workload {workload.name!r}: {key} is {shown}.", remedy)


def _is_python(program: str, directory: Path) -> bool:
    """Whether ``program`` is a Python interpreter, or a script that one runs."""
    if _PYTHON.fullmatch(Path(program).name):
        return True
    own = directory / program
    found = str(own) if "/" in program and own.exists() else shutil.which(program)
    if found is None:
        return False
    try:
        with Path(found).open("rb") as file:
            first = file.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a server is: scheme, host and port, and the path that all of its own begin with."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, url: str) -> Origin:
        """Read ``http://host:port/path``; ``ValueError`` says what is wrong with another."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it begins with neither http:// nor https://")
        if not parts.hostname:
            raise ValueError("it names no host")
        if parts.port == 0:
            raise ValueError("it names port 0, which no server has")
        if parts.username is not None or parts.password is not None:
            raise ValueError("it holds a user or a password")
        if parts.query or parts.fragment:
            raise ValueError("it holds a query or a fragment")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError("it holds a character that no URL has")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        # Every path asked for begins with /v1 by itself.
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.scheme, parts.hostname, port, path)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"
