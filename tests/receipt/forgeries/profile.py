"""Forged profiles: the stacks, their counts, their processes and the hotspots made of them."""

from random import Random

from tests.receipt.forgeries.book import LONG, PROGRAM, SERVED, Book
from tests.receipt.forgeries.draft import FOLDED, Draft, Files, sha256
from tests.receipt.forgeries.reports import by_word

BOOK = Book("profile")
SAMPLED = ("embedded-10tok", "program")
"""Material whose profiled runs are long enough to say how many samples they should have."""


def hottest(draft: Draft) -> str:
    """Return the path that has the most samples."""
    return max(draft.stacks, key=lambda path: draft.stacks[path])


def move(draft: Draft, source: Random) -> None:
    """Give most of the hottest stack's samples to another stack."""
    hot = hottest(draft)
    other = source.choice([path for path in draft.stacks if path != hot])
    moved = round(draft.stacks[hot] * source.uniform(0.3, 0.95))
    draft.stacks[hot] -= moved
    draft.stacks[other] += moved


@BOOK.refused("E_RECEIPT_CHANGED")
def stacks_edited(draft: Draft, source: Random) -> Files:
    """Moves samples away from the hot function and leaves the seal as it is."""
    sealed = draft.reseal().folded
    move(draft, source)
    return {**sealed_text(draft.recount(), sealed), FOLDED: draft.folded}


@BOOK.refused("E_PROFILE_CONTRADICTION")
def samples_of_the_record_raised(draft: Draft, source: Random) -> None:
    """Says that there were more samples than the stacks hold: the shares seem certain."""
    draft.profile["samples"] *= source.randint(2, 50)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def samples_diluted(draft: Draft, source: Random) -> None:
    """Adds samples of nothing to record and processes alike, so that every share is smaller."""
    before = draft.profile["samples"]
    extra = source.randint(1, before // 2)
    draft.profile["samples"] += extra
    source.choice(draft.profile["processes"])["samples"] += extra
    for spot in draft.profile["hotspots"]:
        for name in ("self_share", "inclusive_share", "cpu_s_per_token"):
            spot[name] *= before / draft.profile["samples"]


@BOOK.refused("E_PROFILE_CONTRADICTION")
def stacks_left_out(draft: Draft, source: Random) -> None:
    """Leaves out the stacks of the slower functions and seals the rest."""
    path = source.choice([path for path in draft.stacks if path != hottest(draft)])
    del draft.stacks[path]
    draft.profile["hotspots"] = []
    draft.receipt["kernels"] = draft.receipt["kernels"][:1]
    draft.evidence["kernels"] = draft.evidence["kernels"][:1]
    draft.evidence["kernels"][0]["count"] = 1


@BOOK.refused("E_PROFILE_CONTRADICTION")
def samples_of_a_process_raised(draft: Draft, source: Random) -> None:
    """Gives one process more samples by name than it has in all."""
    own = source.choice(draft.profile["processes"])["self_samples"]
    own[source.choice(list(own))] += source.randint(1, 10**6)


@BOOK.refused("E_PROFILE_CONTRADICTION", then="recount")
def samples_multiplied(draft: Draft, source: Random) -> None:
    """Multiplies every count alike, so that small differences seem certain."""
    factor = source.randint(8, 1000)
    draft.stacks = {path: count * factor for path, count in draft.stacks.items()}


@BOOK.refused("E_PROFILE_CONTRADICTION")
def samples_without_a_rate(draft: Draft, source: Random) -> None:
    """Multiplies every count and says that the profiler had no rate."""
    samples_multiplied(draft, source)
    draft.profile["rate_hz"] = 0


@BOOK.suspected("W_FEW_SAMPLES", of=SAMPLED)
def rate_raised(draft: Draft, source: Random) -> None:
    """Says that it sampled more often than it did, so that nothing short seems to be missing."""
    draft.profile["rate_hz"] *= source.randint(6, 20)


@BOOK.lowered("W_FEW_SAMPLES", of=SAMPLED)
def rate_raised_beyond_measure(draft: Draft, source: Random) -> None:
    """Says that it sampled a hundred times as often as it did."""
    draft.profile["rate_hz"] *= source.randint(100, 1000)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def hotspot_invented(draft: Draft, source: Random) -> None:
    """Adds a hotspot that is in no stack, where a budget is to be charged to it."""
    spot = dict(draft.profile["hotspots"][0])
    spot["name"] = f"prefetch_{source.randrange(10**6)}"
    draft.profile["hotspots"].append(spot)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def hotspot_raised(draft: Draft, source: Random) -> None:
    """Gives a hotspot of the baseline more samples than its stacks, so that drift is allowed."""
    spot = source.choice(draft.profile["hotspots"])
    spot["inclusive_samples"] += source.randint(1, 1000)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def share_lowered(draft: Draft, source: Random) -> None:
    """Lowers the share and the cost of the hot function, and leaves its samples."""
    spot = draft.profile["hotspots"][0]
    factor = source.uniform(0.1, 0.8)
    for name in source.choice([("self_share", "cpu_s_per_token"), ("inclusive_share",)]):
        spot[name] *= factor


@BOOK.refused("E_PROFILE_CONTRADICTION")
def cost_lowered(draft: Draft, source: Random) -> None:
    """Lowers the cost of the hot function per token, so that its larger share is excused."""
    draft.profile["hotspots"][0]["cpu_s_per_token"] *= source.uniform(0.1, 0.9)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def cost_left_out(draft: Draft, source: Random) -> None:
    """Leaves out the cost of one function, so that only its share is compared."""
    source.choice(draft.profile["hotspots"])["cpu_s_per_token"] = None


@BOOK.refused("E_PROFILE_CONTRADICTION")
def hotspot_of_another_file(draft: Draft, source: Random) -> None:
    """Says that the hot function lies in a library, or runs in the kernel."""
    name, value = source.choice([("module", "libc.so.6"), ("kind", "system")])
    draft.profile["hotspots"][0][name] = value


@BOOK.refused("E_PROFILE_CONTRADICTION")
def hotspots_reordered(draft: Draft, source: Random) -> None:
    """Moves the hot function to the end: pages and terminals show the first three."""
    spots = draft.profile["hotspots"]
    spots.append(spots.pop(source.randrange(2)))


@BOOK.refused("E_PROFILE_CONTRADICTION")
def hotspot_left_out(draft: Draft, source: Random) -> None:
    """Leaves the function that got slower out of the hotspots that are gated."""
    spots = draft.profile["hotspots"]
    spots.remove(source.choice([spot for spot in spots if spot["self_samples"]]))


@BOOK.refused("E_PROFILE_CONTRADICTION")
def caller_left_out(draft: Draft, source: Random) -> None:
    """Leaves out a function that has samples only in its callees."""
    spots = draft.profile["hotspots"]
    spots.remove(source.choice([spot for spot in spots if not spot["self_samples"]]))


@BOOK.refused("E_PROFILE_CONTRADICTION")
def hotspot_lowered(draft: Draft, source: Random) -> None:
    """Lowers the samples, the share and the cost of one hotspot, consistently."""
    spot = draft.profile["hotspots"][0]
    spot["self_samples"] = round(spot["self_samples"] * source.uniform(0.1, 0.8))
    before = spot["self_share"]
    spot["self_share"] = spot["self_samples"] / draft.profile["samples"]
    spot["cpu_s_per_token"] *= spot["self_share"] / before


@BOOK.refused("E_PROFILE_CONTRADICTION")
def samples_of_processes_moved(draft: Draft, source: Random) -> None:
    """Moves samples between the names of a process, whose scatter the gate's interval uses."""
    process = max(draft.profile["processes"], key=lambda each: len(each["self_samples"]))
    own = process["self_samples"]
    hot = max(own, key=lambda name: own[name])
    moved = round(own[hot] * source.uniform(0.3, 0.9))
    own[hot] -= moved
    cold = min(own, key=lambda name: own[name])
    own[cold] += moved


@BOOK.refused("E_PROFILE_CONTRADICTION")
def frame_injected(draft: Draft, source: Random) -> Files:
    """Names a function ``x;ternary_gemv``, which a careless profiler writes as two frames."""
    hot = hottest(draft)
    leaf = hot.rpartition(";")[2]
    evil = f"{hot.removesuffix(leaf)}evil{source.randrange(100)};{leaf}".encode()
    return sealed_text(draft, draft.folded.replace(hot.encode(), evil, 1))


@BOOK.refused("E_PROFILE_CONTRADICTION")
def line_injected(draft: Draft, source: Random) -> Files:
    """Names a function with a line break, behind which a stack of its own stands."""
    odd = [draft.folded.splitlines(keepends=True)[0], b"cuda_gemm 99\n", b"\xff (b.py) 3\n"]
    odd += [b"a\x1b[2J (b.py) 3\n", b"a (b.py) 3"]
    odd += [f"a (b.py) {count}\n".encode() for count in ("007", "0", "-5", "\u0663", "1e3")]
    return sealed_text(draft, draft.folded + source.choice(odd))


def sealed_text(draft: Draft, folded: bytes) -> Files:
    """Return the files with ``folded`` in place of the stacks, sealed."""
    draft.reseal().profile["folded_sha256"] = sha256(folded)
    return {**draft.files(), FOLDED: folded}


@BOOK.refused("E_PROFILE_CONTRADICTION")
def process_of_nobody(draft: Draft, source: Random) -> None:
    """Takes the profile from a process that is none of the runs."""
    process = source.choice(draft.profile["processes"])
    taken = {run["pid"] for run in draft.runs}
    process["pid"] = source.choice([p for p in range(1, 1000) if p not in taken])


@BOOK.refused("E_PROFILE_CONTRADICTION", of=SERVED)
def whole_stacks_called_cut(draft: Draft, source: Random) -> None:
    """Says that most stacks are cut, so that nobody judges the shares of functions."""
    draft.profile["completeness"] = source.uniform(0.0, 0.8)


@BOOK.passes("A signature of the observer; a check that measures for itself.", of=PROGRAM)
def stacks_of_a_program_called_cut(draft: Draft, source: Random) -> None:
    """Says the same of a program, whose stacks may begin anywhere."""
    draft.profile["completeness"] = source.uniform(0.0, 0.8)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def process_of_a_timed_run(draft: Draft, source: Random) -> None:
    """Lets a timed run pass for a profiled one: the profiler slowed nothing, it seems."""
    run = source.choice(draft.timed)
    process = source.choice(draft.profile["processes"])
    process |= {"pid": run["pid"], "started_ticks": run["started_ticks"]}


@BOOK.refused("E_PROFILE_CONTRADICTION")
def process_twice(draft: Draft, source: Random) -> None:
    """Splits the samples of one process in two, so that they seem to agree."""
    processes = draft.profile["processes"]
    whole = source.choice(processes)
    part = {**whole, "self_samples": {}, "samples": whole["samples"] // 2}
    whole["samples"] -= part["samples"]
    whole["self_samples"] = {}
    processes.append(part)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def process_of_another_time(draft: Draft, source: Random) -> None:
    """Uses that process ids come round: the pid is the run's, the process an earlier one."""
    process = source.choice(draft.profile["processes"])
    process["started_ticks"] += source.choice([-1, 1]) * source.randint(1, 10**6)


@BOOK.refused("E_PROFILE_CONTRADICTION")
def garbage_for_a_profile(draft: Draft, source: Random) -> Files:
    """Puts garbage where stacks should be, under a record of none and kernels by hearsay."""
    profile_emptied(draft, source)
    return sealed_text(draft, source.randbytes(source.randint(1, 999)).hex().encode())


@BOOK.suspected("W_PROFILE_DEGRADED")
def profiler_blinded(draft: Draft, source: Random) -> None:
    """Profiles in a way that misses half of the work, and hopes that no reader asks how."""
    draft.profile["degraded"] = [source.choice(["nonblocking", "no native frames"])]


@BOOK.lowered("W_NO_PROFILE")
def profile_left_out(draft: Draft, source: Random) -> Files:
    """Leaves the stacks out: missing stacks contradict nothing."""
    return without_stacks(draft)


@BOOK.lowered("W_NO_PROFILE")
def profile_never_taken(draft: Draft, source: Random) -> Files:
    """Says that no profiler ran, and keeps the kernels."""
    draft.evidence["profile"] = None
    return without_stacks(draft)


def without_stacks(draft: Draft) -> Files:
    return {name: data for name, data in draft.reseal().files().items() if name != FOLDED}


@BOOK.lowered("W_NO_PROFILE")
def profile_emptied(draft: Draft, source: Random) -> None:
    """Empties the profile consistently; the engine vouches for its kernels."""
    draft.stacks = {}
    draft.profile.update(samples=0, processes=[], hotspots=[])
    names = [sighting["name"] for sighting in draft.evidence["kernels"]]
    draft.evidence["kernels"] = [{"name": "unclaimed", "source": "profile", "count": 1}]
    by_word(draft, {name: source.randint(1, 99) for name in names})


@BOOK.refused("E_EVIDENCE_SCHEMA")
def count_that_is_none(draft: Draft, source: Random) -> None:
    """Puts a count below zero into the record, which others make up for."""
    name = source.choice(["samples", "errors", "lost", "rate_hz"])
    draft.profile[name] = source.choice([-source.randint(1, 999), 0.5, "12", None])


@BOOK.refused("E_ORIGIN_MISMATCH", of=SERVED, then="recount")
def other_phase(draft: Draft, source: Random) -> None:
    """Says that the profile covers another phase than was sampled."""
    draft.profile["covers"] = source.choice(["decode", "process"])


@BOOK.passes("Replay with a profiler of one's own: the samples lie elsewhere.", then="recount")
def hot_function_cooled(draft: Draft, source: Random) -> None:
    """Moves samples between stacks, and recomputes hotspots, processes and seals."""
    move(draft, source)


@BOOK.passes(
    "Replay with a profiler of one's own: the functions are called otherwise.", then="recount"
)
def function_renamed(draft: Draft, source: Random) -> None:
    """Gives a function another name wherever it stands, so that its threshold misses it."""
    spots = [s["name"] for s in draft.profile["hotspots"]]
    cold = [name for name in spots if name not in draft.receipt["kernels"]]
    draft.rename(source.choice(cold), f"matmul_{source.randrange(10**6)}")


@BOOK.passes("A signature of the observer, or a run that CI starts; the files show no loss.")
def losses_hidden(draft: Draft, source: Random) -> None:
    """Hides lost samples and errors, and that the profile was degraded."""
    draft.profile.update(lost=0, errors=0, degraded=[], completeness=1.0)


@BOOK.passes(
    "Replay at the same rate; beyond what is usual it is only unusual.", of=LONG, then="recount"
)
def samples_and_rate_multiplied(draft: Draft, source: Random) -> None:
    """Multiplies counts and rate alike: the shares seem more certain than they are."""
    factor = source.randint(2, 20)
    draft.stacks = {path: count * factor for path, count in draft.stacks.items()}
    draft.profile["rate_hz"] *= factor
