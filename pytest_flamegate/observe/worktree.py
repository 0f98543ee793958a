"""The base side of a comparison: the same workload, in the checkout of another revision."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import psutil

from pytest_flamegate.child.sides import Sides
from pytest_flamegate.core import clocks, git
from pytest_flamegate.core.errors import FlamegateError, ToolError, UsageError
from pytest_flamegate.core.files import is_file, real_path
from pytest_flamegate.engines.base import Endpoint, Plan, Served, Streamed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from pytest_flamegate.config.workload import Workload


def make_base_workload(workload: Workload, checkout: Checkout) -> Workload:
    """Return ``workload`` as it is built and run in the checkout.

    Its directory, its build and the paths of its environment are the checkout's. A model
    or tokenizer is if the revision has it; an untracked one is shared by both sides.
    ``ToolError`` ``E_NOT_AT_REVISION`` where the workload's directory did not exist yet.
    """
    sides = Sides(checkout.project, checkout.root)
    directory = checkout.path(workload.directory)
    if not directory.is_dir():
        raise ToolError(
            "E_NOT_AT_REVISION",
            f"The directory {workload.directory.absolute()} of workload {workload.name!r} "
            f"does not exist at {checkout.commit[:12]}.",
            "Compare with a revision that has it; what git ignores or does not track "
            "is at no revision.",
        )
    return replace(
        workload,
        directory=directory,
        build=tuple(_if_there(part, sides) for part in workload.build),
        model=_if_there(workload.model, sides) if workload.model else workload.model,
        tokenizer=_if_there(workload.tokenizer, sides) if workload.tokenizer else None,
        env=MappingProxyType({name: _each(value, sides) for name, value in workload.env.items()}),
    )


def plan_base(plan: Plan, workload: Workload, checkout: Checkout) -> tuple[Plan, Workload]:
    """Return the base side's plan and workload; call it when the base is built.

    Raises what ``workload_at_base`` does, ``UsageError`` ``E_CALL_AT_REVISION`` for a
    callable of this very process, ``E_URL_AT_REVISION`` for a server that runs already, and
    ``ToolError`` ``E_BASE_NOT_BUILT`` where the plan
    runs a program of the project that the checkout does not have.
    """
    based = make_base_workload(workload, checkout)
    sides = Sides(checkout.project, checkout.root)
    if isinstance(plan, Endpoint) and plan.url is not None:
        raise UsageError(
            "E_URL_AT_REVISION",
            f"{workload.node_name} measures a server that runs already ({plan.url}), which is of "
            "no revision.",
            'Have it started for each side: serve = ["program", "--port", "{port}"].',
        )
    if isinstance(plan, Streamed | Endpoint):
        argv = tuple(_argument(part, workload, sides) for part in plan.argv)
        return replace(plan, argv=argv), based
    return _served(plan, workload, sides), based


def _served(plan: Served, workload: Workload, sides: Sides) -> Served:
    if plan.call is not None:
        raise UsageError(
            "E_CALL_AT_REVISION",
            f"{workload.node_name} measures a callable of the running test, which cannot be "
            "had at another revision.",
            'Declare it as a workload: engine = "python", target = "module:function".',
        )
    load = {
        key: _if_there(value, sides) if isinstance(value, str) else value
        for key, value in plan.load.items()
    }
    if "directory" in load:
        load["directory"] = _moved(load["directory"], sides)
    load |= {"project": str(sides.project), "checkout": str(sides.checkout)}
    return replace(plan, load=load)


def _argument(part: str, workload: Workload, sides: Sides) -> str:
    """Return an argument of the command on this side; ``--name=PATH`` is a path as well."""
    name, separator, value = part.partition("=")
    if separator and Path(value).is_absolute():
        return f"{name}={_argument(value, workload, sides)}"
    there = _if_there(part, sides)
    if there == part and _holds(sides, part) and _is_program(Path(part)):
        raise ToolError(
            "E_BASE_NOT_BUILT",
            f"Workload {workload.name!r} runs {part}, which the revision (checked out at "
            f"{sides.checkout}) does not have: the working tree would be compared with itself.",
            "Give the workload a build that makes it, or name the program by a path "
            "that git tracks.",
        )
    return there


def _holds(sides: Sides, value: str) -> bool:
    return Path(value).is_absolute() and sides.holds(Path(value))


def _is_program(path: Path) -> bool:
    """Whether ``path`` is a binary or a script; the permission says too much on some disks."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except (OSError, ValueError):
        return False
    return start == b"\x7fELF" or start.startswith(b"#!")


def _if_there(value: str, sides: Sides) -> str:
    """Return the counterpart of an absolute path of the project, if the checkout has it."""
    moved = _moved(value, sides)
    return moved if os.path.exists(moved) else value  # noqa: PTH110 - it may be no path at all


def _each(value: str, sides: Sides) -> str:
    """Move every whole component that is a path of the project, built already or not."""
    return os.pathsep.join(_moved(part, sides) for part in value.split(os.pathsep))


def _moved(value: str, sides: Sides) -> str:
    moved = sides.moved(Path(value)) if Path(value).is_absolute() else None
    return value if moved is None else str(moved)


_HOME = re.compile(r"flamegate-([0-9a-f]{8})-(\d+)-(\d+)-[a-z0-9_]+")


def make_home() -> Path:
    """Make an empty home for a worktree of this process, under the temporary directory."""
    pid = os.getpid()
    prefix = f"flamegate-{_machine()}-{pid}-{clocks.read_start_ticks(pid) or 0}-"
    return real_path(Path(tempfile.mkdtemp(prefix=prefix)))


def remove_home(home: Path, git_directory: Path) -> None:
    """Remove a home, the worktree in it and what the repository's ``git_directory`` notes of it.

    What is already gone is no failure. ``ToolError`` ``E_WORKTREE_STAYS`` where a file
    cannot be removed.
    """
    for note, worktree in _notes(git_directory):
        if worktree.parent == home:
            _remove_tree(note)
    with contextlib.suppress(OSError):
        # As git does: the directory of notes goes with the last of them.
        (git_directory / "worktrees").rmdir()
    _remove_tree(home)
    if home.exists():
        raise ToolError(
            "E_WORKTREE_STAYS",
            f"The temporary worktree {home} cannot be removed.",
            "Something in it belongs to another user or is mounted; remove it by hand.",
        )


def remove_abandoned_homes(git_directory: Path) -> tuple[Path, ...]:
    """Remove the homes of owners that are dead; return those that cannot be removed.

    They are found in the temporary directory and in the repository's own notes, which
    also know of a home that a restart of the machine has emptied out.
    """
    homes = {worktree.parent for _, worktree in _notes(git_directory)} | set(_beside())
    stay = []
    for home in sorted(homes):
        if not _abandoned(home):
            continue
        try:
            remove_home(home, git_directory)
        except ToolError:
            stay.append(home)
    return tuple(stay)


def _abandoned(home: Path) -> bool:
    """Whether ``home`` is one of ours, of this machine, and its owner is no more."""
    found = _HOME.fullmatch(home.name)
    if found is None or found[1] != _machine():
        return False
    pid, ticks = int(found[2]), int(found[3])
    try:
        if home.lstat().st_uid != os.getuid():
            return False
    except FileNotFoundError:
        pass  # Only the note is left of it.
    except OSError:
        return False
    if not psutil.pid_exists(pid):
        return True
    return ticks != 0 and clocks.read_start_ticks(pid) not in {ticks, None}


def _machine() -> str:
    """Return what tells apart the processes of two machines, or of two containers, with one pid."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{os.uname().nodename} {namespace}".encode()).hexdigest()[:8]


def _beside() -> Iterator[Path]:
    """Yield what stands in the temporary directory under a home's name."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if _HOME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield real_path(Path(entry.path))


def _notes(git_directory: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each linked worktree of a repository: git's directory for it, and the worktree."""
    try:
        notes = sorted((git_directory / "worktrees").iterdir())
    except OSError:
        return
    for note in notes:
        with contextlib.suppress(OSError):
            written = os.fsdecode((note / "gitdir").read_bytes()).rstrip("\n")
            # git may write it relative to its own directory; it names the file .git inside.
            yield note, real_path(note / written).parent


def _remove_tree(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        _open_up(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _open_up(top: Path) -> None:
    """Let the owner write in every directory below: only that decides what can be removed."""
    pending = [top]
    while pending:
        directory = pending.pop()
        with contextlib.suppress(OSError):
            directory.chmod(stat.S_IRWXU)
            with os.scandir(directory) as entries:
                pending += [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]


_ASK_S = 60.0
_CHECKOUT_S = 1800.0
"""Long enough for a large repository whose files still have to come over the network."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SAYS_NOTHING = "Needed a single revision"
_QUIET = (
    # Nothing of the user's runs for a checkout of ours, and nothing of it stays running.
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A worktree of ``commit`` at ``root``, of the repository whose own top is ``project``.

    Use it as a context manager: the worktree is gone at the end. ``notes`` say what the
    reader of a comparison should know about it.
    """

    commit: str
    root: Path
    project: Path
    notes: tuple[str, ...]
    git_directory: Path

    def __enter__(self) -> Checkout:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What went wrong before is what the user has to know.
        with contextlib.suppress(*(() if kind is None else (FlamegateError,))):
            self.close()

    def path(self, path: Path) -> Path:
        """Return where ``path`` lies in the worktree; what both sides share stays as it is."""
        return Sides(self.project, self.root).moved(path) or path

    def close(self) -> None:
        """Remove the worktree and git's note of it; a second time there is nothing to do.

        ``ToolError`` ``E_WORKTREE_STAYS`` where a file cannot be removed.
        """
        remove_home(self.root.parent, self.git_directory)


def open_checkout(directory: Path, rev: str) -> Checkout:
    """Check ``rev`` of the repository around ``directory`` out into a worktree of its own.

    Neither the index nor the working tree of the project is touched, and no branch is made.
    Raises ``E_NO_REPOSITORY``, ``E_REV_UNKNOWN`` or ``E_REV_SHALLOW`` (``UsageError``), and
    ``E_WORKTREE`` (``ToolError``) where git cannot make the worktree.
    """
    project, git_directory = _repository(directory)
    commit, notes = _commit(directory, rev)
    notes += [
        f"{home} of a dead run cannot be removed" for home in remove_abandoned_homes(git_directory)
    ]
    try:
        home = make_home()
    except OSError as error:
        raise _no_worktree(rev, f"no temporary directory: {error.strerror}") from None
    root = home / (project.name or "base")
    try:
        result = git.run(
            directory,
            *_QUIET,
            *("worktree", "add", "--detach", str(root), commit),
            timeout_s=_CHECKOUT_S,
        )
        if result.returncode != 0:
            raise _no_worktree(rev, git.failure_text(result))
    except BaseException:
        with contextlib.suppress(ToolError):
            remove_home(home, git_directory)
        raise
    if is_file(root / ".gitmodules"):
        notes.append("submodules are empty in the checkout; the workload's build may fetch them")
    return Checkout(commit, root, project, tuple(notes), git_directory)


def _repository(directory: Path) -> tuple[Path, Path]:
    """Return the top of the working tree around ``directory``, and git's common directory."""
    try:
        top = git.run(directory, "rev-parse", "--show-toplevel", timeout_s=_ASK_S)
        common = git.run(directory, "rev-parse", "--git-common-dir", timeout_s=_ASK_S)
    except ToolError as error:
        raise _no_repository(directory, error.problem.rstrip(".")) from None
    for result in (top, common):
        if result.returncode != 0:
            raise _no_repository(directory, git.failure_text(result))
    return real_path(Path(git.stdout_text(top))), real_path(directory / git.stdout_text(common))


def _commit(directory: Path, rev: str) -> tuple[str, list[str]]:
    """Return the commit that ``rev`` names, and what git warns of about the name."""
    words = ""
    # No name begins with a dash: git would read it as an option.
    if rev and not rev.startswith("-"):
        # The message searched for in ":/message" goes on to the end.
        name = rev if rev.startswith(":/") else f"{rev}^{{commit}}"
        try:
            result = git.run(directory, "rev-parse", "--verify", name, timeout_s=_ASK_S)
        except ToolError:
            # git starts, or the repository would not be known: this is no name for a command line.
            raise _unknown(directory, rev, words) from None
        commit = git.stdout_text(result)
        if result.returncode == 0 and _COMMIT.fullmatch(commit):
            said = result.stderr.decode("utf-8", "replace").splitlines()
            return commit, [f"git: {line}" for line in said if line.startswith("warning:")]
        if _SAYS_NOTHING not in (told := git.failure_text(result)):
            words = f" ({told})"
    raise _unknown(directory, rev, words)


def _no_repository(directory: Path, words: str) -> UsageError:
    return UsageError(
        "E_NO_REPOSITORY",
        f"There is no git repository with a working tree at {directory}: {words}.",
        "A comparison against a revision needs one; else compare with a stored baseline.",
    )


def _no_worktree(rev: str, words: str) -> ToolError:
    return ToolError(
        "E_WORKTREE",
        f"{rev} cannot be checked out into a worktree of its own: {words}.",
        "Make room or set TMPDIR to a directory with room; "
        "git worktree add in the project shows the same by hand.",
    )


def _unknown(directory: Path, rev: str, words: str) -> UsageError:
    if (
        not rev.startswith("-")
        and git.query(directory, "rev-parse", "--is-shallow-repository") == "true"
    ):
        return UsageError(
            "E_REV_SHALLOW",
            f"{rev!r} names no commit of this shallow clone, which lacks the history.",
            "Fetch it: git fetch --unshallow (for actions/checkout: fetch-depth: 0).",
        )
    if git.query(directory, "rev-parse", "--verify", "HEAD") is None:
        what = f"{rev!r} names no commit: the repository has none yet."
    else:
        what = f"{rev!r} names no commit of the repository around {directory}{words}."
    remedy = "Name a branch, a tag or a commit that git log shows here, or fetch it first."
    if remote := _on_a_remote(directory, rev):
        remedy = f"Did you mean {remote}? There is no local branch of this name."
    return UsageError("E_REV_UNKNOWN", what, remedy)


def _on_a_remote(directory: Path, rev: str) -> str | None:
    """Return the remote's branch of this name: in CI often the only one there is."""
    found = git.query(
        directory, "for-each-ref", "--format=%(refname:short)", f"refs/remotes/*/{rev}"
    )
    return found.splitlines()[0] if found else None
