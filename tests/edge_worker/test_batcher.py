from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge_worker.core.batcher import Batcher, BatchLimits, Row
from edge_worker.core.fair_queue import Share
from edge_worker.core.run_cost import RunCost
from nearsay.wire.errors import Overloaded

LATE = 1e9


def batcher(*, step_ms: float = 0.0, token_ms: float = 1.0, **limits: float) -> Batcher[str]:
    """A batcher that expects exactly this."""
    made: Batcher[str] = Batcher(BatchLimits(**limits))  # type: ignore[arg-type]
    made.cost = RunCost(step_ms, token_ms)
    made._ms_per_token = step_ms + token_ms
    return made


def add(to: Batcher[str], item: str, tokens: int = 10, *, batch: bool = False, deadline: float = LATE) -> Row[str]:
    row = Row(item, tokens=tokens, interactive=not batch, deadline=deadline)
    to.add(row)
    return row


def items(rows: list[Row[str]]) -> str:
    return "".join(row.item for row in rows)


def test_what_waits_runs_at_once_and_in_order() -> None:
    b = batcher()
    for item in "abc":
        add(b, item, 2)
    assert items(b.take(0.0)[0]) == "abc"
    assert len(b) == 0 and len(b.running) == 3


def test_nothing_waits_nothing_runs() -> None:
    assert batcher().take(0.0) == ([], [])


def test_interactive_rows_go_first_and_batch_rows_fill_what_is_left() -> None:
    b = batcher(run_ms_max=25)
    for item in "xyz":
        add(b, item, 8, batch=True)
    add(b, "a", 8)
    assert items(b.take(0.0)[0]) == "axy"


def test_batch_rows_never_lengthen_an_interactive_batch() -> None:
    b = batcher(run_ms_max=100)
    add(b, "x", 9, batch=True)
    add(b, "a", 8)
    assert items(b.take(0.0)[0]) == "a"
    b.done(8.0)
    assert items(b.take(0.0)[0]) == "x"


def test_the_run_time_is_capped_while_interactive_rows_wait() -> None:
    b = batcher(run_ms_max=25, backlog_share=0.0)
    for item in "abcd":
        add(b, item, 10)
    assert items(b.take(0.0)[0]) == "ab"


def test_one_row_over_the_cap_runs_alone() -> None:
    b = batcher(run_ms_max=25, backlog_share=0.0)
    add(b, "a", 90)
    add(b, "b", 1)
    assert items(b.take(0.0)[0]) == "a"


def test_the_cap_grows_with_the_backlog_up_to_its_ceiling() -> None:
    b = batcher(run_ms_max=25, backlog_share=0.5, bulk_run_ms_max=60)
    for item in "abcdefgh":
        add(b, item, 10)
    assert items(b.take(0.0)[0]) == "abcd"  # half of 80 ms
    b.done(None)
    for item in "ijklmnopqrst":
        add(b, item, 10)
    assert items(b.take(0.0)[0]) == "efghij"  # 60 ms, not half of 160


def test_batch_rows_alone_are_capped_too() -> None:
    b = batcher(bulk_run_ms_max=30)
    for item in "vwxyz":
        add(b, item, 10, batch=True)
    assert items(b.take(0.0)[0]) == "vwx"


def test_batch_rows_alone_run_longer_once_no_interactive_row_has_run_for_a_while() -> None:
    b = batcher(run_ms_max=25, bulk_run_ms_max=60, calm_s=1.0)
    add(b, "a", 5)
    assert items(b.take(10.0)[0]) == "a"
    b.done(None)
    for item in "qrstuvwxyz":
        add(b, item, 10, batch=True)
    assert items(b.take(10.9)[0]) == "qr"
    b.done(None)
    assert items(b.take(11.0)[0]) == "stuvwx"


def test_rows_max() -> None:
    b = batcher(rows_max=2)
    for item in "abc":
        add(b, item, 1)
    assert items(b.take(0.0)[0]) == "ab"


def test_the_queue_is_bounded_and_says_when_to_come_back() -> None:
    b = batcher(rows_waiting_max=2)
    add(b, "a")
    add(b, "b", batch=True)
    with pytest.raises(Overloaded) as caught:
        add(b, "c")
    assert caught.value.retry_after_ms == pytest.approx(20.0)
    b.take(0.0)
    add(b, "c")


def test_a_row_that_cant_finish_in_time_is_given_up() -> None:
    b = batcher()
    add(b, "a", 10, deadline=1.005)  # needs 10 ms
    add(b, "b", 10, deadline=1.020)
    batch, expired = b.take(1.0)
    assert (items(batch), items(expired)) == ("b", "a")
    assert len(b) == 0


def test_a_discarded_row_never_runs() -> None:
    b = batcher()
    a, _ = add(b, "a"), add(b, "b")
    assert b.discard(a) and not b.discard(a)
    assert items(b.take(0.0)[0]) == "b"


def test_clear() -> None:
    b = batcher()
    add(b, "a"), add(b, "x", batch=True)
    assert items(b.clear()) == "ax" and len(b) == 0


def test_waiting_time_counts_what_runs_and_what_is_ahead() -> None:
    b = batcher(rows_max=1)
    assert b.wait_ms(0.0, interactive=True) == 0
    add(b, "a", 10)
    b.take(0.0)
    add(b, "b", 20)
    add(b, "x", 40, batch=True)
    assert b.wait_ms(0.004, interactive=True) == pytest.approx(6 + 20)
    assert b.wait_ms(0.004, interactive=False) == pytest.approx(6 + 60)
    b.done(10.0)
    assert b.wait_ms(0.010, interactive=True) == pytest.approx(20)


def test_it_learns_from_what_ran() -> None:
    b = Batcher[str](BatchLimits())
    for _ in range(50):
        add(b, "a", 10)
        b.take(0.0)
        b.done(100.0)
    assert b.cost.run_ms(10, 10) == pytest.approx(100, rel=0.05)
    add(b, "a", 10)
    assert b.wait_ms(0.0, interactive=True) == pytest.approx(100, rel=0.05)


def test_a_newcomer_does_not_wait_for_all_of_a_long_request() -> None:
    b = batcher(rows_max=2)
    long = Share()
    for _ in range(100):
        b.add(Row("x", tokens=10, interactive=True, deadline=LATE, share=long))
    assert b.wait_ms(0.0, interactive=True) == pytest.approx(10)  # behind what started with it
    assert b.wait_ms(0.0, interactive=True, share=long) == pytest.approx(1000)
    assert items(b.take(0.0)[0]) == "xx"
    b.done(None)
    add(b, "a", 5)
    add(b, "b", 5)
    assert items(b.take(0.0)[0]) == "ab"


class BatcherMachine(RuleBasedStateMachine):
    """Every row added leaves exactly once, in the order of its class; bounds hold at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.b: Batcher[int] = Batcher(BatchLimits(rows_max=4, rows_waiting_max=8))
        self.now = 0.0
        self.count = 0
        self.waiting: dict[Row[int], None] = {}

    @rule(tokens=st.integers(1, 200), interactive=st.booleans(), budget=st.floats(0, 2))
    def add(self, tokens: int, interactive: bool, budget: float) -> None:
        row = Row(self.count, tokens=tokens, interactive=interactive, deadline=self.now + budget)
        self.count += 1
        if len(self.waiting) < 8:
            self.b.add(row)
            self.waiting[row] = None
        else:
            with pytest.raises(Overloaded):
                self.b.add(row)

    @precondition(lambda self: not self.b.running)
    @rule()
    def take(self) -> None:
        queued = list(self.waiting)
        batch, expired = self.b.take(self.now)
        assert not set(batch) & set(expired)
        for row in (*batch, *expired):
            del self.waiting[row]
        assert bool(batch) or not self.waiting, "work waits and none was taken"
        for interactive in (True, False):
            ran = [row for row in batch if row.interactive is interactive]
            passed = [row for row in queued if row.interactive is interactive and row not in expired]
            assert ran == passed[: len(ran)]
        if any(row.interactive for row in batch):
            longest = max(row.tokens for row in batch if row.interactive)
            assert all(row.tokens <= longest for row in batch)
        if len(batch) > 1:
            expected = self.b.cost.run_ms(max(r.tokens for r in batch), sum(r.tokens for r in batch))
            assert expected <= self.b.limits.bulk_run_ms_max + 1e-6

    @precondition(lambda self: self.b.running)
    @rule(run_ms=st.floats(0.1, 500), failed=st.booleans())
    def done(self, run_ms: float, failed: bool) -> None:
        self.now += run_ms / 1000
        self.b.done(None if failed else run_ms)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(list(self.waiting)))
        assert self.b.discard(row)
        del self.waiting[row]

    @invariant()
    def bounded_and_counted(self) -> None:
        assert len(self.b) == len(self.waiting) <= 8 and len(self.b.running) <= 4
        assert self.b._interactive.tokens == sum(row.tokens for row in self.waiting if row.interactive)
        assert self.b._batch.tokens == sum(row.tokens for row in self.waiting if not row.interactive)


TestBatcherMachine = BatcherMachine.TestCase
TestBatcherMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_everything_runs_in_the_end(tokens: list[int]) -> None:
    b = batcher()
    for index, count in enumerate(tokens):
        add(b, str(index), count)
    seen = []
    while batch := b.take(0.0)[0]:
        seen += [row.item for row in batch]
        b.done(1.0)
    assert seen == [str(index) for index in range(len(tokens))]
