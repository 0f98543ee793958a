"""Read results of other benchmark tools from their JSON, by the tables of ``formats.toml``.

``llama-bench`` has a reader of its own, because the kind of a figure depends on its test, and it
prints tables: Markdown unless it is given ``-o``.
"""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pytest_flamegate.core.text import quote
from pytest_flamegate.receipt.imports import imported, values


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure of a foreign file.

    ``field`` is its name there, and ``formula`` the tool's computation of it. ``scale``
    converts it into flamegate's unit. ``counted`` says that it is a figure of all requests, so
    that their number is the number of its samples.
    """

    field: str
    name: imported.Name
    formula: str
    scale: float = 1.0
    counted: bool = False


class ImportFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The output of one tool. Paths are names with dots between them; ``{}`` is a figure's field.

    Attributes:
        marks: names that every file of the format contains; the columns of a table.
        result: name of a result; empty if the strategy of the load names it.
        entries: name of the list of results; empty if the document is one result.
        prefix: begins the path of each figure within a result.
        requests: path of the number of successful requests, with ``[]`` of a list of them.
        times: figures with a distribution over requests or tokens.
        rates: figures that are one ratio over the whole run.
        statistics: path of each statistic of a time.
        rate, spread, samples, unit: paths of a rate, and of a figure's standard deviation, number
            of samples and unit, if they are stated.
    """

    name: str
    marks: tuple[str, ...]
    tool: str
    tool_without_version: str = ""
    result: str = ""
    entries: str = ""
    prefix: str = ""
    requests: str = ""
    version: str = ""
    models: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    times: tuple[Figure, ...] = ()
    rates: tuple[Figure, ...] = ()
    statistics: Mapping[imported.Statistic, str] = msgspec.field(default_factory=dict)
    rate: str = "{}"
    spread: str = ""
    samples: str = ""
    unit: str = ""
    form: values.Form = "json"

    def recognises(self, data: bytes) -> bool:
        """Whether ``data`` looks like a file of this format."""
        if self.form != "json":
            return values.is_table(data, self.form, frozenset(self.marks))
        marks = (f'"{mark}"'.encode() for mark in self.marks)
        return data.lstrip()[:1] in (b"{", b"[") and all(mark in data for mark in marks)

    def read(self, data: bytes) -> tuple[imported.Imported, ...]:
        """Return the results in ``data``; ReceiptError, or UndecidedError ``E_NO_RESULTS``."""
        documents = values.read_documents(data) if self.form == "json" else _read_rows(data, self)
        if self.tool == LLAMA_BENCH.tool:
            names = values.unique_names([_name_test(test) for test in documents])
            return tuple(map(_read_test, documents, names))
        entries = [(document, document, "") for document in documents]
        if self.entries:
            report = documents[0]
            listed = report.get(self.entries)
            if not isinstance(listed, list) or not listed:
                raise values.malformed_error(f"{self.entries} must be a list with an entry")
            entries = [
                (report, values.require_object(entry, "an entry"), f"{self.entries}.{index}.")
                for index, entry in enumerate(listed)
            ]
        names = values.unique_names([self.result or _name_load(entry) for _, entry, _ in entries])
        return tuple(
            self._read_entry(*each, name) for each, name in zip(entries, names, strict=True)
        )

    def _read_entry(
        self, report: Mapping[str, object], entry: Mapping[str, object], place: str, name: str
    ) -> imported.Imported:
        """Return the result in ``entry``, which is at ``place`` of the file."""
        found: list[_Found] = []
        requests = self._read_requests(entry, place)
        for figure in (*self.times, *self.rates):
            _check_unit(figure, entry, self._path(self.unit, figure))
        for figure in self.times:
            samples = requests if figure.counted else None
            if self.samples:
                path = self._path(self.samples, figure)
                samples = values.read_count(values.find(entry, path), path)
            spread = values.find(entry, self._path(self.spread, figure))
            for statistic, template in self.statistics.items():
                path = self._path(template, figure)
                stddev = spread if statistic == "mean" else None
                value = values.find(entry, path)
                found += _read_figure(figure, statistic, value, place + path, samples, stddev)
        for figure in self.rates:
            path = self._path(self.rate, figure)
            samples = requests if figure.counted else None
            found += _read_figure(figure, "total", values.find(entry, path), place + path, samples)
        version = values.first_text(report, [self.version])
        is_other = self.tool_without_version and not version and "schema_version" not in report
        tool = self.tool_without_version if is_other else self.tool
        settings = values.read_settings(entry, self.settings)
        return _make_result(
            tool, name, version, values.first_text(entry, self.models), settings, found
        )

    def _path(self, template: str, figure: Figure) -> str:
        return self.prefix + template.format(figure.field) if template else ""

    def _read_requests(self, entry: Mapping[str, object], place: str) -> int | None:
        """Return the number of successful requests; UndecidedError ``E_NO_RESULTS`` if it is 0."""
        path = self.requests.removesuffix("[]")
        value = values.find(entry, path)
        if path != self.requests:
            if not isinstance(value, list):
                raise values.malformed_error(f"{path} must be a list")
            value = len(value)
        found = values.read_count(value, place + path)
        if found == 0:
            raise values.no_results_error(
                f"no request succeeded ({place}{path} is 0)",
                "Read the server's answers, and run the benchmark again.",
            )
        return found


_UNITS = {
    "ms": ("ms",),
    "tokens/s": ("tokens/sec", "tokens/sec/user"),
    "requests/s": ("requests/sec",),
}
"""The names that tools give to our units."""

_Found = imported.ImportedMetric | imported.LeftOut


def _check_unit(figure: Figure, entry: Mapping[str, object], path: str) -> None:
    """Raise ReceiptError ``E_IMPORT_MALFORMED`` if a figure is stated in another unit."""
    expected = _UNITS[imported.unit_of(figure.name)[0]]
    is_stated = path and entry.get(figure.field) is not None
    if is_stated and (unit := values.find(entry, path)) not in expected:
        raise values.malformed_error(
            f"{figure.field} must be in {' or '.join(expected)}, and is in {quote(unit)}"
        )


def _read_figure(
    figure: Figure,
    statistic: imported.Statistic,
    value: object,
    field: str,
    samples: int | None,
    stddev: object = None,
) -> Iterator[_Found]:
    """Yield one figure, if the file states it.

    Zero is left out with a reason, because neither a time nor a rate of zero was measured.
    ReceiptError ``E_IMPORT_MALFORMED`` for a value that is no finite number from 0 on.
    """
    found = values.read_number(value, field)
    if not found:
        if found is not None:
            yield imported.LeftOut(field, "it is 0, so nothing was measured")
        return
    spread = values.read_number(stddev, f"the spread of {field}")
    scaled = found * figure.scale
    scaled_spread = None if spread is None else spread * figure.scale
    in_range = imported.LEAST_VALUE <= scaled <= imported.MOST_VALUE
    if not in_range or scaled_spread == math.inf:
        raise values.malformed_error(f"{quote(field)} is out of range")
    yield imported.ImportedMetric(
        figure.name,
        scaled,
        *imported.unit_of(figure.name),
        formula=figure.formula,
        statistic=statistic,
        field=field,
        samples=samples,
        stddev=scaled_spread,
    )


def _make_result(
    tool: str,
    result: str,
    version: str,
    model: str,
    settings: Mapping[str, imported.Setting],
    found: Sequence[_Found],
) -> imported.Imported:
    """Return the result; UndecidedError ``E_NO_RESULTS`` if it has no figure."""
    metrics = tuple(each for each in found if isinstance(each, imported.ImportedMetric))
    if not metrics:
        raise values.no_results_error(
            f"{quote(result)} of {tool} has no figure that can be compared",
            "Run the benchmark again, with streaming on, so that requests succeed.",
        )
    left_out = tuple(each for each in found if isinstance(each, imported.LeftOut))
    version, model = version[: values.MAX_TEXT], model[: values.MAX_TEXT]
    return imported.Imported(result, tool, version, model, settings, metrics, left_out)


def _name_load(entry: Mapping[str, object]) -> str:
    """Return a name for the file of a result: its strategy in letters, digits and dashes."""
    strategy = values.look_up(entry, "config.strategy") or values.look_up(entry, "args.strategy")
    rate = values.look_up(strategy, "rate") or values.look_up(strategy, "streams")
    number = f"-{rate:g}" if isinstance(rate, (int, float)) and not isinstance(rate, bool) else ""
    name = f"{values.first_text(strategy, ['type_'])}{number}"[:60]
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in name)
    return "-".join(part for part in plain.split("-") if part) or "benchmark"


# llama-bench -o json, jsonl, csv or md. Each entry or row is a test: a prompt of n_prompt tokens
# (pp), n_gen tokens generated one by one from nothing or at a depth (tg), or one after the other
# (pg). Its source, test::get_ts, computes 1e9 * (n_prompt + n_gen) / ns for each repetition and
# avg_ts as their mean: all tokens over the engine's own time, without sampling, requests or a
# separate first token.
# A table does not state the repetitions, and Markdown has two decimals and no name of the file.
LLAMA_BENCH = ImportFormat("llama-bench-json", ("avg_ts", "n_gen", "n_prompt"), "llama-bench")
_TABLES_OF_TESTS = (
    ImportFormat("llama-bench-csv", LLAMA_BENCH.marks, LLAMA_BENCH.tool, form="csv"),
    ImportFormat("llama-bench-markdown", ("test", "t/s"), LLAMA_BENCH.tool, form="markdown"),
)
_COLUMNS = {
    "model": "model_type",
    "size": "model_size",
    "backend": "backends",
    "threads": "n_threads",
    "ngl": "n_gpu_layers",
    "fa": "flash_attn",
}
"""The names that columns of Markdown have in JSON."""
_TEST = re.compile(r"(?=pp|tg)(?:pp ?([0-9]{1,9}))?\+?(?:tg ?([0-9]{1,9}))?(?: @ d([0-9]{1,9}))?")
_BUILD = re.compile(rb"^build: (\w{1,40}) \(([0-9]{1,9})\)", re.MULTILINE)
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_NUMBERS = frozenset({"n_prompt", "n_gen", "n_depth", "avg_ts", "stddev_ts", "build_number"})
_PROMPT = Figure("avg_ts", "prefill_tokens_per_second", "prompt-tokens/prefill-time")
_GENERATION = Figure("avg_ts", "decode_tokens_per_second", "n/decode-time")
_BOTH = Figure("avg_ts", "total_tokens_per_second", "(input-tokens+output-tokens)/duration")
_TEST_SETTINGS = (
    *("backends", "cpu_info", "gpu_info", "devices", "model_filename", "model_size"),
    *("model_n_params", "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers"),
    *("split_mode", "flash_attn", "no_kv_offload", "n_prompt", "n_gen", "n_depth", "test_time"),
)


def _read_rows(data: bytes, form: ImportFormat) -> list[Mapping[str, object]]:
    """Return the rows of a table of llama-bench with the names and numbers of its JSON."""
    build = _BUILD.search(data)
    tests: list[Mapping[str, object]] = []
    for row in values.read_table(data, form.form, frozenset(form.marks)):
        if form.form == "markdown":
            found = _TEST.fullmatch(row["test"])
            if found is None:
                raise values.malformed_error(
                    f"{quote(row['test'])} is no test such as pp512 or tg128"
                )
            row["n_prompt"], row["n_gen"], row["n_depth"] = (each or "0" for each in found.groups())
            row["avg_ts"], _, row["stddev_ts"] = row["t/s"].replace(" ", "").partition("±")
            if build is not None:
                row["build_commit"], row["build_number"] = map(bytes.decode, build.groups())
        test: dict[str, object] = {_COLUMNS.get(name, name): row[name] for name in row}
        for name in _NUMBERS.intersection(row):
            if _NUMBER.fullmatch(value := row[name]):
                test[name] = float(value) if "." in value else int(value)
        tests.append(test)
    if not tests:
        raise values.no_results_error("the table has no row", "Let llama-bench run to its end.")
    return tests


def _count(test: Mapping[str, object], name: str) -> int:
    return values.read_count(test.get(name), name) or 0


def _name_test(test: Mapping[str, object]) -> str:
    counts = {"pp": _count(test, "n_prompt"), "tg": _count(test, "n_gen")}
    parts = [f"{kind}{count}" for kind, count in counts.items() if count]
    if not parts:
        raise values.no_results_error(
            "a test processed no tokens (n_prompt and n_gen are 0)",
            "Run llama-bench with -p or -n above 0.",
        )
    depth = _count(test, "n_depth")
    return "-".join([*parts, f"d{depth}"] if depth else parts)


def _read_test(test: Mapping[str, object], name: str) -> imported.Imported:
    prompt, generated = _count(test, "n_prompt"), _count(test, "n_gen")
    figure = _BOTH if prompt and generated else _PROMPT if prompt else _GENERATION
    repetitions = test.get("samples_ts")
    # Of one repetition the tool writes a spread of 0.
    stddev = None if test.get("stddev_ts") == 0 else test.get("stddev_ts")
    samples = len(repetitions) if isinstance(repetitions, list) else None
    found = [*_read_figure(figure, "mean", test.get("avg_ts"), "avg_ts", samples, stddev)]
    number, commit = test.get("build_number"), values.first_text(test, ["build_commit"])
    version = f"b{number} {commit}".strip() if type(number) is int else commit
    model = values.first_text(test, ["model_type"])
    settings = values.read_settings(test, _TEST_SETTINGS)
    return _make_result(LLAMA_BENCH.tool, name, version, model, settings, found)


_TABLES = tomllib.loads(Path(__file__).with_name("formats.toml").read_text("utf-8"))
FORMATS: tuple[ImportFormat, ...] = (
    LLAMA_BENCH,
    *_TABLES_OF_TESTS,
    *(msgspec.convert({"name": name, **table}, ImportFormat) for name, table in _TABLES.items()),
)


def detect_import_format(data: bytes) -> ImportFormat | None:
    """Return the format of ``data``; None if it is none of them."""
    return next((each for each in FORMATS if each.recognises(data)), None)
