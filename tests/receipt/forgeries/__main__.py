"""Write ``docs/forgeries.md``, the list of all kinds: ``python -m tests.receipt.forgeries``."""

from pathlib import Path

from tests.receipt.forgeries import DETECTABLE, UNDETECTABLE
from tests.receipt.forgeries.book import Kind

DOCUMENT = Path(__file__).parents[3] / "docs" / "forgeries.md"
_FATES = {
    "refused": "rejected",
    "lowered": "cannot reach OBSERVED",
    "suspected": "reported as a suspicion",
}
_HEAD = """\
# Forgeries

These are the forgeries that `verify-receipt` is tested against. Each kind starts from a receipt,
evidence and profile that flamegate measured. The forger then corrects every digest and every figure
that can be corrected by one recomputation, unless the kind is about a broken digest.

```bash
pytest tests/receipt/test_forgeries.py              # each kind once
pytest tests/receipt/test_forgeries.py -m nightly   # many variations of each
python -m tests.receipt.forgeries                   # writes this page
```

The tests also show for each rule that without it one of these forgeries gets through.
"""


def make_page() -> str:
    """Return the page: the kinds that are found, and those that pass."""
    found = _section(DETECTABLE, "kinds that are found", "result")
    return f"{_HEAD}\n{found}\n" + _section(
        UNDETECTABLE, "kinds that no verifier of files can find", "what would find it"
    )


def _section(kinds: tuple[Kind, ...], title: str, last: str) -> str:
    rows = [("group", "forgery", "what the forger does", last), ("---",) * 4]
    for kind in kinds:
        codes = ", ".join(f"`{code}`" for code in sorted(kind.codes))
        answer = kind.finds or f"{_FATES[kind.fate]}{': ' if codes else ''}{codes}"
        rows.append((kind.group, kind.name, kind.does, answer))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"## {len(kinds)} {title}\n\n{table}\n"


if __name__ == "__main__":
    DOCUMENT.write_text(make_page(), "utf-8")
