"""Write ``docs/forgeries.md``, the list of all kinds: ``python -m tests.receipt.forgeries``."""

from collections.abc import Iterable
from pathlib import Path

from tests.receipt.forgeries import DETECTABLE, UNDETECTABLE
from tests.receipt.forgeries.book import FATES, Kind

DOCUMENT = Path(__file__).parents[3] / "docs" / "forgeries.md"
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
    columns = ("group", "forgery", "what the forger does")
    parts = [
        (DETECTABLE, "kinds that are found", "result"),
        (UNDETECTABLE, "kinds that no verifier of files can find", "what would find it"),
    ]
    sections = [
        f"## {len(kinds)} {title}\n\n{_table(kinds, (*columns, last))}\n"
        for kinds, title, last in parts
    ]
    return "\n".join([_HEAD, *sections])


def _table(kinds: Iterable[Kind], head: tuple[str, ...]) -> str:
    rows = [head, tuple("---" for _ in head)]
    for kind in kinds:
        codes = ", ".join(f"`{code}`" for code in sorted(kind.codes))
        fate = f"{FATES[kind.fate]}{': ' if codes else ''}{codes}"
        rows.append((kind.group, kind.name, kind.does, kind.finds or fate))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    DOCUMENT.write_text(make_page(), "utf-8")
