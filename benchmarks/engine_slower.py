"""A real engine made slower, and whether ``flamegate run --against`` finds it.

Two commits of a repository made for it: SmolLM2 through xllamacpp, and the same with a
callback that hashes for so many percent of a token's CPU time. The sizes take turns, in
random order, so that load meets all of them alike. Each gate is a whole run of the command.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.replay import clopper_pearson_lower, clopper_pearson_upper
from benchmarks.tables import Table

EFFECTS_PCT = (0, 5, 10)
ALLOWED_PCT = 5
TOKENS = 16
ENGINE = Path(__file__).with_name("slower_engine.py")
DECLARED = f"""\
[workloads.smol]
engine = "python"
target = "slower_engine:generate"
prompt = "Once upon a time"
max_tokens = {TOKENS}
tokens_per_second = "{ALLOWED_PCT}%"
"""
START = "from pytest_flamegate.cli import main; raise SystemExit(main())"
_GIT = ("git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")


@dataclass(frozen=True, slots=True)
class Gate:
    """One run: the verdict, what it estimated, the pairs it took, and seconds in all."""

    verdict: str
    slower_pct: float
    pairs: int
    took_s: float


class Repository:
    """Two commits: the engine, and the engine with extra work in every token."""

    def __init__(self, directory: Path, model: Path) -> None:
        self._directory = directory
        shutil.copy(ENGINE, directory)
        (directory / "model.txt").write_text(f"{model}\n")
        (directory / "flamegate.toml").write_text(DECLARED)
        (directory / ".gitignore").write_text("__pycache__\n.flamegate\n")
        self._git("init", "-q")
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "base")
        self._git("branch", "base")
        said = self._run([ENGINE.name, str(TOKENS), "9"])
        self.rounds_a_percent = float(said)

    def make_slower(self, effect_pct: float) -> None:
        """Set the work tree to the base with so many percent of extra work, as one commit."""
        self._git("checkout", "-q", "--detach", "base")
        file = self._directory / ENGINE.name
        rounds = round(effect_pct * self.rounds_a_percent)
        changed = file.read_text().replace("ROUNDS = 0", f"ROUNDS = {rounds}  # changed")
        file.write_text(changed)
        self._git("commit", "-q", "-a", "-m", f"{effect_pct:g} %")

    def gate(self) -> Gate:
        """Run the command against the base."""
        latest = self._directory / ".flamegate"
        shutil.rmtree(latest, ignore_errors=True)
        began = time.monotonic()
        self._run(["-c", START, "run", "--against", "base", "--profiler", "none"], check=False)
        took_s = time.monotonic() - began
        verdict = json.loads((latest / "latest" / "smol" / "verdict.json").read_text())
        return read_gate(verdict, took_s)

    def _git(self, *arguments: str) -> None:
        subprocess.run([*_GIT, *arguments], cwd=self._directory, check=True)

    def _run(self, arguments: Sequence[str], *, check: bool = True) -> str:
        argv = [sys.executable, *arguments]
        done = subprocess.run(
            argv, cwd=self._directory, stdout=subprocess.PIPE, check=check, text=True
        )
        return done.stdout


def read_gate(verdict: Mapping[str, object], took_s: float) -> Gate:
    """Read ``verdict.json``; the slowdown is that of the rate, negative if it is faster."""
    signals = verdict["signals"]
    assert isinstance(signals, list)
    rate = next(each for each in signals if each["name"] == "tokens_per_second")
    return Gate(str(verdict["verdict"]), -rate["change_pct"], int(str(verdict["pairs"])), took_s)


def gates(model: Path, count: int) -> dict[int, list[Gate]]:
    """Return ``count`` gates of each size of slowdown."""
    rng = random.Random(0)
    found: dict[int, list[Gate]] = {effect: [] for effect in EFFECTS_PCT}
    with tempfile.TemporaryDirectory() as name:
        repository = Repository(Path(name), model)
        for _ in range(count):
            for effect in rng.sample(EFFECTS_PCT, len(EFFECTS_PCT)):
                repository.make_slower(effect)
                found[effect].append(repository.gate())
                print(f"{effect} %: {found[effect][-1]}", file=sys.stderr, flush=True)
    return found


def row(effect_pct: int, found: Sequence[Gate]) -> tuple[str, ...]:
    """Return of one size how often it was called slower, with 95 % bounds on the truth."""
    count = sum(gate.verdict == "regressed" for gate in found)
    bounds = (clopper_pearson_lower, clopper_pearson_upper)
    low, high = (bound(count, len(found)) for bound in bounds)
    others = sorted({gate.verdict for gate in found} - {"regressed"})
    return (
        f"{effect_pct} %" if effect_pct else "same code",
        str(len(found)),
        str(count),
        f"{100 * low:.0f} … {100 * high:.0f} %",
        ", ".join(f"{sum(g.verdict == each for g in found)} {each}" for each in others) or "–",
        f"{statistics.median(gate.slower_pct for gate in found):+.1f}",
        f"{statistics.median(gate.pairs for gate in found):g}",
        f"{statistics.median(gate.took_s for gate in found):.0f}",
        f"{max(gate.took_s for gate in found):.0f}",
    )


def table(found: Mapping[int, Sequence[Gate]]) -> Table:
    """Return the verdicts of the gates."""
    head: Iterable[str] = (
        "extra work",
        "gates",
        "called slower",
        "95 % bounds, each",
        "else",
        "slower, %",
        "pairs",
        "s, median",
        "s, most",
    )
    title = f"SmolLM2 through xllamacpp made slower, A/B, tokens_per_second = {ALLOWED_PCT} %"
    return Table(title, tuple(head), tuple(row(effect, found[effect]) for effect in found))
