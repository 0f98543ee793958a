import gzip
import json
import math
from pathlib import Path

import pytest

from benchmarks.streams import apart, read
from pytest_flamegate.core.errors import FlamegateError
from tests.benchmarks.made import pair

SIDE: dict[str, object] = {"quiet_s": 0.003, "cpu_s": 0.0031, "wall_s": [0.004, 0.003]}
LINE: dict[str, object] = {"effect_pct": 3.0, "load": "mixed", "at": 1000.0, "took_s": 2.5}
LINE |= {"base": SIDE, "head": SIDE | {"quiet_s": 0.0033}}


def written(path: Path, *lines: object) -> Path:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_reads_plain_and_packed(tmp_path: Path, name: str) -> None:
    (found,) = read([written(tmp_path / name, LINE)])
    assert found.difference == pytest.approx(math.log(1.1))
    assert found.base.wall_s == (0.004, 0.003)


@pytest.mark.parametrize(
    "changed", [{"took_s": "long"}, {"effect_pct": -1.0}, {"base": SIDE | {"quiet_s": math.inf}}]
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(FlamegateError, match=r"E_BAD_PAIRS: a.jsonl, line 2 ") as raised:
        read([written(tmp_path / "a.jsonl", LINE, LINE | changed)])
    assert raised.value.exit_code == 2


def test_apart_uses_each_pair_for_one_process() -> None:
    made = [pair(base_s=1.0 + i, head_s=11.0 + i) for i in range(4)]
    base, head = apart(made)
    assert [each.cpu_s for each in base] == [1.0, 3.0]
    assert [each.cpu_s for each in head] == [12.0, 14.0]
