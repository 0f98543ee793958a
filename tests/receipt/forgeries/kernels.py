"""Forged kernels: names of work that was not done."""

from random import Random

from tests.receipt.forgeries.book import ONE, SERVED, Book, alone
from tests.receipt.forgeries.draft import Draft, Files
from tests.receipt.forgeries.reports import by_word

BOOK = Book("kernels")


def as_bitnet(draft: Draft, kernels: list[str]) -> Files:
    """Return the receipt by itself as BitNet's, with these kernels."""
    draft.receipt["kernels"] = kernels
    draft.receipt["environment"].pop("FLAMEGATE_ENGINE")
    return alone(draft)


@BOOK.refused("E_KERNEL_UNSEEN")
def kernel_copied(draft: Draft, source: Random) -> None:
    """Adds a kernel's name that stands in other receipts."""
    name = source.choice(["i2s_gemv", "tl1_lut_gemm", "ggml_mul_mat", "avx512_matmul"])
    draft.receipt["kernels"].append(f"{name}_{source.randrange(1000)}")


@BOOK.refused("E_KERNEL_UNSEEN")
def kernel_with_a_sighting(draft: Draft, source: Random) -> None:
    """Adds a kernel and says that the profile shows it."""
    name = f"i2s_gemv_{source.randrange(1000)}"
    draft.receipt["kernels"].append(name)
    sighting = {"name": name, "source": "profile", "count": source.randint(1, 500)}
    draft.evidence["kernels"].insert(source.randrange(2), sighting)


@BOOK.refused("E_KERNEL_UNSEEN")
def sightings_multiplied(draft: Draft, source: Random) -> None:
    """Says that a kernel was seen more often than its stacks have samples."""
    sighting = source.choice(draft.evidence["kernels"])
    sighting["count"] += draft.profile["samples"] + source.randint(1, 10**6)


@BOOK.refused("E_KERNEL_UNSEEN")
def never_seen_by_the_engine(draft: Draft, source: Random) -> None:
    """Claims a kernel that the engine lists and never called."""
    name = f"tl2_gemm_{source.randrange(1000)}"
    draft.receipt["kernels"].append(name)
    draft.evidence["kernels"].append({"name": name, "source": "engine", "count": 0})


@BOOK.lowered("W_KERNELS_FROM_ENGINE")
def kernels_by_hearsay(draft: Draft, source: Random) -> None:
    """Lets the engine vouch for kernels that no stack shows."""
    names = [f"matmul_avx_{source.randrange(1000)}", "gemv_fused"]
    draft.receipt["kernels"] = names
    draft.evidence["kernels"] = []
    by_word(draft, {name: source.randint(1, 10**6) for name in names})


@BOOK.lowered("W_KERNELS_FROM_ENGINE")
def hearsay_behind_a_fig_leaf(draft: Draft, source: Random) -> None:
    """Adds a kernel by the engine's word alone to those that the profile shows."""
    name = f"matmul_avx_{source.randrange(1000)}"
    draft.receipt["kernels"].append(name)
    by_word(draft, {name: 1000})


@BOOK.lowered("W_KERNELS_FROM_ENGINE")
def hearsay_behind_an_unclaimed_kernel(draft: Draft, source: Random) -> None:
    """Claims kernels by hearsay alone, and keeps the sightings of others that are not claimed."""
    name = f"matmul_avx_{source.randrange(1000)}"
    draft.receipt["kernels"] = [name]
    by_word(draft, {name: 1000})


@BOOK.refused("E_MOCK_KERNEL", then="recount")
def mock_that_ran(draft: Draft, source: Random) -> None:
    """Runs a mock, whose name says so, and hopes that no reader gets to the end of the list."""
    mock = source.choice(["mock_gemv", "gemv_Mock", "MOCK", "i2s_mOcK_gemv"])
    hot = source.choice(draft.receipt["kernels"][1:] or draft.receipt["kernels"])
    draft.rename(hot, f"{mock}_gemm")


@BOOK.refused("E_HIDDEN_CHARACTER", then="alone")
def name_with_something_in_it(draft: Draft, source: Random) -> None:
    """Hides a character in a name: it reads as another, ends a line, or turns text round."""
    hidden = source.choice("\u202e\u200b\n\r\x1b\u2066\u3164\u00a0\x1f")
    name = source.choice(["i2s{}gemv", "{}gemm", "dot{}"]).format(hidden)
    draft.receipt["kernels"].append(name)


@BOOK.refused("E_HIDDEN_CHARACTER", then="alone")
def name_with_an_edge(draft: Draft, source: Random) -> None:
    """Ends a name in a space, so that a list of forbidden names misses it."""
    draft.receipt["kernels"].append(source.choice([" gemm_fp16", "gemm_fp16 ", " dot "]))


@BOOK.refused("E_KERNELS", then="recount")
def name_without_end(draft: Draft, source: Random) -> None:
    """Gives a kernel a name that is long in bytes and short in letters."""
    hot = source.choice(draft.receipt["kernels"])
    name = source.choice(["é", "漢"]) * source.randint(65, 120)
    draft.rename(hot, f"gemm_{name}")


@BOOK.refused("E_NO_COMPUTE_KERNEL")
def fallback_under_a_quantised_name(draft: Draft, source: Random) -> Files:
    """Puts a quantised prefix before the name of the fallback that ran."""
    fallback = source.choice(["dequant_fp32", "fp32_matmul", "cpu_dequant_f32", "scalar_fallback"])
    return as_bitnet(draft, [f"{source.choice(['i2s', 'tl1', 'tl2'])}_{fallback}"])


@BOOK.refused("E_NO_COMPUTE_KERNEL", of=SERVED, then="alone")
def nothing_that_computes(draft: Draft, source: Random) -> None:
    """Names only kernels that run beside inference: nothing in the list multiplies."""
    names = ["rope_apply", "embedding_lookup", "sample_token", "softmax"]
    source.shuffle(names)
    draft.receipt["environment"]["FLAMEGATE_ENGINE"] = "embedded"
    draft.receipt["kernels"] = names[: source.randint(1, 4)]


@BOOK.refused("E_KERNEL_PATH")
def native_that_fell_back(draft: Draft, source: Random) -> Files:
    """Claims the native path and leaves the count of fallbacks beside it."""
    draft.receipt |= {
        "schema_version": "1.1.0",
        "kernel_path": "native_quantized",
        "quantization": {"types_used": ["I2S"], "fallback_count": source.randint(1, 10**4)},
    }
    return as_bitnet(draft, ["i2s_gemv"])


@BOOK.refused("E_KERNEL_PATH")
def fallbacks_not_counted(draft: Draft, source: Random) -> Files:
    """Counts no fallback and names one."""
    draft.receipt |= {"schema_version": "1.1.0", "quantization": {"fallback_count": 0}}
    return as_bitnet(draft, ["i2s_gemv", source.choice(["fp32_matmul", "matmul_f32"])])


@BOOK.refused("E_KERNELS", then="alone")
def list_that_is_none(draft: Draft, source: Random) -> None:
    """Gives no names, blank ones, too many or something else, so that no rule bites."""
    draft.receipt["kernels"] = source.choice(
        [[], [""], ["  "], [7], [None], None, "i2s_gemv", {"i2s_gemv": 1}, ["i2s_gemv"] * 10_001]
    )


@BOOK.suspected("W_DUPLICATE_KERNELS")
def list_padded(draft: Draft, source: Random) -> None:
    """Repeats its few names, where many were expected."""
    draft.receipt["kernels"] *= source.randint(2, 9)


@BOOK.passes("Replay with a profiler of one's own: no such function runs.", of=ONE, then="recount")
def kernel_that_is_a_name(draft: Draft, source: Random) -> None:
    """Calls any function of the engine by a kernel's name before it is measured."""
    name = f"i2s_gemv_avx512_{source.randrange(1000)}"
    draft.rename(draft.receipt["kernels"][0], name)
