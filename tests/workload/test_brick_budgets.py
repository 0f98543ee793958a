"""Budgets of bricks: how they are written, and which layer wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_flamegate.config.thresholds import parse_thresholds
from pytest_flamegate.config.workload import BrickBudget, Thresholds
from pytest_flamegate.core.errors import UsageError
from pytest_flamegate.engines.declare import read_file

pytestmark = pytest.mark.measures


def of(bricks: object, below: Thresholds | None = None) -> dict[str, BrickBudget]:
    return dict(parse_thresholds(None, None, "here: ", below or Thresholds(), bricks).bricks)


@pytest.mark.parametrize(
    ("written", "budget"),
    [
        ("1.5us", BrickBudget(1.5)),
        ("1.5 µs", BrickBudget(1.5)),
        ("1.5 μs", BrickBudget(1.5)),
        ("250ns", BrickBudget(0.25)),
        (" 2ms ", BrickBudget(2000.0)),
        ("10%", BrickBudget(growth_pct=10.0)),
        ("7.5 %", BrickBudget(growth_pct=7.5)),
        (["1.5us", "10%"], BrickBudget(1.5, 10.0)),
        (("10%", "1.5us"), BrickBudget(1.5, 10.0)),
        (["10%"], BrickBudget(growth_pct=10.0)),
    ],
)
def test_a_time_per_call_a_growth_or_both(written: object, budget: BrickBudget) -> None:
    assert of({"RmsNorm": written}) == {"RmsNorm": budget}


def test_every_other_may_grow() -> None:
    assert of({"*": "15%"}) == {"*": BrickBudget(growth_pct=15.0)}


@pytest.mark.parametrize(
    "bricks",
    [
        "RmsNorm=1us",
        ["1us"],
        {"RmsNorm": "1.5"},
        {"RmsNorm": "1.5s"},
        {"RmsNorm": "-1us"},
        {"RmsNorm": "0us"},
        {"RmsNorm": "0%"},
        {"RmsNorm": "100%"},
        {"RmsNorm": "9" * 400 + "us"},
        {"RmsNorm": "nan us"},
        {"RmsNorm": "3pp"},
        {"RmsNorm": 1.5},
        {"RmsNorm": True},
        {"RmsNorm": None},
        {"RmsNorm": {}},
        {"RmsNorm": []},
        {"RmsNorm": ["1us", "2us"]},
        {"RmsNorm": ["1%", "2%"]},
        {"RmsNorm": ["1us", "2%", "3%"]},
        {"RmsNorm": [["1us"]]},
        {"*": "1us"},
        {"*": ["1us", "10%"]},
        {" ": "1us"},
    ],
    ids=lambda bricks: str(bricks)[:40],
)
def test_a_wrong_figure_is_refused_by_its_place(bricks: object) -> None:
    with pytest.raises(UsageError, match="here: bricks") as raised:
        of(bricks)
    assert raised.value.code == "E_BAD_THRESHOLD"


def test_a_layer_wins_brick_by_brick() -> None:
    below = parse_thresholds(None, None, "", Thresholds(), {"RmsNorm": "1us", "*": "15%"})
    assert of(None, below) == below.bricks
    assert of({}, below) == below.bricks
    found = of({"RmsNorm": "5%", "Up": "2us"}, below)
    assert found == {
        "RmsNorm": BrickBudget(growth_pct=5.0),
        "Up": BrickBudget(2.0),
        "*": BrickBudget(growth_pct=15.0),
    }
    # The last name of a brick is what counts, and it is that of the layer above.
    assert list(of({"RmsNorm": "5%"}, below))[-1] == "RmsNorm"


DECLARED = """\
[workloads.decode]
prompt = "2+2="
max_tokens = 2
[workloads.decode.bricks]
RmsNorm = "1.5us"
"*" = "15%"
[workloads.decode.variants.i2s]
[workloads.decode.variants.tl1.bricks]
RmsNorm = ["2us", "10%"]
"""


def test_variants_lay_theirs_over_the_template_s(tmp_path: Path) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_text(DECLARED)
    plain, laid = (dict(each.thresholds.bricks) for each in read_file(path))
    assert plain == {"RmsNorm": BrickBudget(1.5), "*": BrickBudget(growth_pct=15.0)}
    assert laid == {"RmsNorm": BrickBudget(2.0, 10.0), "*": BrickBudget(growth_pct=15.0)}


@pytest.mark.parametrize(
    ("line", "code"), [("bricks = 3", "E_BAD_VALUE"), ('bricks = { Up = "1" }', "E_BAD_THRESHOLD")]
)
def test_a_wrong_declaration(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "flamegate.toml"
    path.write_text(f'[workloads.w]\nprompt = "x"\nmax_tokens = 1\n{line}\n')
    with pytest.raises(UsageError) as raised:
        read_file(path)
    assert raised.value.code == code
