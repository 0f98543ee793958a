"""Commands to copy: to measure again, to accept."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from pytest_flamegate.config.settings import Settings
from pytest_flamegate.gate import Verdict

NOT_ACCEPTABLE = frozenset({"dishonest", "error"})
"""Verdicts of runs that cannot become a baseline."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Commands to copy. They repeat the options that say where to look and how to measure.

    ``as_command`` makes them ``flamegate run`` instead of ``pytest``.
    """

    settings: Settings
    as_command: bool = False

    def again(self, *nodes: str, against: str | None = None) -> str:
        """Return the command that measures ``nodes`` again, or everything.

        ``against`` is the commit that it was compared with: a branch moves, a commit does not.
        """
        injection = self.settings.inject
        return self._command(
            nodes,
            against=against[:12] if against else self.settings.against,
            inject=f"{injection.frame}:+{injection.extra_pct:g}%" if injection else None,
        )

    def accept(self, *nodes: str) -> str:
        """Return the command that measures ``nodes`` and accepts them as the baseline."""
        return f"{self._command(nodes)} --{'' if self.as_command else 'flamegate-'}update"

    def accepts(self, verdict: Verdict) -> bool:
        """Whether a run with this verdict can become the baseline."""
        return verdict.verdict not in NOT_ACCEPTABLE and self.settings.against is None

    def _command(self, nodes: tuple[str, ...], **changing: str | None) -> str:
        settings = self.settings
        own_directory = settings.directory != settings.root / ".flamegate"
        given = {
            "config": settings.config and relative(settings.config, settings.root),
            "dir": relative(settings.directory, settings.root) if own_directory else None,
            **changing,
            "profiler": settings.profiler if settings.profiler != "auto" else None,
        }
        options = {name: value for name, value in given.items() if value}
        if self.as_command:
            words = ["flamegate", "run", *map(_command_name, nodes)]
            return shlex.join([*words, *(f"--{name}={value}" for name, value in options.items())])
        words = ["pytest", *nodes, "--flamegate"]
        words += [f"--flamegate-{name}={value}" for name, value in options.items()]
        return shlex.join(words)


def _command_name(node: str) -> str:
    """Return a workload as ``flamegate run`` takes it; embedded ones keep their prefix."""
    return node if node.startswith("embedded::") else node.rpartition("::")[2]


def relative(path: Path, root: Path) -> str:
    """Return ``path`` as seen from ``root``, absolute if it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
