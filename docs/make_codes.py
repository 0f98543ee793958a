"""Write ``docs/codes.md``: every code that a user may see, its cause and its remedy.

Usage: ``python docs/make_codes.py`` in a checkout with the package installed.

The rows come from ``pytest_flamegate/ROOM/codes.toml``. An error without a remedy of its own takes
it from there too, so that nothing is stated twice::

    [E_NO_SAMPLES]
    cause = "The profiler attached, but the process used no CPU while it was sampled."
    remedy = "Take a longer workload, or raise --flamegate-budget."

The cause of a code of receipt rules is their sentences in ``pytest_flamegate/receipt/rules/``. A
cause in its row comes before them: it is that of errors which are no breach of a rule.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "pytest_flamegate"
PAGE = DOCS / "codes.md"
_CODE = re.compile(r"\b[EFIW]_[A-Z][A-Z0-9_]*[A-Z0-9]\b")
_HEADINGS = {
    "E": ("Errors", "An error ends the command or fails the test."),
    "F": (
        "Not usable as a baseline",
        "The receipt is honest, but a later run cannot be judged by it.",
    ),
    "I": ("Information", "A fact behind a verdict. It decides nothing by itself."),
    "W": ("Warnings", "The result counts, with the limitation that the warning names."),
}


class Row(NamedTuple):
    """One code: when it appears, and what to do about it."""

    code: str
    cause: str
    remedy: str
    source: str


def read_rows() -> list[Row]:
    """Return the rows of all rooms, sorted by code; a rule without a row raises ``KeyError``."""
    rules = _find_rule_causes()
    rows = []
    for path in sorted(PACKAGE.glob("*/codes.toml")):
        for code, entry in tomllib.loads(path.read_text("utf-8")).items():
            own, rule = entry.get("cause", ""), rules.pop(code, "")
            if own and rule:
                rule = rule.replace("This", "Or this", 1)
            cause = f"{own} {rule}".strip()
            rows.append(Row(code, cause, entry["remedy"], path.parent.name))
    if rules:
        raise KeyError(*rules)
    return sorted(rows)


def _find_rule_causes() -> dict[str, str]:
    from pytest_flamegate.receipt import rules
    from pytest_flamegate.receipt.rules.rule import Rulebook

    found: dict[str, str] = {}
    for module in iter_modules(rules.__path__, f"{rules.__name__}."):
        for book in vars(import_module(module.name)).values():
            for rule in book if isinstance(book, Rulebook) else ():
                # Rules may share a code; each of their sentences is a possible cause.
                cause = found.get(rule.code, "This does not hold:")
                if rule.sentence not in cause:
                    cause = f"{cause} {rule.sentence}"
                found[rule.code] = cause
    return found


@cache
def find_uses() -> dict[str, set[str]]:
    """Return the rooms of the package that use each code in a string.

    Docstrings do not count: they describe a code that is raised elsewhere.
    """
    uses: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for code in _CODE.findall(node.value) if id(node) not in docstrings else ():
                    uses.setdefault(code, set()).add(room)
    for path in sorted(PACKAGE.rglob("*.toml")):
        if path.name == "codes.toml":
            continue
        for code in _CODE.findall(path.read_text("utf-8")):
            uses.setdefault(code, set()).add(path.relative_to(PACKAGE).parts[0])
    return uses


def find_mentions() -> dict[str, set[str]]:
    """Return the files of the package and the documentation that mention each code."""
    mentions: dict[str, set[str]] = {}
    for path in (*PACKAGE.rglob("*.py"), *DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")):
        if path != PAGE and path.name != "CHANGELOG.md":
            for code in _CODE.findall(path.read_text("utf-8")):
                mentions.setdefault(code, set()).add(str(path.relative_to(DOCS.parent)))
    return mentions


def render(rows: list[Row]) -> str:
    """Return the page as Markdown."""
    parts = [
        "# Codes",
        "",
        "<!-- Written by docs/make_codes.py from pytest_flamegate/*/codes.toml. Do not edit. -->",
        "",
        "Each message of flamegate begins with a code. Search this page for it.",
    ]
    for letter, (heading, sentence) in _HEADINGS.items():
        chosen = [row for row in rows if row.code.startswith(f"{letter}_")]
        if chosen:
            parts += ["", f"## {heading}", "", sentence, "", "| code | cause | remedy |"]
            parts += ["|---|---|---|"]
            parts += [
                f"| `{row.code}` | {_cell(row.cause)} | {_cell(row.remedy)} |" for row in chosen
            ]
    return "\n".join([*parts, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(read_rows()), "utf-8")


if __name__ == "__main__":
    main()
