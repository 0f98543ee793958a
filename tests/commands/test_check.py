"""``flamegate check`` and ``accept``: the base's policy, its waivers, and what fails a check."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_metrics,
)

from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.text import Notice
from pytest_flamegate.profile.profilers.base import Probe, Setup
from pytest_flamegate.receipt import Grade, Verification, verify_receipt
from pytest_flamegate.run import base_policy, instruments, required_check, seal
from pytest_flamegate.run.present import locate_slowdown
from tests.commands.asked import Captured, Command, ask, commit
from tests.doors.project import workload
from tests.report.verdicts import in_pairs, inconclusive
from tests.run import fakes
from tests.workload.repositories import git

SLOWER_NS = round(1.3 * fakes.TOKEN_NS)


def result(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / ".flamegate/check.json").read_text())
    return found


def verdicts(project: Path, key: str = "required") -> dict[str, str]:
    return {each["workload"]: each["verdict"] for each in result(project)[key]}


def test_a_slower_commit_fails_whatever_its_own_policy_says(
    project: Path, world: fakes.World, declare: Callable[..., str], capsys: Captured
) -> None:
    base = git(project, "rev-parse", "HEAD")
    head = declare(workload("toy", tokens_per_second='"60%"', prompt='"3"', seed="1"))
    (project / "pytest.ini").write_text("[pytest]\nflamegate_tokens_per_second = 70%\n")
    head = commit(project)
    world.token_ns = SLOWER_NS
    assert ask("check", "--base=HEAD~2") == 1
    found = result(project)
    assert (found["base"], found["head"], found["passed"]) == (base, head, False)
    assert verdicts(project) == {"toy": "regressed"}
    changed = {each["key"]: (each["base"], each["head"]) for each in found["policy_changes"]}
    assert changed == {
        "flamegate_tokens_per_second": ("(none)", "'70%'"),
        "prompt": ("'2+2='", "'3'"),
        "seed": ("42", "1"),
        "tokens_per_second_pct": ("5.0", "60.0"),
    }
    evidence = json.loads((project / ".flamegate/latest/toy/evidence.json").read_text())
    assert (evidence["workload"]["prompt"], evidence["workload"]["seed"]) == ("2+2=", 42)
    printed = capsys.readouterr().out
    assert "toy: tokens_per_second_pct 5.0 → 60.0" in printed
    assert printed.rstrip().endswith("toy (regressed); 1 required workload")
    page = (project / ".flamegate/check.md").read_text()
    assert page.startswith("**check failed by the policy of ")
    assert "Where it went" in page
    assert "flamegate check --base " in page


def test_an_unchanged_commit_passes_and_new_workloads_are_measured(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CI", "1")
    declare(workload("toy"), workload("more"))
    assert ask("check", "--base=HEAD~1") == 0
    assert verdicts(project) == {"toy": "pass"}
    assert verdicts(project, "new") == {"more": "no_baseline"}
    shown = capsys.readouterr().out
    assert "new, required once merged: more" in shown
    assert "more: new: measured alone, and required once it is merged" in shown
    assert "E_NO_BASELINE" not in shown


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_receipt_that_the_judge_would_reject_fails_the_measuring_check_too(
    side: str,
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    def lower(receipt: bytes, **files: Any) -> Verification:
        found = verify_receipt(receipt, **files)
        if json.loads(files["evidence"])["side"] != side:
            return found
        why = Notice("W_WAITS_EXCEED_WALL", "It waited for 43 s within 25 s.")
        return replace(found, grade=Grade.CONSISTENT, warnings=(why,), lowered_by=(why,))

    monkeypatch.setattr(seal, "verify_receipt", lower)
    declare(workload("toy"), "# a change")
    assert ask("check", "--base=HEAD~1") == 3
    (row,) = result(project)["required"]
    assert (row["verdict"], row["reasons"][0]) == ("dishonest", "E_GRADE")
    verdict = json.loads((project / ".flamegate/latest/toy/verdict.json").read_text())
    wanted = f"{side}: The grade is CONSISTENT, wanted OBSERVED. W_WAITS_EXCEED_WALL: It waited"
    assert wanted in str(verdict)
    # An engine that cannot be observed better, such as one on a GPU, is not blocked for ever.
    assert "--require-grade CONSISTENT" in str(verdict)
    assert ask("check", "--base=HEAD~1", "--require-grade=CONSISTENT") == 0
    assert ask("check", "--base=HEAD~1", "--require-grade=REPLAYED") == 2
    # The base may ask for another grade; the option can only ask for more than that.
    assert ask("check", "--base=HEAD~1") == 3
    (project / "pytest.ini").write_text("[pytest]\nflamegate_require_grade = consistent\n")
    commit(project)
    assert ask("check", "--base=HEAD~1") == 3
    changed = {"workload": "", "key": "flamegate_require_grade", "base": "(none)"}
    assert result(project)["policy_changes"] == [{**changed, "head": "'consistent'"}]
    commit(project)
    assert ask("check", "--base=HEAD~1") == 0
    assert ask("check", "--base=HEAD~1", "--require-grade=OBSERVED") == 3
    for grade, code in (("ATTESTED", 3), ("certain", 2)):
        (project / "pytest.ini").write_text(f"[pytest]\nflamegate_require_grade = {grade}\n")
        commit(project)
        commit(project)
        assert ask("check", "--base=HEAD~1", "--require-grade=CONSISTENT") == code
    assert "E_BAD_OPTION" in capsys.readouterr().err


def test_a_head_that_no_profiler_sees_needs_a_receipt_if_the_base_has_one(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = fakes.World.process

    def hide(self: fakes.World, role: str, *, base: bool = False, **more: Any) -> Any:
        self.samples = None if base else 0
        return process(self, role, base=base, **more)

    monkeypatch.setattr(fakes.World, "process", hide)
    declare(workload("toy"), "# a change")
    assert ask("check", "--base=HEAD~1") == 3
    verdict = (project / ".flamegate/latest/toy/verdict.json").read_text()
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
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    declared: tuple[str, ...],
    code: str,
) -> None:
    declare(*declared)
    assert ask("check", "--base=HEAD~1") == 2
    found = result(project)
    assert not found["passed"]
    rows = found["required"] + found["new"]
    assert [code] in [row["reasons"] for row in rows]


@pytest.mark.parametrize(
    ("base", "code"),
    [("HEAD", "E_SAME_CODE"), ("nowhere", "E_REV_UNKNOWN"), ("HEAD~1", "E_UNCOMMITTED")],
)
def test_what_is_no_change_is_not_judged(
    project: Path, declare: Callable[..., str], command: Command, base: str, code: str
) -> None:
    declare(workload("toy"))
    if code == "E_UNCOMMITTED":
        (project / "toy.py").write_text("# other\n")
    assert code in command(2, "check", f"--base={base}").err
    assert not (project / ".flamegate/check.json").exists()


@pytest.mark.parametrize(
    ("base", "directory"), [("HEAD~1", ".flamegate"), ("HEAD~1", "kept"), ("nowhere", ".flamegate")]
)
def test_an_earlier_answer_does_not_outlive_a_check_that_ends_early(
    project: Path, world: fakes.World, declare: Callable[..., str], base: str, directory: str
) -> None:
    (project / "pytest.ini").write_text(f"[pytest]\nflamegate_dir = {directory}\n")
    (project / ".gitignore").write_text("kept\n__pycache__\n")
    commit(project)
    declare(workload("toy"))
    assert ask("check", "--base=HEAD~1") == 0
    finished = json.loads((project / directory / "check.json").read_text())
    (project / "pytest.ini").unlink()  # the directory is the base's
    assert ask("check", f"--base={base}") == 2
    found = json.loads((project / directory / "check.json").read_text())
    assert (found["passed"], found["exit_code"]) == (False, 4)
    assert found.keys() == finished.keys()
    assert "has not ended" in (project / directory / "check.md").read_text()


def test_a_target_that_moved_says_once_how_to_move_it(
    project: Path, world: fakes.World, declare: Callable[..., str], capsys: Captured
) -> None:
    declare(workload("toy"))
    world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", "Look."), at="warm up")
    assert ask("check", "--base=HEAD~1") == 5
    assert "Keep the old name importable for one change" in result(project)["sentence"]
    printed = capsys.readouterr().out
    assert printed.count("It is missing.") == 1
    assert "  E_TARGET_NOT_FOUND\n" in printed


def test_stored_runs_are_judged_by_their_files_alone(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(workload("toy"))
    world.token_ns = SLOWER_NS
    assert ask("check", "--base=HEAD~1") == 1
    latest = project / ".flamegate/latest/toy"
    uploaded = project.parent / "uploaded/job-1/toy"
    stored = ("check", "--base=HEAD~1", f"--receipts={uploaded.parent.parent}")
    assert ask(*stored) == 2
    assert [row["reasons"] for row in result(project)["required"]] == [["E_NO_RUN"]]
    shutil.copytree(latest, uploaded)
    verdict = json.loads((uploaded / "verdict.json").read_text())
    (uploaded / "verdict.json").write_text(json.dumps({**verdict, "verdict": "pass"}))
    assert ask(*stored) == 1
    assert verdicts(project) == {"toy": "regressed"}
    assert ask(*stored, "--max-age=0.001s") == 3
    spot = {"file": "src/norm.c", "first": 221, "last": 222, "is_changed": True}
    size = {"code": "I_SIZE_ALONE", "message": "Alone: \x1b[1m9 % slower\n::error::x."}

    def report(cost: float = 1.0, **place: object) -> str:
        """Judge the run again, of which the job that measured reports this line."""
        row = {**verdict["attribution"][0], "baseline_us_per_token": cost}
        reasons = [*verdict["reasons"], size, {"code": "E_NOISE", "message": "It was loud."}]
        changed = {"lines": [{"place": {**spot, **place}, "cost": row}], "reasons": reasons}
        written = {**verdict, "verdict": "pass", **changed}
        (uploaded / "verdict.json").write_text(json.dumps(written))
        capsys.readouterr()
        assert ask(*stored) == 1
        assert verdicts(project) == {"toy": "regressed"}
        return capsys.readouterr().out

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    printed = report()
    assert "::error file=src/norm.c,line=221,title=" in printed
    assert "I_SIZE_ALONE The job that measured reports: Alone: \\x1b[1m9 % slower" in printed
    assert "\n::error::x" not in printed
    assert "E_NOISE" not in printed
    page = (project / ".flamegate/check.md").read_text()
    assert "`src/norm.c:221-222` | changed here" in page
    assert "These lines are what the job that measured reports. They decide nothing." in page
    wrong: list[dict[str, Any]] = [
        {"file": "../norm.c"},
        {"first": 0},
        {"last": 9},
        {"cost": 1e300},
    ]
    for each in wrong:
        assert "norm.c" not in report(**each)
        assert "reports" not in (project / ".flamegate/check.md").read_text()
    (uploaded / "verdict.json").write_text("{")
    assert ask(*stored) == 1
    # A run of other commits, without its base, or with changed bytes says nothing about this one.
    commit(project)
    assert ask(*stored) == 3
    assert [row["reasons"] for row in result(project)["required"]] == [["E_OTHER_COMMIT"]]
    git(project, "reset", "-q", "--hard", "HEAD~1")
    receipt = uploaded / "base-receipt.json"
    claim = json.loads(receipt.read_text())
    receipt.write_text(json.dumps({**claim, "tokens_per_second": 1.0}))
    assert ask(*stored) == 3
    assert verdicts(project) == {"toy": "dishonest"}
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
        assert ask(*stored) == 3
        assert [row["reasons"] for row in result(project)["required"]] == [["E_OTHER_WORKLOAD"]]
    (uploaded / "base-receipt.json").unlink()
    assert ask(*stored) == 3
    assert [row["reasons"] for row in result(project)["required"]] == [["E_RUN_INCOMPLETE"]]


def test_a_required_workload_that_nothing_is_compared_with_fails(
    project: Path, world: fakes.World, declare: Callable[..., str], tmp_path: Path
) -> None:
    declare(workload("toy"))
    policy = tmp_path / "policy.toml"
    policy.write_text(workload("toy", target="missing"))
    world.fail(ToolError("E_TARGET_NOT_FOUND", "It is missing.", ""), times=1)
    assert ask("check", "--base=HEAD~1", f"--config={policy}") == 4
    assert result(project)["sentence"].startswith("check failed")


def test_a_judge_reads_the_head_and_does_not_check_it_out(
    project: Path, world: fakes.World, declare: Callable[..., str], capsys: Captured
) -> None:
    base = git(project, "rev-parse", "HEAD")
    head = declare(workload("toy", tokens_per_second='"50%"'), workload("more"))
    assert ask("check", f"--base={base}") == 0
    runs = project.parent / "uploaded"
    shutil.move(project / ".flamegate/latest", runs)
    git(project, "switch", "-q", "--detach", base)
    judge = ("check", f"--base={base}", f"--head={head}")
    listed = (project / ".flamegate/check.sha256").read_text()
    assert ask(*judge) == 2  # not without runs
    assert ask(*judge, f"--receipts={runs}") == 0
    # An attestation names exactly the files that were judged.
    (runs / "other").mkdir()
    shutil.copy(runs / "toy/receipt.json", runs / "other/receipt.json")
    assert ask(*judge, f"--receipts={runs}") == 0
    assert (project / ".flamegate/check.sha256").read_text() == listed
    names = ("receipt.json", "evidence.json", "profile.folded")
    assert {line.split("  ")[1] for line in listed.splitlines()} == {
        f"toy/{side}{name}" for side in ("", "base-") for name in names
    }
    subprocess.run(["sha256sum", "-c", "-"], cwd=runs, input=listed.encode(), check=True)
    workflow = (Path(__file__).parents[2] / "docs/github/flamegate-judge.yml").read_text()
    assert workflow.count(f"urn:pytest-flamegate:check:{required_check.CHECK_VERSION}") == 2
    assert result(project)["head"] == head
    assert "tokens_per_second_pct 5.0 → 50.0" in capsys.readouterr().out
    assert len(git(project, "worktree", "list").splitlines()) == 1


def test_a_new_configuration_file_does_not_hide_the_policy(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "sub").mkdir()
    (project / "sub/test_one.py").write_text("")
    commit(project)
    (project / "sub/pytest.ini").write_text("[pytest]\n")
    commit(project)
    monkeypatch.chdir(project / "sub")
    world.token_ns = SLOWER_NS
    assert ask("check", "--base=HEAD~1") == 1
    assert verdicts(project) == {"toy": "regressed"}


GITLAB_FINDING = {
    # What GitLab's documentation asks for, and its own validator's types.
    "type": "object",
    "required": ["description", "check_name", "fingerprint", "severity", "location"],
    "additionalProperties": False,
    "properties": {
        "description": {"type": "string", "minLength": 1},
        "check_name": {"type": "string", "minLength": 1},
        "fingerprint": {"type": "string", "minLength": 1},
        "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
        "location": {
            "type": "object",
            "required": ["path", "lines"],
            "properties": {
                "path": {"type": "string", "pattern": "^[^./]"},
                "lines": {"required": ["begin"], "properties": {"begin": {"type": "integer"}}},
            },
        },
    },
}


def read_findings(project: Path) -> list[dict[str, Any]]:
    """Return the findings as GitLab reads them; each is valid."""
    text = (project / ".flamegate/code-quality.json").read_text("utf-8")
    assert not text.startswith("\ufeff")
    found: list[dict[str, Any]] = json.loads(text)
    jsonschema.validate(found, {"type": "array", "items": GITLAB_FINDING})
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
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = project / "src/kernels.py"
    source.parent.mkdir()
    source.write_text("import math\n\n\ndef ternary_gemv(x):\n    return x\n")
    declare(workload("toy"))
    shares = {name: share / 1.3 for name, share in world.shares.items()}
    world.shares = {**shares, "ternary_gemv": 1 - sum(shares.values()) + shares["ternary_gemv"]}
    world.token_ns = SLOWER_NS
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error file=src/kernels.py,line=4,title=flamegate%3A toy::regressed: " in (
        command(1, "check", "--base=HEAD~1").out
    )
    (finding,) = read_findings(project)
    assert finding["location"] == {"path": "src/kernels.py", "lines": {"begin": 4}}
    assert (finding["severity"], finding["check_name"]) == ("major", "flamegate/regressed")
    assert finding["description"].startswith("toy: regressed: ")
    figures = read_figures(project)
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
        commit(project)
        assert ask("check", "--base=HEAD~1") == 1
        (finding,) = read_findings(project)
        assert finding["location"] == {"path": "flamegate.toml", "lines": {"begin": 1}}
    # A check that ends early leaves neither the earlier finding nor the earlier figures.
    (project / "toy.py").write_text("")
    assert ask("check", "--base=HEAD~1") == 2
    assert read_findings(project) == []
    assert read_figures(project) == {"flamegate_check_passed": "0"}


def test_a_step_gets_no_more_annotations_than_github_shows(
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"toy{number}" for number in range(12)]
    declare(*map(workload, names))
    declare(workload("other"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert ask("check", "--base=HEAD~1") == 2
    lines = [each for each in command.read().out.splitlines() if each.startswith("::error")]
    assert len(lines) == 10
    assert lines[-1] == (
        "::error title=flamegate%3A 3 workloads more::Failed too: toy9, toy10, toy11"
    )
    assert {each["location"]["path"] for each in read_findings(project)} == {"flamegate.toml"}
    assert len(read_findings(project)) == 12


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
    project: Path,
    world: fakes.World,
    declare: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    """The base runs in a checkout of the whole repository."""
    declare(workload("toy"))
    below = project / "engine"
    below.mkdir()
    for name in ("toy.py", "flamegate.toml"):
        (project / name).rename(below / name)
    commit(project)
    (below / "toy.py").write_text((below / "toy.py").read_text() + "\n# slower\n")
    commit(project)
    monkeypatch.chdir(below)
    found: list[Path] = []
    choose = vars(instruments)["choose_profiler"]  # the one of `world`

    def record(name: str, setup: Setup, probes: dict[str, Probe]) -> Any:
        if setup.comparing and setup.project is not None:
            found.append(setup.project)
        return choose(name, setup, probes)

    monkeypatch.setattr(instruments, "choose_profiler", record)
    world.token_ns = SLOWER_NS
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert ask("check", "--base=HEAD~1") == 1
    assert {path.name for path in found} == {"engine"}
    assert len(set(found)) == 2
    # A code host shows an annotation by its path from the top.
    assert "::error file=engine/flamegate.toml," in capsys.readouterr().out


def test_a_judge_names_new_workloads_and_rejects_their_errors(
    project: Path, world: fakes.World, declare: Callable[..., str], capsys: Captured
) -> None:
    declare(workload("toy"), workload("more"))
    assert ask("check", "--base=HEAD~1") == 0
    runs = shutil.move(project / ".flamegate/latest", project.parent / "uploaded")
    assert ask("check", "--base=HEAD~1", f"--receipts={runs}") == 0
    assert "- more: new, and required then" in (project / ".flamegate/check.md").read_text()
    declare(workload("toy"), "[workloads.more]\nengine = 7\n")
    capsys.readouterr()
    assert ask("check", "--base=HEAD~2", f"--receipts={runs}") != 0
    assert "more (error)" in capsys.readouterr().out
