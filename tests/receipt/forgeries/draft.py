"""One measurement as somebody holds it who wants to change it: documents and stacks.

Whoever forges recomputes what costs one recomputation: figures from the runs, hotspots
from the stacks, every digest. The same hands make the honest receipts of ``test_honest.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any

from pytest_flamegate.core.errors import ToolError
from pytest_flamegate.core.json import decode_plain, encode_plain
from pytest_flamegate.engines.tokens import token_digest
from pytest_flamegate.profile.frames import parse_folded
from pytest_flamegate.profile.hotspots import rank_hotspots
from pytest_flamegate.profile.model import Profile
from pytest_flamegate.receipt.metrics import cost_of, figures, overhead_pct, value_of
from pytest_flamegate.receipt.types import Evidence
from tests.receipt.documents import DATA

PRODUCED = DATA / "produced"
NAMES = tuple(sorted(path.name for path in PRODUCED.iterdir() if path.is_dir()))
"""The stored measurements, which the product made."""
RECEIPT, EVIDENCE, FOLDED = "receipt.json", "evidence.json", "profile.folded"

Files = Mapping[str, bytes]


@dataclass(slots=True)
class Draft:
    """A receipt, its evidence, and its stacks: folded path to samples; all to be changed."""

    receipt: dict[str, Any]
    evidence: dict[str, Any]
    stacks: dict[str, int]

    @property
    def runs(self) -> list[dict[str, Any]]:
        return list(self.evidence["runs"])

    @property
    def timed(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["role"] == "timed"]

    @property
    def profiled(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["role"] == "profiled"]

    @property
    def profile(self) -> dict[str, Any]:
        found: dict[str, Any] = self.evidence["profile"]
        return found

    @property
    def created(self) -> datetime:
        """When the evidence says that it was written."""
        return datetime.fromisoformat(self.evidence["created"])

    def metric(self, name: str) -> dict[str, Any]:
        return next(each for each in self.evidence["metrics"] if each["name"] == name)

    def retime(self) -> Draft:
        """Compute every figure anew from the runs, and the rate that the receipt claims."""
        seen = decode_plain(self.evidence, Evidence)
        if self.evidence["profile"] and self.profile["overhead_pct"] is not None:
            self.profile["overhead_pct"] = overhead_pct(seen.runs, seen.clock_scope)
        counted = [encode_plain(each) for each in seen.metrics if each.provenance == "counted"]
        prompt_tokens = self._prompt_tokens(seen)
        try:
            timed = [run for run in seen.runs if run.role == "timed"]
            found = figures(timed, seen.clock_scope, prompt_tokens)
        except ToolError:
            return self  # without a rate the old figures stay
        self.evidence["metrics"] = [*map(encode_plain, found), *counted]
        rate = value_of(found, "tokens_per_second")
        assert rate is not None
        self.receipt["tokens_per_second"] = rate
        return self

    def recount(self) -> Draft:
        """Compute hotspots, kernels' counts and samples anew from the stacks."""
        seen = decode_plain(self.evidence, Evidence)
        stacks = parse_folded(self.folded.decode())
        assert seen.profile is not None
        covers = seen.profile.covers
        counted = Profile("", "", "", "", stacks, covers=covers)
        spots = rank_hotspots(counted, cost_of(covers, seen.metrics))
        self.profile["hotspots"] = [encode_plain(spot) for spot in spots]
        self.profile["samples"] = counted.samples
        own = {spot.name: spot.self_samples for spot in spots}
        self._deal({name: count for name, count in own.items() if count})
        for sighting in self.evidence["kernels"]:
            if sighting["source"] == "profile":
                sighting["count"] = own.get(sighting["name"], 0)
        return self

    def rename(self, old: str, new: str) -> Draft:
        """Call the function ``old`` ``new`` wherever it stands."""
        self.stacks = {
            ";".join(new + part[len(old) :] if part.startswith(f"{old} ") else part
                     for part in path.split(";")): count
            for path, count in self.stacks.items()
        }  # fmt: skip
        self.receipt["kernels"] = [new if k == old else k for k in self.receipt["kernels"]]
        for entry in (*self.evidence["kernels"], *self.profile["hotspots"]):
            entry["name"] = new if entry["name"] == old else entry["name"]
        for process in self.profile["processes"]:
            own = process["self_samples"]
            process["self_samples"] = {new if n == old else n: c for n, c in own.items()}
        return self

    @property
    def folded(self) -> bytes:
        """The stacks as folded text."""
        return "".join(sorted(f"{path} {n}\n" for path, n in self.stacks.items())).encode()

    def reseal(self) -> Draft:
        """Put every digest right: of the tokens, the profile and the receipt."""
        if self.evidence["profile"]:
            self.profile["folded_sha256"] = sha256(self.folded)
        self.evidence["receipt_sha256"] = sha256(encode(self.receipt))
        return self

    def retoken(self, tokens: list[str]) -> Draft:
        """Show other tokens, with their digest in the evidence and in every run."""
        old = self.evidence["token_digest"]
        self.evidence |= {"tokens": tokens, "token_digest": token_digest(tokens)}
        for run in self.runs:
            if run["token_digest"] == old:
                run["token_digest"] = self.evidence["token_digest"]
        return self

    def files(self) -> Files:
        """Return the three files as they stand."""
        return {
            RECEIPT: encode(self.receipt),
            EVIDENCE: encode(self.evidence),
            FOLDED: self.folded,
        }

    def _prompt_tokens(self, seen: Evidence) -> int | None:
        """Return how long the prompt was, as the figures give it."""
        rate = value_of(seen.metrics, "prefill_tokens_per_second")
        first_ms = value_of(seen.metrics, "time_to_first_token_ms")
        return None if rate is None or first_ms is None else max(1, round(rate * first_ms / 1e3))

    def _deal(self, own: Mapping[str, int]) -> None:
        """Deal the pooled samples out to the processes, as evenly as their samples stood."""
        processes = self.profile["processes"]
        weights = [max(1, process["samples"]) for process in processes]
        dealt: list[Counter[str]] = [Counter() for _ in processes]
        for name, count in own.items():
            left, weight = count, sum(weights)
            for index, part in enumerate(weights):
                share = left if index == len(weights) - 1 else left * part // weight
                dealt[index][name] += share
                left, weight = left - share, weight - part
        for process, samples in zip(processes, dealt, strict=True):
            process["self_samples"] = {name: n for name, n in sorted(samples.items()) if n}
            process["samples"] = sum(samples.values())


def blocks(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every block of ``runs``."""
    return [block for run in runs for block in run["blocks"]]


def map_gaps(block: dict[str, Any], change: Callable[[int], int]) -> None:
    """Change each token time of a block."""
    block["sequences_ns"] = [[change(gap) for gap in gaps] for gaps in block["sequences_ns"]]


def intervals(block: dict[str, Any], *, reference: bool = False) -> list[dict[str, Any]]:
    """Return the intervals of a block, without its reference kernel unless asked for."""
    names = ("interval", "decode", "reference") if reference else ("interval", "decode")
    return [block[name] for name in names if block.get(name)]


def load(name: str) -> Draft:
    """Return a fresh copy of the kept measurement ``name``."""
    files = _read(name)
    lines = files[FOLDED].decode().splitlines()
    stacks = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    return Draft(json.loads(files[RECEIPT]), json.loads(files[EVIDENCE]), stacks)


@cache
def _read(name: str) -> Files:
    return {file: (PRODUCED / name / file).read_bytes() for file in (RECEIPT, EVIDENCE, FOLDED)}


def encode(document: object) -> bytes:
    """Return ``document`` as JSON; values beyond JSON are written Python's way."""
    return json.dumps(document).encode("utf-8", "surrogatepass")


def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def stamp(moment: datetime) -> str:
    """Return ``moment`` as the product writes it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shift(draft: Draft, by: timedelta) -> Draft:
    """Move every date by ``by``."""
    draft.receipt["timestamp"] = stamp(datetime.fromisoformat(draft.receipt["timestamp"]) + by)
    draft.evidence["created"] = stamp(draft.created + by)
    for run in draft.runs:
        run["started_at"] = stamp(datetime.fromisoformat(run["started_at"]) + by)
    return draft


def hexadecimal(source: Random, digits: int) -> str:
    """Return a digest of nothing."""
    return f"{source.getrandbits(4 * digits):0{digits}x}"
