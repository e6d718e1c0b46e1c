"""The echo engine keeps an engine's contract."""

from __future__ import annotations

import pytest

from origin.core.plan import Batch, Encode, Outcome, Plan, Row
from origin.engine.echo import EchoEngine
from tests.origin.build import EOS, model


def first(source: tuple[int, ...], draft: tuple[int, ...] = (), limit: int = 9) -> Plan:
    return Plan((Batch("m@1", (Encode(1, (0,), source, limit),), (Row(1, (0,), draft),)),))


AGAIN = Plan((Batch("m@1", (), (Row(1, (0,)),)),))


def test_the_source_comes_back_reversed_one_id_a_step_and_eos_is_not_said() -> None:
    engine = EchoEngine([model()])
    assert engine.run(first((5, 6, EOS))).outcomes == (Outcome(1, (6,)),)
    assert engine.run(AGAIN).outcomes == (Outcome(1, (5,)),)
    assert engine.run(AGAIN).outcomes == (Outcome(1, (), "stop"),)


def test_several_ids_a_step_and_a_limit() -> None:
    engine = EchoEngine([model()], ids_per_step=2)
    assert engine.run(first((4, 5, 6, EOS), limit=3)).outcomes == (Outcome(1, (6, 5)),)
    assert engine.run(AGAIN).outcomes == (Outcome(1, (4,), "stop"),)
    assert engine.run(first((4, 5, 6, EOS), limit=2)).outcomes == (Outcome(1, (6, 5), "length"),)


@pytest.mark.parametrize(
    ("draft", "ids", "accepted", "finish"),
    [
        ((6, 5, 4), (6, 5, 4), 3, "stop"),
        ((6, 9), (6, 5), 1, None),
        ((9,), (6,), 0, None),
        ((6, 5, 4, 9), (6, 5, 4), 3, "stop"),
    ],
)
def test_a_draft_stands_as_far_as_it_agrees(
    draft: tuple[int, ...], ids: tuple[int, ...], accepted: int, finish: str | None
) -> None:
    (outcome,) = EchoEngine([model()]).run(first((4, 5, 6, EOS), draft)).outcomes
    assert (outcome.ids, outcome.accepted, outcome.drafted, outcome.finish) == (ids, accepted, len(draft), finish)


def test_one_that_comes_back_goes_on_where_it_was() -> None:
    engine = EchoEngine([model()])
    back = Encode(1, (0,), (4, 5, 6, EOS), 9, produced=(6, 5))
    plan = Plan((Batch("m@1", (back,), (Row(1, (0,)),)),))
    assert engine.run(plan).outcomes == (Outcome(1, (4,)),)
    assert engine.run(AGAIN).outcomes == (Outcome(1, (), "stop"),)


def test_time_is_spent_by_the_source_the_step_and_its_rows() -> None:
    spent: list[float] = []
    engine = EchoEngine([model()], encode_token_s=1.0, step_s=10.0, row_s=100.0, spend=spent.append)
    (outcome,) = engine.run(first((5, 6, EOS))).outcomes
    engine.run(AGAIN)
    assert (spent, outcome.encode_s) == ([113.0, 110.0], 3.0)
