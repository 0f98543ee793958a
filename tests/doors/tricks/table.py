"""Ways of turning the gate green as data: the change, and the answer of pytest and of the check."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_flamegate.engines.declare import from_table
from pytest_flamegate.run.base_policy import digest_declaration
from tests.doors.project import workload
from tests.doors.tricks import engines
from tests.doors.tricks.uploads import GREEN, UPLOADS, Upload
from tests.made import TOKENS
from tests.run import fakes

SLOWER: Mapping[str, Any] = {"token_ns": round(1.3 * fakes.TOKEN_NS)}
NOISY: Mapping[str, Any] = {"token_ns": round(1.1 * fakes.TOKEN_NS), "jitter": 0.6}


@dataclass(frozen=True, eq=False)
class Trick:
    """One trick of a change that is 30 % slower.

    Attributes:
        does: What the change does, as a sentence.
        head: The files that it adds, replaces or (None) removes. ``base`` are files of the base.
        by_pytest: The answer of ``pytest --flamegate --flamegate-against=base``: a code, a
            verdict, or GREEN; empty if the trick is none there. ``by_check`` that of the check.
        arguments: More arguments of pytest.
        ignored: Files that git ignores, in the clone that is checked.
        world: What the fake processes show.
        is_alone: Whether pytest needs a process of its own, which ends before it measures.
        budget_s: The seconds that the check may measure.
    """

    name: str
    does: str
    head: Mapping[str, str | None] = field(default_factory=dict)
    by_pytest: str = ""
    by_check: str = "regressed"
    base: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    world: Mapping[str, Any] = field(default_factory=lambda: SLOWER)
    is_alone: bool = False
    budget_s: int = 8


def _ini(line: str) -> dict[str, str | None]:
    return {"pytest.ini": f"[pytest]\n{line}\n"}


def _conftest(text: str, **more: str) -> dict[str, str | None]:
    return {"conftest.py": f"import os, subprocess\nimport pytest\n\n{text}\n", **more}


def _hook(name: str, body: str, *, wrapper: bool = False) -> dict[str, str | None]:
    return _conftest(
        f"{'@pytest.hookimpl(wrapper=True)' * wrapper}\ndef pytest_{name}:\n    {body}"
    )


_GATE = "import pytest\n\n\ndef test_gate(flamegate):\n    flamegate.run('toy')\n"
_BY_TEST: dict[str, Any] = {"base": {"test_gate.py": _GATE}, "arguments": ("test_gate.py",)}
"""A repository that gates by a test."""


def _waiver(accepted: str = "2020-01-01", until: str = "2020-12-31", head: str = "0" * 40) -> str:
    return (
        f'workload = "toy"\nreason = "it is fine"\nauthor = ""\naccepted = {accepted}\n'
        f'until = {until}\nchange_pct = -50.0\nlow_pct = -60.0\nbase = "{head}"\nhead = "{head}"\n'
        f'evidence_sha256 = "{"0" * 64}"\n'
    )


def _policy_waiver(head: str) -> str:
    """Return a waiver by which the declaration of toy becomes the one with this digest."""
    declared = tomllib.loads(workload("toy"))["workloads"]["toy"]
    toy = from_table("toy", declared, Path("flamegate.toml"))
    base = digest_declaration(toy)
    lines = [each for each in _waiver().splitlines() if "pct" not in each and "sha" not in each]
    return "\n".join([*lines, f'declarations = ["{base}", "{head}"]', ""])


NOT_RUN: tuple[tuple[str, str], ...] = (
    ("collect-only", "--collect-only"),
    ("setup-only", "--setup-only"),
    ("setup-plan", "--setup-plan"),
    ("deselected-by-name", "-k nothing"),
    ("deselected-by-marker", '-m "not flamegate"'),
    ("ignored", "--ignore=flamegate.toml"),
    ("deselected", "--deselect=flamegate.toml::toy"),
)
"""Options of pytest in ``addopts`` with which no workload is judged."""

HIDDEN: tuple[tuple[str, str, str], ...] = (
    (
        "build-assumes-unchanged",
        "The build restores the base's source, and has git assume that the file is unchanged.",
        "git update-index --assume-unchanged toy.py",
    ),
    (
        "build-skips-the-worktree",
        "The same with the flag skip-worktree.",
        "git update-index --skip-worktree toy.py",
    ),
    (
        "build-filters-the-file",
        "The same with a filter, through which git reads the file as committed.",
        "git config filter.head.clean 'git show HEAD:%f'\n"
        "echo 'toy.py filter=head' > $(git rev-parse --git-path info/attributes); git add toy.py",
    ),
)
"""Builds that change a file and hide it from git."""

WITHOUT_MEASURING: Sequence[Trick] = (
    *(
        Trick(
            name, f"Adds `{option}` to `addopts`.", _ini(f"addopts = {option}"), "E_NOTHING_GATED"
        )
        for name, option in NOT_RUN
    ),
    Trick(
        "other-tests-only",
        "Names another test file in `addopts`.",
        {**_ini("addopts = test_other.py"), "test_other.py": "def test_it(): pass\n"},
        "E_NOTHING_GATED",
    ),
    *(
        Trick(
            name,
            does,
            {
                **_ini("addopts = test_own.py"),
                "test_own.py": "import pytest\n\n\ndef trivial(prompt, max_tokens):\n"
                "    yield from range(max_tokens)\n\n\n"
                "@pytest.mark.flamegate(tokens_per_second='60%')\ndef test_it(flamegate):\n"
                f"    flamegate.measure(trivial, prompt='', max_tokens=4{more})\n",
            },
            "E_NOTHING_GATED",
        )
        for name, does, more in (
            ("own-measurement-only", "Names a test in `addopts` that measures no workload.", ""),
            ("own-measurement-named", "The same, under the workload's name.", ", name='toy'"),
        )
    ),
    Trick(
        "help",
        "Adds `--help` to `addopts`: pytest prints it and ends.",
        _ini("addopts = --help"),
        GREEN,
        is_alone=True,
    ),
    Trick(
        "collect-ignore",
        "A `conftest.py` has the workload file ignored.",
        _conftest("collect_ignore = ['flamegate.toml']"),
        "E_NOTHING_GATED",
    ),
    Trick(
        "items-removed",
        "A hook of a `conftest.py` removes the workload from the collected items.",
        _hook("collection_modifyitems(items)", "items.clear()"),
        "E_NOTHING_GATED",
    ),
    Trick(
        "skipped-by-hook",
        "A hook marks the workload as skipped.",
        _hook(
            "collection_modifyitems(items)",
            "[item.add_marker(pytest.mark.skip) for item in items]",
        ),
        "E_NOTHING_GATED",
    ),
    Trick(
        "skipped-test",
        "The test of the workload gets a skip marker.",
        {"test_gate.py": _GATE.replace("def ", "@pytest.mark.skip\ndef ")},
        "E_NOTHING_GATED",
        **_BY_TEST,
    ),
    Trick(
        "skip-in-the-test",
        "The test of the workload skips itself when it runs.",
        {"test_gate.py": _GATE.replace("flamegate.run('toy')", "pytest.skip()")},
        "E_NOTHING_GATED",
        **_BY_TEST,
    ),
    Trick(
        "test-renamed",
        "The test of the workload is renamed, so that pytest does not collect it.",
        {"test_gate.py": _GATE.replace("test_gate(", "gate(")},
        "E_NOTHING_GATED",
        **_BY_TEST,
    ),
    Trick(
        "verdict-caught",
        "The test catches the failure of its verdict.",
        {
            "test_gate.py": "def test_gate(flamegate):\n    try:\n        flamegate.run('toy')\n"
            "    except BaseException:\n        pass\n"
        },
        "E_VERDICT_SWALLOWED",
        **_BY_TEST,
    ),
    Trick(
        "expected-failure",
        "A hook marks the workload as expected to fail.",
        _hook(
            "collection_modifyitems(items)",
            "[item.add_marker(pytest.mark.xfail) for item in items]",
        ),
        "E_VERDICT_SWALLOWED",
    ),
    Trick(
        "report-rewritten",
        "A hook rewrites the report of the failed test.",
        _hook(
            "runtest_makereport()",
            "report = yield\n    report.outcome, report.longrepr = 'passed', None\n"
            "    return report",
            wrapper=True,
        ),
        "E_VERDICT_SWALLOWED",
    ),
    Trick(
        "exit-status-rewritten",
        "A hook sets the exit status of the session to 0.",
        _hook("sessionfinish(session)", "session.exitstatus = 0"),
        "E_VERDICT_SWALLOWED",
    ),
    Trick(
        "plugin-unregistered",
        "A `conftest.py` unregisters the plugin.",
        _hook(
            "collection_modifyitems(config)",
            "config.pluginmanager.unregister(name='flamegate-gatekeeper')",
        ),
        GREEN,
    ),
    Trick(
        "plugin-replaced",
        "Turns the plugin off in `addopts`; a `conftest.py` declares its options.",
        {
            **_ini("addopts = -p no:flamegate"),
            **_hook(
                "addoption(parser)",
                "parser.addoption('--flamegate', action='store_true')\n"
                "    parser.addoption('--flamegate-against')",
            ),
            "test_other.py": "def test_it(): pass\n",
        },
        GREEN,
        is_alone=True,
    ),
    Trick(
        "package-patched",
        "A `conftest.py` replaces the function that decides if a verdict fails.",
        _conftest(
            "from pytest_flamegate.gate.verdict import Verdict\n"
            "Verdict.fails_test = lambda *_, **__: False"
        ),
        GREEN,
    ),
    Trick(
        "process-ended",
        "A `conftest.py` ends the process with status 0.",
        _conftest("os._exit(0)"),
        GREEN,
        is_alone=True,
    ),
    Trick(
        "ci-denied",
        "A `conftest.py` removes the variable `CI`, under which undecided verdicts fail.",
        _conftest("os.environ.pop('CI', None)"),
        "inconclusive",
        "inconclusive",
        world=NOISY,
    ),
    Trick(
        "base-tag-moved",
        "A `conftest.py` moves the tag of the base to the head.",
        _conftest("subprocess.run(['git', 'tag', '-f', 'base', 'HEAD'], check=True)"),
        "regressed",
    ),
    Trick(
        "threshold-raised",
        "Raises its own threshold in the workload file.",
        {"flamegate.toml": workload("toy", tokens_per_second='"60%"')},
        GREEN,
    ),
    Trick(
        "threshold-in-settings",
        "Raises the threshold in pytest's configuration file.",
        _ini("flamegate_tokens_per_second = 60%"),
        GREEN,
    ),
    Trick(
        "less-work",
        "Declares fewer tokens and a shorter prompt.",
        {"flamegate.toml": workload("toy", max_tokens="1", prompt='"2"')},
        "E_WORKLOAD_DIFFERS",
    ),
    Trick(
        "cheaper-settings",
        "Turns the profiler off, lowers the budget and says that nothing is strict.",
        _ini("flamegate_profiler = none\nflamegate_budget = 1\nflamegate_strict = false"),
        "regressed",
    ),
    Trick(
        "workload-renamed",
        "Declares the workload under another name.",
        {"flamegate.toml": workload("toys")},
        "regressed",
        "E_REQUIRED_WORKLOAD",
    ),
    Trick(
        "workload-removed",
        "Removes the workload file.",
        {"flamegate.toml": None},
        "E_SAME_CODE",
        "E_REQUIRED_WORKLOAD",
    ),
    Trick(
        "workload-malformed",
        "Declares the workload with an unknown key.",
        {"flamegate.toml": workload("toy", max_token="3")},
        "E_UNKNOWN_KEY",
        "E_UNKNOWN_KEY",
    ),
    Trick(
        "root-moved",
        "Adds a configuration file in a subdirectory, from which the check is called.",
        {"sub/pytest.ini": "[pytest]\n"},
        base={"pytest.ini": "[pytest]\n", "sub/test_one.py": ""},
    ),
    Trick(
        "answers-committed",
        "Commits results of its own: a verdict, a baseline and the answer of a check.",
        {
            ".flamegate/check.json": '{"passed": true}',
            ".flamegate/latest/toy/verdict.json": '{"verdict": "pass"}',
            ".flamegate/baselines/any/toy/baseline.json": "{}",
        },
        "regressed",
    ),
    Trick(
        "noisy-engine",
        "Makes the engine so uneven that nothing can be decided.",
        {},
        "inconclusive",
        "inconclusive",
        world=NOISY,
    ),
    Trick(
        "other-tokens",
        "Generates other, cheaper tokens.",
        {},
        "E_TOKENS_DIFFER",
        "E_TOKENS_DIFFER",
        world={"token_ns": fakes.TOKEN_NS // 2, "tokens": ("9",) * len(TOKENS)},
    ),
    Trick(
        "build-restores-the-base",
        "Declares a build that checks out the base's source before it is measured.",
        {
            "flamegate.toml": workload(
                "toy", build='["git", "checkout", "-q", "base", "--", "toy.py"]'
            )
        },
        GREEN,
        "E_TREE_CHANGED",
        world={},
    ),
    Trick(
        "build-commits-the-base",
        "The same, and the build commits what it has changed.",
        {
            "flamegate.toml": workload(
                "toy",
                build='["sh", "-c", "git checkout -q base -- toy.py && git commit -qm x; true"]',
            )
        },
        GREEN,
        "E_TREE_CHANGED",
        world={},
    ),
    *(
        Trick(
            name,
            does,
            {
                "flamegate.toml": workload("toy", build='["sh", "build.sh"]'),
                "build.sh": f"git show base:toy.py > toy.py\n{hides}\n",
            },
            GREEN,
            "E_TREE_CHANGED",
            world={},
        )
        for name, does, hides in HIDDEN
    ),
    Trick(
        "waiver-written-by-hand",
        "Adds a waiver that nobody measured.",
        {".flamegate/waivers/toy.toml": _waiver(until="2020-12-31")},
        "regressed",
        GREEN,
    ),
    Trick(
        "waiver-of-the-policy",
        "Removes the workload, with a waiver that nobody agreed to.",
        {
            "flamegate.toml": workload("other"),
            ".flamegate/waivers/toy.toml": _policy_waiver(""),
        },
        "regressed",
        GREEN,
    ),
    Trick(
        "waiver-of-another-policy",
        "Removes the workload, with a waiver of another declaration.",
        {
            "flamegate.toml": workload("other"),
            ".flamegate/waivers/toy.toml": _policy_waiver("0" * 64),
        },
        "regressed",
        "E_REQUIRED_WORKLOAD",
    ),
    Trick(
        "waiver-used-again",
        "Edits the reason of a waiver that was merged before.",
        {".flamegate/waivers/toy.toml": _waiver().replace("fine", "better")},
        "regressed",
        base={".flamegate/waivers/toy.toml": _waiver()},
    ),
    Trick(
        "waiver-expired",
        "Adds a waiver that has ended.",
        {".flamegate/waivers/toy.toml": _waiver("2019-01-01", "2019-12-31")},
        "regressed",
    ),
    Trick(
        "waiver-without-end",
        "Adds a waiver that is dated years ahead.",
        {".flamegate/waivers/toy.toml": _waiver("2090-01-01", "2090-12-31")},
        "regressed",
    ),
)

_STOPPED = {
    "helper-process": "A child computes the tokens, and the measured process spins beside it.",
    "helper-orphan": "The same, and the helper is a daemon in a session of its own.",
    "helper-lower-priority": "The same, and the measured process lowers its own priority.",
    "helper-autogroup": "The same, in a scheduling group that gets less of the core.",
    "helper-on-another-core": "The same, and the helper binds itself to the other cores.",
    "process-ahead": "A daemon on another core computes the next answer before it is asked.",
    "thread-ahead": "A thread does that.",
    "raised-priority": "The engine raises its own priority.",
    "real-time-class": "The engine moves itself into a real-time class.",
    "other-core": "The engine moves itself to a core without the base.",
    "after-in-a-child": "The added work runs in a child, after the last token.",
    "after-in-a-thread": "The same, in a thread.",
    "sleeps": "The engine sleeps for a millisecond in each token: no CPU time is used.",
    "sleeps-beside-a-spinner": "The same, while a child of the lowest class keeps the core busy.",
    "build-poisons-bytecode": "The build compiles the slower source into the base's checkout.",
}
_BEYOND_REACH = {
    "memoised": "The added work is done once for each input, and so before the timed runs.",
    "fast-while-measured": "The engine sees that it is measured, by the processes beside it for "
    "example, and leaves the added work out.",
    "slow-when-old": "The engine becomes slower after more tokens than a gate generates.",
    "after-at-exit": "The added work is left to the exit of the process.",
    "build-borrows-the-base": "The build makes its program of the base's source.",
    "build-slows-the-base": "The build copies the slower source into the checkout of the base.",
}
_PARTLY_SEEN = {
    "helper-of-the-parent": "A helper that `clone(CLONE_PARENT)` makes a child of the harness.",
    "child-per-token": "Each token is computed by a child that nobody waits for.",
    "slow-at-random": "One process in eight is several times as slow.",
    "after-in-an-orphan": "The added work runs in a daemon whose parents nobody waits for.",
}


def _measured(name: str, does: str, answer: str) -> Trick:
    if name in engines.BUILDS:
        head = {"build.sh": engines.BUILDS[name], "toy.py": engines.SLOWER}
    elif name in engines.BEYOND_REACH:
        head = {"toy.py": engines.BEYOND_REACH[name]}
    elif name in engines.EQUAL_ENGINES:
        head = {"toy.py": engines.EQUAL + engines.EQUAL_ENGINES[name]}
    else:
        head = {"toy.py": engines.SLOWER + engines.SLOW_ENGINES[name]}
    return Trick(name, does, head, by_check=answer)


_OF_ANOTHER_TREE = {
    "engine-knows-its-path": "Code that was merged before wastes time in a temporary checkout.",
    "ignored-module": "A fast module lies in the clone that is checked, where git ignores it.",
    "ignored-build-product": "So does the program, as a build of the base's source left it.",
}
_ADDS = "does its added work"
_COMMAND = workload("toy", max_tokens="800").replace(
    'target = "toy:generate"', 'engine = "command"'
)
# Not "python3", which may be a script that starts others: what these wait for passes for sleep.
_COMMAND += f'command = ["{sys.executable}", "toy.py", "{{max_tokens}}", "7"]\n'
_COMMAND += 'token_unit = "line"\n'

MEASURED = (
    *(
        Trick(name, does, head, base=base, ignored=ignored)
        for name, does in _OF_ANOTHER_TREE.items()
        for base, head, ignored in [engines.OF_ANOTHER_TREE[name]]
    ),
    *(_measured(name, does, "regressed") for name, does in _STOPPED.items()),
    *(_measured(name, does, GREEN) for name, does in _BEYOND_REACH.items()),
    replace(
        _measured("memoised", "The same, and the policy declares `prompts`.", "regressed"),
        name="memoised-with-prompts",
        base={"flamegate.toml": engines.POLICY.format(prompts=engines.MANY_PROMPTS)},
    ),
    *(_measured(name, does, f"regressed or {GREEN}") for name, does in _PARTLY_SEEN.items()),
    Trick(
        "exec-by-a-thread",
        "A program sleeps; a thread that slept as little as at first then replaces it.",
        {"toy.py": engines.SLEEPING_PROGRAM},
        by_check=f"regressed or E_CLOCK_CONFLICT or {GREEN}",
        base={"toy.py": engines.FAST_PROGRAM, "flamegate.toml": _COMMAND},
    ),
    *(
        Trick(
            name,
            f"A program {place}.",
            {"toy.py": engines.OUTSIDE_OF_DECODE[name]},
            by_check=answer,
            base={"toy.py": engines.EVEN_PROGRAM, "flamegate.toml": _COMMAND},
            budget_s=30,  # four pairs leave a short sleep uncertain
        )
        for name, place, answer in (
            ("before-the-first-token", f"{_ADDS} before its first token", "E_WHOLE_SLOWER"),
            ("sleeps-before-the-first-token", "sleeps before its first token", "E_WHOLE_SLOWER"),
            (
                "sleeps-shortly-before-the-first-token",
                "sleeps for 0.2 s before its first token",
                "E_WHOLE_SLOWER",
            ),
            (
                "starts-at-random",
                f"{_ADDS} before its first token, from none to four times as much",
                f"E_WHOLE_SLOWER or {GREEN}",
            ),
            ("after-the-last-token", f"{_ADDS} after its last token", "E_WHOLE_SLOWER"),
            (
                "leaves-its-tokens-to-a-child",
                "ends after its first tokens; a child that it leaves does the others, slower",
                "regressed or E_WHOLE_SLOWER or E_CLOCK_CONFLICT",
            ),
            (
                "spins-beside-its-children",
                "never sleeps; children of other sessions, which it does not wait for, compute",
                "regressed or E_WHOLE_SLOWER",
            ),
            (
                "sleeps-beside-a-short-thread",
                "sleeps before its first token, and has had a thread of some milliseconds",
                "E_WHOLE_SLOWER",
            ),
            (
                "waits-in-its-decode",
                f"{_ADDS}, and all other work, before its first token; then it only waits",
                "E_WHOLE_SLOWER",
            ),
            ("child-of-a-program", f"{_ADDS} in a child that it waits for", "regressed"),
        )
    ),
    Trick(
        "sleeps-beside-a-starved-child",
        "A program sleeps in each token; its child, which gets no time, is always ready to run.",
        {"toy.py": engines.SLEEPS_BESIDE_A_STARVED_CHILD},
        by_check="regressed",
        base={"toy.py": engines.EVEN_PROGRAM, "flamegate.toml": _COMMAND},
    ),
    Trick(
        "work-of-an-unmarked-orphan",
        "A daemon of a program, without flamegate's mark, takes the core and does added work.",
        {"toy.py": engines.WORK_OF_AN_UNMARKED_ORPHAN},
        by_check=f"regressed or {GREEN}",
        base={"toy.py": engines.EVEN_PROGRAM, "flamegate.toml": _COMMAND},
    ),
    _measured(
        "sleeps-beside-ended-threads",
        "Threads that end do the work, and the engine sleeps for a sixth of the time.",
        f"E_CLOCK_CONFLICT or {GREEN}",
    ),
    _measured(
        "stopped-neighbour",
        "The engine stops the base's process for 20 ms, again and again.",
        f"regressed or E_CLOCK_CONFLICT or E_TIMEOUT or {GREEN}",
    ),
)
"""Tricks of engines and builds, each with its answer on a measurement."""
ALL: Sequence[Trick | Upload] = (*WITHOUT_MEASURING, *MEASURED, *UPLOADS)
