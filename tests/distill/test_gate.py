from __future__ import annotations

import msgspec
import pytest

from nearsay.distill.evaluate import Score, Scores
from nearsay.distill.gate import gate, ladder


def scores(teacher: float = 34.0, student: float = 33.0, int8: float = 32.8) -> Scores:
    roles = {"teacher": teacher, "student": student, "student-int8": int8}
    models = {role: {"tatoeba.dev": Score(bleu=bleu, chrf=50.0, pairs=10)} for role, bleu in roles.items()}
    return Scores(signatures={"bleu": "x"}, models=models)


def failed(new: Scores, committed: Scores | None = None) -> list[str]:
    return [check.name for check in gate(new, committed) if not check.passed]


@pytest.mark.parametrize(
    ("new", "names"),
    [
        (scores(), []),
        (scores(student=32.0, int8=31.5), []),
        (scores(student=31.9, int8=31.9), ["student below teacher on tatoeba.dev"]),
        (scores(int8=32.49), ["student-int8 below student on tatoeba.dev"]),
        (scores(student=40.0, int8=40.0), []),
    ],
)
def test_the_limits_hold_exactly(new: Scores, names: list[str]) -> None:
    assert failed(new) == names


def test_nothing_may_fall_below_the_committed_weights() -> None:
    assert failed(scores(), scores()) == []
    assert failed(scores(), scores(int8=32.9)) == ["student-int8 below the committed weights on tatoeba.dev"]
    assert failed(scores(teacher=33.99), scores()) == ["teacher below the committed weights on tatoeba.dev"]


def test_a_set_that_only_one_side_has_is_not_compared() -> None:
    old = scores()
    models = {role: {"other": Score(bleu=99.0, chrf=1.0, pairs=1)} for role in old.models}
    assert failed(scores(), msgspec.structs.replace(old, models=models)) == []


@pytest.mark.parametrize(("bleu", "rungs"), [(29.99, 0), (30.0, 1), (34.5, 2), (38.0, 3)])
def test_the_ladder_counts_rungs(bleu: float, rungs: int) -> None:
    assert ladder(scores(int8=bleu), "student-int8") == (bleu, rungs)
