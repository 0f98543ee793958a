"""A profile by any of its names, and the refusal of bytes that belong to another run."""

from pathlib import Path

import pytest

from pytest_flamegate.core.errors import FlamegateError, ReceiptError, ToolError, UsageError
from pytest_flamegate.profile.frames import fold_profile
from pytest_flamegate.run.open import compare_opened, open_profile, open_sums
from tests.graph.traces import made as traces
from tests.made import Bundle, bundle


@pytest.fixture
def made(tmp_path: Path) -> tuple[Bundle, Path]:
    """A run's directory under another name than the workload's."""
    triple = bundle()
    return triple, triple.write(tmp_path / "run").parent


@pytest.mark.parametrize("name", ["", "receipt.json", "evidence.json", "profile.folded"])
def test_every_name_of_a_run_opens_it(made: tuple[Bundle, Path], name: str) -> None:
    triple, directory = made
    opened = open_profile(directory / name)
    record, profile = triple.evidence.profile, opened.profile
    assert record is not None
    assert opened.evidence == triple.evidence
    assert opened.title == "4tok"
    assert fold_profile(profile).encode() == triple.folded
    assert (profile.profiler, profile.rate_hz) == (record.profiler, record.rate_hz)
    assert (profile.covers, profile.complete) == (record.covers, record.samples)
    assert profile.pids == tuple(process.pid for process in record.processes)
    assert profile.started_ticks == tuple(p.started_ticks for p in record.processes)
    (cost,) = (m.value for m in triple.evidence.metrics if m.name == "cpu_s_per_token")
    assert opened.cpu_s_per_token == cost


def test_the_other_side_of_a_comparison_opens(made: tuple[Bundle, Path]) -> None:
    _, directory = made
    base = bundle(token_ns=4_000_000, seed=1)
    for name, data in base.files.items():
        (directory / f"base-{name}").write_bytes(data)
    for name in base.files:
        assert open_profile(directory / f"base-{name}").evidence == base.evidence
    (directory / "base-profile.folded").write_bytes(bundle().folded + b"f (a.py) 1\n")
    with pytest.raises(ReceiptError, match="E_RECEIPT_CHANGED"):
        open_profile(directory / "base-evidence.json")


def test_evidence_that_is_a_link_is_neither_followed_nor_skipped(
    made: tuple[Bundle, Path],
) -> None:
    _, directory = made
    evidence = directory / "evidence.json"
    evidence.rename(directory / "moved.json")
    for target in ("moved.json", "nowhere"):
        evidence.symlink_to(target)
        with pytest.raises(FlamegateError, match="E_CANNOT_READ"):
            open_profile(directory / "profile.folded")
        evidence.unlink()


def test_a_folded_profile_alone_says_what_it_does_not_know(made: tuple[Bundle, Path]) -> None:
    triple, directory = made
    (directory / "evidence.json").unlink()
    for path, name in ((directory, "run"), (directory / "profile.folded", "profile")):
        opened = open_profile(path)
        assert opened.title == name
        assert fold_profile(opened.profile).encode() == triple.folded
        assert (opened.evidence, opened.cpu_s_per_token) == (None, None)
        assert (opened.profile.profiler, opened.profile.rate_hz) == ("unknown", 0)
        assert opened.profile.degraded


def test_counted_stacks_beside_a_run_are_compared_as_counts(made: tuple[Bundle, Path]) -> None:
    _, directory = made
    sides = []
    for name, extra in (("base-instructions.folded", 0), ("instructions.folded", 2_000)):
        (directory / name).write_text(f"f [a.so] {1_000_000 + extra}\ng [a.so] 1000000\n")
        opened = open_profile(directory / name)
        assert (opened.profile.unit, opened.evidence) == ("instructions", None)
        sides.append(opened)
    found = compare_opened(*sides)
    # As samples they would be shares, and as certain as a million samples make them.
    assert (found.measure, found.changed) == ("count", ())
    elsewhere = directory.parent / "instructions.folded"
    elsewhere.write_text("f [a.so] 5\n")
    assert open_profile(elsewhere).profile.unit == "samples"


def test_another_file_in_the_directory_of_a_run_is_no_part_of_it(
    made: tuple[Bundle, Path],
) -> None:
    triple, directory = made
    (directory / "mine.folded").write_text("main;f 3\n")
    assert open_profile(directory / "mine.folded").evidence is None
    (directory / "copy.folded").write_bytes(triple.folded)
    assert open_profile(directory / "copy.folded").evidence == triple.evidence


@pytest.mark.parametrize("name", ["", "receipt.json", "evidence.json", "profile.folded"])
def test_a_profile_of_another_run_is_refused(made: tuple[Bundle, Path], name: str) -> None:
    triple, directory = made
    changed = triple.with_receipt(tokens_generated=2)
    if name == "receipt.json":
        (directory / "receipt.json").write_bytes(changed.files["receipt.json"])
    else:
        (directory / "profile.folded").write_text("f (a.py) 1\n")
    with pytest.raises(ReceiptError, match="E_RECEIPT_CHANGED"):
        open_profile(directory / name)


def test_a_run_without_a_profile_has_none_to_open(made: tuple[Bundle, Path]) -> None:
    triple, directory = made
    plain = triple.with_evidence(profile=None)
    (directory / "evidence.json").write_bytes(plain.files["evidence.json"])
    with pytest.raises(ReceiptError, match="E_NO_PROFILE"):
        open_profile(directory / "evidence.json")
    with pytest.raises(ReceiptError, match="E_RECEIPT_CHANGED"):
        open_profile(directory / "profile.folded")


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        (".", UsageError, "E_NO_RUN"),
        ("gone", ToolError, "E_CANNOT_READ"),
        ("x" * 5000, ToolError, "E_CANNOT_READ"),
        ("a\0b", ToolError, "E_CANNOT_READ"),
        ("receipt.json", ReceiptError, "E_SCHEMA_VERSION"),
        ("base-evidence.json", ReceiptError, "E_EVIDENCE_SCHEMA"),
    ],
)
def test_a_path_that_cannot_be_opened_is_an_error(
    tmp_path: Path, name: str, kind: type[FlamegateError], code: str
) -> None:
    for document in ("receipt.json", "base-evidence.json"):
        (tmp_path / document).write_text('{"hello": "world"}')
    with pytest.raises(kind, match=code):
        open_profile(tmp_path / name)


@pytest.mark.parametrize(("thread", "outside_us"), [(1, 20), (2, None)])
def test_time_outside_the_calls_of_a_trace_is_known_of_one_thread(
    tmp_path: Path, thread: int, outside_us: int | None
) -> None:
    path = tmp_path / "trace.json"
    first, second = traces.event("a", 0, 40), traces.event("b", 60, 40, tid=thread)
    path.write_bytes(traces.torch(first, second))
    table = open_sums(path)[1].table
    assert (table.whole, table.lanes) == ("wall", thread)
    assert table.outside_ns == (None if outside_us is None else outside_us * 1000)
