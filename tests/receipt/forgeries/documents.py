"""Tricks with JSON and with the schema: documents that two readers read differently."""

from random import Random

from tests.receipt.forgeries.book import ONE, Book
from tests.receipt.forgeries.draft import EVIDENCE, RECEIPT, Draft, Files, encode, sha256

BOOK = Book("documents")
TOP_LEVEL = ("E_SCHEMA", "E_SCHEMA_VERSION", "E_COMPUTE_PATH", "E_TPS", "E_KERNELS")
"""The codes of a receipt's own fields."""


def resealed(draft: Draft, receipt: bytes) -> Files:
    """Return all files with these bytes for a receipt, and their digest in the evidence."""
    draft.reseal().evidence["receipt_sha256"] = sha256(receipt)
    return {**draft.files(), RECEIPT: receipt}


@BOOK.refused("E_JSON_DUPLICATE_KEY")
def key_twice(draft: Draft, source: Random) -> Files:
    """States the rate twice: the verifier reads one, a comparison the other."""
    rate = draft.receipt["tokens_per_second"]
    extra = f'"tokens_per_second": {rate * source.uniform(1.1, 50)}'.encode()
    inner = draft.files()[RECEIPT][1:-1]
    parts = source.choice([(extra, inner), (inner, extra)])
    return resealed(draft, b"{" + b", ".join(parts) + b"}")


@BOOK.refused("E_JSON_DUPLICATE_KEY")
def key_twice_in_the_evidence(draft: Draft, source: Random) -> Files:
    """States the runs twice: good ones for the verifier, others for the gate."""
    files = draft.reseal().files()
    name = source.choice(["runs", "metrics", "tokens", "nonce"])
    extra = encode({name: draft.evidence[name]})[1:-1]
    return {**files, EVIDENCE: b"{" + extra + b", " + files[EVIDENCE][1:]}


@BOOK.refused("E_JSON_ENCODING", "E_JSON_SYNTAX")
def other_encoding(draft: Draft, source: Random) -> Files:
    """Writes the receipt in an encoding that some readers guess and others do not."""
    text = draft.files()[RECEIPT].decode()
    odd = [text.encode(name) for name in ("utf-8-sig", "utf-16", "utf-16-le", "utf-32")]
    odd.append(text.replace('"cpu"', '"cpu\u00ff"').encode("latin-1"))
    return resealed(draft, source.choice(odd))


@BOOK.refused("E_JSON_ENCODING")
def half_a_character(draft: Draft, source: Random) -> Files:
    """Leaves half a surrogate pair in a name, on which other programs fail."""
    half = f"\\u{source.randint(0xD800, 0xDFFF):04x}".encode()
    return resealed(draft, draft.files()[RECEIPT].replace(b'"linux', b'"' + half + b"linux", 1))


@BOOK.refused("E_JSON_NUMBER")
def number_that_is_none(draft: Draft, source: Random) -> Files:
    """Writes a rate that is no number, infinite, or digits without end."""
    rate = encode(draft.receipt["tokens_per_second"])
    digits = str(source.randint(1, 9)) * source.randint(65, 5000)
    odd = source.choice(["NaN", "Infinity", "-Infinity", "1e999", "-1e400", digits, f"1.{digits}"])
    return resealed(draft, draft.files()[RECEIPT].replace(rate, odd.encode(), 1))


@BOOK.refused("E_JSON_DEPTH")
def nested_without_end(draft: Draft, source: Random) -> Files:
    """Nests lists until a parser gives up, in the hope that giving up is taken for yes."""
    depth = source.choice([70, 500, 2000, 100_000])
    nested = b'{"x": ' + b"[" * depth + b"]" * depth + b", "
    return resealed(draft, nested + draft.files()[RECEIPT][1:])


@BOOK.refused("E_JSON_SYNTAX")
def two_documents(draft: Draft, source: Random) -> Files:
    """Puts a second document, a comment or a rest behind or into the first, or cuts it off."""
    text = draft.files()[RECEIPT]
    cut = source.randrange(1, len(text))
    odd = [text + text, text + b"// x", b"/**/" + text, text[:cut], text[:-1] + b",}", b"", b"x"]
    return resealed(draft, source.choice(odd))


@BOOK.refused("E_JSON_SIZE")
def padded(draft: Draft, source: Random) -> Files:
    """Pads the receipt until a reader stops early."""
    return resealed(draft, draft.files()[RECEIPT] + b" " * source.randint(1 << 20, 1 << 21))


@BOOK.refused("E_SCHEMA_VERSION", of=ONE)
def other_version(draft: Draft, source: Random) -> None:
    """Names a version for which no rule was written."""
    odd = ["2.0.0", "1.0.0 ", "1.0.00", "v1.0.0", "1", "", "1.0.0\n", "1.1", 1.0, None, ["1.0.0"]]
    draft.receipt["schema_version"] = source.choice(odd)


@BOOK.refused("E_COMPUTE_PATH", of=ONE)
def other_compute_path(draft: Draft, source: Random) -> None:
    """Says in small print that nothing was computed."""
    odd = ["mock", "Real", "real ", "simulated", "", "real\n", None, True, ["real"]]
    draft.receipt["compute_path"] = source.choice(odd)


@BOOK.refused(*TOP_LEVEL, of=ONE, then="alone")
def field_left_out(draft: Draft, source: Random) -> None:
    """Leaves out fields that contradict: three are enough for other verifiers."""
    for name in source.sample(list(draft.receipt), source.randint(1, 8)):
        del draft.receipt[name]


@BOOK.refused("E_SCHEMA", of=ONE, then="alone")
def field_of_another_type(draft: Draft, source: Random) -> None:
    """Writes a field as another type, which compares as the forger likes."""
    odd: dict[str, list[object]] = {
        "tokens_generated": [10.0, True, -1, "10"],
        "deterministic": ["true", 1],
        "environment": [{"BITNET_SEED": "42"}, {"OS": 7}, []],
        "model": [{}, "model.gguf", {"path": ""}],
    }
    name = source.choice(sorted(odd))
    draft.receipt[name] = source.choice(odd[name])


@BOOK.refused("E_SCHEMA", of=ONE)
def no_object(draft: Draft, source: Random) -> Files:
    """Hands in a list, a text or nothing where a receipt should be."""
    other: list[object] = [[draft.receipt], "ok", True, None, source.randrange(100)]
    return {RECEIPT: encode(source.choice(other))}
