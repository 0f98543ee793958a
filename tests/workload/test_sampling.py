from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.config.thresholds import is_call_graph
from pytest_flamegate.config.workload import Sampling
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.declare import read_file

WORKLOAD = '[workloads.w]\nprompt = "2+2="\nmax_tokens = 1\n'


def asked(directory: Path, lines: str) -> Sampling:
    path = directory / "flamegate.toml"
    path.write_text(WORKLOAD + lines)
    (workload,) = read_file(path)
    return workload.sampling


def test_nothing_asked_leaves_everything_to_the_profiler(tmp_path: Path) -> None:
    assert asked(tmp_path, "") == Sampling(None, None, None, None)
    assert asked(tmp_path, "[workloads.w.profile]\n") == Sampling()


def test_every_key_arrives(tmp_path: Path) -> None:
    table = "[workloads.w.profile]\nrate_hz = 250\ncall_graph = 'fp'\nnative = true\n"
    assert asked(tmp_path, table) == Sampling(250, "fp", native=True)
    table = "[workloads.w.profile]\ncall_graph = 'dwarf,65528'\nnonblocking = true\n"
    assert asked(tmp_path, table) == Sampling(None, "dwarf,65528", nonblocking=True)


@pytest.mark.parametrize(
    ("line", "code", "word"),
    [
        ("profile = 3", "E_BAD_VALUE", "profile is 3"),
        ("profile = { rate = 9 }", "E_UNKNOWN_KEY", "Did you mean 'rate_hz'?"),
        ("profile = { rate_hz = 0 }", "E_BAD_VALUE", "rate_hz is 0"),
        ("profile = { rate_hz = -5 }", "E_BAD_VALUE", "from 1 to 100000"),
        ("profile = { rate_hz = 100001 }", "E_BAD_VALUE", "from 1 to 100000"),
        ("profile = { rate_hz = 99.5 }", "E_BAD_VALUE", "a whole number"),
        ("profile = { rate_hz = true }", "E_BAD_VALUE", "rate_hz is True"),
        ("profile = { call_graph = 'lbr' }", "E_BAD_VALUE", "dwarf,BYTES"),
        ("profile = { call_graph = 8192 }", "E_BAD_VALUE", "call_graph is 8192"),
        ("profile = { native = 1 }", "E_BAD_VALUE", "true or false"),
        ("profile = { nonblocking = 'yes' }", "E_BAD_VALUE", "true or false"),
        ("profile = { native = true, nonblocking = true }", "E_BAD_VALUE", "together"),
    ],
)
def test_what_no_profiler_understands_is_refused(
    tmp_path: Path, line: str, code: str, word: str
) -> None:
    with pytest.raises(UsageError) as refused:
        asked(tmp_path, line)
    assert refused.value.code == code
    assert word in str(refused.value)
    assert "flamegate.toml: workload 'w'" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("fp", True),
        ("none", True),
        ("dwarf,8", True),
        ("dwarf,65528", True),
        ("dwarf,65536", False),
        ("dwarf,8191", False),
        ("dwarf,08192", False),
        ("dwarf,0", False),
        ("dwarf", False),
        ("dwarf,8192;rm", False),
    ],
)
def test_call_graphs_of_perf(text: str, known: bool) -> None:
    assert is_call_graph(text) is known
