"""Check revisions out into temporary worktrees, and move a workload into one of them."""

from __future__ import annotations

import contextlib
import os
import random
import re
import secrets
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from pytest_flamegate.child.relocation import TreePair
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core import git
from pytest_flamegate.core.errors import ToolError, UsageError, reason_of
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.engines.base import Endpoint, Plan, Streamed
from pytest_flamegate.observe import scratch

_QUERY_S = 60.0
_CHECKOUT_S = 1800.0
"""Long enough for a large repository whose files have to come over the network."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_BRANCH = re.compile(r"[\w./-]{1,200}", re.ASCII)
_NO_DETAILS = "Needed a single revision"
_QUIET = (
    # No hook and no service of the user runs for our checkout or outlives it.
    *("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
)
_NO_LFS = ("smudge=", "process=", "required=false")


def move_workload(workload: Workload, checkout: Checkout) -> Workload:
    """Return ``workload`` as it is built and run in the checkout.

    Directory, build and paths of the environment move into the checkout; a model or tokenizer
    moves if the revision has it, else it is the project's. Raises ``ToolError``
    ``E_NOT_AT_REVISION`` if the revision does not have the workload's directory.
    """
    sides = checkout.sides
    directory = checkout.move_path(workload.directory)
    if not directory.is_dir():
        raise ToolError(
            "E_NOT_AT_REVISION",
            f"The directory {workload.directory.absolute()} of workload {workload.name!r} "
            f"does not exist at {checkout.commit[:12]}.",
        )
    env = {
        name: os.pathsep.join(sides.relocate_text(part) for part in value.split(os.pathsep))
        for name, value in workload.env.items()
    }
    return replace(
        workload,
        directory=directory,
        build=tuple(map(checkout.move_existing, workload.build)),
        model=checkout.move_existing(workload.model) if workload.model else workload.model,
        tokenizer=checkout.move_existing(workload.tokenizer) if workload.tokenizer else None,
        env=MappingProxyType(env),
    )


def move_plan(plan: Plan, workload: Workload, checkout: Checkout) -> Plan:
    """Return ``plan`` as it runs in the checkout; call it when that is built.

    Raises ``UsageError`` ``E_URL_AT_REVISION`` for a server that runs already, and ``ToolError``
    ``E_BASE_NOT_BUILT`` if the checkout lacks the project's program that runs.
    """
    if isinstance(plan, Endpoint) and plan.url is not None:
        raise UsageError(
            "E_URL_AT_REVISION",
            f"{workload.node_name} measures a server that runs already ({plan.url}) and belongs "
            "to no revision.",
        )
    if isinstance(plan, Streamed | Endpoint):
        argv = tuple(_move_argument(part, workload, checkout) for part in plan.argv)
        return replace(plan, argv=argv)
    load = {
        key: checkout.move_existing(value) if isinstance(value, str) else value
        for key, value in plan.load.items()
    }
    if "directory" in load:
        load["directory"] = checkout.sides.relocate_text(load["directory"])
    load["projects"] = [str(each) for each in (checkout.project, *checkout.others)]
    load["checkout"] = str(checkout.root)
    return replace(plan, load=load)


def _move_argument(part: str, workload: Workload, checkout: Checkout) -> str:
    """Return an argument of the command in the checkout; ``--name=PATH`` holds a path too."""
    name, separator, value = part.partition("=")
    if separator and Path(value).is_absolute():
        return f"{name}={_move_argument(value, workload, checkout)}"
    moved = checkout.move_existing(part)
    is_of_project = Path(part).is_absolute() and checkout.sides.relocate(Path(part)) is not None
    if moved == part and is_of_project and _is_program(Path(part)):
        raise ToolError(
            "E_BASE_NOT_BUILT",
            f"Workload {workload.name!r} runs {part}, which the revision (checked out at "
            f"{checkout.root}) does not have: both sides would run the same program.",
        )
    return moved


def _is_program(path: Path) -> bool:
    """Return whether ``path`` is a binary or a script; on some disks every file is executable."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except (OSError, ValueError):
        return False
    return start == b"\x7fELF" or start.startswith(b"#!")


def remove_home(home: Path, project: Path) -> None:
    """Remove a home, its worktrees and git's records of them; ``ToolError`` ``E_WORKTREE``."""
    scratch.remove_tree(home)
    for root in _list_worktrees(project):
        if home in root.parents:
            # Not prune: it forgets the user's worktrees on a disk that is not mounted now.
            git.run(project, "worktree", "remove", "-f", "-f", str(root))
    if home.exists():
        raise ToolError(
            "E_WORKTREE",
            f"The temporary worktree {home} cannot be removed.",
            "Something in it belongs to another user or is mounted; remove it by hand.",
        )


def remove_abandoned_homes(project: Path) -> tuple[Path, ...]:
    """Remove the homes of dead processes; return those that cannot be removed.

    They are found in the temporary directory and in the repository's records, which also name a
    home that a restart of the machine has emptied.
    """
    recorded = {home for root in _list_worktrees(project) for home in root.parents}
    stay = []
    for home in filter(scratch.is_abandoned, sorted(recorded.union(scratch.list_scratch()))):
        try:
            remove_home(home, project)
        except ToolError:
            stay.append(home)
    return tuple(stay)


def _list_worktrees(project: Path) -> list[Path]:
    lines = git.stdout_text(git.run(project, "worktree", "list", "--porcelain")).splitlines()
    return [Path(line[9:]) for line in lines if line.startswith("worktree ")]


@dataclass(frozen=True, slots=True)
class Checkout:
    """A worktree of ``commit`` at ``root``, of the repository ``project``.

    Attributes:
        home: The temporary directory that it lies in.
        others: The roots of the worktrees that were made together with it.
        shared: The paths that these do not have all: each side uses the project's file.
    """

    commit: str
    root: Path
    project: Path
    home: Path
    notes: tuple[str, ...] = ()
    others: tuple[Path, ...] = ()
    shared: frozenset[str] = frozenset()

    @property
    def sides(self) -> TreePair:
        """The project and the worktree."""
        return TreePair(self.project, self.root)

    def move_path(self, path: Path) -> Path:
        """Return ``path`` in the worktree, or unchanged if both sides share it."""
        return self.sides.relocate(path) or path

    def move_existing(self, text: str) -> str:
        """Return the counterpart of an absolute path of the project, if the worktree has it."""
        moved = text if text in self.shared else self.sides.relocate_text(text)
        return moved if os.path.exists(moved) else text  # noqa: PTH110 - it may be no path at all

    def close(self) -> None:
        """Remove the worktree, those made with it and git's records; ``ToolError`` E_WORKTREE."""
        remove_home(self.home, self.project)


def open_checkout(directory: Path, rev: str, *, lfs: bool = True) -> Checkout:
    """Check ``rev`` of the repository around ``directory`` out into a worktree of its own.

    The index, the working tree and the branches of the project stay as they are. Without ``lfs``
    the large files of git LFS stay pointers, and none is fetched. Raises
    ``UsageError`` (``E_NO_REPOSITORY``, ``E_REV_UNKNOWN``, ``E_REV_SHALLOW``), and ``ToolError``
    ``E_WORKTREE`` if git cannot make the worktree.
    """
    return open_checkouts(directory, rev, lfs=lfs)[0]


def open_checkouts(directory: Path, *revs: str, lfs: bool = True) -> tuple[Checkout, ...]:
    """Check each of ``revs`` out as ``open_checkout`` does, all below one temporary directory.

    Their names and the order in which they are made are drawn at random, and the names are of
    equal length: the place of a worktree does not show which revision it holds.
    """
    project = _find_project(directory)
    resolved = [_resolve_commit(directory, rev) for rev in revs]
    stay = [f"{home} of a dead run cannot be removed" for home in remove_abandoned_homes(project)]
    try:
        home = real_path(Path(tempfile.mkdtemp(prefix=scratch.scratch_prefix())))
    except OSError as error:
        raise _worktree_error(revs[0], f"no temporary directory: {reason_of(error)}") from None
    roots = [home / secrets.token_hex(4) / (project.name or "tree") for _ in revs]
    more = () if lfs else (word for each in _NO_LFS for word in ("-c", f"filter.lfs.{each}"))
    quiet = (*_QUIET, *more)
    try:
        for each in random.SystemRandom().sample(range(len(revs)), len(revs)):
            command = (*quiet, "worktree", "add", "--detach", str(roots[each]), resolved[each][0])
            result = git.run(directory, *command, timeout_s=_CHECKOUT_S)
            if result.returncode != 0:
                raise _worktree_error(revs[each], git.failure_text(result))
    except BaseException:
        with contextlib.suppress(ToolError):
            remove_home(home, project)
        raise
    found = []
    for root, (commit, notes) in zip(roots, resolved, strict=True):
        notes += stay
        if is_file(root / ".gitmodules"):
            notes.append(
                "submodules are empty in the checkout; the workload's build may fetch them"
            )
        others = tuple(each for each in roots if each != root)
        found.append(Checkout(commit, root, project, home, tuple(notes), others))
    return tuple(found)


def require_commit(directory: Path, rev: str) -> None:
    """Raise the ``UsageError`` of ``open_checkout`` for ``rev``, and make nothing."""
    _find_project(directory)
    _resolve_commit(directory, rev)


def _find_project(directory: Path) -> Path:
    """Return the top of the working tree around ``directory``."""
    try:
        result = git.run(directory, "rev-parse", "--show-toplevel", timeout_s=_QUERY_S)
        details = git.failure_text(result) if result.returncode != 0 else ""
    except ToolError as error:
        details = error.problem.rstrip(".")
    if details:
        raise UsageError(
            "E_NO_REPOSITORY",
            f"There is no git repository with a working tree at {directory}: {details}.",
        )
    return real_path(directory / git.stdout_text(result))


def _resolve_commit(directory: Path, rev: str) -> tuple[str, list[str]]:
    """Return the commit that ``rev`` names, and git's warnings about the name."""
    details = ""
    # No name begins with a dash: git would read it as an option.
    if rev and not rev.startswith("-"):
        # In ":/message" the message to search for extends to the end.
        name = rev if rev.startswith(":/") else f"{rev}^{{commit}}"
        try:
            result = git.run(directory, "rev-parse", "--verify", name, timeout_s=_QUERY_S)
        except ToolError:
            # git starts, as the repository was found: this name fits no command line.
            raise _unknown_rev_error(directory, rev, details) from None
        commit = git.stdout_text(result)
        if result.returncode == 0 and _COMMIT.fullmatch(commit):
            lines = result.stderr.decode("utf-8", "replace").splitlines()
            return commit, [f"git: {line}" for line in lines if line.startswith("warning:")]
        if _NO_DETAILS not in (text := git.failure_text(result)):
            details = f" ({text})"
    raise _unknown_rev_error(directory, rev, details)


def _worktree_error(rev: str, details: str) -> ToolError:
    return ToolError(
        "E_WORKTREE", f"{rev} cannot be checked out into a worktree of its own: {details}."
    )


def _fetch_command(directory: Path, rev: str) -> str:
    """Return the command that brings ``rev`` into a shallow clone: one commit is enough."""
    if _COMMIT.fullmatch(rev):
        return f"git fetch --depth=1 origin {rev}"
    remote, _, branch = rev.partition("/")
    remotes = (git.query(directory, "remote") or "").split()
    if remote in remotes and _BRANCH.fullmatch(branch):
        return f"git fetch --depth=1 {remote} +refs/heads/{branch}:refs/remotes/{rev}"
    return "git fetch --unshallow"


def _unknown_rev_error(directory: Path, rev: str, details: str) -> UsageError:
    if (
        not rev.startswith("-")
        and git.query(directory, "rev-parse", "--is-shallow-repository") == "true"
    ):
        return UsageError(
            "E_REV_SHALLOW",
            f"{rev!r} names no commit of this shallow clone, which lacks the history.",
            f"Fetch it: {_fetch_command(directory, rev)} (for actions/checkout: fetch-depth: 0).",
        )
    if git.query(directory, "rev-parse", "--verify", "HEAD") is None:
        problem = f"{rev!r} names no commit: the repository has none yet."
    else:
        problem = f"{rev!r} names no commit of the repository around {directory}{details}."
    remedy = "Name a branch, a tag or a commit that git log shows here, or fetch it first."
    # CI often has only the remote's branch of this name.
    places = ("for-each-ref", "--format=%(refname:short)", f"refs/remotes/*/{rev}")
    if remotes := git.query(directory, *places):
        remedy = f"Did you mean {remotes.splitlines()[0]}? There is no local branch of this name."
    return UsageError("E_REV_UNKNOWN", problem, remedy)
