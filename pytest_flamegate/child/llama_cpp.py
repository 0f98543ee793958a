"""llama.cpp in the observed process, through the library xllamacpp."""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from pytest_flamegate.core.errors import ToolError

_LOG_PREFIX = re.compile(r"^[\d.]+ [A-Z] ")
_LOAD_ERROR = re.compile(r"error loading model: *(.+)")
_ANY_ERROR = re.compile(r"(?i)error|fail|not|cannot|unknown|invalid")
_LOG_BYTES = 65536
_LOG_READS, _LOG_WAIT_S = 10, 0.05
_ERRORS_ONLY = 1
_PROMPT_TOO_LONG = "exceed_context_size_error"


def load_engine(load: dict[str, Any]) -> LlamaCppServer:
    """Import xllamacpp and have it load the model.

    ``load`` has ``model`` (path), ``threads``, ``seed``, ``context`` (tokens), ``batch`` (tokens,
    None leaves it to the library) and ``gpu_layers``. Raises ``ToolError``: ``E_NO_LIBRARY``,
    ``E_MODEL_UNSUPPORTED``.
    """
    library = _import_library()
    log_start = os.fstat(2).st_size
    try:
        server = library.Server(_make_parameters(library, load))
        return LlamaCppServer(server, load["seed"], _read_library_facts(library))
    except RuntimeError as error:
        reason = _find_log_error(log_start) or str(error).rstrip(".")
        raise ToolError(
            "E_MODEL_UNSUPPORTED",
            f"llama.cpp did not load {os.path.basename(load['model'])!r}: {reason}.",  # noqa: PTH119
        ) from None
    except (AttributeError, TypeError) as error:
        raise _broken_library(f"lacks something that this engine uses: {error}") from None


def _import_library() -> ModuleType:
    try:
        return importlib.import_module("xllamacpp")
    except Exception as error:  # a native library can fail in any way
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise _broken_library(problem) from None


def _broken_library(problem: str) -> ToolError:
    return ToolError("E_NO_LIBRARY", f"The library xllamacpp is installed and {problem}.")


def _make_parameters(library: ModuleType, load: Mapping[str, Any]) -> Any:
    params = library.CommonParams()
    params.model.path = load["model"]
    params.n_ctx = load["context"]
    params.n_parallel = 1  # more slots would share the context and batch side by side
    params.n_gpu_layers = load["gpu_layers"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = load["threads"]
    if load["batch"] is not None:
        params.n_batch = params.n_ubatch = load["batch"]
    params.warmup = False  # the observer warms it up
    params.fit_params = False  # nothing is to depend on how much memory is free
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 0
    params.n_threads_http = 1
    params.verbosity = _ERRORS_ONLY
    return params


def _read_library_facts(library: ModuleType) -> dict[str, str]:
    """Return the library's version and build, and the CPU's features that it uses."""
    build = library.BUILD_INFO
    return {
        "library": f"xllamacpp {library.__version__}",
        "build": f"llama.cpp {build['build_number']} ({build['commit']}), "
        f"{build['compiler']}, {build['build_target']}",
        "system": " ".join(library.get_system_info().split()).strip(" |"),
    }


def _find_log_error(start: int) -> str:
    """Return the error in llama.cpp's log file; empty if there is none, or no such file.

    A thread of the library writes the log, maybe after the error has come back.
    """
    found = ""
    for _ in range(_LOG_READS):
        try:
            log = os.pread(2, _LOG_BYTES, start).decode("utf-8", "replace")
        except OSError:
            break
        lines = [_LOG_PREFIX.sub("", line).strip() for line in log.splitlines()]
        reasons = [match[1] for line in lines if (match := _LOAD_ERROR.search(line))]
        if reasons:
            return reasons[0].rstrip(".")
        found = next((line.rstrip(".") for line in lines if _ANY_ERROR.search(line)), "")
        time.sleep(_LOG_WAIT_S)
    return found


class LlamaCppServer:
    """Generates by asking the server in this process, which decodes on a thread of its own."""

    def __init__(self, server: Any, seed: int, facts: Mapping[str, str]) -> None:
        self.facts = facts
        self._server = server
        self._seed = seed
        self._figures: list[dict[str, float]] = []

    def __call__(self, prompt: str, max_tokens: int) -> Iterator[str]:
        """Yield the tokens of one sequence, all at its end."""
        tokens: list[str] = []
        self.stream(prompt, max_tokens, tokens.append)
        return iter(tokens)

    def stream(self, prompt: str, max_tokens: int, token: Callable[[str], None]) -> None:
        """Generate one sequence and call ``token`` with the text of each token as it comes."""
        reader = _ChunkReader(max_tokens, token)
        self._server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": max_tokens,
                "temperature": 0,
                "seed": self._seed % 2**32,
                "cache_prompt": False,
                "stream": True,
                # Without them a token whose text is only half a character would be invisible.
                "timings_per_token": True,
            },
            reader.take,
        )
        self._figures.append(reader.finish())

    def reports(self) -> list[dict[str, Any]]:
        """Return the server's timings of one sequence since the last call, in milliseconds.

        It is the one with the (lower) median time of decode: thousands of short sequences would
        fill the evidence.
        """
        if not self._figures:
            return []
        by_decode = sorted(self._figures, key=lambda each: each["decode_ms"])
        chosen = by_decode[(len(by_decode) - 1) // 2]
        self._figures = []
        return [{"source": "llama.cpp:timings", "figures": chosen, "kernels": {}}]


class _ChunkReader:
    """Reads the chunks of one sequence.

    The library swallows exceptions of a callback, so they are stored and raised afterwards.
    """

    def __init__(self, max_tokens: int, token: Callable[[str], None]) -> None:
        self._max_tokens = max_tokens
        self._token = token
        self._count = 0
        self._figures: dict[str, float] | None = None
        self._error: BaseException | None = None

    def take(self, chunk: Any) -> bool:
        """Take one chunk; True ends the sequence early."""
        if self._error is None:
            try:
                self._read(chunk)
            except BaseException as error:
                self._error = error
        return self._error is not None

    def finish(self) -> dict[str, float]:
        """Return the server's figures of the whole sequence; raise the error of any chunk."""
        if self._error is not None:
            raise self._error
        if self._figures is None:
            raise _generation_error("ended the sequence without reporting that it was finished")
        return self._figures

    def _read(self, chunk: Any) -> None:
        if "error" in chunk:
            error = chunk["error"]
            if error.get("type") == _PROMPT_TOO_LONG:
                raise self._full_context(error["n_prompt_tokens"], error["n_ctx"])
            message = str(error.get("message", error)).rstrip(".")
            raise _generation_error(f"answered with an error: {message}")
        choice, timings = chunk["choices"][0], chunk["timings"]
        text, finish = choice["text"], choice["finish_reason"]
        # The token that ends the sequence is counted by the server, and is no output.
        generated = timings["predicted_n"] - (finish == "stop")
        if text:
            # Tokens before it that had no text yet are handed on as empty ones.
            self._hand_on_empty(generated - 1, text_tokens=1)
            self._token(text)
            self._count += 1
        if finish is not None:
            self._end(generated, finish, timings)

    def _hand_on_empty(self, generated: int, text_tokens: int = 0) -> None:
        if generated < self._count:
            raise ToolError(
                "E_SOURCES_DISAGREE",
                f"llama.cpp reports {generated + text_tokens} tokens, and "
                f"{self._count + text_tokens} came.",
                "Run it by itself with the same prompt, and report this with the library's "
                "version.",
            )
        for _ in range(generated - self._count):
            self._token("")
        self._count = generated

    def _end(self, generated: int, finish: str, timings: Mapping[str, float]) -> None:
        prompt_tokens = int(timings["prompt_n"])
        if not prompt_tokens:
            raise ToolError("E_BAD_PROMPT", "The model's tokenizer makes no token of the prompt.")
        self._hand_on_empty(generated)
        if finish == "length" and generated < self._max_tokens:
            raise self._full_context(prompt_tokens, prompt_tokens + generated)
        # The server's rates are left out: it divides n tokens by the time of n - 1, because the
        # first one comes with the prompt.
        self._figures = {
            "tokens": generated,
            "prompt_tokens": prompt_tokens,
            "prefill_ms": timings["prompt_ms"],
            "decode_ms": timings["predicted_ms"],
            "decode_tokens": max(0, generated - 1),
        }

    def _full_context(self, prompt_tokens: int, context: int) -> ToolError:
        return ToolError(
            "E_CONTEXT_FULL",
            f"A prompt of {prompt_tokens} tokens and {self._max_tokens} more do not fit into a "
            f"context of {context} tokens.",
        )


def _generation_error(problem: str) -> ToolError:
    return ToolError("E_ENGINE_RAISED", f"llama.cpp {problem}.")
