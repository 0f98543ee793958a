"""Does the gate close when it must, and stay open when it must? Tried out, here and now.

Some cases really measure: a function is given more work on one side. The others spoil what
was measured, each in one way, and hand it to the same judges as any run. ``CASES`` holds
them all, in the order of the table; a new case is one small function in ``measured`` or
``spoiled``, which register theirs as they are imported.
"""

from pytest_flamegate.selftest import measured, spoiled
from pytest_flamegate.selftest.bench import BUDGET_S, Asked, Bench, ask, open_bench
from pytest_flamegate.selftest.case import CASES, Result, Row, exit_code_of, try_all

__all__ = [
    "BUDGET_S",
    "CASES",
    "Asked",
    "Bench",
    "Result",
    "Row",
    "ask",
    "exit_code_of",
    "measured",
    "open_bench",
    "spoiled",
    "try_all",
]
