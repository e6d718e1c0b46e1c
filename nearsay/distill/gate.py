"""Whether new weights may replace the committed ones.

Decides from scores alone: the student within 2 BLEU of its teacher, int8 within 0.5 of the student, and nothing below
what is committed. The ladder says where the pair stands; it refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearsay.distill.evaluate import Scores

STUDENT_GAP_MAX = 2.0
INT8_GAP_MAX = 0.5
REGRESSION_MAX = 0.005  # scores have two decimals
LADDER_SET = "tatoeba.dev"
LADDER = (30.0, 34.0, 38.0)


@dataclass(frozen=True, slots=True)
class Check:
    """value: the BLEU gap, of which at most `limit` is allowed."""

    name: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.value <= self.limit


def gate(new: Scores, committed: Scores | None) -> list[Check]:
    """Every check, passed or not. Only models and sets that both sides have are compared with the committed scores."""
    checks: list[Check] = []
    for better, worse, limit in (
        ("teacher", "student", STUDENT_GAP_MAX),
        ("student", "student-int8", INT8_GAP_MAX),
    ):
        for name, reference in new.models[better].items():
            gap = round(reference.bleu - new.models[worse][name].bleu, 2)
            checks.append(Check(f"{worse} below {better} on {name}", gap, limit))
    for role, sets in (committed.models if committed else {}).items():
        for name, old in sets.items():
            if name in new.models.get(role, {}):
                loss = round(old.bleu - new.models[role][name].bleu, 2)
                checks.append(Check(f"{role} below the committed weights on {name}", loss, REGRESSION_MAX))
    return checks


def ladder(scores: Scores, role: str) -> tuple[float, int]:
    """BLEU on the ladder's set and how many rungs it reaches."""
    bleu = scores.models[role][LADDER_SET].bleu
    return bleu, sum(bleu >= rung for rung in LADDER)
