"""Write ``docs/tricks.md``: ``python -m tests.doors.tricks``."""

from pathlib import Path

from tests.doors.tricks.table import ALL, MEASURED, WITHOUT_MEASURING, Trick
from tests.doors.tricks.uploads import GREEN, UPLOADS, Upload

PATH = Path(__file__).parents[3] / "docs/tricks.md"
_INTRODUCTION = f"""\
# Tricks

{len(ALL)} ways to get a slower change past the gate, each with its answer. The tests play every one
of them in a repository with a real history:

```bash
pytest tests/doors/tricks                # without measuring
pytest tests/doors/tricks -m nightly     # engines and builds, measured: some 8 minutes
python -m tests.doors.tricks             # writes this page
```

A code or a verdict stops the trick. **green** means that the change passes. If it can
pass `flamegate check` too, [SECURITY.md](../SECURITY.md) gives the reason under the same name.
"""
_PARTS = (
    (
        "Tests, settings and policy",
        "The head is 30 % slower. Under pytest it runs `--flamegate --flamegate-against=base`, "
        "with `CI=true`.",
        WITHOUT_MEASURING,
    ),
    (
        "Engines and builds",
        "The head does 70 % more work, and tries to look as fast as the base. On a busy machine "
        "the answer may be `inconclusive`, which fails the check as well.",
        MEASURED,
    ),
    (
        "Uploads",
        "The job that measured a slower change edits the files that `flamegate check --receipts` "
        "judges.",
        UPLOADS,
    ),
)


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for title, text, tricks in _PARTS:
        has_pytest = tricks is WITHOUT_MEASURING
        head = ["trick", "what it does", *["under pytest"] * has_pytest, "flamegate check"]
        rows = [head, ["---"] * len(head)]
        rows += [_row(each, has_pytest=has_pytest) for each in tricks]
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append(f"## {title}\n\n{text}\n\n{table}\n")
    return "\n".join(parts)


def _row(trick: Trick | Upload, *, has_pytest: bool) -> list[str]:
    answers = [trick.by_pytest] * has_pytest if isinstance(trick, Trick) else []
    cells = [_show(each) for each in (*answers, trick.by_check)]
    return [f"`{trick.name}`", trick.does, *cells]


def _show(answer: str) -> str:
    words = answer.split(" or ") if answer else ()
    return " or ".join("**green**" if each == GREEN else f"`{each}`" for each in words) or "–"


if __name__ == "__main__":
    PATH.write_text(page())
