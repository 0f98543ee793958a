"""llama.cpp's own server, in process and without its HTTP: the library xllamacpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.llama.sequences import Ledger, context_full, disagree, no_prompt
from pytest_flamegate.workload.llama.serving import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

_ERRORS_ONLY = 1
_TOO_LONG = "exceed_context_size_error"


def load(library: ModuleType, asked: Mapping[str, Any]) -> Served:
    """Load ``asked["model"]``; ``RefusedError`` where the library would not."""
    try:
        server = library.Server(_parameters(library, asked))
    except RuntimeError as error:
        raise RefusedError(str(error).rstrip(".")) from None
    return Served(server, asked, facts(library))


def facts(library: ModuleType) -> dict[str, str]:
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
