from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_flamegate import engines
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.base import ENGINE_KEYS
from pytest_flamegate.engines.declare import _KINDS, find_file, find_line, read_file

FULL = """\
[workloads.decode-10tok]
engine = "command"
command = ["target/release/bitnet", "--prompt", "{prompt}", "--max-tokens", "{max_tokens}"]
build = ["cargo", "build", "--release"]
model = "models/**/*.gguf"
prompt = "What is 2+2?"
max_tokens = 10
env = { BITNET_DETERMINISTIC = "1", BITNET_SEED = "42" }
tokens_per_second = "4%"
hotspots = { "matmul_i2s" = "3pp", "*" = "6pp" }
timeout = 30
"""
MINIMAL = '[workloads.w]\nprompt = "2+2="\nmax_tokens = 1\n'


def write(directory: Path, text: str, name: str = "flamegate.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_every_key_arrives(tmp_path: Path) -> None:
    (workload,) = read_file(write(tmp_path, FULL))
    assert workload.node_name == "flamegate.toml::decode-10tok"
    assert workload.command[0] == "target/release/bitnet"
    assert workload.build == ("cargo", "build", "--release")
    assert workload.env == {"BITNET_DETERMINISTIC": "1", "BITNET_SEED": "42"}
    assert workload.thresholds.tokens_per_second_pct == 4
    assert workload.thresholds.share_pp("matmul_i2s") == 3
    assert workload.thresholds.share_pp("anything else") == 6
    assert (workload.timeout_s, workload.directory) == (30, tmp_path)


@pytest.mark.parametrize(
    ("extra", "engine"),
    [
        ("", "embedded"),
        ('command = ["x"]\n', "command"),
        ('target = "m:f"\n', "python"),
    ],
)
def test_the_engine_follows_from_the_keys(tmp_path: Path, extra: str, engine: str) -> None:
    (workload,) = read_file(write(tmp_path, MINIMAL + extra))
    assert workload.engine == engine


NEEDED = {"embedded": "", "command": "command = ['x']\n", "python": "target = 'm:f'\n"}
TAKEN = {
    "command = ['x']\n": {"command"},
    "target = 'm:f'\n": {"benchmark", "python"},
    "model = 'm.gguf'\n": {"embedded", "command", "python"},
    "tokenizer = 't.json'\n": {"command", "openai"},
    "token_unit = 'byte'\n": {"command"},
    "build = ['make']\n": {"embedded", "command", "python"},
}


@pytest.mark.parametrize("engine", NEEDED)
@pytest.mark.parametrize("line", TAKEN)
def test_a_key_that_the_engine_would_ignore_is_refused(
    tmp_path: Path, engine: str, line: str
) -> None:
    """Even where it says no more than the default."""
    others = f"engine = '{engine}'\n" + NEEDED[engine].replace(line, "")
    path = write(tmp_path, MINIMAL + others + line)
    if engine in TAKEN[line]:
        (workload,) = read_file(path)
        assert workload.engine == engine
        return
    key = line.partition(" ")[0]
    with pytest.raises(UsageError, match=f"the engine {engine}, which takes no {key}") as raised:
        read_file(path)
    assert raised.value.code == "E_WRONG_KEY"
    assert raised.value.remedy.endswith(f"takes it: {' or '.join(sorted(TAKEN[line]))}.")


def test_the_keys_of_engines_are_keys_of_a_declaration() -> None:
    assert set(_KINDS) >= ENGINE_KEYS
    assert all(each.keys <= ENGINE_KEYS for each in engines.ENGINES.values())


def test_workloads_of_a_pyproject(tmp_path: Path) -> None:
    text = MINIMAL.replace("[workloads.w]", "[tool.flamegate.workloads.w]")
    path = write(tmp_path, "[project]\nname='x'\n" + text, "pyproject.toml")
    assert find_file(tmp_path) == path
    (workload,) = read_file(path)
    assert workload.node_name == "pyproject.toml::w"
    assert find_line(path, "w") == 3


def test_flamegate_toml_wins_over_pyproject(tmp_path: Path) -> None:
    write(tmp_path, "[tool.flamegate]\n", "pyproject.toml")
    own = write(tmp_path, MINIMAL)
    assert find_file(tmp_path) == own


def test_no_file(tmp_path: Path) -> None:
    assert find_file(tmp_path) is None
    (tmp_path / "pyproject.toml").mkdir()
    assert find_file(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("[project]\n", False),
        ("# tool.flamegate is not used here\n", False),
        ("tool = 1\n", False),
        ("[tool.other]\nx = 'tool.flamegate'\n", False),
        ("[tool.flamegate-extra]\n", False),
        ("[project]\ndependencies = ['pytest-flamegate']\nx =\n", False),
        ("[tool.pytest.ini_options]\nflamegate_budget = 3\nx =\n", False),
        ("[tool]\nflamegate = {}\n", True),
        ("[tool]\nflamegate = 3\n", True),
        ('[ tool . "flamegate".workloads]\n', True),
    ],
)
def test_which_pyproject_is_the_workload_file(tmp_path: Path, text: str, ours: bool) -> None:
    path = write(tmp_path, text, "pyproject.toml")
    assert find_file(tmp_path) == (path if ours else None)


def test_a_broken_pyproject_is_told_of_where_it_speaks_of_flamegate(tmp_path: Path) -> None:
    path = write(tmp_path, "[tool.flamegate]\nx =\n", "pyproject.toml")
    with pytest.raises(
        UsageError, match=r"pyproject.toml is no valid TOML.*line 2, column"
    ) as told:
        find_file(tmp_path)
    assert told.value.code == "E_BAD_TOML"
    path.write_bytes(b"[tool.flamegate]\nx = '\xff'\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        find_file(tmp_path)


def test_what_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A permission denied cannot be had where tests run as root."""

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    project = write(tmp_path, "[project]\n", "pyproject.toml")
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", denied)
        for read in (lambda: find_file(tmp_path), lambda: read_file(project)):
            with pytest.raises(UsageError, match="cannot be read: Permission denied"):
                read()
    (tmp_path / "flamegate.toml").mkdir()
    found = find_file(tmp_path)
    assert found is not None
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_file(found)


@pytest.mark.parametrize(
    ("text", "key"), [("tool = 1\n", "tool"), ("[tool]\nflamegate = 3\n", "flamegate")]
)
def test_a_pyproject_whose_tables_are_none(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(UsageError, match=f"pyproject.toml: {key} is no table") as told:
        read_file(write(tmp_path, text, "pyproject.toml"))
    assert told.value.code == "E_BAD_VALUE"


def test_an_annotation_has_no_line_where_the_file_cannot_be_read(tmp_path: Path) -> None:
    assert find_line(tmp_path, "w") is None
    assert find_line(tmp_path / "missing", "w") is None


BAD = [
    ("[workloads.w]\nprompt = 'x\n", "E_BAD_TOML", "line 2, column"),
    ("[workloads.w]\nprompt = 'x'\nprompt = 'y'\n", "E_BAD_TOML", "line 3"),
    ("workloads = 3\n", "E_BAD_VALUE", "workloads"),
    ("[workload.w]\n", "E_UNKNOWN_KEY", "'workload'"),
    ("[workloads]\nw = 3\n", "E_BAD_VALUE", "no table"),
    ("[workloads.w]\nmax_tokens = 1\n", "E_MISSING_KEY", "prompt"),
    ("[workloads.w]\nprompt = 'x'\n", "E_MISSING_KEY", "max_tokens"),
    (MINIMAL + "max_token = 3\n", "E_UNKNOWN_KEY", "max_tokens"),
    (MINIMAL + "engine = 'vllm'\n", "E_UNKNOWN_ENGINE", "embedded"),
    (MINIMAL + "engine = 7\n", "E_BAD_VALUE", "engine"),
    (MINIMAL + "threads = true\n", "E_BAD_VALUE", "threads"),
    (MINIMAL + "threads = 0\n", "E_BAD_VALUE", "threads"),
    (MINIMAL + "timeout = nan\n", "E_BAD_VALUE", "timeout"),
    (MINIMAL + "env = { A = 1 }\n", "E_BAD_VALUE", "env.A"),
    (MINIMAL + "command = ['x', 3]\n", "E_BAD_VALUE", "command"),
    (MINIMAL + "engine = 'command'\n", "E_NO_COMMAND", "command"),
    (MINIMAL + "engine = 'python'\n", "E_NO_TARGET", "target"),
    (MINIMAL + "engine = 'python'\ntarget = 'm'\n", "E_NO_TARGET", "module:function"),
    (MINIMAL + "command = ['x', '{prompts}']\n", "E_UNKNOWN_PLACEHOLDER", "{prompts}"),
    (MINIMAL + "command = ['x']\ntoken_unit = 'page'\n", "E_UNKNOWN_TOKEN_UNIT", "page"),
    (MINIMAL + "engine = 'embedded'\ncommand = ['x']\n", "E_WRONG_KEY", "command"),
    (MINIMAL + "tokens_per_second = '5'\n", "E_BAD_THRESHOLD", "tokens_per_second"),
    (MINIMAL + "tokens_per_second = '5pp'\n", "E_BAD_THRESHOLD", "5%"),
    (MINIMAL + "tokens_per_second = '0%'\n", "E_BAD_THRESHOLD", "above 0"),
    (MINIMAL + "tokens_per_second = '100%'\n", "E_BAD_THRESHOLD", "below 100"),
    (MINIMAL + "hotspots = { x = '3%' }\n", "E_BAD_THRESHOLD", "3%"),
    (MINIMAL + "engine = ''\n", "E_UNKNOWN_ENGINE", "''"),
    (MINIMAL + "command = ['a\\u0000b']\n".replace("'", '"'), "E_BAD_VALUE", "command holds a NUL"),
    (MINIMAL + 'model = "a\\u0000b"\n', "E_BAD_VALUE", "model holds a NUL"),
    ("x = " + "[" * 5000, "E_BAD_TOML", "nested too deeply"),
    ("x = 1" + "0" * 5000, "E_BAD_TOML", "digits"),
    (MINIMAL.replace("= 1", "= 0x" + "f" * 5000), "E_BAD_VALUE", "too large to show"),
    (MINIMAL + "model" + ".x" * 5000 + " = 1\n", "E_BAD_VALUE", "too large to show"),
    (MINIMAL + f"threads = '{'9' * 5000}'\n", "E_BAD_VALUE", "…"),
    ("[workloads.'../up']\nprompt='x'\nmax_tokens=1\n", "E_BAD_NAME", "directory"),
    (MINIMAL + "variants = 3\n", "E_BAD_VALUE", "variants holds no variant"),
    (MINIMAL + "variants = {}\n", "E_BAD_VALUE", "[workloads.w.variants.NAME]"),
    (MINIMAL + "variants = { a = 3 }\n", "E_BAD_VALUE", "variant 'a' of workload 'w' is no table"),
    (MINIMAL + "variants = { '../a' = {} }\n", "E_BAD_NAME", "variant '../a' of workload 'w'"),
    (MINIMAL + "variants = { a = { sed = 1 } }\n", "E_UNKNOWN_KEY", "variant 'a' of workload 'w'"),
    (MINIMAL + "variants = { a = { seed = '' } }\n", "E_BAD_VALUE", "variant 'a' of workload 'w'"),
    (MINIMAL + "variants = { a = { variants = {} } }\n", "E_UNKNOWN_KEY", "'variants'"),
    (MINIMAL + "sed = 1\nvariants = { a = {} }\n", "E_UNKNOWN_KEY", "workload 'w' has the unknown"),
    (MINIMAL + "variants = { a = { engine = 'x' } }\n", "E_UNKNOWN_ENGINE", "'x'"),
    (MINIMAL + "variants = { a = { env = { x = 1 } } }\n", "E_BAD_VALUE", "'w[a]': env.x is 1"),
    ("[workloads.w]\nprompt='x'\nvariants = { a = {} }\n", "E_MISSING_KEY", "'w[a]' has no max"),
    (MINIMAL + "decode_profile = true\n", "E_BAD_VALUE", "one token leaves nothing"),
    (MINIMAL + "decode_profile = 1\n", "E_BAD_VALUE", "decode_profile is 1"),
    (MINIMAL + "seed = true\n", "E_BAD_VALUE", "seed is True"),
    ("[workloads.'.hidden']\nprompt='x'\nmax_tokens=1\n", "E_BAD_NAME", "directory"),
]


@pytest.mark.parametrize(("text", "code", "word"), BAD)
def test_bad_declarations_say_what_and_where(
    tmp_path: Path, text: str, code: str, word: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read_file(write(tmp_path, text))
    assert refused.value.code == code
    assert word in str(refused.value)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_bytes(b"[workloads.w]\nprompt = '\xff'\n")
    with pytest.raises(UsageError, match="byte 24"):
        read_file(path)


def test_a_seed_in_two_places_keeps_the_environment(tmp_path: Path) -> None:
    from pytest_flamegate.observe import environment as determinism

    (workload,) = read_file(
        write(tmp_path, MINIMAL + 'engine = "command"\ncommand = ["x"]\nseed = 7\nthreads = 2\n')
    )
    knobs = determinism.requested(workload)
    assert (knobs["BITNET_SEED"], knobs["OPENBLAS_NUM_THREADS"]) == ("7", "2")
    (workload,) = read_file(write(tmp_path, MINIMAL + 'env = { OPENBLAS_NUM_THREADS = "3" }\n'))
    assert determinism.requested(workload)["OPENBLAS_NUM_THREADS"] == "3"


VARIANTS = """\
[workloads.decode]
target = "m:f"
prompt = "2+2="
max_tokens = 4
env = { A = "1", B = "1" }
tokens_per_second = "4%"
hotspots = { "rms_norm" = "3pp", "*" = "6pp" }

[workloads.decode.variants.i2s]

[workloads.decode.variants."qk-256"]
target = "m:g"
max_tokens = 8
env = { B = "2" }
tokens_per_second = "7%"
hotspots = { "rms_norm" = "1pp" }

[workloads.plain]
prompt = "x"
max_tokens = 1
"""


def test_variants_take_the_place_of_their_template(tmp_path: Path) -> None:
    path = write(tmp_path, VARIANTS)
    first, second, plain = read_file(path)
    assert [each.name for each in (first, second, plain)] == [
        "decode[i2s]",
        "decode[qk-256]",
        "plain",
    ]
    assert second.node_name == "flamegate.toml::decode[qk-256]"
    assert (second.family, second.variant) == ("decode", "qk-256")
    assert (plain.family, plain.variant) == (None, None)
    assert [find_line(path, each.name) for each in (first, second, plain)] == [9, 11, 18]


def test_a_variant_says_what_is_other_and_inherits_the_rest(tmp_path: Path) -> None:
    first, second, _ = read_file(write(tmp_path, VARIANTS))
    assert (first.target, first.max_tokens, first.env) == ("m:f", 4, {"A": "1", "B": "1"})
    assert (second.target, second.max_tokens, second.env) == ("m:g", 8, {"A": "1", "B": "2"})
    assert (first.prompt, second.prompt) == ("2+2=", "2+2=")
    assert [each.thresholds.tokens_per_second_pct for each in (first, second)] == [4, 7]
    assert [each.thresholds.share_pp("rms_norm") for each in (first, second)] == [3, 1]
    assert [each.thresholds.share_pp("else") for each in (first, second)] == [6, 6]


def test_decode_alone_is_asked_for_by_a_key(tmp_path: Path) -> None:
    text = MINIMAL.replace("= 1", "= 2")
    (plain,) = read_file(write(tmp_path, text))
    (asked,) = read_file(write(tmp_path, text + "decode_profile = true\n"))
    assert (plain.decode_profile, asked.decode_profile) == (False, True)


def test_a_template_may_leave_what_is_needed_to_its_variants(tmp_path: Path) -> None:
    text = "[workloads.w.variants]\na = { prompt = 'x', max_tokens = 1 }\n"
    path = write(tmp_path, "# head\n[workloads.w]\nseed = 1\n" + text)
    (workload,) = read_file(path)
    assert (workload.prompt, workload.seed) == ("x", 1)
    assert find_line(path, workload.name) == 2


@pytest.mark.parametrize("quote", ["'", '"'])
def test_nobody_types_brackets(tmp_path: Path, quote: str) -> None:
    for text in (
        MINIMAL.replace("w]", f"{quote}w[a]{quote}]"),
        MINIMAL + f"[workloads.w.variants.{quote}a[b]{quote}]\n",
    ):
        with pytest.raises(UsageError, match="E_BAD_NAME"):
            read_file(write(tmp_path, text))
