"""What is claimed, what was seen, and whether the one follows from the other.

Receipts and evidence as bytes and types, strict JSON, the published schemas, kernel
policies, the rules of honesty, and the store that keeps results whole.
"""

from pytest_flamegate.receipt.findings import Notice, Refusal
from pytest_flamegate.receipt.grades import Grade
from pytest_flamegate.receipt.verification import Verification
from pytest_flamegate.receipt.verify import verify_receipt

__all__ = ["Grade", "Notice", "Refusal", "Verification", "verify_receipt"]
