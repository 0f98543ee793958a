"""Broken bonds: parts that were changed or swapped, with the seals that cost nothing put right."""

from random import Random

from pytest_flamegate.receipt import Grade
from tests.receipt.forgeries.book import EMBEDDED, ONE, SERVED, Book
from tests.receipt.forgeries.draft import EVIDENCE, RECEIPT, Draft, Files, encode, hexadecimal, load

BOOK = Book("binding")


@BOOK.refused("E_RECEIPT_CHANGED")
def receipt_edited_afterwards(draft: Draft, source: Random) -> Files:
    """Adds to the receipt after it was sealed; no figure changes."""
    draft.reseal().receipt["comment"] = f"reviewed by {source.randrange(10**6)}"
    return draft.files()


@BOOK.refused("E_RECEIPT_CHANGED")
def receipt_spaced_otherwise(draft: Draft, source: Random) -> Files:
    """Writes the same receipt with other spaces, to see whether bytes are sealed."""
    files = dict(draft.reseal().files())
    files[RECEIPT] = files[RECEIPT].replace(b"{", b"{" + b" " * source.randint(1, 9), 1)
    return files


@BOOK.refused("E_RECEIPT_CHANGED", of=ONE)
def evidence_of_another_run(draft: Draft, source: Random) -> Files:
    """Puts the evidence of a second run beside the receipt of the first."""
    other = load("embedded-10tok-again")
    return {**other.files(), RECEIPT: draft.files()[RECEIPT]}


@BOOK.refused("E_ORIGIN_MISMATCH", of=EMBEDDED)
def model_digest_swapped(draft: Draft, source: Random) -> None:
    """Names a larger model by its digest in the receipt; the evidence keeps the small one."""
    draft.receipt["model"]["sha256"] = hexadecimal(source, 64)


@BOOK.refused("E_ORIGIN_MISMATCH")
def model_path_swapped(draft: Draft, source: Random) -> None:
    """Names a larger model by its path."""
    draft.receipt["model"]["path"] = f"models/bitnet-{source.randint(2, 70)}b.gguf"


@BOOK.refused("E_ORIGIN_MISMATCH", of=EMBEDDED)
def model_facts_edited(draft: Draft, source: Random) -> None:
    """Says that the model has more parameters, or another quantisation, than its header does."""
    facts = [("parameters", source.randint(2, 7000)), ("quantisation", "I2_S")]
    draft.receipt["model"] |= [source.choice(facts)]


@BOOK.refused("E_ORIGIN_MISMATCH", of=EMBEDDED)
def two_model_digests(draft: Draft, source: Random) -> None:
    """Keeps one digest in the evidence for the reader and another for the replay."""
    del draft.receipt["model"]["sha256"]
    draft.evidence["model"]["sha256"] = hexadecimal(source, 64)


@BOOK.suspected("W_MODEL_NOT_HASHED", of=EMBEDDED)
def model_not_named(draft: Draft, source: Random) -> None:
    """Leaves the model's digest out of both."""
    path = f"models/bitnet-{source.randint(2, 70)}b.gguf"
    for model in (draft.receipt["model"], draft.evidence["model"]):
        del model["sha256"]
        model["path"] = path
    draft.evidence["model_sha256"] = None


@BOOK.refused("E_ORIGIN_MISMATCH", of=SERVED)
def environment_edited(draft: Draft, source: Random) -> None:
    """Says that one thread computed where several did."""
    name = source.choice([n for n in draft.receipt["environment"] if n.endswith("_THREADS")])
    draft.receipt["environment"][name] = str(source.randint(2, 128))


@BOOK.refused("E_ORIGIN_MISMATCH")
def other_system(draft: Draft, source: Random) -> None:
    """Names another system in the receipt than the machine's."""
    others = {"OS": "linux-riscv64", "FLAMEGATE_VERSION": "9.9.9", "PYTHON_VERSION": "CPython 2.7"}
    name = source.choice(sorted(others))
    draft.receipt["environment"][name] = others[name]


@BOOK.lowered(of=ONE, then="alone")
def evidence_dropped(draft: Draft, source: Random) -> None:
    """Raises the rate and gives the receipt alone: nothing is left to contradict it."""
    draft.receipt["tokens_per_second"] *= source.uniform(1.1, 100)


@BOOK.refused("E_GRADE", wishes={"require_grade": Grade.OBSERVED}, then="alone")
def evidence_dropped_where_it_is_wanted(draft: Draft, source: Random) -> None:
    """Gives the receipt alone to a reader who wants an observed one."""
    draft.receipt["tokens_per_second"] *= source.uniform(1.1, 100)


@BOOK.refused("E_EVIDENCE_SCHEMA", "E_JSON_SYNTAX", "E_WRONG_TYPE")
def evidence_that_is_none(draft: Draft, source: Random) -> Files:
    """Makes the evidence unreadable, so that it is taken for absent."""
    whole = draft.reseal().files()
    evidence = whole[EVIDENCE]
    field = source.choice(["runs", "nonce", "tokens", "receipt_sha256", "workload", "profile"])
    without = {name: value for name, value in draft.evidence.items() if name != field}
    broken = source.choice(
        [b"", b"null", b"[]", evidence[: source.randrange(1, len(evidence) - 2)], encode(without)]
    )
    return {**whole, EVIDENCE: broken}


@BOOK.refused("E_ORIGIN_MISMATCH")
def commit_that_is_a_name(draft: Draft, source: Random) -> None:
    """Names a branch, or half a hash, which is other code tomorrow."""
    name = source.choice(["main", "HEAD", "v1.0", draft.evidence["commit"]["revision"][:12]])
    draft.evidence["commit"][source.choice(["revision", "tree"])] = name


@BOOK.suspected("W_MODEL_NOT_READ", of=EMBEDDED)
def model_too_large_to_have_run(draft: Draft, source: Random) -> None:
    """Says that the model is far larger than any process held or read."""
    size_bytes = source.randint(2, 100) * 10**9
    for model in (draft.receipt["model"], draft.evidence["model"]):
        model["size_bytes"] = size_bytes


@BOOK.suspected("W_FASTER_THAN_MEMORY", of=EMBEDDED)
def model_faster_than_memory(draft: Draft, source: Random) -> None:
    """Claims the rate of a small model for one that no memory can be read as fast."""
    size_bytes = source.randint(100, 900) * 10**11
    for model in (draft.receipt["model"], draft.evidence["model"]):
        model["size_bytes"] = size_bytes
    for run in draft.runs:
        run["peak_rss_bytes"] = 10**14


@BOOK.passes("A signature of the observer, or a run that CI starts on its own checkout.")
def another_commit(draft: Draft, source: Random) -> None:
    """Says that a commit was measured that was not, or that nothing was uncommitted."""
    draft.evidence["commit"] = {
        **draft.evidence["commit"],
        "revision": hexadecimal(source, 40),
        "tree": hexadecimal(source, 64),
        "uncommitted": 0,
    }


@BOOK.passes("Replay on the machine that is named; a signature that is bound to it.")
def another_machine(draft: Draft, source: Random) -> None:
    """Relabels a run of a fast machine as one of the machine that is gated."""
    draft.evidence["machine"] |= {
        "cpu_model": source.choice(["Intel Xeon", "Neoverse-N1", "AMD EPYC 7763"]),
        "cpu_cores": str(source.choice([2, 4, 64])),
        "cpu_flags_sha256": hexadecimal(source, 64),
    }


@BOOK.passes("A signature of the observer; replay, where the model is at hand.", of=SERVED)
def another_model(draft: Draft, source: Random) -> None:
    """Names another model consistently, with its digest, everywhere."""
    for model in (draft.receipt["model"], draft.evidence["model"]):
        model |= {"path": "models/other.gguf", "sha256": draft.evidence["nonce"] * 2}
    draft.evidence["model_sha256"] = draft.evidence["nonce"] * 2
