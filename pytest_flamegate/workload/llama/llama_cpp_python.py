"""llama.cpp by its C functions: the library llama-cpp-python, module ``llama_cpp``."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from pytest_flamegate.errors import ToolError
from pytest_flamegate.workload.llama.operations import counting
from pytest_flamegate.workload.llama.sequences import Ledger, context_full, no_prompt
from pytest_flamegate.workload.llama.serving import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

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
