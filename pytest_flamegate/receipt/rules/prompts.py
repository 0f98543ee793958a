"""Rules about workloads with several prompts: which one each sequence answered, and how.

They are what the claim rests on that no timed process could answer from memory.
"""

from collections.abc import Iterator

from pytest_flamegate.receipt.rules.rule import Rulebook, Submission
from pytest_flamegate.receipt.types import Grade

CHECKS: Rulebook[Submission] = Rulebook(protects=Grade.OBSERVED)


@CHECKS.rule("E_TOKEN_CONTRADICTION", "Each sequence states which of several prompts it answered.")
def _check_prompts(case: Submission) -> Iterator[str]:
    declared = _declared(case)
    for run in case.evidence.runs:
        sequences = len(run.sequence_lengths)
        if len(run.prompts) != (sequences if declared else 0):
            yield (
                f"The run of process {run.pid} states prompts of {len(run.prompts)} sequences; it "
                f"has {sequences}, and the workload declares {declared or 1} prompts."
            )
        elif max(run.prompts, default=0) > max(declared - 1, 0):
            yield f"The run of process {run.pid} has a prompt that is none of {declared}."


@CHECKS.rule("E_TOKEN_CONTRADICTION", "No timed process is asked a prompt twice.")
def _check_each_once(case: Submission) -> Iterator[str]:
    # It could remember the answer.
    for run in case.timed:
        if len(set(run.prompts)) < len(run.prompts):
            yield f"The timed process {run.pid} was asked the same prompt again."


@CHECKS.rule(
    "E_TOKEN_CONTRADICTION", "Each prompt that was asked has one answer, the first one the tokens."
)
def _check_answers(case: Submission) -> Iterator[str]:
    evidence = case.evidence
    asked = {prompt for run in evidence.runs for prompt in run.prompts}
    answered = [each.prompt for each in evidence.answers]
    if sorted(answered) != sorted({0, *asked} if _declared(case) else ()):
        yield f"{len(asked)} prompts were asked, and there are {len(answered)} answers to others."
    for each in evidence.answers:
        listed = len(evidence.tokens), evidence.token_digest
        if each.prompt == 0 and (each.tokens, each.digest) != listed:
            yield "The answer to the first prompt is not that of the listed tokens."


@CHECKS.rule("E_TOKEN_CONTRADICTION", "Equal prompts have answers of equal length.")
def _check_lengths(case: Submission) -> Iterator[str]:
    known = {each.prompt: each.tokens for each in case.evidence.answers}
    most = case.claim.tokens_requested
    for run in case.evidence.runs:
        for prompt, length in zip(run.prompts, run.sequence_lengths, strict=False):
            expected = known.get(prompt, length)
            if length > most or (case.claim.deterministic and length != expected):
                yield (
                    f"Process {run.pid} answered prompt {prompt} with {length} tokens; its answer "
                    f"has {expected}, and {most} were requested."
                )


def _declared(case: Submission) -> int:
    """Return the number of prompts that the recipe has if it is a set, else 0."""
    prompts = case.evidence.workload.get("prompts")
    return len(prompts) if isinstance(prompts, (list, tuple)) else 0
