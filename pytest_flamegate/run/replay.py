"""Run a receipt's workload again here, and compare.

A receipt is foreign, and its recipe may name any program. Only workloads
run that would run here anyway: the embedded engine with its model, and workloads that are
declared here in the very same words. Any other is shown and rejected, unless an option allows
it. Nothing is written: neither artifacts nor history, and no baseline.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pytest_flamegate.config.options import EMBEDDED
from pytest_flamegate.config.settings import Settings
from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import __version__
from pytest_flamegate.core.errors import UndecidedError, UsageError, system_errors
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.core.git import Commit
from pytest_flamegate.core.locks import machine_lock
from pytest_flamegate.core.progress import Progress
from pytest_flamegate.core.text import quote
from pytest_flamegate.engines import engine
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.gate.claimed_rate import compare_claimed_rate
from pytest_flamegate.gate.comparability import machine_differences
from pytest_flamegate.gate.rule import ProcessKind
from pytest_flamegate.models.discover import find_model, read_model_facts
from pytest_flamegate.models.files import require_unchanged
from pytest_flamegate.observe.build import build_workload
from pytest_flamegate.observe.machine import read_identity
from pytest_flamegate.receipt import rerun
from pytest_flamegate.receipt.compose import compose
from pytest_flamegate.receipt.rules.replay import Replayed
from pytest_flamegate.receipt.types import Evidence
from pytest_flamegate.report.evidence import revision_note
from pytest_flamegate.run.measure import measure
from pytest_flamegate.run.prepare import prepare_side
from pytest_flamegate.run.stages import Measured, Prepared

_LONGEST_S = 120.0
"""A foreign time-out counts up to here."""
_LONGEST_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class Replaying:
    """The workloads that may run here, and how; ``entries`` are the project's own.

    ``model`` is a model file that was given by hand. ``untrusted`` lets a receipt's own recipe
    run, whatever program it names.
    """

    settings: Settings
    entries: Sequence[Workload | InvalidWorkload]
    progress: Progress
    model: Path | None = None
    untrusted: bool = False

    def replay(self, receipt_sha256: str, tokens_per_second: float, evidence: Evidence) -> Replayed:
        """Run the workload of ``evidence`` again and compare; the receipt was verified before.

        ``tokens_per_second`` is the rate that the receipt claims. Raises ``UndecidedError`` if the
        workload may not or cannot run here, and as any run does.
        """
        compare = partial(_compare, receipt_sha256, tokens_per_second, evidence)

        def until(measured: Measured) -> tuple[ProcessKind, ...]:
            rate = compare(measured).rate
            # Noise comes in bursts: a rate outside is measured for longer.
            return ("timed",) if rate.here is not None and rate.answer != "inside" else ()

        with system_errors():
            workload, model = self._workload(evidence)
            with machine_lock(self.progress.announce):
                build_workload(workload)
                _require_same_model(workload, model, evidence)
                # Bricks would be clocked for their budgets, and no replay judges one.
                bare = replace(workload, thresholds=Thresholds())
                side = prepare_side(bare, read_identity(), None)
                self.progress.begin(workload.name)
                prepared = Prepared((side,), self.settings.budget_of(workload))
                try:
                    found = compare(measure(prepared, until, self.progress))
                    self.progress.end()
                finally:
                    self.progress.stop()
                return found

    def _workload(self, evidence: Evidence) -> tuple[Workload, Path | None]:
        """Return the workload and its model file, checked for everything but the build."""
        recipe = evidence.workload
        if "::" in str(recipe.get("source")):
            raise UndecidedError(
                "E_REPLAY_IMPOSSIBLE",
                f"{quote(recipe.get('target'))} was measured from within a test, "
                f"{quote(recipe.get('source'))}, and no other process can begin there.",
            )
        if recipe.get("injection") is not None:
            raise UndecidedError(
                "E_REPLAY_IMPOSSIBLE",
                f"Work was injected into the run ({quote(recipe['injection'])}).",
            )
        for each in self.entries:
            if isinstance(each, InvalidWorkload) and each.name == recipe.get("name"):
                raise each.error
        declared = rerun.find_declared(recipe, self._declared, evidence.redacted)
        if declared is not None:
            workload = self._with_model(declared)
        else:
            trusted = self._require_trusted(evidence)
            workload = self._with_model(self._with_project_model(trusted, evidence))
        chosen = engine(workload.engine)
        chosen.validate(workload)
        return workload, chosen.model(workload)

    @property
    def _declared(self) -> list[Workload]:
        return [each for each in self.entries if isinstance(each, Workload)]

    def _require_trusted(self, evidence: Evidence) -> Workload:
        """Return a recipe's own workload as it may run here; raise if it is not trusted."""
        recipe = evidence.workload
        workload = rerun.parse_recipe(recipe, self.settings.root)
        harmless = workload.engine == EMBEDDED and not (workload.env or workload.build)
        if not harmless and not self.untrusted:
            raise UndecidedError(
                "E_REPLAY_UNTRUSTED",
                f"The receipt would run {_would_run(workload)}, and nothing declared here "
                f"does{self._nearest(evidence)}.",
            )
        escaped = [f"env.{name}" for name, value in workload.env.items() if "\\" in value]
        if hidden := [*rerun.find_redacted(recipe), *escaped]:
            raise UndecidedError(
                "E_REPLAY_IMPOSSIBLE",
                f"The evidence does not hold {', '.join(map(quote, hidden))} as it was.",
            )
        return replace(workload, timeout_s=min(workload.timeout_s, _LONGEST_S))

    def _nearest(self, evidence: Evidence) -> str:
        for each in self._declared:
            if each.name == evidence.workload.get("name"):
                found = rerun.find_differences(evidence.workload, each, evidence.redacted)
                return f": {each.name} has another {', '.join(found)}"
        return ""

    def _with_model(self, workload: Workload) -> Workload:
        """Return the workload with the model that was given by hand, if one was."""
        if self.model is None:
            return workload
        named = any("{model}" in part for part in workload.command)
        if workload.engine != EMBEDDED and not named:
            raise UsageError(
                "E_BAD_OPTION",
                f"The program of {quote(workload.name)} does not take its model from flamegate.",
                "Drop --model, and put the model where the program looks for it.",
            )
        return replace(workload, model=str(self.model.absolute()))

    def _with_project_model(self, workload: Workload, evidence: Evidence) -> Workload:
        """Return a foreign workload whose model, if it names one, is a file of this project.

        A pattern is not followed: it could lead anywhere. If there is no such file, the
        usual places are searched.
        """
        if workload.model is None or self.model is not None:
            return workload
        root = self.settings.root
        for named in (workload.model, str(evidence.model.get("path", ""))):
            if is_file(root / named) and real_path(root / named).is_relative_to(real_path(root)):
                return replace(workload, model=str(real_path(root / named)))
        return replace(workload, model=str(find_model(None, root)))


def _require_same_model(workload: Workload, model: Path | None, evidence: Evidence) -> None:
    """Raise if the model here is not the one that the evidence names."""
    facts = read_model_facts(model, workload)
    if facts.get("sha256") != evidence.model_sha256:
        raise UndecidedError(
            "E_REPLAY_OTHER_MODEL",
            f"The model here is {str(facts.get('sha256'))[:12]} ({quote(str(model))}), and the "
            f"evidence names {str(evidence.model_sha256)[:12]} "
            f"({quote(evidence.model.get('path'))}).",
        )


def _compare(
    receipt_sha256: str, tokens_per_second: float, evidence: Evidence, measured: Measured
) -> Replayed:
    (side,) = measured.sides
    subject, observation = side.side.subject, side.observation
    then, version = evidence.flamegate_version, None
    if then != __version__:
        version = f"It was measured with flamegate {quote(then)}, and replayed with {__version__}"
    require_unchanged(side.side.stamps)
    _, here = compose(subject, observation, (), None, None)
    return Replayed(
        receipt_sha256=receipt_sha256,
        processes=len(observation.timed),
        tokens=observation.tokens,
        differs_at=observation.differs_at,
        answers=observation.answers,
        rate=compare_claimed_rate(evidence, here, tokens_per_second),
        version=version,
        commit=_compare_commits(evidence.commit, subject.commit),
        machine=tuple(
            f"{each.field} was {each.baseline} and is {each.current}"
            for each in machine_differences(evidence, here)
        ),
        redacted=tuple(rerun.find_redacted(evidence.workload)),
    )


def _compare_commits(then: Commit | None, now: Commit | None) -> str | None:
    """Describe both commits; None if they hold the very same code, or there is none."""
    if then is None and now is None:
        return None
    if then is not None and now is not None:
        clean = not then.uncommitted and not now.uncommitted
        if clean and (then.revision == now.revision or then.same_code(now)):
            return None
    before, after = (revision_note(commit) or "no commit" for commit in (then, now))
    return f"It was measured at {before}, and replayed at {after}"


def _would_run(workload: Workload) -> str:
    """Describe the command of a recipe, as lists of arguments, with nothing hidden in it."""
    words: dict[str, object] = {
        "command": list(workload.command),
        "target": workload.target,
        "build": list(workload.build),
        "env": dict(workload.env),
        "prompt": workload.all_prompts if workload.command or workload.target else None,
    }
    parts = [f"{name} {_words(value)}" for name, value in words.items() if value]
    return f"the engine {workload.engine} with {', '.join(parts)}"


def _words(value: object) -> str:
    text = json.dumps(value).replace("\x7f", "\\u007f")
    if len(text) <= _LONGEST_SHOWN:
        return text
    return f"{text[:_LONGEST_SHOWN]}... ({len(text):,} characters)"
