"""Let a fuzzer that watches the code's branches look for bytes that the verifier trips over.

``python -m tests.receipt.fuzz_atheris [libFuzzer's options, such as -max_total_time=3600]``. It
needs ``pip install atheris``, which is no dependency: ``tests.receipt.fuzz`` does without.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

_BORDER = b"\0\xff\0"
"""Between receipt, evidence and profile in one input; no part holds it."""


def main(arguments: list[str]) -> None:
    """Fuzz until told to stop; libFuzzer writes the input that broke something."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(
        include=["pytest_flamegate.receipt", "pytest_flamegate.profile"]
    ):
        from tests.receipt import fuzz, mutations

    def one(data: bytes) -> None:
        parts = data.split(_BORDER, 2)
        fuzz.answered(fuzz.ask(mutations.Case(*parts)))

    seeds = [sample.data for sample in mutations.receipts()]
    for triple in mutations.triples():
        parts = (triple.receipt, triple.evidence, triple.folded)
        seeds.append(_BORDER.join(part.data for part in parts))
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = ["-max_len=16384", "-timeout=30", *arguments, corpus]
        atheris.Setup([sys.argv[0], *options], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
