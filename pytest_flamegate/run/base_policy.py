"""The policy of the base, and how a head would change it.

The judge reads the policy from the base, so that a change cannot relax the check that judges it.
A waiver of the change can let its own declaration of a workload take effect at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_flamegate.config.thresholds import Thresholds
from pytest_flamegate.config.workload import Workload
from pytest_flamegate.core.errors import FlamegateError, UsageError
from pytest_flamegate.core.files import real_path
from pytest_flamegate.core.git import find_top, query
from pytest_flamegate.core.json import encode_json, encode_plain
from pytest_flamegate.core.text import format_value, suggest
from pytest_flamegate.engines.declare import InvalidWorkload
from pytest_flamegate.models.discover import find_model, find_tokenizer
from pytest_flamegate.models.files import model_files
from pytest_flamegate.receipt.compose import recipe
from pytest_flamegate.receipt.rerun import compare_recipes

_DIGEST = 12
SETTINGS = (
    *("profiler", "budget", "config", "dir", "instructions", "strict", "share_drift"),
    *("tokens_per_second", "hotspots", "peak_gflops", "require_grade"),
)
"""The keys of pytest's configuration file that belong to the policy."""

Entry = Workload | InvalidWorkload
Digests = tuple[str, str]
"""Of the declarations of a workload in base and head; the second is empty if there is none."""
_LIMITS = tuple(each.name for each in fields(Thresholds))
_SAME_WORK = {*_LIMITS, "build", "profile", "timeout_s"}
"""Both sides can be compared by the head's declaration if only these differ."""


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """A value of the policy that the head changes; it counts once the change is merged.

    ``workload`` is empty for a setting of the whole run.
    """

    workload: str
    key: str
    base: str
    head: str

    def __str__(self) -> str:
        return f"{self.workload or 'settings'}: {self.key} {self.base} → {self.head}"


@dataclass(frozen=True, slots=True)
class BasePolicy:
    """The workloads that the check measures, and the differences between base and head.

    Attributes:
        required: The base's workloads, to be run in the head's tree. One that the head lacks, or
            declares with an error, is an ``InvalidWorkload``.
        new: The head's workloads that the base does not have.
        changes: What the head declares otherwise than the base.
        differing: The digests of the declarations that differ, by workload, if that of the head
            has no error. A waiver can accept these.
        adopted: The required workloads that are judged by the head's declaration, as accepted.
        dropped: Those of the base that are not compared, as accepted: they are removed, or new.
    """

    required: tuple[Entry, ...]
    new: tuple[Entry, ...] = ()
    changes: tuple[PolicyChange, ...] = ()
    differing: Mapping[str, Digests] = field(default_factory=dict)
    adopted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def compare_policies(
    base: Sequence[Entry],
    head: Sequence[Entry],
    base_name: str,
    place: Callable[[Path], Path],
    accepts: Callable[[str, Digests], bool] | None = None,
) -> BasePolicy:
    """Return the base's workloads as they run in the working tree, and the differences.

    ``place`` returns the counterpart there of a directory of the base. ``accepts`` says whether a
    waiver accepts that the declaration of a workload changes from one to the other.

    A build of the head is used if the base has none: a change may introduce it. Any other key
    counts as the base declares it, unless it is accepted as it is in the head.
    """
    declared = {each.name: each for each in head}
    digest_model = cache(_digest_model)
    required: list[Entry] = []
    new: list[Entry] = []
    changes: list[PolicyChange] = []
    differing: dict[str, Digests] = {}
    adopted, dropped = [], []
    for entry in base:
        found = declared.pop(entry.name, None)
        if isinstance(found, InvalidWorkload):
            required.append(found)
            continue
        contents = _digest_models(entry, found, digest_model)
        digests = digest_declaration(entry, contents[0]), digest_declaration(found, contents[1])
        if digests[0] != digests[1]:
            differing[entry.name] = digests
        is_accepted = accepts is not None and accepts(entry.name, digests)
        keys: set[str] = set()
        if isinstance(entry, Workload) and found is not None:
            own = list(_compare(entry, found))
            if contents[0] != contents[1]:
                short = (each[:_DIGEST] for each in contents)
                own.append(PolicyChange(entry.name, f"content of {entry.model}", *short))
            changes += own
            keys = {each.key for each in own}
        if is_accepted and isinstance(entry, Workload) and found and keys <= _SAME_WORK:
            adopted.append(entry.name)
            required.append(replace(found, directory=place(entry.directory)))
        elif is_accepted:
            dropped.append(entry.name)
            new += [found] if found else []
        elif isinstance(entry, InvalidWorkload):
            required.append(_broken(entry, base_name))
        elif found is None:
            required.append(_missing(entry, list(declared), base_name))
        else:
            build = entry.build or found.build
            directory = place(entry.directory)
            required.append(replace(entry, directory=directory, source=found.source, build=build))
    return BasePolicy(
        tuple(required),
        (*new, *declared.values()),
        tuple(changes),
        differing,
        tuple(adopted),
        tuple(dropped),
    )


def compare_settings(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[PolicyChange]:
    """Return the settings of the policy that differ between two configuration files."""
    return [
        PolicyChange("", f"flamegate_{name}", _show(base.get(name)), _show(head.get(name)))
        for name in SETTINGS
        if base.get(name) != head.get(name)
    ]


def _missing(entry: Workload, others: Sequence[str], base_name: str) -> InvalidWorkload:
    error = UsageError(
        "E_REQUIRED_WORKLOAD",
        f"{base_name} requires the workload {entry.name!r}, and the head does not declare it.",
        f"Declare it again. {_accept_advice(entry.name)} "
        f"{suggest(entry.name, others) if others else ''}".rstrip(),
    )
    return InvalidWorkload(entry.name, error, None)


def _broken(entry: InvalidWorkload, base_name: str) -> InvalidWorkload:
    """Return the error of a declaration in the base that the head mends."""
    problem = f"{base_name} declares it with an error: {entry.error.problem}"
    error = UsageError(entry.error.code, problem, _accept_advice(entry.name))
    return InvalidWorkload(entry.name, error, None)


def _accept_advice(name: str) -> str:
    return (
        "If the head is meant, accept its policy, not compared: "
        f"flamegate accept {name} --reason TEXT --until DATE."
    )


def digest_declaration(entry: Entry | None, model: str = "") -> str:
    """Return the digest of everything that a declaration chooses; ``model`` is that of its content.

    For a declaration with an error it is that of the error; it is empty if there is none.
    """
    if entry is None:
        return ""
    if isinstance(entry, InvalidWorkload):
        # Without file and line, which other changes of the file move.
        content: object = [entry.error.code, entry.error.problem.partition(": ")[2]]
    else:
        content = encode_plain({**_list_keys(entry), "source": "", "": model})
    return hashlib.sha256(encode_json(content)).hexdigest()


def _compare(base: Workload, head: Workload) -> Iterator[PolicyChange]:
    for name, old, new in compare_recipes(_list_keys(base), _list_keys(head)):
        if name != "source":
            yield PolicyChange(base.name, name, _show(old), _show(new))


def _digest_models(
    base: Entry, head: Entry | None, digest_model: Callable[[str | None, Path], str]
) -> tuple[str, str]:
    """Return the digests of both models' content; empty if that of one is not known.

    The head may be the working tree, which has files that git does not track and a checkout lacks.
    """
    if not isinstance(base, Workload) or not isinstance(head, Workload):
        return "", ""
    old, new = (digest_model(each.model, each.directory) for each in (base, head))
    return (old, new) if old and new else ("", "")


def _digest_model(model: str | None, directory: Path) -> str:
    """Return a digest of the declared model's files as git tracks them; empty if there are none.

    They are the file or the files of the directory, the other parts, the tokenizer, and what links
    among them lead to in the repository. What git does not track is the same for both sides.
    """
    top = find_top(directory) if model else None
    if not model or not top:
        return ""
    found = [directory / model]
    if found[0].is_dir():
        found += [each for each in found[0].rglob("*") if each.is_symlink()]
    else:
        with suppress(FlamegateError):
            found += model_files(find_model(model, directory))
            found.append(find_tokenizer(directory, found[-1]))
    paths = {real_path(each) for each in found}
    inside = [f":(literal){each}" for each in paths if each.is_relative_to(real_path(top))]
    listed = query(top, "ls-files", "-s", "-z", "--", *inside) if inside else ""
    objects = [entry.split()[1] for entry in (listed or "").split("\0") if entry]
    return hashlib.sha256(" ".join(objects).encode()).hexdigest() if objects else ""


def _list_keys(workload: Workload) -> dict[str, object]:
    """Return everything that a declaration chooses."""
    limits = {name: getattr(workload.thresholds, name) for name in _LIMITS}
    return {**recipe(workload), "profile": workload.sampling, **limits}


def _show(value: object) -> str:
    if value in (None, []):
        return "(none)"
    if isinstance(value, Mapping):
        return format_value({key: str(each) for key, each in value.items()})
    return format_value(value) if isinstance(value, str | int | float | list) else str(value)
