from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_worker.core.fair_queue import FairQueue, Share


def served(queue: FairQueue[str], count: int) -> str:
    out = ""
    for _ in range(count):
        item = next(iter(queue))
        queue.serve(item)
        out += item[0]
    return out


def test_alone_a_request_is_served_in_order() -> None:
    queue, share = FairQueue[str](), Share()
    for item in "abc":
        queue.add(item, 5, share)
    assert served(queue, 3) == "abc"


def test_two_requests_take_turns_by_tokens() -> None:
    queue, large, small = FairQueue[str](), Share(), Share()
    for index in range(4):
        queue.add(f"L{index}", 20, large)
    for index in range(8):
        queue.add(f"s{index}", 10, small)
    first = served(queue, 6)
    assert (first.count("L"), first.count("s")) == (2, 4)
    assert served(queue, 6).count("L") == 2


def test_a_newcomer_goes_before_what_has_not_started() -> None:
    queue, large = FairQueue[str](), Share()
    for index in range(50):
        queue.add(f"L{index}", 20, large)
    assert served(queue, 10) == "L" * 10
    queue.add("n", 20, Share())
    assert queue.tokens_before(Share()) == 20
    assert served(queue, 2) == "nL"


def test_a_request_gains_nothing_by_having_been_idle() -> None:
    queue, large, late = FairQueue[str](), Share(), Share()
    queue.add("l", 1, late)
    assert served(queue, 1) == "l"
    for index in range(20):
        queue.add(f"L{index}", 10, large)
    served(queue, 10)
    for index in range(20):
        queue.add(f"l{index}", 10, late)
    assert sorted(served(queue, 10)) == sorted("LlLlLlLlLl")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100), st.sampled_from(["add", "serve", "remove"]))))
def test_nothing_is_lost_and_requests_keep_their_order(steps: list[tuple[int, int, str]]) -> None:
    queue, shares = FairQueue[tuple[int, int]](), [Share() for _ in range(4)]
    waiting: dict[tuple[int, int], int] = {}
    for number, (request, tokens, step) in enumerate(steps):
        if step == "add":
            queue.add((request, number), tokens, shares[request])
            waiting[request, number] = tokens
        elif waiting and step == "serve":
            item = next(iter(queue))
            assert item == min(other for other in waiting if other[0] == item[0])
            queue.serve(item)
            del waiting[item]
        elif waiting:
            item = next(iter(waiting))
            assert queue.remove(item) and not queue.remove(item)
            del waiting[item]
        assert set(queue) == set(waiting) and len(queue) == len(waiting)
        assert queue.tokens == sum(waiting.values())
