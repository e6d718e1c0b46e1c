from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsay.lab.schedule import Arrivals, arrivals

KINDS = pytest.mark.parametrize("kind", ["poisson", "constant"])


@KINDS
@given(rate=st.floats(0.1, 1_000), duration_s=st.floats(0, 5), seed=st.integers(0, 9))
def test_ascending_and_within_the_duration(kind: Arrivals, rate: float, duration_s: float, seed: int) -> None:
    due = list(itertools.islice(arrivals(kind, rate, duration_s, random.Random(seed)), 10_000))
    assert due == sorted(due)
    assert all(0 <= instant < duration_s for instant in due)


@KINDS
def test_the_rate_is_kept(kind: Arrivals) -> None:
    assert len(list(arrivals(kind, 100.0, 100.0, random.Random(1)))) == pytest.approx(10_000, rel=0.03)


def test_constant_adds_up_no_error() -> None:
    assert list(arrivals("constant", 3.0, 100.0, random.Random()))[-1] == 299 / 3


def test_poisson_gaps_spread_as_much_as_they_last() -> None:
    due = list(arrivals("poisson", 10.0, 1_000.0, random.Random(2)))
    gaps = [after - before for before, after in itertools.pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert spread == pytest.approx(mean, rel=0.05)


def test_same_seed_same_schedule() -> None:
    first, second = (list(arrivals("poisson", 50.0, 2.0, random.Random(7))) for _ in range(2))
    assert first == second
