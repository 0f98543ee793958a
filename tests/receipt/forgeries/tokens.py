"""Forged tokens: more of them, others, fewer in some runs, a determinism that was not shown."""

from random import Random

from tests.receipt.forgeries.book import LONG, ONE, SERVED, Book
from tests.receipt.forgeries.draft import Draft, blocks, hexadecimal

BOOK = Book("tokens")
CALLABLE = ("callable",)


def words(source: Random, count: int) -> list[str]:
    """Return other tokens, as bytes or as words."""
    return [str(source.randrange(256)) for _ in range(count)]


@BOOK.refused("E_TOKEN_CONTRADICTION")
def more_tokens_claimed(draft: Draft, source: Random) -> None:
    """Claims more tokens than were generated, of a request that is raised as well."""
    more = source.randint(1, 200)
    draft.receipt["tokens_generated"] += more
    draft.receipt["tokens_requested"] += more
    draft.evidence["workload"]["max_tokens"] += more


@BOOK.refused("E_FIGURES_CONTRADICT", then="alone")
def more_than_was_asked_for(draft: Draft, source: Random) -> None:
    """Adds the tokens of two runs together."""
    draft.receipt["tokens_generated"] = draft.receipt["tokens_requested"] + source.randint(1, 99)


@BOOK.refused("E_TOKEN_CONTRADICTION")
def request_edited(draft: Draft, source: Random) -> None:
    """Says that the tokens of a longer workload were asked for and ended early."""
    draft.receipt["tokens_requested"] += source.randint(1, 500)


@BOOK.refused("E_TOKEN_CONTRADICTION")
def tokens_padded(draft: Draft, source: Random) -> None:
    """Shows more tokens, with their digests, than any sequence has times for."""
    more = words(source, source.randint(1, 50))
    draft.receipt["tokens_generated"] += len(more)
    draft.receipt["tokens_requested"] += len(more)
    draft.evidence["workload"]["max_tokens"] += len(more)
    draft.retoken([*draft.evidence["tokens"], *more])


@BOOK.refused("E_TOKEN_CONTRADICTION")
def right_answer_pasted(draft: Draft, source: Random) -> None:
    """Pastes the right answer over the answer of the model, below the old digest."""
    draft.evidence["tokens"][source.randrange(len(draft.evidence["tokens"]))] += "4"


@BOOK.refused("E_NOT_DETERMINISTIC")
def answer_of_some_runs(draft: Draft, source: Random) -> None:
    """Shows other tokens with their digest, and forgets the runs that made the old ones."""
    run = source.choice(draft.runs)
    run["token_digest"] = hexadecimal(source, 64)


@BOOK.refused("E_NOT_DETERMINISTIC", of=LONG)
def known_difference(draft: Draft, source: Random) -> None:
    """Claims determinism and leaves in the evidence where a sequence differed."""
    draft.evidence["differs_at"] = source.randrange(len(draft.evidence["tokens"]))


@BOOK.refused("E_TOKEN_CONTRADICTION", of=SERVED)
def difference_that_is_none(draft: Draft, source: Random) -> None:
    """States a difference that is none, or beyond the tokens, so that no reader looks for one."""
    draft.receipt["deterministic"] = False
    tokens = draft.evidence["tokens"]
    at = source.randrange(len(tokens))
    draft.evidence |= source.choice(
        [
            {"differs_at": at, "differs_to": tokens[at]},
            {"differs_at": None, "differs_to": "10"},
            {"differs_at": len(tokens) + source.randint(1, 99), "differs_to": None},
        ]
    )


@BOOK.refused("E_TOKEN_CONTRADICTION")
def no_tokens_shown(draft: Draft, source: Random) -> None:
    """Shows no tokens at all, so that no replay can be held against them."""
    draft.receipt["deterministic"] = False
    draft.evidence["tokens"] = []
    draft.evidence["token_digest"] = hexadecimal(source, 64)
    draft.receipt["tokens_generated"] = source.choice([0, 1])


@BOOK.refused("E_TOKEN_CONTRADICTION", of=LONG, then="recompute")
def sequences_cut(draft: Draft, source: Random) -> None:
    """Lets some runs stop early, for a better average, and recomputes the figures."""
    run = source.choice(draft.timed)
    keep = source.randrange(1, len(draft.evidence["tokens"]))
    for block in run["blocks"]:
        block["sequences_ns"] = [gaps[:keep] for gaps in block["sequences_ns"]]


@BOOK.refused("E_TOKEN_CONTRADICTION", then="recompute")
def sequences_stretched(draft: Draft, source: Random) -> None:
    """Splits the times of a sequence into those of more tokens than were asked for."""
    draft.receipt["deterministic"] = False
    for block in blocks(draft.timed):
        block["sequences_ns"] = [
            [gap // 2 for gap in gaps for _ in (0, 1)] for gaps in block["sequences_ns"]
        ]


@BOOK.lowered("W_FEW_RUNS", of=SERVED, then="recompute")
def determinism_of_one(draft: Draft, source: Random) -> None:
    """Claims determinism after one sequence, which always equals itself."""
    first = draft.timed[0]
    block = dict(first["blocks"][0])
    gaps = source.choice(block["sequences_ns"])
    wall_ns = sum(gaps) + source.randrange(50_000)
    block["sequences_ns"] = [gaps]
    block["interval"] = {
        "wall_ns": wall_ns, "cpu_ns": round(wall_ns * source.uniform(0.9, 0.99)), "run_delay_ns": 0
    }  # fmt: skip
    first["blocks"] = [block]
    for part in blocks(draft.profiled):
        part["sequences_ns"] = []
    draft.evidence["runs"] = [first, *draft.profiled]
    draft.profile["overhead_pct"] = None


@BOOK.refused("E_TOKEN_CONTRADICTION", of=LONG)
def sequence_length_edited(draft: Draft, source: Random) -> None:
    """Says of every run that its sequences were longer than their times."""
    for run in draft.runs:
        run["tokens_per_sequence"] += source.randint(1, 100)


@BOOK.passes("Replay: the engine generates other tokens here.", of=ONE)
def another_answer(draft: Draft, source: Random) -> None:
    """Shows other tokens everywhere, with their digests: a model that answers better."""
    draft.retoken(words(source, len(draft.evidence["tokens"])))


@BOOK.passes("Replay: the workload as named gives other tokens and another rate.")
def another_prompt(draft: Draft, source: Random) -> None:
    """Names a harder prompt than the one that ran."""
    draft.evidence["workload"]["prompt"] = f"Prove theorem {source.randrange(10**6)}."


def ask(draft: Draft, source: Random) -> None:
    """Say that every sequence answered another prompt of a set, each with the same tokens."""
    lengths = [sum(len(block["sequences_ns"]) for block in run["blocks"]) for run in draft.runs]
    count = max(lengths) + 2
    del draft.evidence["workload"]["prompt"]
    draft.evidence["workload"]["prompts"] = [f"{number}+2=" for number in range(count)]
    asked = set()
    for run, length in zip(draft.runs, lengths, strict=True):
        run["prompts"] = source.sample(range(count - 1), length)
        asked |= {0, *run["prompts"]}
    tokens, digest = len(draft.evidence["tokens"]), draft.evidence["token_digest"]
    draft.evidence["answers"] = [
        {"prompt": number, "tokens": tokens, "digest": digest} for number in sorted(asked)
    ]
    first = draft.timed[0]["prompts"]
    if 0 not in first:
        first[0] = 0


@BOOK.passes("Replay: the other prompts have other answers.", of=CALLABLE)
def set_of_prompts(draft: Draft, source: Random) -> None:
    """Says that a set of prompts was answered, so that the engine could remember nothing."""
    ask(draft, source)


@BOOK.refused("E_TOKEN_CONTRADICTION", of=CALLABLE)
def prompts_left_out(draft: Draft, source: Random) -> None:
    """The same, with a sequence more than there are prompts."""
    ask(draft, source)
    source.choice(draft.runs)["prompts"].pop()


@BOOK.refused("E_TOKEN_CONTRADICTION", of=CALLABLE)
def prompt_repeated(draft: Draft, source: Random) -> None:
    """The same, and the timed processes answered one prompt again and again."""
    ask(draft, source)
    run = source.choice(draft.timed)
    run["prompts"][-1] = run["prompts"][0]


@BOOK.refused("E_TOKEN_CONTRADICTION", of=CALLABLE)
def answer_too_many(draft: Draft, source: Random) -> None:
    """The same, with an answer to a prompt that no process was asked."""
    ask(draft, source)
    more = len(draft.evidence["workload"]["prompts"]) - 1
    draft.evidence["answers"].append({**draft.evidence["answers"][0], "prompt": more})


@BOOK.refused("E_TOKEN_CONTRADICTION", of=CALLABLE)
def shorter_answers(draft: Draft, source: Random) -> None:
    """The same, and some answers are shorter than their sequences."""
    ask(draft, source)
    source.choice(draft.evidence["answers"][1:])["tokens"] -= 1


@BOOK.refused("E_TOKEN_CONTRADICTION", of=CALLABLE)
def prompt_out_of_range(draft: Draft, source: Random) -> None:
    """The same, and one sequence answered a prompt that the workload does not have."""
    ask(draft, source)
    source.choice(draft.runs)["prompts"][-1] = len(draft.evidence["workload"]["prompts"])


@BOOK.refused("E_TOKEN_CONTRADICTION", of=CALLABLE)
def other_first_answer(draft: Draft, source: Random) -> None:
    """The same, and the answer to the first prompt is not that of the tokens shown."""
    ask(draft, source)
    draft.evidence["answers"][0]["digest"] = f"{source.getrandbits(256):064x}"
