"""The table of knobs as Markdown, made from the code: ``python -m tests.workload.knobs_table``."""

from __future__ import annotations

from pytest_flamegate.observe.environment import VARIABLES


def table() -> str:
    """Return the table, a line for each knob, ending in a line break."""
    rows = [
        f"| `{knob.name}={knob.value}` | {', '.join(sorted(knob.engines))} | {knob.why} | "
        f"before {knob.since} |"
        for knob in VARIABLES
    ]
    head = ["| variable | engines | what it settles | has to be set |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    print(table(), end="")
