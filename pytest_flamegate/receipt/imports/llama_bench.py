"""llama.cpp's ``llama-bench``, ``-o json``, ``jsonl``, ``csv`` or ``md``.

Each row is a test: a prompt of ``n_prompt`` tokens (pp), ``n_gen`` tokens generated one by one from
nothing or at a depth (tg), or one after the other (pg). Its source, ``test::get_ts``, computes
``1e9 * (n_prompt + n_gen) / ns`` for each repetition and ``avg_ts`` as their mean: all tokens over
the engine's own time, without sampling, requests or a separate first token. A markdown table has
two decimals, and neither repetitions nor the file of the model. SQL is not read.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice

from pytest_flamegate.receipt.imports.imported import Imported
from pytest_flamegate.receipt.imports.mapping import (
    Collector,
    Figure,
    read_count,
    read_number,
    read_settings,
    require_object,
    text_or_empty,
)
from pytest_flamegate.receipt.imports.reading import (
    contains,
    malformed_error,
    name_cells,
    no_results_error,
    read_documents,
    read_table,
    read_text,
    split_header,
    unique_names,
)

TOOL = "llama-bench"
_PROMPT = Figure("avg_ts", "prefill_tokens_per_second", "prompt-tokens/prefill-time")
_GENERATION = Figure("avg_ts", "decode_tokens_per_second", "n/decode-time")
_BOTH = Figure("avg_ts", "total_tokens_per_second", "(input-tokens+output-tokens)/duration")
_SETTINGS = (
    *("backends", "cpu_info", "gpu_info", "devices", "model_filename", "model_size"),
    *("model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers"),
    *("split_mode", "flash_attn", "no_kv_offload", "n_prompt", "n_gen", "n_depth", "test_time"),
    *("size", "params", "backend", "threads", "ngl", "fa"),
)
_SNIFFED_BYTES = 1 << 14
_MAX_CELLS = 100
_AGREEMENT = 1e-3
"""Rates are written with six digits, times to the nanosecond."""
_TEST = re.compile(r"(?:pp(\d{1,9}))?\+?(?:tg(\d{1,9}))?(?: @ d(\d{1,9}))?")
_RATE = re.compile(r"([0-9.naif+-]{1,40})(?: ± ([0-9.naif+-]{1,40}))?")
_BUILD = re.compile(r"^build: (\w{1,40}) \((\d{1,9})\)\s*$", re.MULTILINE)
_RULE = re.compile(r"[\s|:-]+")


def is_json(data: bytes) -> bool:
    """Whether it is the tool's JSON, whole or one test a line."""
    return contains(data, b'"avg_ts"', b'"n_gen"', b'"n_prompt"')


def read_json(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each test."""
    return _read([require_object(each, "a test") for each in read_documents(data)])


def is_csv(data: bytes) -> bool:
    """Whether it is the tool's table."""
    return {"n_prompt", "n_gen", "avg_ts"} <= set(split_header(data))


def read_csv(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each row."""
    return _read(read_table(data))


def is_markdown(data: bytes) -> bool:
    """Whether it contains a markdown table with the columns ``test`` and ``t/s``."""
    lines = io.StringIO(data[:_SNIFFED_BYTES].decode("utf-8", "replace"))
    return any(_is_header(_split_cells(line)) for line in islice(lines, 200))


def read_markdown(data: bytes) -> tuple[Imported, ...]:
    """Return the result of each row of every table."""
    content = read_text(data)
    header: list[str] = []
    rows: list[Mapping[str, object]] = []
    for line in io.StringIO(content):
        cells = _split_cells(line)
        if _is_header(cells):
            header = cells
        elif not cells or not header:
            # Any other line ends the table.
            header = []
        elif not _RULE.fullmatch(line):
            rows.append(_rename_cells(name_cells(header, cells)))
    if not rows:
        raise no_results_error("the table has no row")
    found = _BUILD.search(content)
    build = {} if found is None else {"build_commit": found[1], "build_number": found[2]}
    return _read([{**row, **build} for row in rows])


def _split_cells(line: str) -> list[str]:
    stripped = line.strip()
    if not (stripped.startswith("|") and stripped.endswith("|")) or len(stripped) < 2:
        return []
    return [cell.strip() for cell in stripped[1:-1].split("|", _MAX_CELLS)]


def _is_header(cells: list[str]) -> bool:
    return "test" in cells and "t/s" in cells


def _rename_cells(cells: dict[str, str]) -> Mapping[str, object]:
    """Return a row of a markdown table under the names of the other forms."""
    test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
    if test is None or rate is None or not any(test.group(1, 2)):
        raise malformed_error("a row has no test such as pp512 or tg128 with a rate t/s")
    return {
        **cells,
        "model_type": cells.get("model", ""),
        "n_prompt": test[1] or "0",
        "n_gen": test[2] or "0",
        "n_depth": test[3] or "0",
        "avg_ts": rate[1],
        "stddev_ts": rate[2],
    }


def _read(rows: Sequence[Mapping[str, object]]) -> tuple[Imported, ...]:
    names = unique_names([_name(row) for row in rows])
    return tuple(_read_row(row, name) for row, name in zip(rows, names, strict=True))


def _count(row: Mapping[str, object], name: str) -> int:
    return read_count(row.get(name), name) or 0


def _name(row: Mapping[str, object]) -> str:
    counts = {"pp": _count(row, "n_prompt"), "tg": _count(row, "n_gen")}
    parts = [f"{kind}{count}" for kind, count in counts.items() if count]
    if not parts:
        raise no_results_error(
            "a test processed no tokens (n_prompt and n_gen are 0)",
            "Run llama-bench with -p or -n above 0.",
        )
    depth = _count(row, "n_depth")
    return "-".join([*parts, f"d{depth}"] if depth else parts)


def _read_row(row: Mapping[str, object], name: str) -> Imported:
    prompt, generated = _count(row, "n_prompt"), _count(row, "n_gen")
    figure = _BOTH if prompt and generated else _PROMPT if prompt else _GENERATION
    rates = _repetitions(row)
    # Of one repetition the tool writes a spread of 0.
    stddev = row.get("stddev_ts") if rates is None or len(rates) > 1 else None
    samples = None if rates is None else len(rates)
    collector = Collector(TOOL)
    collector.add(figure, "mean", row.get("avg_ts"), "avg_ts", samples=samples, stddev=stddev)
    _require_mean(row, rates)
    number = row.get("build_number")
    build = f"b{number}" if isinstance(number, (int, str)) and not isinstance(number, bool) else ""
    version = " ".join(part for part in (build, text_or_empty(row.get("build_commit"))) if part)
    return collector.finish(
        name,
        version=version,
        model=text_or_empty(row.get("model_type")),
        settings=read_settings(row, _SETTINGS),
    )


def _repetitions(row: Mapping[str, object]) -> list[float] | None:
    """Return the rate of each repetition; None if the file does not state them."""
    listed = row.get("samples_ts")
    if listed is None:
        return None
    if not isinstance(listed, list) or not listed:
        raise malformed_error("samples_ts must be a list of rates")
    rates = [read_number(each, "samples_ts") for each in listed]
    return [rate for rate in rates if rate is not None]


def _require_mean(row: Mapping[str, object], rates: list[float] | None) -> None:
    """Raise an error if the mean is not that of the listed repetitions."""
    mean = read_number(row.get("avg_ts"), "avg_ts")
    if rates and mean is not None:
        computed = math.fsum(rates) / len(rates)
        if not math.isclose(mean, computed, rel_tol=_AGREEMENT):
            raise malformed_error(
                f"avg_ts is {mean:.6g}, but the mean of samples_ts is {computed:.6g}"
            )
