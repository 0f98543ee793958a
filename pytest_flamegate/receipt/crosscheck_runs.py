"""Cross-checks over the runs: clocks, tokens, processes, model, environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_flamegate.receipt.findings import shown
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.recompute import rate_of, token_digest
from pytest_flamegate.receipt.registry import Rulebook
from pytest_flamegate.receipt.timestamps import read_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_flamegate.receipt.case import Case
    from pytest_flamegate.workload.observation import Interval, Run

TPS_AGREEMENT = 0.005
"""The same times give the same rate; half a percent leaves room for rounding."""
CLOCK_SLACK = 0.05
CLOCK_SLACK_NS = 20_000_000
"""CPU time is counted in ticks of up to 10 ms, at either end of an interval."""
WALL_SLACK_NS = 1_000_000
ASLEEP_BELOW = 0.02
"""A CPU that computes is busy; a mock that sleeps between tokens shows one part in 10^4."""
ASLEEP_AFTER_NS = 200_000_000
WRITTEN_WITHIN_S = 24 * 3600
CLOCK_SET_S = 300
"""A wall clock may be set while a run lasts; the durations do not come from it."""
_REMOTE_ENGINES = frozenset({"openai"})

CHECKS: Rulebook[Case] = Rulebook()
SHORTFALLS: Rulebook[Case] = Rulebook()

_AGAIN = "Measure again; receipt and evidence are written together and changed by nobody."


@CHECKS.rule(
    "E_RECEIPT_CHANGED",
    "The evidence names this receipt by the SHA-256 of its bytes.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _receipt_changed(case: Case) -> Iterator[str]:
    # The evidence belongs to another receipt, or this one was edited.
    if case.evidence.receipt_sha256 != case.receipt_sha256:
        yield (
            f"The evidence belongs to the receipt {case.evidence.receipt_sha256[:12]}, and this "
            f"one is {case.receipt_sha256[:12]}."
        )


@CHECKS.rule(
    "E_ENGINE_MISMATCH",
    "Receipt and evidence name the same engine.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _engine_mismatch(case: Case) -> Iterator[str]:
    # The engine decides which kernel policy applies.
    claimed = case.claim.environment.get("FLAMEGATE_ENGINE")
    seen = case.evidence.workload.get("engine")
    if claimed is not None and claimed != seen:
        yield f"The receipt names the engine {shown(claimed)} and the evidence {shown(seen)}."


@CHECKS.rule(
    "E_TPS_MISMATCH",
    "tokens_per_second recomputes from the token times of the timed runs.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"tokens_per_second"},
)
def _tps_mismatch(case: Case) -> Iterator[str]:
    # The observer's clock against the claim.
    rate = rate_of(case.evidence.runs, case.evidence.clock_scope)
    claimed = case.claim.tokens_per_second
    if rate is None:
        return
    if abs(claimed - rate.tokens_per_second) > TPS_AGREEMENT * rate.tokens_per_second:
        yield (
            f"{claimed:.1f} tok/s claimed, {rate.tokens_per_second:.1f} from the token times "
            f"({rate.formula}, {rate.tokens:,} tokens)."
        )


@CHECKS.rule(
    "E_TOKEN_COUNT",
    "Every sequence has as many tokens as the receipt claims and the evidence shows.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"tokens_requested", "tokens_generated", "deterministic"},
)
def _token_count(case: Case) -> Iterator[str]:
    # Fewer tokens are less work.
    claimed = case.claim.tokens_generated
    shown_tokens = len(case.evidence.tokens)
    if shown_tokens != claimed:
        yield f"{claimed} tokens are claimed and the evidence shows {shown_tokens}."
    asked = case.evidence.workload.get("max_tokens")
    if isinstance(asked, int) and asked != case.claim.tokens_requested:
        yield (
            f"The receipt requested {case.claim.tokens_requested} tokens and the workload asks "
            f"for {asked}."
        )
    for run in case.evidence.runs:
        lengths = {len(gaps) for block in run.blocks for gaps in block.sequences_ns}
        if case.claim.deterministic and lengths - {claimed}:
            found = ", ".join(map(str, sorted(lengths)))
            yield f"The run of process {run.pid} has sequences of {found} tokens, not {claimed}."
        elif lengths and max(lengths) > case.claim.tokens_requested:
            yield f"The run of process {run.pid} has a sequence of {max(lengths)} tokens."


@CHECKS.rule(
    "E_TOKEN_DIGEST",
    "The token digest is that of the tokens shown.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _digest_of_tokens(case: Case) -> Iterator[str]:
    # The digest is what a replay will be held against.
    digest = token_digest(case.evidence.tokens)
    if digest != case.evidence.token_digest:
        yield (
            f"The digest {case.evidence.token_digest[:12]} is claimed, and the tokens give "
            f"{digest[:12]}."
        )


@CHECKS.rule(
    "E_TOKENS_DIFFER",
    "A receipt that claims determinism shows the same tokens in every run.",
    todo="Make the engine deterministic (seed, threads), or say deterministic: false.",
    protects=Grade.OBSERVED,
    needs={"deterministic"},
)
def _tokens_differ(case: Case) -> Iterator[str]:
    # Determinism is shown by digests, not declared.
    if not case.claim.deterministic:
        return
    if case.evidence.differs_at is not None:
        yield f"Determinism is claimed and a sequence differs at token {case.evidence.differs_at}."
    for run in case.evidence.runs:
        if run.token_digest != case.evidence.token_digest:
            yield f"Determinism is claimed and process {run.pid} generated other tokens."


@CHECKS.rule(
    "E_CLOCK_CONTRADICTION",
    "Within a block, token times add up to no more than its wall time.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _clock_contradiction(case: Case) -> Iterator[str]:
    # Sequences run one after another inside the interval that covers them.
    for run in case.evidence.runs:
        for block in run.blocks:
            tokens_ns = sum(map(sum, block.sequences_ns))
            wall_ns = block.interval.wall_ns
            if tokens_ns > wall_ns * (1 + CLOCK_SLACK) + WALL_SLACK_NS:
                yield (
                    f"The run of process {run.pid} has {tokens_ns / 1e6:.1f} ms of token times in "
                    f"a block of {wall_ns / 1e6:.1f} ms."
                )


@CHECKS.rule(
    "E_CPU_EXCEEDS_WALL",
    "No interval holds more CPU time than its wall time times the threads.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _cpu_exceeds_wall(case: Case) -> Iterator[str]:
    # A thread cannot compute for longer than time passes.
    for run in case.evidence.runs:
        if run.threads is None:
            continue
        for interval in _intervals(run):
            most_ns = interval.wall_ns * max(1, run.threads) * (1 + CLOCK_SLACK) + CLOCK_SLACK_NS
            if interval.cpu_ns > most_ns:
                yield (
                    f"The run of process {run.pid} has {interval.cpu_ns / 1e6:.1f} ms of CPU time "
                    f"in {interval.wall_ns / 1e6:.1f} ms on {run.threads} thread(s)."
                )


@CHECKS.rule(
    "E_ASLEEP",
    "A CPU run spends CPU time while it generates.",
    todo="Run real inference; a mock that sleeps between tokens looks like this.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _asleep(case: Case) -> Iterator[str]:
    # Time waiting for a CPU is not held against the run.
    if case.claim.backend != "cpu" or case.evidence.workload.get("engine") in _REMOTE_ENGINES:
        return
    intervals = [block.interval for run in case.timed for block in run.blocks]
    ready_ns = sum(interval.wall_ns - (interval.run_delay_ns or 0) for interval in intervals)
    cpu_ns = sum(interval.cpu_ns for interval in intervals)
    if ready_ns > ASLEEP_AFTER_NS and cpu_ns < ASLEEP_BELOW * ready_ns:
        yield (
            f"The timed runs computed for {cpu_ns / 1e6:.1f} ms of the {ready_ns / 1e6:.1f} ms in "
            "which they could."
        )


@CHECKS.rule(
    "E_COPIED_RUNS",
    "No two runs hold the same block, and no process stands twice.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
)
def _copied_runs(case: Case) -> Iterator[str]:
    # Nanoseconds never repeat; copies do.
    seen: dict[object, int] = {}
    processes: set[tuple[int, int]] = set()
    for run in case.evidence.runs:
        if run.started_ticks is not None:
            process = (run.pid, run.started_ticks)
            if process in processes:
                yield f"The process {run.pid} stands twice among the runs."
            processes.add(process)
        for block in run.blocks:
            timing = (block.interval, block.sequences_ns)
            if timing in seen:
                yield f"The runs of processes {seen[timing]} and {run.pid} hold the same block."
            seen[timing] = run.pid


@CHECKS.rule(
    "E_MODEL_CHANGED",
    "Receipt and evidence name the same model.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"model"},
)
def _model_changed(case: Case) -> Iterator[str]:
    # By digest and by path, wherever both state one.
    seen = case.evidence
    claimed = case.claim.model.get("sha256")
    if claimed is not None and claimed != seen.model_sha256:
        yield (
            f"The receipt names the model {shown(claimed)} and the evidence "
            f"{shown(seen.model_sha256)}."
        )
    for name in ("path", "sha256"):
        claimed, recorded = case.claim.model.get(name), seen.model.get(name)
        if None not in (claimed, recorded) and claimed != recorded:
            yield (
                f"model.{name} is {shown(claimed)} in the receipt and {shown(recorded)} in the "
                "evidence."
            )


@CHECKS.rule(
    "E_ENVIRONMENT_CHANGED",
    "The receipt's environment holds what the process had.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"environment"},
)
def _environment_changed(case: Case) -> Iterator[str]:
    # Compared by the names that both hold.
    effective = case.evidence.effective_environment
    for name, value in case.claim.environment.items():
        if name in effective and effective[name] != value:
            yield (
                f"{shown(name)} is {shown(value)} in the receipt, and the process had "
                f"{shown(effective[name])}."
            )


@CHECKS.rule(
    "E_WRITTEN_APART",
    "Receipt, evidence and runs are of one time.",
    todo=_AGAIN,
    protects=Grade.OBSERVED,
    needs={"timestamp"},
)
def _written_apart(case: Case) -> Iterator[str]:
    # Old evidence beside a new receipt, or runs that start after they were written down.
    created = read_timestamp(case.evidence.created)
    age_s = (case.claim.now - created).total_seconds()
    apart_s = abs(case.claim.age_s - age_s)
    if apart_s > WRITTEN_WITHIN_S:
        yield f"Receipt and evidence were written {apart_s / 3600:,.1f} hours apart."
    for run in case.evidence.runs:
        late_s = (read_timestamp(run.started_at) - created).total_seconds()
        if late_s > CLOCK_SET_S:
            yield f"Process {run.pid} started {late_s:,.0f} s after the evidence was written."


@SHORTFALLS.rule(
    "W_NO_TIMED_RUN",
    "The evidence holds token times of runs that no profiler touched.",
    todo="Measure timed runs.",
    protects=Grade.OBSERVED,
)
def _no_timed_run(case: Case) -> Iterator[str]:
    # Without them the rate is the receipt's word.
    if rate_of(case.evidence.runs, case.evidence.clock_scope) is None:
        yield "No timed run holds token times, so tokens per second cannot be recomputed."


@SHORTFALLS.rule(
    "W_DETERMINISM_NOT_SHOWN",
    "A claim of determinism is shown by two sequences at least.",
    todo="Run the workload twice.",
    protects=Grade.OBSERVED,
    needs={"deterministic"},
)
def _determinism_not_shown(case: Case) -> Iterator[str]:
    # One output equals itself.
    sequences = sum(len(block.sequences_ns) for run in case.evidence.runs for block in run.blocks)
    if case.claim.deterministic and sequences < 2:
        yield "Determinism is claimed and only one sequence was run."


@SHORTFALLS.rule(
    "W_DEVICE_NOT_OBSERVED",
    "A GPU's work was observed on the device.",
    todo="Nothing yet: this version observes CPUs.",
    protects=Grade.OBSERVED,
    needs={"backend"},
)
def _device_not_observed(case: Case) -> Iterator[str]:
    # A function may be called gemm_fp16 and run on a CPU.
    if case.claim.backend == "cuda":
        yield "The backend is cuda, and the evidence holds nothing that was seen on a device."


@SHORTFALLS.rule(
    "W_MODEL_NOT_HASHED",
    "The model file is named by its SHA-256.",
    todo="Give the workload its model file.",
    protects=None,
)
def _model_not_hashed(case: Case) -> Iterator[str]:
    # A server or a callable may have no file to hash.
    if case.evidence.model_sha256 is None:
        yield "No model file was hashed, so another model may have run."


def _intervals(run: Run) -> Iterator[Interval]:
    for block in run.blocks:
        yield block.interval
        if block.reference is not None:
            yield block.reference
