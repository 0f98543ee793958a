"""Which operations ggml runs, as it tells a callback before each of them."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from collections import Counter
from contextlib import contextmanager
from statistics import median_low
from typing import TYPE_CHECKING, Any, Protocol

from pytest_flamegate.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from pytest_flamegate.child.serve import Generate


_NO_WORK = frozenset({"NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"})
"""Operations that only say how to look at a tensor."""


@contextmanager
def counting(library: ModuleType, params: Any) -> Iterator[Counter[str]]:
    """Count operations by name in every context that is made with ``params``.

    ``library`` is the module ``llama_cpp``. It costs a call into Python for each operation,
    so nothing that is timed runs so. A context made within has to be freed within.
    """
    counts: Counter[str] = Counter()
    described = library.llama_cpp._lib.ggml_op_desc  # found in the ggml that it is linked with
    described.argtypes, described.restype = [ctypes.c_void_p], ctypes.c_char_p

    def asked(tensor: int, ask: bool, _: object) -> bool:
        if ask:
            name = described(tensor).decode()
            if name not in _NO_WORK:
                counts[name] += 1
        return not ask  # False: its result need not be held for us; True: go on

    params.cb_eval = library.ggml_backend_sched_eval_callback(asked)
    yield counts


Figures = dict[str, float]


def context_full(prompt_tokens: int, max_tokens: int, context: int) -> ToolError:
    """Return the refusal of a prompt and an answer that do not fit."""
    return ToolError(
        "E_CONTEXT_FULL",
        f"A prompt of {prompt_tokens} tokens and {max_tokens} more do not fit into a context of "
        f"{context} tokens.",
        "Say a larger context in the workload, up to what the model was made for, or ask for less.",
    )


def no_prompt() -> ToolError:
    """Return the refusal of a prompt of no tokens."""
    return ToolError(
        "E_BAD_PROMPT",
        "The model's tokenizer makes no token of the prompt.",
        "Give it something to go on with.",
    )


def disagree(what: str, seen: int, told: int) -> ToolError:
    """Return the refusal of two counts of the same thing."""
    return ToolError(
        "E_SOURCES_DISAGREE",
        f"llama.cpp says {told} {what}, and {seen} came.",
        "Run it by itself with the same prompt, and report this with the library's version.",
    )


class Ledger:
    """Keeps what an engine's own clocks say of the sequences of one block."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: list[Figures] = []

    def add(self, figures: Figures) -> None:
        """Keep the figures of one sequence; ``decode_ms`` is among them."""
        self._kept.append(figures)

    def drained(self, kernels: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
        """Return one report and forget: thousands of short sequences would fill the evidence.

        It is of one sequence, the one with the (lower) median time of decode.
        """
        if not self._kept:
            return []
        middle = median_low(each["decode_ms"] for each in self._kept)
        chosen = next(each for each in self._kept if each["decode_ms"] == middle)
        self._kept = []
        return [{"source": self._source, "figures": chosen, "kernels": dict(kernels or {})}]


ADAPTERS = {
    "xllamacpp": "pytest_flamegate.child.llama_cpp",
    "llama-cpp-python": "pytest_flamegate.child.llama_cpp",
}
_LOG_PREFIX = re.compile(r"^[\d.]+ [A-Z] ")
_TOLD = re.compile(r"error loading model: *(.+)")
_REASON = re.compile(r"(?i)error|fail|not|cannot|unknown|invalid")
_READ_BYTES = 65536


class Adapter(Protocol):
    """What the module of each library brings."""

    def load(self, library: ModuleType, asked: Mapping[str, Any]) -> Generate:
        """Load the model; ``RefusedError`` where the library would not."""


class RefusedError(Exception):
    """llama.cpp did not take the model, or the context asked for; its log says why."""


def load_engine(load: dict[str, Any]) -> Generate:
    """Import ``load["module"]`` and have it load the model.

    ``load`` holds ``library``, ``model``, ``threads``, ``seed``, ``context`` (tokens),
    ``batch`` (tokens, None leaves it to the library) and ``gpu_layers``. ``ToolError``:
    ``E_NO_LIBRARY``, ``E_LIBRARY_BROKEN``, ``E_MODEL_REFUSED``.
    """
    library = _imported(load["library"], load["module"])
    adapter: Adapter = importlib.import_module(ADAPTERS[load["library"]])
    before = _log_bytes()
    try:
        return adapter.load(library, load)
    except RefusedError as error:
        raise ToolError(
            "E_MODEL_REFUSED",
            f"llama.cpp did not load {os.path.basename(load['model'])!r}: "  # noqa: PTH119
            f"{_why(before) or error}.",
            "Check that the file is whole and that this version of llama.cpp knows its "
            "architecture; a newer library may.",
        ) from None
    except (AttributeError, TypeError) as error:
        raise ToolError(
            "E_LIBRARY_BROKEN",
            f"The library {load['library']} is not as this engine knows it: {error}.",
            f"Install another version: pip install --upgrade {load['library']}.",
        ) from None


def _imported(library: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise ToolError(
                "E_NO_LIBRARY",
                f"The library {library} is not installed here.",
                f"Install it: pip install {library}.",
            ) from None
        why: Exception = error
    except Exception as error:  # a native library can fail in any way
        why = error
    raise ToolError(
        "E_LIBRARY_BROKEN",
        f"The library {library} is installed and cannot be imported: {type(why).__name__}: {why}.",
        f"Install it anew: pip install --force-reinstall {library}.",
    )


def _log_bytes() -> int:
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


def _why(start: int) -> str:
    """Return what llama.cpp's log says of its failure; the observer gave this process a file.

    Empty where standard error cannot be read again.
    """
    try:
        log = os.pread(2, _READ_BYTES, start).decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [_LOG_PREFIX.sub("", line).strip() for line in log.splitlines()]
    for line in lines:
        if found := _TOLD.search(line):
            return found[1].rstrip(".")
    return next((line.rstrip(".") for line in lines if _REASON.search(line)), "")


_ERROR_LEVEL = 4  # as ggml.h has it; the library's own table is older
_CONTINUED = 5
_NO_SLOT = 1


def load(library: ModuleType, asked: Mapping[str, Any]) -> Decoder:
    """Load ``asked["model"]``; ``RefusedError`` where the library would not."""
    log = _errors_only(library)
    library.llama_backend_init()
    params = library.llama_model_default_params()
    params.n_gpu_layers = asked["gpu_layers"]
    model = library.llama_model_load_from_file(asked["model"].encode(), params)
    if not model:
        raise RefusedError("the model could not be loaded")
    return Decoder(library, model, asked, log)


def facts(library: ModuleType) -> dict[str, str]:
    """Return what the library says of itself: its version, and the CPU's features it uses."""
    system = library.llama_print_system_info().decode("utf-8", "replace")
    return {
        "library": f"llama-cpp-python {library.__version__}",
        "system": " ".join(system.split()).strip(" |"),
    }


def _errors_only(library: ModuleType) -> Any:
    """Let only errors through to standard error; the caller keeps the callback alive."""
    told = [0]

    def log(level: int, text: bytes, _: object) -> None:
        told[0] = told[0] if level == _CONTINUED else level
        if told[0] == _ERROR_LEVEL:
            os.write(2, text)

    callback = library.llama_log_callback(log)
    library.llama_log_set(callback, ctypes.c_void_p(0))
    return callback


class Decoder:
    """Generates greedily, each sequence from an empty context, on the thread that asks.

    Tokens are their ids. ``facts`` is what the library says of itself.
    """

    def __init__(
        self, library: ModuleType, model: Any, asked: Mapping[str, Any], *alive: Any
    ) -> None:
        self.facts = facts(library)
        self._alive = alive
        self._library = library
        self._model = model
        self._asked = asked
        self._vocab = library.llama_model_get_vocab(model)
        self._sampler = library.llama_sampler_chain_init(
            library.llama_sampler_chain_default_params()
        )
        library.llama_sampler_chain_add(self._sampler, library.llama_sampler_init_greedy())
        self._context = self._new_context(self._parameters())
        self._ledger = Ledger("llama.cpp:perf")
        self._operations: dict[str, int] | None = None

    def __call__(self, prompt: str, max_tokens: int) -> Iterator[int]:
        """Yield the ids of the tokens of one sequence, the one that ends it left out."""
        library, context = self._library, self._context
        tokens = self._tokenized(prompt)
        room = library.llama_n_ctx(context) - len(tokens)
        if room < 0:
            raise context_full(len(tokens), max_tokens, library.llama_n_ctx(context))
        if self._operations is None:  # the first sequence is the observer's warm-up
            self._operations = self._counted(tokens)
        library.llama_perf_context_reset(context)
        made = 0
        for token in self._generated(context, tokens):
            made += 1
            yield token
            if made == max_tokens:
                break
            if made > room:  # the token that was made last has no place to be decoded in
                raise context_full(len(tokens), max_tokens, library.llama_n_ctx(context))
        self._ledger.add(self._figures(len(tokens), made))

    def reports(self) -> list[dict[str, Any]]:
        """Return llama.cpp's own figures of one sequence, and its operations a token."""
        told = self._ledger.drained()
        if told and self._operations:
            figures = {"counted_tokens": 1}  # no sequence: one token in a context of its own
            told.append({"source": "ggml:cb_eval", "figures": figures, "kernels": self._operations})
        return told

    def _generated(self, context: Any, tokens: list[int]) -> Iterator[int]:
        library = self._library
        library.llama_memory_clear(library.llama_get_memory(context), True)
        library.llama_sampler_reset(self._sampler)
        step = library.llama_n_batch(context)
        for start in range(0, len(tokens), step):
            self._decode(context, tokens[start : start + step])
        while True:
            token = int(library.llama_sampler_sample(self._sampler, context, -1))
            if library.llama_vocab_is_eog(self._vocab, token):
                return
            yield token
            self._decode(context, [token])

    def _decode(self, context: Any, tokens: list[int]) -> None:
        library = self._library
        ids = (library.llama_token * len(tokens))(*tokens)
        status = library.llama_decode(context, library.llama_batch_get_one(ids, len(tokens)))
        if status != 0:
            why = "found no room in its context" if status == _NO_SLOT else f"failed ({status})"
            raise ToolError(
                "E_ENGINE_REFUSED",
                f"llama.cpp's decode {why}.",
                "Say a larger context in the workload, or run the engine by itself to see why.",
            )

    def _tokenized(self, prompt: str) -> list[int]:
        library = self._library
        text = prompt.encode()
        room = len(text) + 16
        while True:
            ids = (library.llama_token * room)()
            count = library.llama_tokenize(self._vocab, text, len(text), ids, room, True, True)
            if count >= 0:
                break
            room = -count
        if count == 0:
            raise no_prompt()
        return list(ids[:count])

    def _figures(self, prompt_tokens: int, made: int) -> dict[str, float]:
        said = self._library.llama_perf_context(self._context)
        return {
            "tokens": made,
            "prompt_tokens": prompt_tokens,
            "prefill_ms": said.t_p_eval_ms,
            "decode_ms": said.t_eval_ms,
            "decode_tokens": said.n_eval,
        }

    def _counted(self, tokens: list[int]) -> dict[str, int]:
        """Return how often each operation of ggml ran for one token, in a context of its own."""
        params = self._parameters()
        with counting(self._library, params) as counts:
            context = self._new_context(params)
            try:
                generated = self._generated(context, tokens)
                next(generated, None)
                counts.clear()
                next(generated, None)
            finally:
                self._library.llama_free(context)
        return dict(sorted(counts.items()))

    def _parameters(self) -> Any:
        params = self._library.llama_context_default_params()
        params.n_ctx = self._asked["context"]
        params.n_threads = params.n_threads_batch = self._asked["threads"]
        if self._asked["batch"] is not None:
            params.n_batch = params.n_ubatch = self._asked["batch"]
        params.no_perf = False
        return params

    def _new_context(self, params: Any) -> Any:
        context = self._library.llama_init_from_model(self._model, params)
        if not context:
            raise RefusedError("no context could be made")
        return context


_ERRORS_ONLY = 1
_TOO_LONG = "exceed_context_size_error"


def load_xllamacpp(library: ModuleType, asked: Mapping[str, Any]) -> Served:
    """Load ``asked["model"]``; ``RefusedError`` where the library would not."""
    try:
        server = library.Server(_parameters(library, asked))
    except RuntimeError as error:
        raise RefusedError(str(error).rstrip(".")) from None
    return Served(server, asked, facts_xllamacpp(library))


def facts_xllamacpp(library: ModuleType) -> dict[str, str]:
    """Return what the library says of itself: version, build, features of the CPU."""
    build = library.BUILD_INFO
    return {
        "library": f"xllamacpp {library.__version__}",
        "build": f"llama.cpp {build['build_number']} ({build['commit']}), "
        f"{build['compiler']}, {build['build_target']}",
        "system": " ".join(library.get_system_info().split()).strip(" |"),
    }


def _parameters(library: ModuleType, asked: Mapping[str, Any]) -> Any:
    params = library.CommonParams()
    params.model.path = asked["model"]
    params.n_ctx = asked["context"]
    params.n_parallel = 1  # more slots would share the context and batch side by side
    params.n_gpu_layers = asked["gpu_layers"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked["threads"]
    if asked["batch"] is not None:
        params.n_batch = params.n_ubatch = asked["batch"]
    params.warmup = False  # the observer warms it up
    params.fit_params = False  # nothing is to depend on how much memory is free
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.n_ctx_checkpoints = 0
    params.n_threads_http = 1
    params.verbosity = _ERRORS_ONLY
    return params


class Served:
    """Generates by asking the server in this process, which decodes on a thread of its own.

    ``facts`` is what the library says of itself.
    """

    def __init__(self, server: Any, asked: Mapping[str, Any], facts: Mapping[str, str]) -> None:
        self.facts = facts
        self._server = server
        self._seed: int = asked["seed"]
        self._ledger = Ledger("llama.cpp:timings")

    def __call__(self, prompt: str, max_tokens: int) -> Iterator[str]:
        """Yield the tokens of one sequence, all at its end."""
        tokens: list[str] = []
        self.stream(prompt, max_tokens, tokens.append)
        return iter(tokens)

    def stream(self, prompt: str, max_tokens: int, token: Callable[[str], None]) -> None:
        """Generate one sequence and call ``token`` with the text of each token as it comes."""
        reading = _Reading(max_tokens, token)
        self._server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": max_tokens,
                "temperature": 0,
                "seed": self._seed % 2**32,
                "cache_prompt": False,
                "stream": True,
                # Only with them is a token known whose text is still half a character.
                "timings_per_token": True,
            },
            reading.chunk,
        )
        self._ledger.add(reading.finished())

    def reports(self) -> list[dict[str, Any]]:
        """Return the server's own timings of the sequences since the last call."""
        return self._ledger.drained()


class _Reading:
    """Reads the chunks of one sequence.

    The library swallows what a callback raises, so it is kept and raised afterwards.
    """

    def __init__(self, max_tokens: int, token: Callable[[str], None]) -> None:
        self._max_tokens = max_tokens
        self._token = token
        self._seen = 0
        self._figures: dict[str, float] | None = None
        self._error: BaseException | None = None

    def chunk(self, chunk: Any) -> bool:
        """Take one chunk; True ends the sequence early."""
        if self._error is None:
            try:
                self._take(chunk)
            except BaseException as error:
                self._error = error
        return self._error is not None

    def finished(self) -> dict[str, float]:
        """Return the server's figures of the whole sequence; raise what went wrong in it."""
        if self._error is not None:
            raise self._error
        if self._figures is None:
            raise ToolError(
                "E_ENGINE_REFUSED",
                "llama.cpp ended the sequence without saying that it was finished.",
                "Run it by itself with the same prompt to see why.",
            )
        return self._figures

    def _take(self, chunk: Any) -> None:
        if "error" in chunk:
            raise self._refusal(chunk["error"])
        choice, timings = chunk["choices"][0], chunk["timings"]
        text, finish = choice["text"], choice["finish_reason"]
        # The token that ends the sequence is counted by the server, and is no output.
        made = timings["predicted_n"] - (finish == "stop")
        if text:
            self._tell(text, made)
        if finish is None:
            return
        self._end(made, finish, timings)

    def _tell(self, text: str, made: int) -> None:
        """Hand on ``text``; the tokens before it that had none yet are handed on as empty ones."""
        silent = made - self._seen - 1
        if silent < 0:
            raise disagree("tokens", self._seen + 1, made)
        for _ in range(silent):
            self._token("")
        self._token(text)
        self._seen = made

    def _end(self, made: int, finish: str, timings: Mapping[str, float]) -> None:
        if not timings["prompt_n"]:
            raise no_prompt()
        for _ in range(made - self._seen):  # half a character, and nothing after it
            self._token("")
        if made < self._seen:
            raise disagree("tokens", self._seen, made)
        if finish == "length" and made < self._max_tokens:
            prompt_tokens = int(timings["prompt_n"])
            raise context_full(prompt_tokens, self._max_tokens, prompt_tokens + made)
        # Its rates are left out: it divides n tokens by the time of n - 1, for the first one
        # comes of the prompt.
        self._figures = {
            "tokens": made,
            "prompt_tokens": timings["prompt_n"],
            "prefill_ms": timings["prompt_ms"],
            "decode_ms": timings["predicted_ms"],
            "decode_tokens": max(0, made - 1),
        }

    def _refusal(self, error: Mapping[str, Any]) -> ToolError:
        if error.get("type") == _TOO_LONG:
            return context_full(error["n_prompt_tokens"], self._max_tokens, error["n_ctx"])
        return ToolError(
            "E_ENGINE_REFUSED",
            f"llama.cpp refused the prompt: {str(error.get('message', error)).rstrip('.')}.",
            "Run it by itself with the same prompt to see why.",
        )
