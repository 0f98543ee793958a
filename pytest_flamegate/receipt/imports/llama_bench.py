"""llama.cpp's ``llama-bench``, ``-o json`` or ``jsonl``.

Each entry is a test: a prompt of ``n_prompt`` tokens (pp), ``n_gen`` tokens generated one by one
from nothing or at a depth (tg), or one after the other (pg). Its source, ``test::get_ts``, computes
``1e9 * (n_prompt + n_gen) / ns`` for each repetition and ``avg_ts`` as their mean: all tokens over
the engine's own time, without sampling, requests or a separate first token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_flamegate.receipt.imports.imported import Imported
from pytest_flamegate.receipt.imports.reading import (
    Collector,
    Figure,
    malformed_error,
    no_results_error,
    read_count,
    read_documents,
    read_number,
    read_settings,
    text_or_empty,
    unique_names,
)

_PROMPT = Figure("avg_ts", "prefill_tokens_per_second", "prompt-tokens/prefill-time")
_GENERATION = Figure("avg_ts", "decode_tokens_per_second", "n/decode-time")
_BOTH = Figure("avg_ts", "total_tokens_per_second", "(input-tokens+output-tokens)/duration")
_SETTINGS = (
    *("backends", "cpu_info", "gpu_info", "devices", "model_filename", "model_size"),
    *("model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers"),
    *("split_mode", "flash_attn", "no_kv_offload", "n_prompt", "n_gen", "n_depth", "test_time"),
)
_AGREEMENT = 1e-3
"""Rates are written with six digits, times to the nanosecond."""


def read_llama_bench(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each test."""
    tests = read_documents(data)
    if not tests:
        raise no_results_error("it is an empty list", "Let the benchmark run to its end.")
    names = unique_names([_name(test) for test in tests])
    return tuple(_read(test, name) for test, name in zip(tests, names, strict=True))


def _count(test: Mapping[str, object], name: str) -> int:
    return read_count(test.get(name), name) or 0


def _name(test: Mapping[str, object]) -> str:
    counts = {"pp": _count(test, "n_prompt"), "tg": _count(test, "n_gen")}
    parts = [f"{kind}{count}" for kind, count in counts.items() if count]
    if not parts:
        raise no_results_error(
            "a test processed no tokens (n_prompt and n_gen are 0)",
            "Run llama-bench with -p or -n above 0.",
        )
    depth = _count(test, "n_depth")
    return "-".join([*parts, f"d{depth}"] if depth else parts)


def _read(test: Mapping[str, object], name: str) -> Imported:
    prompt, generated = _count(test, "n_prompt"), _count(test, "n_gen")
    figure = _BOTH if prompt and generated else _PROMPT if prompt else _GENERATION
    rates = _repetitions(test)
    # Of one repetition the tool writes a spread of 0.
    stddev = test.get("stddev_ts") if rates is None or len(rates) > 1 else None
    samples = None if rates is None else len(rates)
    collector = Collector("llama-bench")
    collector.add(figure, "mean", test.get("avg_ts"), "avg_ts", samples, stddev)
    number, commit = test.get("build_number"), text_or_empty(test.get("build_commit"))
    version = f"b{number} {commit}".strip() if type(number) is int else commit
    model = text_or_empty(test.get("model_type"))
    return collector.finish(name, version, model, read_settings(test, _SETTINGS))


def _repetitions(test: Mapping[str, object]) -> list[float] | None:
    """Return the rate of each repetition; None if the file does not state them.

    ReceiptError ``E_IMPORT_MALFORMED`` if their mean is not the stated one.
    """
    listed, mean = test.get("samples_ts"), read_number(test.get("avg_ts"), "avg_ts")
    if listed is None:
        return None
    if not isinstance(listed, list) or not listed:
        raise malformed_error("samples_ts must be a list of rates")
    rates = [read_number(each, "samples_ts") or 0.0 for each in listed]
    computed = math.fsum(rates) / len(rates)
    if mean is not None and not math.isclose(mean, computed, rel_tol=_AGREEMENT):
        raise malformed_error(f"avg_ts is {mean:.6g}, but the mean of samples_ts is {computed:.6g}")
    return rates
