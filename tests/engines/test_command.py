"""The command engine as it is declared, and programs that misbehave."""

from pathlib import Path

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.base import Streamed
from tests.engines.test_tokens import word_level
from tests.observe.workloads import command_workload, make_workload, observer, run_error
from tests.workload.declared import read_file

COUNT = {"pattern": r"(?P<tokens>\d+) tokens"}
TIMING = "timing: embed_us=12 forward_us=345 logits_us=67 sample_us=8"


def stream(*lines: str, err: str = "", gap_s: float = 0.0) -> str:
    """Return a program that prints ``lines`` to stdout one by one, and ``err`` to stderr."""
    return (
        "import sys, time\n"
        f"for line in {lines!r}:\n"
        f"    sys.stdout.write(line); sys.stdout.flush(); time.sleep({gap_s})\n"
        f"sys.stderr.write({err!r})\n"
    )


def test_tokens_by_the_engines_own_count(tmp_path: Path) -> None:
    """Where its tokens begin and end was not seen; their number, the whole text and times were."""
    program = stream("Hello wor", "ld, how ", "are you", err="4 tokens\n", gap_s=0.2)
    watched = observer(command_workload(tmp_path, program, token_unit="engine", options=COUNT))
    run = watched.run_timed(1)
    ((first, rest, *none),) = run.blocks[0].sequences_ns
    assert (first > 0, rest >= 40_000_000, none) == (True, True, [0, 0])
    assert run.blocks[0].judged_tokens == 3
    seen = watched.observation()
    assert seen.tokens == ("Hello world, how are you", "", "", "")
    assert seen.token_source == "stdout:engine"
    watched.run_timed(1)
    assert watched.observation().differs_at is None


@pytest.mark.parametrize(
    ("said", "code"),
    [("", "E_SOURCE_MISSING"), ("0 tokens", "E_BAD_REPORT"), ("99 tokens", "E_TOO_MANY_TOKENS")],
)
def test_missing_and_impossible_counts(tmp_path: Path, said: str, code: str) -> None:
    program, options = stream("Hello", err=said), COUNT if said else {}
    workload = command_workload(tmp_path, program, token_unit="engine", options=options)
    assert run_error(observer(workload)).code == code


def test_of_a_command_only_prompt_and_number_of_tokens_change() -> None:
    command = ("engine", "20 {prompt}:{seed}", "({max_tokens}.*)/{max_tokens}")
    plan = engine("command").plan(Workload("w", "command", "a 20 b", 20, "", Path(), command), None)
    assert isinstance(plan, Streamed)
    assert plan.command_line("a {seed}", 3) == ("engine", "20 a {seed}:42", "(3.*)/3")


BAD_OPTIONS = [
    ("figures = 'guess'", "E_BAD_VALUE", "llama.cpp"),
    ("figures = 'receipt'", "E_BAD_VALUE", "no receipt"),
    ("figures = 'timing'\npattern = '(?P<tokens>x)'", "E_BAD_VALUE", "pattern"),
    ("receipt = ''", "E_BAD_VALUE", "empty"),
    ("pattern = '('", "E_BAD_VALUE", "regular expression"),
    ("token_unit = 'tokenizer'", "E_TOKENIZER_MISSING", "tokenizer.json"),
    ("tokenizer = 't.json'", "E_BAD_VALUE", "nothing uses it"),
    ("command = ['bin/llama-bench']", "E_BAD_VALUE", "flamegate import"),
    ("command = []", "E_BAD_VALUE", "command"),
    ("token_unit = 'page'", "E_BAD_VALUE", "page"),
    ("command = ['x', '{Prompt}']", "E_BAD_VALUE", "unknown placeholder {Prompt}"),
    ("command = ['x', '{max-tokens}']", "E_BAD_VALUE", "unknown placeholder {max-tokens}"),
    ("prompts = ['p', 'q']\ncommand = ['x', '${HOME}']", "E_BAD_VALUE", ":4.* no {prompt}"),
    ('prompt = "a\\u0000b"', "E_BAD_PROMPT", "NUL"),
]


@pytest.mark.parametrize(("more", "code", "word"), BAD_OPTIONS, ids=range(len(BAD_OPTIONS)))
def test_invalid_declarations(tmp_path: Path, more: str, code: str, word: str) -> None:
    keys = {"command": '["program", "{prompt}"]', "prompt": '"p"', "max_tokens": "4"}
    usual = "".join(f"{key} = {value}\n" for key, value in keys.items() if key not in more)
    path = tmp_path / "flamegate.toml"
    path.write_text(f"[workloads.w]\nengine = 'command'\n{usual}{more}\n")
    with pytest.raises(UsageError, match=f"(?s){code}.*{word}"):
        read_file(path)


def test_own_lines_are_reported_and_are_no_tokens(tmp_path: Path) -> None:
    dispatch = "quant_dispatch: tensor=a format=I2S kernel=i2s_gemv shape=[2, 2]\n"
    code = stream("one ", "two\n", TIMING + "\n", "three ", err=f"{dispatch}{dispatch}", gap_s=0.2)
    watched = observer(command_workload(tmp_path, code, token_unit="word"))
    run = watched.run_timed(1)
    assert [token.strip() for token in watched.observation().tokens] == ["one", "two", "three"]
    assert watched.observation().token_source == "stdout without own lines:word"
    timing, quant_dispatch = run.reported
    assert (timing.source, quant_dispatch.source) == ("timing", "quant_dispatch")
    assert timing.figures["forward_us"] == 345.0
    assert quant_dispatch.kernels == {"i2s_gemv": 2}
    # The line that was taken out has its time, and no token has.
    assert run.blocks[0].sequences_ns[0][2] >= 15_000_000


def test_nothing_is_read_if_figures_is_none(tmp_path: Path) -> None:
    keys = {"token_unit": "line", "options": {"figures": "none"}}
    watched = observer(command_workload(tmp_path, stream(TIMING + "\n", "x inf tok/s"), **keys))
    assert watched.run_timed(1).reported == ()
    assert watched.observation().tokens == (TIMING + "\n", "x inf tok/s")
    assert watched.observation().token_source == "stdout:line"


LLAMA = (
    "llama_perf_context_print:        eval time =       4.00 ms /     3 runs   "
    "(    1.33 ms per token,   750.00 tokens per second)\n"
)
CLAIMS = [
    (stream("a b c d", err=LLAMA), {}, None),
    (stream("a b c d", err=f"{LLAMA}13 tok/s"), {"pattern": r"(?P<tokens_per_second>\d+) tok/s"},
     "E_SOURCES_DISAGREE"),
    (stream("a b c d", err="9 tokens"), COUNT, None),
    (stream("a b c d", err="timing: forward_us=600000000\n"), {}, "E_SOURCES_DISAGREE"),
    (stream("a b c d"), {"figures": "timing"}, "E_SOURCE_MISSING"),
    (stream("a b c d", err="speed: inf tokens per second"), {}, "E_BAD_REPORT"),
    (stream(TIMING), {}, "E_NO_TOKENS"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "options", "expected"), CLAIMS, ids=range(len(CLAIMS)))
def test_reported_figures_are_checked(
    tmp_path: Path, code: str, options: dict[str, str], expected: str | None
) -> None:
    watched = observer(command_workload(tmp_path, code, token_unit="word", options=options))
    if expected is None:
        assert len(watched.run_timed(1).reported) == 1
    else:
        assert run_error(watched).code == expected


RECEIPT = (
    "import json, pathlib, sys\n"
    "path = pathlib.Path('ci/inference.json')\n"
    "path.parent.mkdir(exist_ok=True)\n"
    "if not path.exists() or sys.argv[1] == 'always':\n"
    "    path.write_text(json.dumps({'schema_version': '1.0.0', 'compute_path': 'real',\n"
    "        'tokens_generated': 4, 'tokens_per_second': 400.5, 'kernels': ['i2s_gemv']}))\n"
    "print('a b c d')\n"
)


def test_receipt_of_an_earlier_run_is_not_read(tmp_path: Path) -> None:
    options = {"receipt": "ci/inference.json"}
    keys = {"token_unit": "word", "options": options}
    watched = observer(command_workload(tmp_path, RECEIPT, prompt="always", **keys))
    for run in (watched.run_timed(1), watched.run_timed(1)):
        assert run.reported[0].figures == {"tokens": 4.0, "tokens_per_second": 400.5}
        assert run.reported[0].kernels == {"i2s_gemv": 1}
    stale = observer(command_workload(tmp_path, RECEIPT, prompt="once", **keys))
    assert run_error(stale).code == "E_SOURCE_MISSING"


@pytest.mark.parametrize(
    ("said", "expected"), [("3 tokens", None), ("5 tokens", "E_SOURCES_DISAGREE")]
)
def test_tokens_of_a_tokenizer_stream_too(tmp_path: Path, said: str, expected: str | None) -> None:
    """Counts of the engine and of the tokenizer must agree."""
    pytest.importorskip("tokenizers")
    word_level(tmp_path / "tokenizer.json")
    program = stream("one ", "two ", "on", "e\n\n", err=said, gap_s=0.1)
    keys = {"token_unit": "tokenizer", "tokenizer": "tokenizer.json", "max_tokens": 5}
    watched = observer(command_workload(tmp_path, program, options=COUNT, **keys))
    if expected is not None:
        assert run_error(watched).code == expected
        return
    (block,) = watched.run_timed(1).blocks
    seen = watched.observation()
    assert (seen.tokens, seen.token_source) == (("one", " two", " one"), "stdout:tokenizer")
    assert all(gap >= 10_000_000 for gap in block.sequences_ns[0][1:])
    assert watched.runs[0].peak_rss_bytes is not None


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("absent", "No such file"),
        ("plain", "Permission denied"),
        ("directory", "Permission denied"),
        ("words", "architecture"),
    ],
)
def test_programs_that_cannot_be_started(tmp_path: Path, kind: str, word: str) -> None:
    program = tmp_path / "program"
    if kind == "directory":
        program.mkdir()
    elif kind != "absent":
        program.write_bytes(b"no program\n")
        program.chmod(0o644 if kind == "plain" else 0o755)
    watched = observer(make_workload(tmp_path, "command", command=(str(program), "{prompt}")))
    error = run_error(watched)
    assert error.code == "E_CANNOT_START"
    assert word in str(error)


def test_endless_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_flamegate.observe.program_output.MAX_OWN_LINES_BYTES", 1 << 16)
    code = f"while True: print({TIMING!r}, flush=True)"
    assert run_error(observer(command_workload(tmp_path, code))).code == "E_OUTPUT_FLOOD"
