from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from nearsay.runtime.backoff import Backoff


@given(st.integers(), st.floats(0.001, 1.0), st.floats(1.0, 100.0))
def test_doubles_to_the_cap_within_its_jitter(seed: int, min_s: float, max_s: float) -> None:
    backoff = Backoff(min_s, max_s, random.Random(seed))
    step = min_s
    for _ in range(30):
        assert step / 2 <= backoff.next() <= step
        step = min(step * 2, max_s)
    backoff.reset()
    assert backoff.next() <= min_s


def test_two_peers_do_not_march_in_step() -> None:
    first, second = (Backoff(0.1, 5.0, random.Random(seed)) for seed in (1, 2))
    assert [first.next() for _ in range(5)] != [second.next() for _ in range(5)]
