"""How far a receipt may be believed, from its author's word upwards."""

from __future__ import annotations

from enum import IntEnum

from pytest_flamegate.core.errors import UsageError


class Grade(IntEnum):
    """The grades, lowest first; missing evidence only lowers the grade.

    REPLAYED asks for a replay, which is run apart from the verifying. ATTESTED says who answers for
    the observation; it does not mean that it was replayed.
    """

    SELF_REPORTED = 1
    CONSISTENT = 2
    OBSERVED = 3
    REPLAYED = 4
    ATTESTED = 5

    @classmethod
    def parse(cls, name: str) -> Grade:
        """Return the grade called ``name`` in any case; UsageError for any other name."""
        try:
            return cls[name.strip().upper().replace("-", "_")]
        except KeyError:
            known = ", ".join(grade.name for grade in cls)
            raise UsageError(
                "E_UNKNOWN_GRADE", f"There is no grade {name!r}.", f"Choose one of {known}."
            ) from None

    @property
    def ceiling(self) -> str:
        """One sentence: what acceptance at this grade would prove, and no more."""
        return f"what a green answer would prove: {_PROOFS[self]}. Nothing more."

    @property
    def remedy(self) -> str:
        """How to reach this grade."""
        if self is Grade.ATTESTED:
            return "Have it signed with flamegate sign and give the signer's public key."
        if self is Grade.REPLAYED:
            return "Run it again here and let that hold: add --replay. Or ask for less."
        return "Keep evidence.json and profile.folded beside the receipt, or ask for less."


_PROOFS = {
    Grade.SELF_REPORTED: "nothing: it breaks a rule or cannot be read",
    Grade.CONSISTENT: (
        "this receipt is well-formed and does not contradict itself; its figures are unverified "
        "claims of its author"
    ),
    Grade.OBSERVED: (
        "these numbers were observed by flamegate on a machine whose owner is trusted"
    ),
    Grade.REPLAYED: (
        "these figures were obtained again here, by the same program and model: the same tokens, "
        "and a rate within the reported interval; nothing finer than that interval, and "
        "nothing about the profile"
    ),
    Grade.ATTESTED: (
        "the holder of a trusted key says that flamegate observed these numbers; a signature "
        "proves who said it, not that it happened, and an old signed receipt that is shown again "
        "is only refused by its age (--max-age)"
    ),
}
