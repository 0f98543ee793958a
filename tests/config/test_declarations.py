"""Declared workloads: the keys of a file, and the errors in it."""

from pathlib import Path

import pytest

from pytest_flamegate.config.thresholds import BrickBudget
from pytest_flamegate.config.workload import (
    MAX_FILE_BYTES,
    Sampling,
    read_toml_bytes,
)
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines import declare
from tests.workload.declared import read_file

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


def test_every_key_is_read(tmp_path: Path) -> None:
    (workload,) = read_file(write(tmp_path, FULL))
    assert workload.node_name == "flamegate.toml::decode-10tok"
    assert workload.command[0] == "target/release/bitnet"
    assert workload.build == ("cargo", "build", "--release")
    assert workload.env == {"BITNET_DETERMINISTIC": "1", "BITNET_SEED": "42"}
    assert workload.thresholds.tokens_per_second_pct == 4
    assert workload.thresholds.share_pp("matmul_i2s") == 3
    assert workload.thresholds.share_pp("anything else") == 6
    assert (workload.timeout_s, workload.directory) == (30, tmp_path)
    (workload,) = read_file(write(tmp_path, SET.format("'b', 'a'")))
    assert (workload.prompt, workload.prompts) == ("b", ("b", "a"))


@pytest.mark.parametrize(
    ("extra", "engine"),
    [("", "embedded"), ('command = ["x"]\n', "command"), ('target = "m:f"\n', "python")],
)
def test_keys_that_are_left_out_have_defaults_and_the_others_imply_the_engine(
    tmp_path: Path, extra: str, engine: str
) -> None:
    (workload,) = read_file(write(tmp_path, MINIMAL + extra))
    assert (workload.timeout_s, workload.threads, workload.seed) == (120.0, 1, 42)
    assert workload.sampling == Sampling(None, None, None, None)
    assert workload.options == {}
    assert workload.engine == engine


COMMAND = "command = ['x', '{tokenizer}']\n"
REQUIRED = {"embedded": "", "command": COMMAND, "python": "target = 'm:f'\n"}
ACCEPTED = {
    COMMAND: {"command"},
    "target = 'm:f'\n": {"benchmark", "python"},
    "model = 'm.gguf'\n": {"embedded", "command", "python"},
    "tokenizer = 't.json'\n": {"command", "openai"},
    "token_unit = 'byte'\n": {"command"},
    "build = ['make']\n": {"embedded", "command", "python"},
}


@pytest.mark.parametrize("engine", REQUIRED)
@pytest.mark.parametrize("line", ACCEPTED)
def test_a_key_that_the_engine_would_ignore_is_an_error(
    tmp_path: Path, engine: str, line: str
) -> None:
    """Even if its value is the default."""
    others = f"engine = '{engine}'\n" + REQUIRED[engine].replace(line, "")
    path = write(tmp_path, MINIMAL + others + line)
    if engine in ACCEPTED[line]:
        (workload,) = read_file(path)
        assert workload.engine == engine
        return
    key = line.partition(" ")[0]
    with pytest.raises(UsageError, match=f"the engine {engine} takes no {key}") as raised:
        read_file(path)
    assert raised.value.code == "E_UNKNOWN_KEY"
    assert raised.value.remedy.endswith(f"takes it: {' or '.join(sorted(ACCEPTED[line]))}.")


# The file


def test_a_pyproject_is_the_workload_file_if_it_has_our_table(tmp_path: Path) -> None:
    assert declare.find_file(tmp_path) is None
    for text, ours in (
        ("[project]\n", False),
        ("# tool.flamegate is not used here\n", False),
        ("[tool.other]\nx = 'tool.flamegate'\n", False),
        ("[tool.flamegate-extra]\n", False),
        ("[tool.pytest.ini_options]\nflamegate_budget = 3\nx =\n", False),
        ("[tool]\nflamegate = {}\n", True),
        ("[tool]\nflamegate = 3\n", True),
        ('[ tool . "flamegate".workloads]\n', True),
    ):
        path = write(tmp_path, text, "pyproject.toml")
        assert declare.find_file(tmp_path) == (path if ours else None)
    own = write(tmp_path, MINIMAL)
    assert declare.find_file(tmp_path) == own


def test_a_malformed_pyproject_is_reported_if_it_mentions_flamegate(tmp_path: Path) -> None:
    path = write(tmp_path, "[tool.flamegate]\nx =\n", "pyproject.toml")
    with pytest.raises(UsageError, match=r"pyproject.toml is not valid TOML.*line 2") as raised:
        declare.find_file(tmp_path)
    assert raised.value.code == "E_BAD_TOML"
    path.write_bytes(b"[tool.flamegate]\nx = '\xff'\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        declare.find_file(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "flamegate.toml").mkdir()
    found = declare.find_file(tmp_path)
    assert found is not None
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_file(found)


FILE_ERRORS = [
    ("[workloads.w]\nprompt = 'x\n", "E_BAD_TOML", "line 2, column"),
    ("[workloads.w]\nprompt = 'x'\nprompt = 'y'\n", "E_BAD_TOML", "line 3"),
    ("x = " + "[" * 5000, "E_BAD_TOML", "nested too deeply"),
    ("x = 1" + "0" * 5000, "E_BAD_TOML", "digits"),
    ("[workload.w]\n", "E_UNKNOWN_KEY", "Did you mean 'workloads'?"),
    ("tool = 1\n", "E_BAD_VALUE", "pyproject.toml: tool is "),
]


@pytest.mark.parametrize(("text", "code", "words"), FILE_ERRORS, ids=range(len(FILE_ERRORS)))
def test_an_error_above_the_workloads_names_the_file(
    tmp_path: Path, text: str, code: str, words: str
) -> None:
    name = "pyproject.toml" if "tool" in text else "flamegate.toml"
    with pytest.raises(UsageError, match=name) as raised:
        declare.read_declarations(write(tmp_path, text, name))
    assert raised.value.code == code
    assert words in str(raised.value)


# One workload

SET = "[workloads.w]\nmax_tokens = 1\nprompts = [{}]\n"
NUL = r'"a\u0000b"'
ERRORS = [
    ("[workloads]\nw = 3\n", "E_BAD_VALUE", "not a table"),
    ("[workloads.w]\nmax_tokens = 1\n", "E_BAD_VALUE", "prompt is missing"),
    ("[workloads.w]\nprompt = 'x'\n", "E_BAD_VALUE", "max_tokens is missing"),
    (MINIMAL + "prompts = ['a', 'b']\n", "E_BAD_VALUE", "both prompt and prompts"),
    (SET.format("'a'"), "E_BAD_VALUE", '"prompts" must be'),
    (SET.format("'a', 'b', 'a'"), "E_BAD_VALUE", "1 prompt(s) more than once"),
    (MINIMAL + "max_token = 3\n", "E_UNKNOWN_KEY", "Did you mean 'max_tokens'?"),
    (MINIMAL + "engine = 'vllm'\n", "E_UNKNOWN_ENGINE", "Use one of: embedded"),
    (MINIMAL + "threads = 0\n", "E_BAD_VALUE", '"threads" must be an integer >= 1, and is 0'),
    (MINIMAL + f"threads = '{'9' * 5000}'\n", "E_BAD_VALUE", "..."),
    (MINIMAL + "timeout = nan\n", "E_BAD_VALUE", '"timeout" must be a number'),
    (MINIMAL.replace("= 1", "= 0x" + "f" * 5000), "E_BAD_VALUE", "too large to show"),
    (MINIMAL + "env = { A = 1 }\n", "E_BAD_VALUE", '"env.A" must be a string, and is 1'),
    (MINIMAL + "command = 'x \"a b\" ü'\n", "E_BAD_VALUE", 'Write command = ["x", "a b", "ü"].'),
    (MINIMAL + "command = 'A=1 x'\n", "E_BAD_VALUE", 'Write command = ["program", "argument"]'),
    (MINIMAL + "command = 'cd a && x'\n", "E_BAD_VALUE", 'Write command = ["program", "argu'),
    (MINIMAL + f"command = [{NUL}]\n", "E_BAD_VALUE", "command contains a NUL"),
    (MINIMAL + "env = { 'A=B' = '1' }\n", "E_BAD_VALUE", "'A=B'"),
    (MINIMAL + 'env = { "A\\tB" = "1" }\n', "E_BAD_VALUE", "Correct the name"),
    (MINIMAL + "model" + ".x" * 5000 + " = 1\n", "E_BAD_VALUE", '"model" must be a string'),
    (MINIMAL + "model = ''\n", "E_BAD_VALUE", "toml:4: workload 'w': model is empty"),
    (MINIMAL + COMMAND + "tokenizer = ''\n", "E_BAD_VALUE", "tokenizer is empty"),
    (MINIMAL + "target = ''\n", "E_BAD_VALUE", "target is empty"),
    (MINIMAL + "engine = 'command'\n", "E_BAD_VALUE", "command"),
    (MINIMAL + "engine = 'python'\n", "E_BAD_VALUE", "target"),
    (MINIMAL + "engine = 'python'\ntarget = 'm'\n", "E_BAD_VALUE", "module:function"),
    (MINIMAL + "target = 'src/engine.py:f'\n", "E_BAD_VALUE", "src.engine for src/engine.py"),
    (MINIMAL + "target = 'my-pkg.m:f'\n", "E_BAD_VALUE", "dotted Python names"),
    (MINIMAL + "target = 'm:f:g'\n", "E_BAD_VALUE", "dotted Python names"),
    (MINIMAL + "target = 'm:C.'\n", "E_BAD_VALUE", "dotted Python names"),
    (MINIMAL + "command = ['x', '{prompts}']\n", "E_BAD_VALUE", "{prompts}"),
    (MINIMAL + "command = ['awk', '{print}']\n", "E_BAD_VALUE", "write it into a script file"),
    (MINIMAL + "command = ['x']\ntoken_unit = 'page'\n", "E_BAD_VALUE", "page"),
    (MINIMAL + "counts = 3\n", "E_BAD_THRESHOLD", "counts is 3"),
    (MINIMAL + "counts = { step = 1 }\n", "E_BAD_THRESHOLD", "counts.step is 1"),
    (MINIMAL + "counts = { step = '1pp' }\n", "E_BAD_THRESHOLD", '"0", "+1" or "+10%"'),
    (MINIMAL + "counts = { '' = '1' }\n", "E_BAD_THRESHOLD", "counts. is '1'"),
    (MINIMAL + "profile = { rate = 9 }\n", "E_UNKNOWN_KEY", "Did you mean 'rate_hz'?"),
    (MINIMAL + "profile = { rate_hz = 0 }\n", "E_BAD_VALUE", '"profile.rate_hz" must be'),
    (MINIMAL + "profile = { call_graph = 'lbr' }\n", "E_BAD_VALUE", "dwarf,BYTES"),
    (MINIMAL + "profile = { call_graph = 'dwarf,65536' }\n", "E_BAD_VALUE", "dwarf,BYTES"),
    (MINIMAL + "profile = { call_graph = 'dwarf,8191' }\n", "E_BAD_VALUE", "dwarf,BYTES"),
    (MINIMAL + "profile = { native = true, nonblocking = true }\n", "E_BAD_VALUE", "together"),
    ("[workloads.'../up']\nprompt='x'\nmax_tokens=1\n", "E_BAD_NAME", "directory"),
    (MINIMAL + "variants = 3\n", "E_BAD_VALUE", "[workloads.w.variants.NAME]"),
    (MINIMAL + "[workloads.w.variants.'a[b]']\n", "E_BAD_NAME", "'a[b]'"),
    (MINIMAL + "variants = { a = { sed = 1 } }\n", "E_UNKNOWN_KEY", "'w[a]': it has the unknown"),
    (MINIMAL + "variants = { a = { variants = {} } }\n", "E_UNKNOWN_KEY", "'variants'"),
    ("[workloads.w]\nprompt='x'\nvariants = { a = {} }\n", "E_BAD_VALUE", "'w[a]': max_tokens"),
]


@pytest.mark.parametrize(("text", "code", "words"), ERRORS, ids=range(len(ERRORS)))
def test_an_error_names_file_workload_key_and_the_expected_value(
    tmp_path: Path, text: str, code: str, words: str
) -> None:
    found = declare.read_declarations(write(tmp_path, text))
    (invalid,) = found.invalid
    assert found.workloads == ()
    assert invalid.error.code == code
    assert words in str(invalid.error)
    assert invalid.error.problem.startswith("flamegate.toml")


def test_an_error_in_one_workload_leaves_the_others(tmp_path: Path) -> None:
    text = """\
[workloads.first]
prompt = "x"
max_tokens = 1

[workloads.bad]
prompt = "x"
max_tokens = 0

[workloads.template]
prompt = "x"
max_tokens = 2
[workloads.template.variants.good]
[workloads.template.variants.bad]
seed = "one"

[workloads.last]
prompt = "x"
max_tokens = 1
"""
    found = declare.read_declarations(write(tmp_path, text))
    names = [each.name for each in found.entries]
    assert names == ["first", "bad", "template[good]", "template[bad]", "last"]
    assert [(each.name, each.line) for each in found.invalid] == [("bad", 7), ("template[bad]", 14)]
    assert str(found.invalid[0].error).startswith(
        "E_BAD_VALUE: flamegate.toml:7: workload 'bad': \"max_tokens\" must be an integer >= 1, "
        "and is 0."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "threds = 1",
        'target = "src/engine.py:f"',
        'tokens_per_second = "5"',
        'bricks.Norm = "3"',
        '[workloads.w.hotspots]\nnorm = "3"',
        "[workloads.w.profile]\nrate = 3",
    ],
)
def test_a_line_is_that_of_the_key_or_of_its_table(tmp_path: Path, wrong: str) -> None:
    found = declare.read_declarations(write(tmp_path, f"{MINIMAL}{wrong}\n"))
    assert [each.line for each in found.invalid] == [len(MINIMAL.splitlines()) + 1]


def test_a_line_is_that_of_the_heading_if_the_key_has_none(tmp_path: Path) -> None:
    found = declare.read_declarations(write(tmp_path, "\n\n[workloads.w]\nprompt = 'x'\n"))
    assert [each.line for each in found.invalid] == [3]
    assert declare.find_line(tmp_path, "w") is declare.find_line(tmp_path / "missing", "w") is None


# Variants and profiles

VARIANTS = """\
[workloads.decode]
target = "m:f"
prompt = "2+2="
max_tokens = 4
env = { A = "1", B = "1" }
tokens_per_second = "4%"
hotspots = { "rms_norm" = "3pp", "*" = "6pp" }
bricks = { RmsNorm = "1.5us", "*" = "15%" }
counts = { step = "0", "*" = "+1" }

[workloads.decode.variants.i2s]

[workloads.decode.variants."qk-256"]
target = "m:g"
max_tokens = 8
env = { B = "2" }
tokens_per_second = "7%"
hotspots = { "rms_norm" = "1pp" }
bricks = { RmsNorm = ["2us", "10%"] }
counts = { step = "+10%" }

[workloads.plain]
prompt = "x"
max_tokens = 1
"""


def test_variants_take_the_place_of_their_template_and_inherit_its_keys(tmp_path: Path) -> None:
    path = write(tmp_path, VARIANTS)
    workloads = read_file(path)
    assert [each.name for each in workloads] == ["decode[i2s]", "decode[qk-256]", "plain"]
    assert [declare.find_line(path, each.name) for each in workloads] == [11, 13, 22]
    first, second, plain = workloads
    assert second.node_name == "flamegate.toml::decode[qk-256]"
    assert (second.family, second.variant) == ("decode", "qk-256")
    assert (plain.family, plain.variant) == (None, None)
    assert (first.target, first.max_tokens, first.env) == ("m:f", 4, {"A": "1", "B": "1"})
    assert (second.target, second.max_tokens, second.env) == ("m:g", 8, {"A": "1", "B": "2"})
    assert (first.prompt, second.prompt) == ("2+2=", "2+2=")
    one, other = first.thresholds, second.thresholds
    assert (one.tokens_per_second_pct, other.tokens_per_second_pct) == (4, 7)
    assert (one.share_pp("rms_norm"), other.share_pp("rms_norm")) == (3, 1)
    assert one.share_pp("else") == other.share_pp("else") == 6
    assert one.bricks["RmsNorm"] == BrickBudget(1.5)
    assert dict(other.bricks) == {
        "RmsNorm": BrickBudget(2.0, 10.0),
        "*": BrickBudget(growth_pct=15.0),
    }
    limits = {name: (each.rise, each.is_percent) for name, each in other.counts.items()}
    assert limits == {"step": (10.0, True), "*": (1.0, False)}
    assert one.counts["step"].highest(2.0) == 2.0


def test_a_template_may_leave_required_keys_to_its_variants(tmp_path: Path) -> None:
    text = "[workloads.w.variants]\na = { prompt = 'x', max_tokens = 1 }\n"
    path = write(tmp_path, "# head\n[workloads.w]\nseed = 1\n" + text)
    (workload,) = read_file(path)
    assert (workload.prompt, workload.seed) == ("x", 1)
    assert declare.find_line(path, workload.name) == 2


def test_the_keys_of_a_profile_are_read(tmp_path: Path) -> None:
    table = "[workloads.w.profile]\nrate_hz = 250\ncall_graph = 'fp'\nnative = true\n"
    (workload,) = read_file(write(tmp_path, MINIMAL + table.replace("fp", "dwarf,65528")))
    assert workload.sampling == Sampling(250, "dwarf,65528", native=True)


def test_a_workload_file_has_a_largest_size(tmp_path: Path) -> None:
    path = write(tmp_path, "#" * MAX_FILE_BYTES)
    assert len(read_toml_bytes(path)) == MAX_FILE_BYTES
    with pytest.raises(UsageError, match="E_BAD_TOML"):
        read_toml_bytes(write(tmp_path, "#" * (MAX_FILE_BYTES + 1)))
