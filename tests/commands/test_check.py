"""``flamegate check`` and ``accept``: the base's policy, its waivers, and what fails a check."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_metrics,
)

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import encode_json
from pytest_flamegate.core.text import Notice
from pytest_flamegate.gate.document import verdict_document
from pytest_flamegate.gate.rule import Reason
from pytest_flamegate.gate.verdict import Verdict
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.receipt import Grade, Verification, store, verify_receipt
from pytest_flamegate.run import base_policy, instruments, required_check, seal
from pytest_flamegate.run.present import locate_slowdown
from tests.commands.asked import SLOWER_NS, Repository, commit
from tests.doors.project import workload
from tests.report.verdicts import in_pairs, inconclusive
from tests.run import fakes
from tests.workload.repositories import git


def test_a_slower_commit_fails_whatever_its_own_policy_says(repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.declare(workload("toy", tokens_per_second='"60%"', prompt='"3"', seed="1"))
    (repo.path / "pytest.ini").write_text("[pytest]\nflamegate_tokens_per_second = 70%\n")
    head = repo.commit()
    repo.world.token_ns = SLOWER_NS
    printed = repo.check(1, base="HEAD~2").out
    found = repo.answer()
    assert (found["base"], found["head"], found["passed"]) == (base, head, False)
    assert repo.verdicts() == {"toy": "regressed"}
    changed = {each["key"]: (each["base"], each["head"]) for each in found["policy_changes"]}
    assert changed == {
        "flamegate_tokens_per_second": ("(none)", "'70%'"),
        "prompt": ("'2+2='", "'3'"),
        "seed": ("42", "1"),
        "tokens_per_second_pct": ("5.0", "60.0"),
    }
    evidence = json.loads((repo.path / ".flamegate/latest/toy/evidence.json").read_text())
    assert (evidence["workload"]["prompt"], evidence["workload"]["seed"]) == ("2+2=", 42)
    assert "toy: tokens_per_second_pct 5.0 → 60.0" in printed
    assert printed.rstrip().endswith("toy (regressed); 1 required workload")
    assert repo.page().startswith("**check failed by the policy of ")
    assert "Where it went" in repo.page()
    assert "flamegate check --base " in repo.page()


def test_an_unchanged_commit_passes_and_new_workloads_are_measured(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "1")
    repo.declare(workload("toy"), workload("more"))
    shown = repo.check(0).out
    assert repo.verdicts() == {"toy": "pass"}
    assert repo.verdicts("new") == {"more": "no_baseline"}
    assert "new, required once merged: more" in shown
    assert "more: new: measured alone, and required once it is merged" in shown
    assert "E_NO_BASELINE" not in shown


@pytest.mark.parametrize("side", ["base", pytest.param("head", marks=pytest.mark.nightly)])
def test_a_receipt_that_the_judge_would_reject_fails_the_measuring_check_too(
    repo: Repository, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lower(receipt: bytes, **files: Any) -> Verification:
        found = verify_receipt(receipt, **files)
        if json.loads(files["evidence"])["side"] != side:
            return found
        why = Notice("W_WAITS_EXCEED_WALL", "It waited for 43 s within 25 s.")
        return replace(found, grade=Grade.CONSISTENT, warnings=(why,), lowered_by=(why,))

    monkeypatch.setattr(seal, "verify_receipt", lower)
    repo.declare(workload("toy"), "# a change")
    repo.check(3)
    (row,) = repo.answer()["required"]
    assert (row["verdict"], row["reasons"][0]) == ("dishonest", "E_GRADE")
    verdict = json.loads((repo.path / ".flamegate/latest/toy/verdict.json").read_text())
    wanted = f"{side}: The grade is CONSISTENT, wanted OBSERVED. W_WAITS_EXCEED_WALL: It waited"
    assert wanted in str(verdict)
    # An engine that cannot be observed better, such as one on a GPU, is not blocked for ever.
    assert "--require-grade CONSISTENT" in str(verdict)
    repo.check(0, "--require-grade=CONSISTENT")
    repo.check(2, "--require-grade=REPLAYED")
    # The base may ask for another grade; the option can only ask for more than that.
    repo.check(3)
    (repo.path / "pytest.ini").write_text("[pytest]\nflamegate_require_grade = consistent\n")
    repo.commit()
    repo.check(3)
    changed = {"workload": "", "key": "flamegate_require_grade", "base": "(none)"}
    assert repo.answer()["policy_changes"] == [{**changed, "head": "'consistent'"}]
    repo.commit()
    repo.check(0)
    repo.check(3, "--require-grade=OBSERVED")
    for grade, code in (("ATTESTED", 3), ("certain", 2)):
        (repo.path / "pytest.ini").write_text(f"[pytest]\nflamegate_require_grade = {grade}\n")
        repo.commit()
        repo.commit()
        printed = repo.check(code, "--require-grade=CONSISTENT")
    assert "E_BAD_OPTION" in printed.err


def test_a_head_that_no_profiler_sees_needs_a_receipt_if_the_base_has_one(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = fakes.World.process

    def hide(self: fakes.World, role: str, *, base: bool = False, **more: Any) -> Any:
        self.samples = None if base else 0
        return process(self, role, base=base, **more)

    monkeypatch.setattr(fakes.World, "process", hide)
    repo.declare(workload("toy"), "# a change")
    repo.check(3)
    verdict = (repo.path / ".flamegate/latest/toy/verdict.json").read_text()
    assert "head: There is no receipt: the profiler took samples of the base alone." in verdict


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ((workload("toys"),), "E_REQUIRED_WORKLOAD"),
        ((workload("toy", max_token="3"),), "E_UNKNOWN_KEY"),
        ((workload("toy"), workload("more", max_token="3")), "E_UNKNOWN_KEY"),
    ],
    ids=["renamed", "malformed", "new and malformed"],
)
def test_what_cannot_be_judged_fails_by_name(
    repo: Repository, declared: tuple[str, ...], code: str
) -> None:
    repo.declare(*declared)
    repo.check(2)
    found = repo.answer()
    assert not found["passed"]
    rows = found["required"] + found["new"]
    assert [code] in [row["reasons"] for row in rows]


@pytest.mark.parametrize(
    ("base", "code"),
    [
        ("HEAD", "E_SAME_CODE"),
        ("nowhere", "E_REV_UNKNOWN"),
        ("HEAD~1", "E_UNCOMMITTED"),
        ("HEAD~1", "E_BAD_OPTION"),
    ],
)
def test_what_is_no_change_is_not_judged(repo: Repository, base: str, code: str) -> None:
    repo.declare()
    if code == "E_UNCOMMITTED":
        (repo.path / "toy.py").write_text("# other\n")
    options = ["--max-age=1h"] if code == "E_BAD_OPTION" else []
    assert code in repo.check(2, *options, base=base).err
    found = json.loads((repo.path / ".flamegate/check.json").read_text())
    assert (found["passed"], found["exit_code"]) == (False, 2)
    assert found["sentence"].startswith("check failed: ")
    assert "?? .flamegate" not in repo.git("status", "--porcelain")


@pytest.mark.parametrize(
    ("base", "directory"), [("HEAD~1", ".flamegate"), ("HEAD~1", "kept"), ("nowhere", ".flamegate")]
)
def test_an_earlier_answer_does_not_outlive_a_check_that_ends_early(
    repo: Repository, base: str, directory: str
) -> None:
    (repo.path / "pytest.ini").write_text(f"[pytest]\nflamegate_dir = {directory}\n")
    (repo.path / ".gitignore").write_text("kept\n__pycache__\n")
    repo.commit()
    repo.declare()
    repo.check(0)
    finished = json.loads((repo.path / directory / "check.json").read_text())
    (repo.path / "pytest.ini").unlink()  # the directory is the base's
    repo.check(2, base=base)
    found = json.loads((repo.path / directory / "check.json").read_text())
    assert (found["passed"], found["exit_code"]) == (False, 2)
    assert found.keys() == finished.keys()
    assert "check failed" in (repo.path / directory / "check.md").read_text()


def test_a_target_that_moved_says_once_how_to_move_it(repo: Repository) -> None:
    repo.declare()
    repo.world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", "Look."), at="warm up")
    printed = repo.check(5).out
    assert "Keep the old name importable for one change" in repo.sentence()
    assert printed.count("It is missing.") == 1
    assert "\n  E_TARGET_NOT_FOUND\n" in printed  # its message says what it means


def _failed_verdict() -> dict[str, Any]:
    """Return the one document of a run that ended with an error."""
    reasons = (Reason("E_BUILD_FAILED", "cargo ended with 101."),)
    verdict = Verdict("error", reasons, grade="SELF_REPORTED")
    found: dict[str, Any] = json.loads(encode_json(verdict_document(verdict)))
    return found


def test_stored_runs_are_judged_by_their_files_alone(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.declare()
    repo.world.token_ns = SLOWER_NS
    repo.check(1)
    latest = repo.path / ".flamegate/latest/toy"
    uploaded = repo.path.parent / "uploaded/job-1/toy"
    stored = ("check", "--base=HEAD~1", f"--receipts={uploaded.parent.parent}")
    repo.run(2, *stored)
    assert repo.reasons() == [["E_NO_RUN"]]
    uploaded.mkdir(parents=True)
    failed = _failed_verdict()
    for reported, told in (
        (failed, "E_BUILD_FAILED: cargo ended with 101"),
        ({**failed, "reasons": []}, "nothing that can be read"),
        ({**failed, "verdict": "pass"}, "nothing that can be read"),
    ):
        (uploaded / "verdict.json").write_text(json.dumps(reported))
        assert f"the job that measured reports: {told}" in repo.run(2, *stored).out
    shutil.rmtree(uploaded)
    shutil.copytree(latest, uploaded)
    verdict = json.loads((uploaded / "verdict.json").read_text())
    (uploaded / "verdict.json").write_text(json.dumps({**verdict, "verdict": "pass"}))
    repo.run(1, *stored)
    assert repo.verdicts() == {"toy": "regressed"}
    repo.run(3, *stored, "--max-age=0.001s")
    spot = {"file": "src/norm.c", "first": 221, "last": 222, "is_changed": True}
    size = {"code": "I_SIZE_ALONE", "message": "Alone: \x1b[1m9 % slower\n::error::x."}

    def report(cost: float = 1.0, **place: object) -> str:
        """Judge the run again, of which the job that measured reports this line."""
        row = {**verdict["attribution"][0], "baseline_us_per_token": cost}
        reasons = [*verdict["reasons"], size, {"code": "E_NOISE", "message": "It was loud."}]
        changed = {"lines": [{"place": {**spot, **place}, "cost": row}], "reasons": reasons}
        written = {**verdict, "verdict": "pass", **changed}
        (uploaded / "verdict.json").write_text(json.dumps(written))
        printed = repo.run(1, *stored).out
        assert repo.verdicts() == {"toy": "regressed"}
        return printed

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    printed = report()
    assert "::error file=src/norm.c,line=221,title=" in printed
    assert "I_SIZE_ALONE The job that measured reports: Alone: \\x1b[1m9 % slower" in printed
    assert "\n::error::x" not in printed
    assert "E_NOISE" not in printed
    assert "`src/norm.c:221-222` | changed here" in repo.page()
    assert "the job that measured reports. They decide nothing." in repo.page()
    wrong: list[dict[str, Any]] = [
        {"file": "../norm.c"},
        {"first": 0},
        {"last": 9},
        {"cost": 1e300},
    ]
    for each in wrong:
        assert "norm.c" not in report(**each)
        assert "reports" not in repo.page()
    (uploaded / "verdict.json").write_text("{")
    repo.run(1, *stored)
    # A run of other commits, without its base, or with changed bytes says nothing about this one.
    repo.commit()
    repo.run(3, *stored)
    assert repo.reasons() == [["E_OTHER_COMMIT"]]
    repo.git("reset", "-q", "--hard", "HEAD~1")
    receipt = uploaded / "base-receipt.json"
    claim = json.loads(receipt.read_text())
    receipt.write_text(json.dumps({**claim, "tokens_per_second": 1.0}))
    repo.run(3, *stored)
    assert repo.verdicts() == {"toy": "dishonest"}
    receipt.write_text(json.dumps(claim))
    written = (uploaded / "base-evidence.json").read_text()
    for key, value in (
        ("injection", "hash_round:+99%"),
        ("model", "small.gguf"),
        ("prompt", "redacted"),  # not listed as redacted
    ):
        base = json.loads(written)
        base["workload"][key] = value
        (uploaded / "base-evidence.json").write_text(json.dumps(base))
        repo.run(3, *stored)
        assert repo.reasons() == [["E_OTHER_WORKLOAD"]]
    (uploaded / "base-receipt.json").unlink()
    repo.run(3, *stored)
    assert repo.reasons() == [["E_RUN_INCOMPLETE"]]


def test_a_required_workload_that_nothing_is_compared_with_fails(
    repo: Repository, tmp_path: Path
) -> None:
    repo.declare()
    policy = tmp_path / "policy.toml"
    policy.write_text(workload("toy", target="missing"))
    repo.world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), times=1)
    repo.check(4, f"--config={policy}")
    assert repo.sentence().startswith("check failed")


def test_a_judge_reads_the_head_and_does_not_check_it_out(repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    head = repo.declare(workload("toy", tokens_per_second='"50%"'), workload("more"))
    repo.check(0, base=base)
    runs = repo.upload()
    repo.git("switch", "-q", "--detach", base)
    judge = ("check", f"--base={base}", f"--head={head}")
    listed = (repo.path / ".flamegate/check.sha256").read_text()
    repo.run(2, *judge)  # not without runs
    repo.run(0, *judge, f"--receipts={runs}")
    # An attestation names exactly the files that were judged.
    (runs / "other").mkdir()
    shutil.copy(runs / "toy/receipt.json", runs / "other/receipt.json")
    printed = repo.run(0, *judge, f"--receipts={runs}").out
    assert (repo.path / ".flamegate/check.sha256").read_text() == listed
    names = ("receipt.json", "evidence.json", "profile.folded")
    assert {line.split("  ")[1] for line in listed.splitlines()} == {
        f"toy/{side}{name}" for side in ("", "base-") for name in names
    }
    subprocess.run(["sha256sum", "-c", "-"], cwd=runs, input=listed.encode(), check=True)
    workflow = (Path(__file__).parents[2] / "docs/github/flamegate-judge.yml").read_text()
    assert workflow.count(f"urn:pytest-flamegate:check:{required_check.CHECK_VERSION}") == 2
    assert repo.answer()["head"] == head
    assert "tokens_per_second_pct 5.0 → 50.0" in printed
    assert len(repo.git("worktree", "list").splitlines()) == 1


def test_a_new_configuration_file_does_not_hide_the_policy(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.path / "pytest.ini").write_text("[pytest]\n")
    (repo.path / "sub").mkdir()
    (repo.path / "sub/test_one.py").write_text("")
    repo.commit()
    (repo.path / "sub/pytest.ini").write_text("[pytest]\n")
    repo.commit()
    monkeypatch.chdir(repo.path / "sub")
    repo.world.token_ns = SLOWER_NS
    repo.check(1)
    assert repo.verdicts() == {"toy": "regressed"}


_FINDING_TEXTS = ("description", "check_name", "fingerprint")


def read_findings(project: Path) -> list[dict[str, Any]]:
    """Return the findings as GitLab reads them; each is as its documentation asks."""
    text = (project / ".flamegate/code-quality.json").read_text("utf-8")
    assert not text.startswith("\ufeff")
    found: list[dict[str, Any]] = json.loads(text)
    for each in found:
        assert set(each) == {*_FINDING_TEXTS, "severity", "location"}
        assert all(each[name] and isinstance(each[name], str) for name in _FINDING_TEXTS)
        assert each["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert re.match("[^./]", each["location"]["path"])
        assert isinstance(each["location"]["lines"]["begin"], int)
    assert len({each["fingerprint"] for each in found}) == len(found)
    return found


def read_figures(project: Path) -> dict[str, str]:
    """Return the figures by name and labels, as GitLab's parser does."""
    text = (project / ".flamegate/metrics.txt").read_text("utf-8")
    # The parser of the format's own project.
    assert list(parse_metrics(text))  # type: ignore[no-untyped-call]
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return dict(shlex.split(line) for line in lines)


def test_a_slowdown_stands_at_the_changed_line_that_explains_it(tmp_path: Path) -> None:
    assert locate_slowdown(in_pairs(), None, tmp_path) == ("src/norm.c", 221)
    assert locate_slowdown(inconclusive(), None, tmp_path) is None


def test_a_slowdown_stands_at_the_function_that_explains_it(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = repo.path / "src/kernels.py"
    source.parent.mkdir()
    source.write_text("import math\n\n\ndef ternary_gemv(x):\n    return x\n")
    repo.declare()
    shares = {name: share / 1.3 for name, share in repo.world.shares.items()}
    repo.world.shares = {
        **shares,
        "ternary_gemv": 1 - sum(shares.values()) + shares["ternary_gemv"],
    }
    repo.world.token_ns = SLOWER_NS
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error file=src/kernels.py,line=4,title=flamegate%3A toy::regressed: " in (
        repo.check(1).out
    )
    (finding,) = read_findings(repo.path)
    assert finding["location"] == {"path": "src/kernels.py", "lines": {"begin": 4}}
    assert (finding["severity"], finding["check_name"]) == ("major", "flamegate/regressed")
    assert finding["description"].startswith("toy: regressed: ")
    figures = read_figures(repo.path)
    assert figures["flamegate_check_passed"] == figures["flamegate_passed{workload=toy}"] == "0"
    base, head = (
        float(figures[f"flamegate_tokens_per_second{{workload=toy,side={side}}}"])
        for side in ("base", "head")
    )
    change = float(figures["flamegate_rate_change_percent{workload=toy,bound=estimate}"])
    assert change == pytest.approx(100 * (head / base - 1), abs=1)
    # Two functions of one name, or none: the finding stands at the declaration.
    for text in ("def ternary_gemv(): ...\n" * 2, "ternary_gemv = max\n", "def ternary_gemv("):
        source.write_text(text)
        repo.commit()
        repo.check(1)
        (finding,) = read_findings(repo.path)
        assert finding["location"] == {"path": "flamegate.toml", "lines": {"begin": 1}}
    # A check that ends early leaves neither the earlier finding nor the earlier figures.
    (repo.path / "toy.py").write_text("")
    repo.check(2)
    assert read_findings(repo.path) == []
    assert read_figures(repo.path) == {"flamegate_check_passed": "0"}


def test_a_step_gets_no_more_annotations_than_github_shows(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"toy{number}" for number in range(12)]
    repo.declare(*map(workload, names))
    repo.declare(workload("other"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = [each for each in repo.check(2).out.splitlines() if each.startswith("::error")]
    assert len(lines) == 10
    assert lines[-1] == (
        "::error title=flamegate%3A 3 workloads more::Failed too: toy9, toy10, toy11"
    )
    assert {each["location"]["path"] for each in read_findings(repo.path)} == {"flamegate.toml"}
    assert len(read_findings(repo.path)) == 12


_PART = "m-{:05d}-of-00002.gguf"


@pytest.mark.parametrize(
    ("model", "changed", "more", "is_listed"),
    [
        ("m.gguf", "m.gguf", (), True),
        ("m.gguf", "other.gguf", ("m.gguf",), False),
        ("m.gguf", "store/v1.gguf", ("m.gguf -> store/v1.gguf",), True),
        ("models/m.gguf", "store/m.gguf", ("models -> store",), True),
        (_PART.format(1), _PART.format(2), (_PART.format(1),), True),
        ("model", "model/2.safetensors", ("model/1.safetensors",), True),
        ("model", "store/w", ("model/w -> ../store/w",), True),
        ("model/m.gguf", "model/tokenizer.json", ("model/m.gguf",), True),
        ("m.gguf", "../outside.gguf", ("m.gguf -> ../outside.gguf",), False),
    ],
)
def test_a_model_whose_files_the_head_swaps_is_a_change_of_the_policy(
    model: str, changed: str, more: tuple[str, ...], is_listed: bool, tmp_path: Path
) -> None:
    sides = []
    for name in ("base", "head"):
        root = tmp_path / name / "repository"
        root.mkdir(parents=True)
        git(root, "init", "-q")
        for each in (*more, changed):
            path, _, target = each.partition(" -> ")
            (root / path).parent.mkdir(exist_ok=True)
            if target:
                (root / path).symlink_to(target)
            else:
                (root / path).write_text(name if each == changed else "same")
        commit(root)
        sides.append(fakes.toy(root, model=model))

    def list_keys(head: Workload) -> list[str]:
        policy = base_policy.compare_policies(sides[:1], [head], "", lambda each: each)
        return [each.key for each in policy.changes]

    assert list_keys(sides[1]) == [f"content of {model}"] * is_listed
    assert list_keys(sides[0]) == []


def test_a_model_that_only_the_head_tracks_is_no_change_of_content(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "m.gguf").write_bytes(b"a")
    commit(tmp_path)
    base, head = fakes.toy(tmp_path / "none", model="m.gguf"), fakes.toy(tmp_path, model="m.gguf")
    found = base_policy.compare_policies([base], [head], "", lambda each: each)
    # A judge, which has checkouts alone, finds the same.
    assert (found.changes, found.differing) == ((), {})


def test_both_sides_of_a_project_below_the_top_have_its_paths(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base runs in a checkout of the whole repository."""
    repo.declare()
    below = repo.path / "engine"
    below.mkdir()
    for name in ("toy.py", "flamegate.toml"):
        (repo.path / name).rename(below / name)
    repo.commit()
    (below / "toy.py").write_text((below / "toy.py").read_text() + "\n# slower\n")
    repo.commit()
    monkeypatch.chdir(below)
    found: list[Path] = []
    choose = vars(instruments)["choose_profiler"]  # the one of `world`

    def record(name: str, setup: Setup, probes: dict[str, Probe]) -> Any:
        if setup.comparing and setup.project is not None:
            found.append(setup.project)
        return choose(name, setup, probes)

    monkeypatch.setattr(instruments, "choose_profiler", record)
    repo.world.token_ns = SLOWER_NS
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    printed = repo.check(1).out
    assert {path.name for path in found} == {"engine"}
    assert len(set(found)) == 2
    # A code host shows an annotation by its path from the top.
    assert "::error file=engine/flamegate.toml," in printed


def test_a_judge_names_new_workloads_and_rejects_their_errors(repo: Repository) -> None:
    repo.declare(workload("toy"), workload("more"))
    repo.check(0)
    runs = repo.upload()
    repo.check(0, f"--receipts={runs}")
    assert "- more: new, and required then" in repo.page()
    repo.declare(workload("toy"), "[workloads.more]\nengine = 7\n")
    assert "more (error)" in repo.check(3, f"--receipts={runs}", base="HEAD~2").out


def test_no_answer_of_an_earlier_check_is_left_on_a_full_disk(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.commit()
    repo.check(0)
    answer = repo.path / ".flamegate/check.json"
    assert json.loads(answer.read_bytes())["passed"]

    def refuse(*_: object) -> None:
        raise ToolError("E_CANNOT_WRITE", "No space left on device.")

    monkeypatch.setattr(store, "write_atomic", refuse)
    repo.check(5)
    assert not answer.exists()
