"""The command engine as it is declared, and programs that misbehave."""

import os
from pathlib import Path

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.engines.declare import read_file
from pytest_flamegate.observe.observer import Observer
from tests.engines.test_tokenizers import word_level
from tests.observe.workloads import assert_nothing_left, command_workload, make_workload, observer

TIMING = "timing: embed_us=12 forward_us=345 logits_us=67 sample_us=8"


def stream(*lines: str, err: str = "", gap_s: float = 0.0) -> str:
    """Return a program that prints ``lines`` to stdout one by one, and ``err`` to stderr."""
    return (
        "import sys, time\n"
        f"for line in {lines!r}:\n"
        f"    sys.stdout.write(line); sys.stdout.flush(); time.sleep({gap_s})\n"
        f"sys.stderr.write({err!r})\n"
    )


def declared(directory: Path, more: str) -> Workload:
    path = directory / "flamegate.toml"
    keys = {"command": '["program", "{prompt}"]', "prompt": '"p"', "max_tokens": "4"}
    usual = "".join(f"{key} = {value}\n" for key, value in keys.items() if key not in more)
    path.write_text(f"[workloads.w]\n{usual}{more}\n")
    (workload,) = read_file(path)
    return workload


def error_of(watched: Observer) -> FlamegateError:
    with pytest.raises(FlamegateError) as refused:
        watched.run_timed(1)
    assert_nothing_left()
    return refused.value


def test_tokens_by_the_engines_own_count(tmp_path: Path) -> None:
    """Where its tokens begin and end was not seen; their number, the whole text and times were."""
    program = stream("Hello wor", "ld, how ", "are you", err="4 tokens\n", gap_s=0.2)
    watched = observer(
        command_workload(
            tmp_path, program, token_unit="engine", options={"pattern": r"(?P<tokens>\d+) tokens"}
        )
    )
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
    [("", "E_NO_COUNT"), ("0 tokens", "E_BAD_FIGURE"), ("99 tokens", "E_TOO_MANY_TOKENS")],
)
def test_missing_and_impossible_counts(tmp_path: Path, said: str, code: str) -> None:
    options = {"pattern": r"(?P<tokens>\d+) tokens"} if said else {}
    workload = command_workload(
        tmp_path, stream("Hello", err=said), token_unit="engine", options=options
    )
    assert error_of(observer(workload)).code == code


BAD_OPTIONS = [
    ("figures = 'guess'", "E_BAD_VALUE", "llama.cpp"),
    ("figures = 'pattern'", "E_BAD_VALUE", "no pattern"),
    ("figures = 'receipt'", "E_BAD_VALUE", "no receipt"),
    ("figures = 'none'\nreceipt = 'ci/inference.json'", "E_BAD_VALUE", "receipt"),
    ("figures = 'timing'\npattern = '(?P<tokens>x)'", "E_BAD_VALUE", "pattern"),
    ("receipt = ''", "E_BAD_VALUE", "empty"),
    ('receipt = "a\\u0000b"', "E_BAD_VALUE", "NUL"),
    ("pattern = '('", "E_BAD_VALUE", "regular expression"),
    ("token_unit = 'tokenizer'", "E_NO_TOKENIZER", "tokenizer.json"),
    ("command = ['bin/llama-bench']", "E_NO_ANSWER", "flamegate import"),
    ("command = []", "E_MISSING_KEY", "command"),
    ("token_unit = 'page'", "E_BAD_VALUE", "page"),
    ('prompt = "a\\u0000b"', "E_BAD_PROMPT", "NUL"),
]


@pytest.mark.parametrize(("more", "code", "word"), BAD_OPTIONS, ids=range(len(BAD_OPTIONS)))
def test_invalid_declarations(tmp_path: Path, more: str, code: str, word: str) -> None:
    with pytest.raises(UsageError) as refused:
        declared(tmp_path, more)
    assert refused.value.code == code
    assert word in str(refused.value)


def test_own_lines_are_reported_and_are_no_tokens(tmp_path: Path) -> None:
    dispatch = "quant_dispatch: tensor=a format=I2S kernel=i2s_gemv shape=[2, 2]\n"
    code = stream("one ", "two\n", TIMING + "\n", "three ", err=f"{dispatch}{dispatch}", gap_s=0.01)
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
    workload = command_workload(
        tmp_path,
        stream(TIMING + "\n", "x inf tok/s"),
        token_unit="line",
        options={"figures": "none"},
    )
    watched = observer(workload)
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
    (stream("a b c d", err="9 tokens"), {"pattern": r"(?P<tokens>\d+) tokens"}, None),
    (stream("a b c d", err="timing: forward_us=600000000\n"), {}, "E_SOURCES_DISAGREE"),
    (stream("a b c d"), {"figures": "timing"}, "E_SOURCE_MISSING"),
    (stream("a b c d", err=LLAMA), {"figures": "timing"}, "E_SOURCE_MISSING"),
    (stream("a b c d"), {"receipt": "ci/inference.json"}, "E_SOURCE_MISSING"),
    (stream("a b c d"), {"pattern": r"(?P<tokens>\d+) tokens"}, "E_SOURCE_MISSING"),
    (stream("a b c d", err="speed: inf tokens per second"), {}, "E_BAD_FIGURE"),
    (stream("a b c d", err="timing: embed_us=nan"), {}, "E_BAD_FIGURE"),
    (stream("a b c d", err="timing: embed_us=-1"), {}, "E_BAD_FIGURE"),
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
        assert error_of(watched).code == expected
        assert watched.runs == ()


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
    every = command_workload(tmp_path, RECEIPT, prompt="always", token_unit="word", options=options)
    watched = observer(every)
    for run in (watched.run_timed(1), watched.run_timed(1)):
        assert run.reported[0].figures == {"tokens": 4.0, "tokens_per_second": 400.5}
        assert run.reported[0].kernels == {"i2s_gemv": 1}
    stale = observer(
        command_workload(tmp_path, RECEIPT, prompt="once", token_unit="word", options=options)
    )
    assert error_of(stale).code == "E_SOURCE_MISSING"


def test_tokens_of_a_tokenizer_stream_too(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    word_level(tmp_path / "tokenizer.json")
    workload = command_workload(
        tmp_path,
        stream("one ", "two ", "on", "e\n\n", gap_s=0.02),
        token_unit="tokenizer",
        tokenizer="tokenizer.json",
    )
    watched = observer(workload)
    (block,) = watched.run_timed(1).blocks
    seen = watched.observation()
    assert (seen.tokens, seen.token_source) == (("one", " two", " one"), "stdout:tokenizer")
    assert all(gap >= 10_000_000 for gap in block.sequences_ns[0][1:])
    assert watched.runs[0].peak_rss_bytes is not None


@pytest.mark.parametrize(
    ("said", "expected"), [("3 tokens", None), ("5 tokens", "E_SOURCES_DISAGREE")]
)
def test_counts_of_engine_and_tokenizer_must_agree(
    tmp_path: Path, said: str, expected: str | None
) -> None:
    pytest.importorskip("tokenizers")
    word_level(tmp_path / "tokenizer.json")
    workload = command_workload(
        tmp_path,
        stream("one two one", err=said),
        token_unit="tokenizer",
        tokenizer="tokenizer.json",
        max_tokens=5,
        options={"pattern": r"(?P<tokens>\d+) tokens"},
    )
    watched = observer(workload)
    if expected is None:
        watched.run_timed(1)
    else:
        assert error_of(watched).code == expected


CANNOT_START = [
    ("absent", "E_CANNOT_START", "No such file"),
    ("plain", "E_CANNOT_START", "Permission denied"),
    ("directory", "E_CANNOT_START", "Permission denied"),
    ("words", "E_CANNOT_START", "architecture"),
]


@pytest.mark.parametrize(("kind", "code", "word"), CANNOT_START)
def test_programs_that_cannot_be_started(tmp_path: Path, kind: str, code: str, word: str) -> None:
    program = tmp_path / "program"
    if kind == "directory":
        program.mkdir()
    elif kind != "absent":
        program.write_bytes(b"no program\n")
        program.chmod(0o644 if kind == "plain" else 0o755)
    watched = observer(make_workload(tmp_path, "command", command=(str(program), "{prompt}")))
    error = error_of(watched)
    assert error.code == code
    assert word in str(error)


@pytest.mark.parametrize("prompt", ["{model} {prompt}", "{max_tokens}", "'\"\\ \n{", "{unknown}"])
def test_prompt_is_filled_in_once(tmp_path: Path, prompt: str) -> None:
    code = "import sys; print(sys.argv[1], end='')"
    watched = observer(command_workload(tmp_path, code, prompt=prompt, max_tokens=64))
    watched.run_timed(1)
    text = bytes(map(int, watched.observation().tokens)).decode()
    assert text == prompt


def test_endless_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_flamegate.observe.program_output.MAX_OWN_LINES_BYTES", 1 << 16)
    code = f"while True: print({TIMING!r}, flush=True)"
    assert error_of(observer(command_workload(tmp_path, code))).code == "E_OUTPUT_FLOOD"


def test_earlier_runs_stay_when_a_later_one_fails(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "if pathlib.Path('once').exists(): sys.stderr.write('inf tokens per second')\n"
        "pathlib.Path('once').touch(); print('a b')\n"
    )
    watched = observer(command_workload(tmp_path, code, token_unit="word"))
    run = watched.run_timed(1)
    assert error_of(watched).code == "E_BAD_FIGURE"
    assert watched.runs == (run,)
    assert os.listdir(tmp_path) == ["once"]
