"""A recipe back to its workload: nothing lost on the way, nothing foreign trusted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Sampling, Workload, parse_injection
from pytest_flamegate.core.errors import ReceiptError
from pytest_flamegate.core.json import decode_plain, encode_json, encode_plain
from pytest_flamegate.core.json_parser import parse_json
from pytest_flamegate.engines.gguf import embedded_workloads
from pytest_flamegate.receipt import rerun
from pytest_flamegate.receipt.compose import recipe
from tests.workload.declared import read_file

DECLARED = """
[workloads.short]
prompt = "2+2="
max_tokens = 1

[workloads.seeded]
model = "models/tiny.gguf"
prompt = "snow: ☃"
max_tokens = 7
seed = 7
threads = 2
timeout = 12.5

[workloads.program]
command = ["bin/run", "--model={model}", "{prompt}", "{max_tokens}", "{seed}", "{tokenizer}"]
build = ["make", "all"]
model = "models/**/*.gguf"
tokenizer = "tok.json"
token_unit = "word"
prompt = "What is 2+2?"
max_tokens = 10
tokens_per_second = "3%"
hotspots = { gemv = "3pp" }
profile = { rate_hz = 99 }

[workloads.set]
prompts = ["2+2=", "3+4="]
max_tokens = 1

[workloads.family]
target = "toy:generate"
prompt = "x"
max_tokens = 4
env = { MODE = "fast", KERNEL = "none" }
[workloads.family.variants.i2s]
env = { KERNEL = "i2s" }
"""


def declared(directory: Path, text: str = DECLARED) -> tuple[Workload, ...]:
    (directory / "flamegate.toml").write_text(text)
    return (*read_file(directory / "flamegate.toml"), *embedded_workloads(directory))


def told(workload: Workload) -> dict[str, Any]:
    """The recipe as it is read from the evidence's bytes, where lists and objects are frozen."""
    plain = parse_json(encode_json(encode_plain(recipe(workload))))
    return dict(decode_plain(plain, Mapping[str, object]))  # type: ignore[type-abstract]


@pytest.fixture
def workloads(tmp_path: Path) -> dict[str, Workload]:
    return {each.name: each for each in declared(tmp_path)}


def test_every_declared_kind_comes_back_as_it_was(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    assert len(workloads) == 8
    for workload in workloads.values():
        # Thresholds judge, and sampling is of profiled runs: neither is run again.
        bare = replace(workload, thresholds=Thresholds(), sampling=Sampling())
        assert rerun.parse_recipe(told(workload), tmp_path) == bare
        assert rerun.find_declared(told(workload), [*workloads.values()]) is workload
    injected = replace(workload, injection=parse_injection("gemv:+12.5%"))
    assert rerun.parse_recipe(told(injected), tmp_path).injection == injected.injection


OTHER: dict[str, Any] = {
    "engine": "python",
    "command": ["bin/run", "--evil", "{prompt}", "{max_tokens}", "{seed}", "{tokenizer}"],
    "target": "os:system",
    "build": ["make", "all", "evil"],
    "env": {"LD_PRELOAD": "evil.so"},
    "prompt": "--output=x",
    "max_tokens": 11,
    "seed": True,
    "threads": "1",
    "token_unit": "line",
    "tokenizer": "../tok.json",
}


def test_a_recipe_that_runs_anything_else_is_another(workloads: dict[str, Workload]) -> None:
    program, known = workloads["program"], [*workloads.values()]
    for part, value in OTHER.items():
        other = {**told(program), part: value}
        assert rerun.find_differences(other, program) == [part]
        assert rerun.find_declared(other, known) is None
    for part in ("name", "source", "timeout_s", "model"):  # these do not decide what runs
        assert rerun.find_declared({**told(program), part: "else"}, known) is program


def test_the_same_name_goes_first(tmp_path: Path) -> None:
    two = "".join(f'[workloads.{n}]\nprompt = "x"\nmax_tokens = 3\n' for n in "ab")
    workloads = declared(tmp_path, two)
    assert rerun.find_declared(told(workloads[1]), workloads) is workloads[1]
    assert rerun.find_declared({**told(workloads[1]), "name": "c"}, workloads) is workloads[0]


SECRET = """
[workloads.secret]
command = ["bin/run", "{prompt}"]
prompt = "x"
max_tokens = 4
env = { HF_TOKEN = "hush", MODE = "fast" }
"""


def test_a_redacted_value_matches_any_value_and_is_named(tmp_path: Path) -> None:
    (workload, *_) = declared(tmp_path, SECRET)
    assert "hush" not in str(told(workload))
    assert rerun.find_declared(told(workload), [workload]) is workload
    assert rerun.find_redacted(told(workload)) == ["env.HF_TOKEN"]
    for env in ({"HF_TOKEN": "redacted"}, {"HF_TOKEN": "redacted", "MODE": "slow"}):
        assert rerun.find_declared({**told(workload), "env": env}, [workload]) is None
    for stated, here, fits in (
        ("--key=redacted", "--key=hush", True),
        ("a redacted b redacted c", "a 1 b 2 c", True),
        ("a redacted b redacted c", "a 1 2 c", False),
        ("xredactedx", "x", False),
        ("redacted tail", "no", False),
        ("plain", "plain ", False),
    ):
        recipe, declares = {**told(workload), "prompt": stated}, replace(workload, prompt=here)
        differences = rerun.find_differences(recipe, declares, ["evidence.workload.prompt"])
        assert (differences == []) is fits, stated
        # The word alone means nothing: a prompt may be this word.
        assert rerun.find_differences(recipe, declares, ["evidence.workload.env.MODE"])
    recipe = {**told(workload), "command": ["bin/run", "redacted"]}
    assert rerun.find_differences(recipe, workload, ["evidence.workload.command[0]"])
    assert not rerun.find_differences(recipe, workload, ["evidence.workload.command[1]"])


def test_null_in_a_recipe_is_a_value_that_is_left_out(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    stated = told(workloads["program"])
    without = {key: value for key, value in stated.items() if key not in ("model", "tokenizer")}
    nulls = {"model": None, "tokenizer": None}
    found = rerun.parse_recipe({**without, **nulls}, tmp_path)
    assert found == rerun.parse_recipe(without, tmp_path)


# The values of a declaration are tested with the parser of declarations.
@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "magic"},
        {"engine": "embedded"},
        {"max_tokens": True},
        {"command": ["run", "\0"]},
        {"name": "../../etc"},
        {"injection": "gemv"},
        {"injection": {"frame": "gemv"}},
        {"shell": "rm -rf /"},
    ],
    ids=str,
)
def test_a_recipe_that_could_not_be_declared_is_rejected(
    tmp_path: Path, workloads: dict[str, Workload], changes: dict[str, Any]
) -> None:
    with pytest.raises(ReceiptError, match="E_REPLAY_RECIPE"):
        rerun.parse_recipe({**told(workloads["program"]), **changes}, tmp_path)
