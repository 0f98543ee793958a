"""HTML in small pieces, and a page that loads nothing.

The page's security policy admits its own script and style by their hashes and nothing more: no
network, no inline handler, no style attribute. Foreign text is always escaped.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from pytest_flamegate.report.difference import SHADES
from pytest_flamegate.report.flame import shades
from pytest_flamegate.report.svg import Shade, xml_text
from pytest_flamegate.report.text import read_asset

SCRIPTS = ("dom", "profile", "chart", "tip", "search", "table", "words", "flame", "page")
"""In the order in which they are joined: each uses those before it."""


text = xml_text
"""Make foreign text harmless, as in a picture."""


def element(tag: str, *children: str, **attributes: str) -> str:
    """Return one element; children are markup, attributes are text.

    ``class_`` and ``data_flame`` become ``class`` and ``data-flame``.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(value, 2000)}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{''.join(children)}</{tag}>"


def lines(tag: str, texts: Iterable[str], **attributes: str) -> str:
    """Return one element for each text; nothing for an empty one."""
    return "".join(element(tag, text(each, 2000), **attributes) for each in texts if each)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[int] = (),
    caption: str = "",
    **attributes: str,
) -> str:
    """Return a table that scrolls if it is too wide; cells are markup already.

    The columns numbered in ``right`` hold figures. The first cell of a row is its heading.
    """

    def row(cells: Iterable[str], scope: str) -> str:
        made = []
        for index, cell in enumerate(cells):
            kind = {"class_": "figure"} if index in right else {}
            is_heading = scope == "col" or index == 0
            heading = {"scope": scope} if is_heading else {}
            made.append(element("th" if is_heading else "td", cell, **heading, **kind))
        return element("tr", *made)

    parts = [
        element("caption", text(caption)) if caption else "",
        element("thead", row(map(text, head), "col")),
        element("tbody", *(row(each, "row") for each in rows)),
    ]
    # Focusable, so that a wide table scrolls by keys too.
    return element("div", element("table", *parts, **attributes), class_="scroll", tabindex="0")


def data(name: str, value: Mapping[str, object]) -> str:
    """Return ``value`` as data with the id ``name``; nothing in it can end the element."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        written = written.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{name}">{written}</script>'


def document(title: str, body: Iterable[str]) -> str:
    """Return a whole page that holds ``body``, which is markup."""
    policy = (
        f"default-src 'none'; script-src {_hash(script())}; style-src {_hash(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    content = "\n".join(body)
    # The icon is empty, so that no browser asks for one.
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>{style()}</style>
</head>
<body>
{content}
<script>{script()}</script>
</body>
</html>
"""


@cache
def script() -> str:
    """Return all scripts as one, in a scope of its own."""
    parts = [read_asset(f"{name}.js") for name in SCRIPTS]
    return "\n".join(['(() => {\n"use strict";', *parts, "})();"])


@cache
def style() -> str:
    """Return the style sheet with the palette's colours."""
    rules = [_rule(f"tone-{name}", shade) for name, shade in shades().items()]
    rules += [_rule(f"change-{name}", shade) for name, shade in SHADES.items()]
    return "\n".join([read_asset("page.css"), read_asset("flame.css"), *rules, ""])


def _rule(name: str, shade: Shade) -> str:
    fill = f"light-dark({shade.light},{shade.dark})"
    ink = f"light-dark({shade.light_ink},{shade.dark_ink})"
    edge = f";--outline:light-dark({shade.edge[0]},{shade.edge[1]})" if shade.edge else ""
    return f".{name}{{--fill:{fill};--on-fill:{ink}{edge}}}"


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
