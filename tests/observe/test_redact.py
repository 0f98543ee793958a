"""Secrets reach the measured process and no file."""

import re
import subprocess
import sys
import time
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.engines import ENGINES, engine
from pytest_flamegate.engines.base import PROGRAM_VARIABLES
from pytest_flamegate.observe import engine_process
from pytest_flamegate.observe.engine_process import make_environment, requested_variables
from pytest_flamegate.observe.observer import Observer
from pytest_flamegate.observe.redact import (
    CODE,
    REDACTED,
    Redactor,
    is_secret_name,
    redact_environment,
)
from pytest_flamegate.receipt.compose import recipe

SECRET_NAMES = (
    "OPENAI_API_KEY openaiApiKey --api-key AWS_SECRET_ACCESS_KEY HF_TOKEN hf_token TOKEN "
    "CI_JOB_TOKEN CLIENT_SECRET_ID DB_PASSWORD PASSWORDS MYSQL_PASSWD GOOGLE_CREDENTIALS "
    "BASIC_AUTH PRIVATE_KEY"
)
OTHER_NAMES = (
    "TOKENIZERS_PARALLELISM KEYBOARD MONKEY CACHE_KEY PUBLIC_KEY BITNET_SEED MAX_TOKENS EOS_TOKEN "
    "MAX_TOKEN token_unit token_digest SSH_AUTH_SOCK GOOGLE_CREDENTIALS_FILE GIT_AUTHOR_NAME "
    "PASSTHROUGH"
)
NAMES = dict.fromkeys(SECRET_NAMES.split(), True) | dict.fromkeys(OTHER_NAMES.split(), False)
# Put together here, so that no scanner of this repository takes them for real ones.
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789"
FORMS = {
    "cloud key": "AKIA" + "ABCDEFGHIJ234567",
    "cloud api key": "AIza" + ALPHABET[:35],
    "code host": "ghp_" + ALPHABET[:36],
    "code host, fine": "github_pat_" + ALPHABET[:22] + "_" + ALPHABET[:36],
    "another code host": "glpat-" + ALPHABET[:20],
    "package registry": "npm_" + ALPHABET[:36],
    "python packages": "pypi-AgE" + "IcHlwaS5vcmc" * 6,
    "chat": "xoxb-" + "1234567890-" * 2 + ALPHABET[:24],
    "model host": "hf_" + ALPHABET[:34],
    "model service": "sk-" + "proj-" + ALPHABET[10:46],
    "payment": "sk_live_" + ALPHABET[:24],
    "web token": "eyJ" + ALPHABET[:12] + ".eyJ" + ALPHABET[:20] + "." + ALPHABET[:30],
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
}
HARMLESS = (
    "What is 2+2?",
    "max_tokens=10 token_unit=byte top_k=40",
    "sorted(words, key=len) and token=next(tokens)",
    "sk-learn-classifier-with-a-long-name",
    "task-ABCDEFGHIJKLMNOPQRSTUVW123",
    "hf_tokenizer_encode_batch_parallel_for_all_of_them",
    "gemm<float, AKIA> eyJ xoxb sk- hf_ ghp_ -----BEGIN CERTIFICATE-----",
    "https://example.org:8080/a@b and git@example.org:a/b",
    "0" * 64,
    "--token {prompt} --max-tokens 10 --seed 42",
    "the bearer certificates of the basic authorization",
)


def test_names_that_sound_like_secrets() -> None:
    assert {name: is_secret_name(name) for name in NAMES} == NAMES
    clean = redact_environment(dict.fromkeys(NAMES, "value"))
    assert {name: value == REDACTED for name, value in clean.items()} == NAMES


@pytest.mark.parametrize("kind", FORMS)
def test_a_token_is_known_by_its_form(kind: str) -> None:
    around = 'before {} after x={} "{}", ({})\n{}'
    redactor = Redactor()
    found = redactor.redact_certain(around.replace("{}", FORMS[kind]), "prompt")
    assert found == around.replace("{}", REDACTED)
    assert redactor.places == ["prompt"]


@pytest.mark.parametrize("text", HARMLESS)
def test_text_that_only_looks_alike_stays(text: str) -> None:
    redactor = Redactor.from_environments({"MAX_TOKENS": "2+2", "HOME": "certificates"})
    assert redactor.redact_text(text, "p") == redactor.redact_certain(text, "p") == text
    assert redactor.warnings == ()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("--api-key=hunter22", "--api-key=redacted"),
        ("run --token hunter22 --fast", "run --token redacted --fast"),
        ("PASSWORD=hunter22 make", "PASSWORD=redacted make"),
        ("'password': 'hunter 22'", "'password': 'redacted'"),
        ("Authorization: Bearer hunter22hunter22", "Authorization: Bearer redacted"),
        ("https://me:hunter22@host/x", "https://me:redacted@host/x"),
    ],
)
def test_a_value_is_known_by_the_name_before_it(text: str, left: str) -> None:
    assert Redactor().redact_text(text, "p") == left


def test_a_secret_argument_may_be_a_word_of_its_own() -> None:
    words = ["serve", "--token", "hunter22", "--key", "--fast", "--api-key", "{prompt}", "-n", "4"]
    redactor = Redactor()
    assert redactor.redact_words(words, "command") == [
        *("serve", "--token", REDACTED, "--key", "--fast", "--api-key", "{prompt}", "-n", "4")
    ]
    assert redactor.places == ["command[2]"]


def test_the_value_of_a_secret_variable_is_found_anywhere() -> None:
    redactor = Redactor.from_environments(
        {"DB_PASSWORD": "correct horse", "DB_PASSWORD_2": "correct horse b"}
    )
    assert redactor.redact_certain("say correct horse b, correct horse!", "prompt") == (
        "say redacted, redacted!"
    )
    (warning,) = redactor.warnings
    assert warning.startswith(f"{CODE}: ")
    assert "(prompt)" in warning
    assert "horse" not in warning


@pytest.mark.parametrize("value", ["", "1", "true", "required", "12345678", "aaaaaaaaaa", "/tmp"])
def test_a_common_value_is_not_searched_for(value: str) -> None:
    assert Redactor.from_environments({"SOME_SECRET": value}).values == ()


def test_a_secret_of_several_lines_is_found_where_it_was_escaped() -> None:
    secret = "first line of it\nand the second"
    recorded = redact_environment({"CONFIG": f"user=a {secret}"})
    redactor = Redactor.from_environments({"MY_PASSWORD": secret})
    assert redactor.redact_text(recorded["CONFIG"], "env.CONFIG") == "user=a redacted"


def test_a_thing_without_secrets_stays_the_same_object() -> None:
    workload = Workload("w", "command", "hi", 1, "flamegate.toml", command=("a", "-x"))
    assert Redactor().clean(workload) is workload


REPEATED = (
    "sk-",
    "eyJ.",
    "://",
    "a=",
    '"a":',
    "-a ",
    "Authorization:",
    "-----BEGIN PRIVATE KEY-----",
)


@pytest.mark.parametrize("part", REPEATED)
def test_no_text_makes_the_scan_slow(part: str) -> None:
    began = time.process_time()
    Redactor().redact_text(part * (300_000 // len(part)), "p")
    assert time.process_time() - began < 5.0


def test_a_secret_is_given_and_not_recorded() -> None:
    env = {"HF_TOKEN": "hush", "MODE": "fast", "OPTIONS": "--password hush"}
    command = ("serve", "--api-key=hush", "--token", "hush")
    workload = Workload("w", "python", "x", 1, "flamegate.toml", env=env, command=command)
    redacted = {"HF_TOKEN": REDACTED, "MODE": "fast", "OPTIONS": "--password redacted"}
    given = engine_process.make_environment(workload)
    assert {name: given[name] for name in env} == env
    assert recipe(workload)["env"] == redacted
    requested = engine_process.requested_variables(workload)
    assert {name: requested[name] for name in env} == redacted
    assert "hush" not in str(Redactor().clean(recipe(workload)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of a process")
def test_only_variables_that_may_change_the_speed_are_recorded() -> None:
    fast = {"MODE": "fast", "OMP_PROC_BIND": "close", "RUSTFLAGS": "-C target-cpu=native"}
    own = ("FLAMEGATE_TREE", "FLAMEGATE_ENGINE", "FLAMEGATE_FILLER", "FLAMEGATE_LOCK_DIR")
    env = dict.fromkeys((*own, "OTHER", "HOME", "HF_TOKEN", "BITNET_API_KEY"), "hush") | fast
    program = "print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        declared = workload("command", env={"HF_TOKEN": "", "MODE": ""})
        found = engine_process.read_variables(process.pid, declared)
        process.kill()
    assert found == {**fast, "HF_TOKEN": REDACTED, "BITNET_API_KEY": REDACTED}


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


def workload(kind: str, **changes: object) -> Workload:
    return Workload("w", kind, "p", 64, "test", **changes)  # type: ignore[arg-type]


def test_each_variable_is_in_the_documented_table() -> None:
    document = DOCUMENT.read_text("utf-8")
    users: dict[str, list[str]] = {}
    for each in sorted(ENGINES):
        for name, value in ENGINES[each].variables.items():
            users.setdefault(f"{name}={value}", []).append(each)
    rows = re.findall(r"^\| `([A-Z0-9_]+=\S+)` \| ([a-z, -]+) \| ", document, re.MULTILINE)
    assert dict(rows) == {setting: ", ".join(engines) for setting, engines in users.items()}


def test_threads_are_one_unless_set_and_a_declared_variable_wins() -> None:
    names = {name for name, value in PROGRAM_VARIABLES.items() if value == "{threads}"}
    for threads in (1, 3):
        variables = requested_variables(workload("command", threads=threads))
        assert {variables[name] for name in names} == {str(threads)}
    own = workload("command", threads=3, env=MappingProxyType({"OMP_NUM_THREADS": "2"}))
    for variables in (requested_variables(own), make_environment(own)):
        assert variables["OMP_NUM_THREADS"] == "2"
    assert requested_variables(workload("command", seed=7))["BITNET_SEED"] == "7"


def test_a_variable_that_a_script_sets_is_recorded(tmp_path: Path) -> None:
    script = tmp_path / "run"
    program = "import time; print(chr(97), end='', flush=True); time.sleep(0.05)"
    script.write_text(
        f'#!/bin/sh\nexport RAYON_NUM_THREADS=8\nexec {sys.executable} -c "{program}"\n'
    )
    script.chmod(0o755)
    declared = workload("command", directory=tmp_path, command=(str(script),), timeout_s=60.0)
    watched = Observer(declared, engine("command").plan(declared, None))
    watched.run_timed(1)
    observation = watched.observation()
    assert observation.requested_environment["RAYON_NUM_THREADS"] == "1"
    assert observation.effective_environment["RAYON_NUM_THREADS"] == "8"
