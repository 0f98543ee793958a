"""llama.cpp's ``llama-bench``, ``-o json``, ``jsonl``, ``csv`` or ``md``.

Each row is a test: a prompt of ``n_prompt`` tokens (pp), ``n_gen`` tokens generated one by one
from nothing or at a depth (tg), or one after the other (pg). Its source, ``test::get_ts``, has
``1e9 * (n_prompt + n_gen) / ns`` for each repetition and ``avg_ts`` their mean: all tokens over
the engine's own time, no sampling, no request and no first token told apart. A markdown table
holds two decimals, and neither repetitions nor the file of the model. SQL is not read.
"""

from __future__ import annotations

import io
import math
import re
from itertools import islice
from typing import TYPE_CHECKING

from pytest_flamegate.core.errors import ReceiptError, UndecidedError
from pytest_flamegate.receipt.imports.reading import (
    Gatherer,
    csv_rows,
    decoded,
    delimiter_of,
    documents,
    first_line,
    malformed,
    number,
    object_in,
    says,
    settings_of,
    table,
    text,
    unique,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_flamegate.receipt.imports.reading import Imported


TOOL = "llama-bench"
_SETTINGS = (
    *("backends", "cpu_info", "gpu_info", "devices", "model_filename", "model_size"),
    *("model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers"),
    *("split_mode", "flash_attn", "no_kv_offload", "n_prompt", "n_gen", "n_depth", "test_time"),
    *("size", "params", "backend", "threads", "ngl", "fa"),
)
_SNIFFED = 1 << 14
_MOST_CELLS = 100
_AGREE = 1e-3
"""Rates are written with six digits, times to the nanosecond."""
_TEST = re.compile(r"(?:pp(\d{1,9}))?\+?(?:tg(\d{1,9}))?(?: @ d(\d{1,9}))?")
_RATE = re.compile(r"([0-9.naif+-]{1,40})(?: ± ([0-9.naif+-]{1,40}))?")
_BUILD = re.compile(r"^build: (\w{1,40}) \((\d{1,9})\)\s*$", re.MULTILINE)
_RULE = re.compile(r"[\s|:-]+")


def recognises_json(data: bytes) -> bool:
    """Whether it is the tool's JSON, whole or one test a line."""
    return says(data, b'"avg_ts"', b'"n_gen"', b'"n_prompt"')


def read_json(data: bytes) -> tuple[Imported, ...]:
    """Return each test; ReceiptError where one is malformed."""
    return _imported([object_in(each, TOOL, "a test") for each in documents(data)])


def recognises_csv(data: bytes) -> bool:
    """Whether it is the tool's table, whatever separates its columns."""
    header = first_line(data)
    names = {cell.strip().strip('"') for cell in header.split(delimiter_of(header))}
    return {"n_prompt", "n_gen", "avg_ts"} <= names


def read_csv(data: bytes) -> tuple[Imported, ...]:
    """Return each row; ReceiptError where one is malformed or cut off."""
    return _imported(list(table(csv_rows(data))))


def recognises_markdown(data: bytes) -> bool:
    """Whether a table with the columns ``test`` and ``t/s`` stands in it."""
    return any(_is_header(_cells(line)) for line in _first_lines(data))


def read_markdown(data: bytes) -> tuple[Imported, ...]:
    """Return each row of every table; ReceiptError where one is malformed."""
    content = decoded(data)
    header: list[str] = []
    rows: list[Mapping[str, object]] = []
    for line in io.StringIO(content):
        cells = _cells(line)
        if _is_header(cells):
            header = cells
        elif not cells or not header:
            # A table ends where something else stands.
            header = []
        elif not _RULE.fullmatch(line):
            if len(cells) != len(header):
                raise malformed(TOOL, f"a row has {len(cells)} cells, its header {len(header)}.")
            rows.append(_row(dict(zip(header, cells, strict=True))))
    if not rows:
        raise UndecidedError(
            "E_NO_RESULTS", "The table holds no row.", "Let the benchmark run to its end."
        )
    build = _BUILD.search(content)
    told = {} if build is None else {"build_commit": build[1], "build_number": build[2]}
    return _imported([{**row, **told} for row in rows])


def _first_lines(data: bytes) -> Iterator[str]:
    return islice(io.StringIO(data[:_SNIFFED].decode("utf-8", "replace")), 200)


def _cells(line: str) -> list[str]:
    stripped = line.strip()
    if not (stripped.startswith("|") and stripped.endswith("|")) or len(stripped) < 2:
        return []
    return [cell.strip() for cell in stripped[1:-1].split("|", _MOST_CELLS)]


def _is_header(cells: list[str]) -> bool:
    return "test" in cells and "t/s" in cells


def _row(cells: dict[str, str]) -> Mapping[str, object]:
    """Return a row of a markdown table under the names that the other forms have."""
    test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
    if test is None or rate is None or not any(test.group(1, 2)):
        raise malformed(TOOL, "a row has no test such as pp512 or tg128 with a rate t/s.")
    return {
        **cells,
        "model_type": cells.get("model", ""),
        "n_prompt": test[1] or "0",
        "n_gen": test[2] or "0",
        "n_depth": test[3] or "0",
        "avg_ts": rate[1],
        "stddev_ts": rate[2],
    }


def _imported(rows: list[Mapping[str, object]]) -> tuple[Imported, ...]:
    names = unique([_name(row) for row in rows])
    return tuple(_one(row, name) for row, name in zip(rows, names, strict=True))


def _count(row: Mapping[str, object], name: str) -> int:
    return whole(row.get(name), TOOL, name) or 0


def _name(row: Mapping[str, object]) -> str:
    parts = [("pp", _count(row, "n_prompt")), ("tg", _count(row, "n_gen"))]
    told = [f"{kind}{count}" for kind, count in parts if count]
    if not told:
        raise UndecidedError(
            "E_NO_TOKENS",
            "A test of llama-bench processed no tokens: n_prompt and n_gen are 0.",
            "Run it with -p or -n above 0.",
        )
    depth = _count(row, "n_depth")
    return "-".join([*told, f"d{depth}"] if depth else told)


def _one(row: Mapping[str, object], name: str) -> Imported:
    prompt, generated = _count(row, "n_prompt"), _count(row, "n_gen")
    if prompt and generated:
        figure, formula = "total_tokens_per_second", "(input-tokens+output-tokens)/duration"
    elif prompt:
        figure, formula = "prefill_tokens_per_second", "prompt-tokens/prefill-time"
    else:
        figure, formula = "decode_tokens_per_second", "n/decode-time"
    gathered = Gatherer(TOOL)
    rates = _rates(row)
    # One repetition has no spread: the tool writes 0.
    several = row.get("stddev_ts") if rates is None or len(rates) > 1 else None
    gathered.add(
        figure,
        row.get("avg_ts"),
        formula,
        "mean",
        "avg_ts",
        samples=None if rates is None else len(rates),
        stddev=several,
    )
    _agreeing(row, rates)
    build, commit = row.get("build_number"), text(row.get("build_commit"))
    told = str(build) if isinstance(build, (int, str)) and not isinstance(build, bool) else ""
    version = " ".join(part for part in (f"b{told}" if told else "", commit) if part)
    settings = settings_of(row, _SETTINGS)
    return gathered.imported(
        name, version=version, model=text(row.get("model_type")), settings=settings
    )


def _rates(row: Mapping[str, object]) -> list[float] | None:
    """Return the rates of the repetitions, None where the file does not hold them."""
    told = row.get("samples_ts")
    if told is None:
        return None
    if not isinstance(told, list) or not told:
        raise malformed(TOOL, "samples_ts must be a list of rates.")
    rates = [number(each, TOOL, "samples_ts") for each in told]
    return [rate for rate in rates if rate is not None]


def _agreeing(row: Mapping[str, object], rates: list[float] | None) -> None:
    """Refuse a mean that is not that of the repetitions beside it."""
    mean = number(row.get("avg_ts"), TOOL, "avg_ts")
    if not rates or mean is None:
        return
    if not math.isclose(mean, math.fsum(rates) / len(rates), rel_tol=_AGREE):
        raise ReceiptError(
            "E_SOURCES_DISAGREE",
            f"llama-bench's avg_ts is {mean:.6g}, and the mean of its samples_ts "
            f"{math.fsum(rates) / len(rates):.6g}.",
            "Give the file as the tool wrote it.",
        )
