"""A run composed and sealed: what makes it an error, and that no secret is left in it."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_flamegate.child.call_counts import CountedCalls, EdgeCalls
from pytest_flamegate.core.clocks import utc_now
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import replace
from pytest_flamegate.engines.figures import Report
from pytest_flamegate.models.files import read_stamps
from pytest_flamegate.observe.observation import Observation
from pytest_flamegate.observe.redact import Redactor
from pytest_flamegate.profile.calls import NativeWork
from pytest_flamegate.profile.model import SourceLine
from pytest_flamegate.profile.profilers.instructions import InstructionCount
from pytest_flamegate.run.seal import compose, redacted_profile, redacted_reports, seal
from pytest_flamegate.run.stages import Measured, MeasuredSide, Prepared
from tests.made import bundle
from tests.profile.profiles import profile, python
from tests.run import fakes

SECRET = "k3-9fQ7xW2mVb8Rt5"
OTHER_SECRET = "Zz81-kLmPq04-77tY"


TAKEN = profile({(python("rms_norm"),): 1000})


def measured(**changes: Any) -> Measured:
    """Return a measurement of one side, composed of a bundle."""
    made = bundle(created=utc_now())
    prepared = fakes.prepared_side(made)
    side = fakes.run_side(made)
    subject = replace(prepared.subject, **changes.pop("subject", {}))
    prepared = replace(prepared, subject=subject, **changes.pop("side", {}))
    assert side.profile is not None
    found = MeasuredSide(
        prepared,
        cast(Observation, changes.pop("observation", fakes.observation(made))),
        profiles=(side.profile,),
        pooled=changes.pop("pooled", side.profile),
    )
    return Measured(Prepared((prepared,), 15.0, **changes), (found,))


def test_a_run_is_sealed_as_it_was_composed() -> None:
    run = compose(measured())
    sealed = seal(run)
    assert sealed.errors == ()
    receipt = sealed.head.files["receipt.json"]
    assert run.head.evidence.receipt_sha256 == ""
    assert sealed.head.evidence.receipt_sha256 == hashlib.sha256(receipt).hexdigest()
    document = json.loads(sealed.head.files["evidence.json"])
    assert document["nonce"] == run.head.evidence.nonce


def test_errors_of_two_sides_name_the_side() -> None:
    sealed = fakes.sealed_run(bundle(seed=2), bundle(seed=1))
    error = SimpleNamespace(code="E_TPS_MISMATCH", message="It does not fit.")
    broken = SimpleNamespace(refusals=(error,), grade=SimpleNamespace(name="SELF_REPORTED"))
    assert sealed.base is not None
    base = replace(sealed.base, verification=cast(Any, broken))
    (found,) = replace(sealed, base=base).errors
    assert (found.code, found.message) == ("E_TPS_MISMATCH", "base: It does not fit.")


@pytest.mark.parametrize(("complete", "codes"), [(499, ["E_STACKS_CUT"]), (500, [])])
def test_stacks_that_were_cut_are_a_note(complete: int, codes: list[str]) -> None:
    taken = profile({(python("rms_norm"),): 1000}, call_graph="python", complete=complete)
    run = compose(measured(pooled=taken))
    assert [note.code for note in run.notes] == codes
    assert run.head.evidence.profile is not None


def test_a_model_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"model")
    given = measured(side={"stamps": read_stamps(model)})
    compose(given)
    # The very same bytes in another file.
    (tmp_path / "copy").write_bytes(b"model")
    (tmp_path / "copy").replace(model)
    with pytest.raises(ToolError, match="E_MODEL_CHANGED"):
        compose(given)


def test_a_secret_among_the_tokens_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    found = replace(fakes.observation(bundle()), tokens=tuple(str(ord(each)) for each in SECRET))
    with pytest.raises(ToolError, match="E_SECRET"):
        compose(measured(observation=found))


def test_functions_that_differ_in_a_secret_alone_are_one() -> None:
    taken = profile({(python(f"gemv_{each}"),): 5 for each in (SECRET, OTHER_SECRET)})
    redactor = Redactor.from_environments({"A_TOKEN": SECRET, "B_TOKEN": OTHER_SECRET})
    clean = redacted_profile(taken, redactor)
    assert {stack[0].name: count for stack, count in clean.stacks.items()} == {"gemv_redacted": 10}
    assert redactor.places == ["profile"]


def test_samples_by_line_are_a_file_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", SECRET)
    monkeypatch.setenv("B_TOKEN", OTHER_SECRET)
    pooled = measured().sides[0].pooled
    assert pooled is not None
    assert "lines.folded" not in seal(compose(measured())).head.files
    lines = {(SourceLine(f"{each}/a.py", 3),): 5 for each in (SECRET, OTHER_SECRET)}
    sealed = seal(compose(measured(pooled=replace(pooled, lines=lines))))
    assert sealed.head.files["lines.folded"] == b"redacted/a.py:3 10\n"
    # It is no evidence.
    assert sealed.errors == ()
    assert b"lines" not in sealed.head.files["receipt.json"]


def test_calls_and_instructions_of_both_sides_have_names_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the checkout is named as in the project."""
    monkeypatch.setenv("ENGINE_TOKEN", SECRET)
    checkout, project = tmp_path / "checkout", tmp_path / "project"
    one = measured()
    sides = []
    for root, moved in ((checkout, (checkout, project)), (project, None)):
        call = EdgeCalls("", "", f"f_{SECRET}", f"{root}/src/engine.py", 1, 7, varies=False)
        side = replace(one.sides[0].side, moved=moved, count=InstructionCount(9.0, (0, 1), TAKEN))
        sides.append(replace(one.sides[0], side=side, calls=CountedCalls(tokens=8, calls=(call,))))
    prepared = replace(one.prepared, sides=tuple(side.side for side in sides))
    run = compose(replace(one, prepared=prepared, sides=tuple(sides)))
    assert run.calls is not None
    assert run.calls[0] == run.calls[1]
    ((name, file),) = run.calls[0].files.items()
    assert file == "engine.py"
    assert SECRET not in name
    assert run.instructions == ({"rms_norm": NativeWork(1000.0)}, {"rms_norm": NativeWork(1000.0)})
    alone = compose(one)
    assert (alone.calls, alone.instructions) == (None, None)


def test_reports_of_the_engine_hold_no_secret() -> None:
    report = Report(
        f"log {SECRET}",
        {"tokens": 4.0, f"{SECRET}_ms": 1.0},
        {f"gemv_{SECRET}": 2, f"gemv_{OTHER_SECRET}": 3, "b": 1},
    )
    observation = fakes.observation(bundle())
    runs = (replace(observation.runs[0], reported=(report,)), *observation.runs[1:])
    redactor = Redactor.from_environments({"A_TOKEN": SECRET, "B_TOKEN": OTHER_SECRET})
    clean = redacted_reports(replace(observation, runs=runs), redactor)
    assert clean.runs[0].reported == (
        Report("log redacted", {"tokens": 4.0, "redacted_ms": 1.0}, {"gemv_redacted": 5, "b": 1}),
    )
    assert clean.runs[1:] == runs[1:]
    assert redactor.places == ["evidence.runs.reported"]
