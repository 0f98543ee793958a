"""What is claimed, what was seen, and whether the one follows from the other.

Receipts and evidence as bytes and types, strict JSON, the published schemas, kernel
policies, the rules of honesty, and the store that keeps results whole.
"""

from __future__ import annotations

from pytest_flamegate.core.text import Notice, Refusal
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.verify import Verification, verify_receipt

__all__ = ["Grade", "Notice", "Refusal", "Verification", "verify_receipt"]
