"""Receipts: claims about performance, the evidence for them, and whether the two agree."""

from pytest_flamegate.core.text import Notice, Refusal
from pytest_flamegate.receipt.types import Grade
from pytest_flamegate.receipt.verify import Verification, verify_receipt

__all__ = ["Grade", "Notice", "Refusal", "Verification", "verify_receipt"]
