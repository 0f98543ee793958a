"""Tricks with the engine's name, which chooses how its kernels must be called."""

from random import Random

from tests.receipt.forgeries.book import ONE, SERVED, Book
from tests.receipt.forgeries.draft import Draft

BOOK = Book("engines")


@BOOK.refused("E_NO_COMPUTE_KERNEL", then="alone")
def engine_left_out(draft: Draft, source: Random) -> None:
    """Leaves the engine out, in the hope that no policy applies where none is named."""
    del draft.receipt["environment"]["FLAMEGATE_ENGINE"]


@BOOK.refused("E_UNKNOWN_ENGINE")
def engine_of_nobody(draft: Draft, source: Random) -> None:
    """Names an engine that has no policy, in receipt and evidence."""
    name = source.choice(["Embedded", "embedded ", "bitnet.cpp", "none", "*", ""]) or "x"
    name += str(source.randrange(100)) if source.random() < 0.5 else ""
    draft.receipt["environment"]["FLAMEGATE_ENGINE"] = name
    draft.evidence["workload"]["engine"] = name


@BOOK.refused("E_ORIGIN_MISMATCH")
def engine_renamed(draft: Draft, source: Random) -> None:
    """Names an engine in the receipt that the evidence does not."""
    other = {"embedded", "python", "command", "bitnet", "torch", "ggml"}
    other.discard(draft.evidence["workload"]["engine"])
    draft.receipt["environment"]["FLAMEGATE_ENGINE"] = source.choice(sorted(other))


@BOOK.refused("E_EVIDENCE_SCHEMA")
def engine_that_is_none(draft: Draft, source: Random) -> None:
    """Leaves the engine out of the evidence, or names no text."""
    draft.receipt["environment"].pop("FLAMEGATE_ENGINE")
    if source.random() < 0.3:
        del draft.evidence["workload"]["engine"]
    else:
        draft.evidence["workload"]["engine"] = source.choice([None, 7, "", ["command"], {}])


@BOOK.refused("E_ORIGIN_MISMATCH", of=ONE)
def engine_of_a_loose_policy(draft: Draft, source: Random) -> None:
    """Relabels an engine that was served as a program, whose policy asks for no matmul."""
    draft.receipt["environment"]["FLAMEGATE_ENGINE"] = "command"
    draft.evidence["workload"] |= {"engine": "command", "command": ["./engine"]}


@BOOK.lowered("W_EVIDENCE_INCOMPLETE", of=("program", "callable"))
def recipe_without_its_command(draft: Draft, source: Random) -> None:
    """Leaves the command out, so that no replay can run it."""
    draft.evidence["workload"]["command"] = []
    draft.evidence["workload"].pop("target", None)


def ask(draft: Draft, url: object) -> Draft:
    """Relabel served runs as answers of a server that ran before."""
    draft.receipt["environment"]["FLAMEGATE_ENGINE"] = "openai"
    draft.evidence["workload"] |= {"engine": "openai", "url": url}
    return draft


def one_server(draft: Draft) -> Draft:
    """Make one process of all that ran, which began before the first of its windows."""
    first = draft.runs[0]
    own = {"pid": first["pid"], "started_ticks": first["started_ticks"]}
    for run in draft.runs:
        run |= {**own, "load_ns": None}
    for process in draft.profile["processes"]:
        process |= own
    return ask(draft, "http://127.0.0.1:8080")


@BOOK.refused("E_CLOCK_CONTRADICTION", of=("callable",))
def processes_as_windows(draft: Draft, source: Random) -> None:
    """Calls processes of many days windows of one server, whose start no rule compares."""
    ask(draft, "http://127.0.0.1:8080")
    began = {}
    same = source.random() < 0.5
    for day, run in enumerate(draft.runs):
        run["started_ticks"] += day * source.randint(8_640_000, 3 * 8_640_000)
        began[run["pid"]] = run["started_ticks"]
        if same:
            run |= {"pid": draft.runs[0]["pid"], "load_ns": None}
    for process in draft.profile["processes"]:
        process["started_ticks"] = began[process["pid"]]
        if same:
            process["pid"] = draft.runs[0]["pid"]


@BOOK.lowered("W_EVIDENCE_INCOMPLETE", of=("callable",))
def address_that_is_none(draft: Draft, source: Random) -> None:
    """Says that a server was asked, and gives no address."""
    ask(draft, source.choice([True, 1, {"host": "a"}, None, "", []]))


@BOOK.passes("Replay, or a run that CI starts; such a receipt is not fit to gate on.", of=SERVED)
def many_processes_as_one_server(draft: Draft, source: Random) -> None:
    """Relabels processes of their own as windows of one server, consistently."""
    one_server(draft)


@BOOK.passes("Replay: what the recipe names runs otherwise, or is not there.", of=SERVED)
def engine_of_another_family(draft: Draft, source: Random) -> None:
    """Relabels a callable of Python as the embedded engine, consistently."""
    draft.receipt["environment"]["FLAMEGATE_ENGINE"] = "embedded"
    draft.evidence["workload"]["engine"] = "embedded"
