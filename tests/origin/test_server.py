"""The link handler over a memory transport: answers, streams, errors, cancels, lost links, drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nearsay.runtime.link import EndOfStream, Peer, Stream
from nearsay.runtime.metrics import Metrics
from nearsay.wire.errors import LinkLost, NearsayError
from nearsay.wire.messages import Finished, Message, Submit, Tokens, Translate, pack_ids, unpack_ids
from origin.core.plan import Effect, Fault, Outcome, Plan, Result
from origin.core.scheduler import Limits, Scheduler
from origin.core.sessions import SessionLimits, Sessions
from origin.door import Door
from origin.engine.echo import EchoEngine
from origin.engine_loop import EngineLoop
from origin.server import OriginServer
from tests.origin.build import EOS, model, submit
from tests.runtime.kit import TIMEOUT_S, Rig, rig, turns


class Room:
    """An origin of which the test is the engine thread: nothing decodes unless `step` is called."""

    def __init__(self, slots: int, **limits: int) -> None:
        self.now = 0.0
        self.hand_over_s = 0.0  # from the engine's thread
        self.metrics = Metrics("origin")
        self.drafts: list[str] = []
        engine = EchoEngine([model(slots=slots)], step_s=0.5, encode_token_s=0.01, spend=self.spend)
        self.loop = EngineLoop(
            engine,
            lambda models: Scheduler(models, Limits(**limits)),
            clock=lambda: self.now,
            deliver=self.deliver,
        )
        sessions = Sessions(SessionLimits(idle_s=100.0))
        door = Door(budget_ms_max=60_000.0, count_draft=self.drafts.append, sessions=sessions)
        door.open(self.loop.load())
        self.server = OriginServer(door, self.loop, self.metrics, lambda: self.now, sessions)

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def deliver(self, effects: list[Effect]) -> None:
        self.now += self.hand_over_s
        self.server.perform(effects)

    async def arrived(self, count: int) -> None:
        """Until so many callers wait."""
        await turns(lambda: len(self.server) == count)

    async def step(self, times: int = 1) -> None:
        """Steps of the engine, and time for what they say to travel."""
        for _ in range(times):
            self.loop.step()
            for _ in range(20):
                await asyncio.sleep(0)


@asynccontextmanager
async def room(slots: int = 4, **limits: int) -> AsyncIterator[tuple[Room, Peer, Rig]]:
    """At the end no caller, slot or stream may be left."""
    made = Room(slots, **limits)
    async with rig("memory", made.server.submit) as links:
        yield made, await links.peer(), links
        await made.step()
        await made.arrived(0)
    await made.step()
    assert made.loop.load_now.slots_free == slots and made.loop.load_now.running == 0
    made.loop.scheduler.check()


async def all_of(stream: Stream) -> list[Message]:
    async with asyncio.timeout(TIMEOUT_S):
        return [message async for message in stream]


async def code_of(stream: Stream) -> str:
    with pytest.raises(NearsayError) as caught:
        await all_of(stream)
    return caught.value.code


async def test_an_answer_and_its_stage_times() -> None:
    async with room() as (origin, peer, _):
        stream = await peer.open(submit((5, 6, EOS)))
        await origin.arrived(1)
        origin.now += 2.0
        origin.hand_over_s = 0.25
        await origin.step(3)
        (answer,) = await all_of(stream)
        assert isinstance(answer, Finished)
        assert (tuple(unpack_ids(answer.ids)), answer.finish_reason, answer.model) == ((6, 5), "stop", "m@1")
        assert answer.stages_ms == pytest.approx(
            {"origin_queue": 2000.0, "encode": 30.0, "decode": 1500.0, "origin_link": 250.0}
        )
        assert answer.accounted_ms == pytest.approx(sum(answer.stages_ms.values()))
        assert answer.steps == 3
        stages = {(s["stage"], s["tier"], s["bucket"]) for s in origin.metrics.snapshot()["stages"]}
        assert ("decode", "origin", "1-16 tokens") in stages and ("e2e", "origin", "1-16 tokens") in stages


async def test_tokens_stream_and_the_end_has_them_all() -> None:
    async with room() as (origin, peer, _):
        stream = await peer.open(submit((4, 5, 6, EOS), stream=True))
        await origin.arrived(1)
        await origin.step()
        assert await stream.receive() == Tokens(pack_ids([6]))
        await origin.step()
        assert await stream.receive() == Tokens(pack_ids([5]))
        await origin.step(2)
        *rest, end = await all_of(stream)
        assert rest == [Tokens(pack_ids([4]))]
        assert isinstance(end, Finished) and tuple(unpack_ids(end.ids)) == (6, 5, 4)


async def test_tokens_that_come_faster_than_the_caller_reads_arrive_together() -> None:
    async with room() as (origin, peer, _):
        stream = await peer.open(submit((4, 5, 6, EOS), stream=True))
        await origin.arrived(1)
        for _ in range(3):
            origin.loop.step()
        await origin.step(1)
        ids: list[int] = []
        for message in await all_of(stream):
            assert isinstance(message, Tokens | Finished)
            if isinstance(message, Tokens):
                ids += unpack_ids(message.ids)
        assert ids in ([], [6, 5, 4])


async def test_a_draft_is_reported() -> None:
    async with room() as (origin, peer, _):
        stream = await peer.open(submit((4, 5, 6, EOS), draft_ids=pack_ids([6, 5, 9])))
        await origin.arrived(1)
        await origin.step(2)
        (answer,) = await all_of(stream)
        assert isinstance(answer, Finished)
        assert (answer.draft_tokens, answer.draft_accepted, answer.steps) == (3, 2, 2)
        assert (origin.server.draft_tokens, origin.server.draft_tokens_accepted) == (3, 2)


async def answered(origin: Room, peer: Peer, message: Submit) -> Finished:
    """Decode until the answer is there."""
    stream = await peer.open(message)
    await turns(lambda: len(origin.server) == 1 or stream.ended)
    for _ in range(10):
        await origin.step()
    (answer,) = await all_of(stream)
    assert isinstance(answer, Finished)
    return answer


async def test_typing_on_in_a_session_decodes_only_what_is_new() -> None:
    async with room() as (origin, peer, _):
        typed = [(4, EOS), (4, 5, EOS), (4, 5, EOS), (4, 5, 6, EOS)]
        answers = [await answered(origin, peer, submit(source, session="s", tenant="t")) for source in typed]
        assert [tuple(unpack_ids(answer.ids)) for answer in answers] == [(4,), (5, 4), (5, 4), (6, 5, 4)]
        assert [answer.steps > 0 for answer in answers] == [True, True, False, True]  # the same again is known
        assert [answer.draft_tokens > 0 for answer in answers] == [False, True, False, True]
        other = await answered(origin, peer, submit((4, 5, EOS), session="s", tenant="u"))
        assert other.steps > 0 and other.draft_tokens == 0  # of another tenant nothing is known
        more = await answered(origin, peer, submit((4, 5, EOS), session="s", tenant="t", want_log_prob=True))
        assert more.steps > 0  # what a session doesn't keep is decoded
        origin.now += 200.0
        late = await answered(origin, peer, submit((4, 5, EOS), session="s", tenant="t"))
        assert late.steps > 0 and late.draft_tokens == 0  # forgotten by then
        assert origin.metrics.snapshot()["counters"]["sequences{reason=session}"] == 1


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (submit(model="other@1"), "unknown_model"),
        (submit(src_vocab_hash="x"), "model_mismatch"),
        (submit((5,) * 256 + (EOS,)), "source_too_long"),
        (submit((5, 6)), "invalid_request"),
        (Translate("r", ("text",), "en", "de"), "invalid_request"),
    ],
)
async def test_what_the_door_refuses_is_rejected_at_once(message: Message, code: str) -> None:
    async with room() as (origin, peer, _):
        assert await code_of(await peer.open(message)) == code
        assert len(origin.server) == 0


async def test_a_full_queue_is_overloaded_with_a_hint() -> None:
    async with room(slots=1, queue_max=1) as (origin, peer, _):
        streams = [await peer.open(submit()) for _ in range(2)]
        await origin.arrived(2)
        await origin.step()
        with pytest.raises(NearsayError) as caught:
            await all_of(streams[1])
        assert (caught.value.code, caught.value.retry_after_ms) == ("overloaded", 0.0)
        await origin.step(2)
        assert len(await all_of(streams[0])) == 1


async def test_out_of_time_in_the_queue_and_in_a_slot() -> None:
    async with room(slots=1) as (origin, peer, _):
        running = await peer.open(submit(budget_ms=3000.0))
        waiting = await peer.open(submit(budget_ms=4000.0))
        await origin.arrived(2)
        await origin.step()
        origin.now += 10.0
        await origin.step()
        assert await code_of(running) == await code_of(waiting) == "deadline_exceeded"


async def test_cancel_frees_the_slot_within_one_step() -> None:
    async with room(slots=1) as (origin, peer, _):
        leaving, next_one = await peer.open(submit()), await peer.open(submit())
        await origin.arrived(2)
        await origin.step()
        assert (origin.loop.load_now.running, origin.loop.load_now.queued) == (1, 1)
        leaving.cancel()
        await origin.arrived(1)
        await origin.step()
        assert (origin.loop.load_now.running, origin.loop.load_now.queued) == (1, 0)
        await origin.step(2)
        assert len(await all_of(next_one)) == 1
        assert origin.metrics.snapshot()["counters"]["sequences{reason=cancelled}"] == 1


async def test_a_cancel_storm_leaks_nothing() -> None:
    async with room(slots=2) as (origin, peer, _):
        for wave in range(5):
            streams = [await peer.open(submit(stream=wave % 2 == 0)) for _ in range(20)]
            await origin.arrived(20)
            await origin.step(wave % 3)
            for stream in streams:
                stream.cancel()
            await origin.arrived(0)
        await origin.step()
        assert origin.loop.load_now.running == origin.loop.load_now.queued == 0


async def test_a_lost_link_cancels_all_of_its_sequences_and_no_other() -> None:
    async with room(slots=4) as (origin, peer, links):
        other = await links.peer()
        lost = [await peer.open(submit()) for _ in range(3)]
        kept = await other.open(submit())
        await origin.arrived(4)
        await origin.step()
        await peer.close()
        await origin.arrived(1)
        await origin.step()
        assert (origin.loop.load_now.running, origin.loop.load_now.slots_free) == (1, 3)
        for stream in lost:
            with pytest.raises(LinkLost):
                await stream.receive()
        await origin.step(2)
        assert len(await all_of(kept)) == 1


async def test_drain_finishes_what_is_in_flight_and_refuses_what_comes() -> None:
    async with room() as (origin, peer, links):
        stream = await peer.open(submit())
        await origin.arrived(1)
        await origin.step()
        draining = links.tasks.spawn(links.server.drain(TIMEOUT_S), name="drain")
        await turns(lambda: not peer.ready)
        with pytest.raises(NearsayError):
            await peer.open(submit())
        assert not draining.done()
        await origin.step(3)
        assert len(await all_of(stream)) == 1
        await draining


async def test_an_engine_that_is_gone_is_unavailable() -> None:
    async with room() as (origin, peer, _):
        waiting = await peer.open(submit())
        await origin.arrived(1)
        origin.loop.stop()
        origin.server.abandon()
        assert await code_of(waiting) == "unavailable"
        assert await code_of(await peer.open(submit())) == "unavailable"
        origin.loop.run()


async def test_stopping_tells_those_who_wait() -> None:
    async with room() as (origin, peer, _):
        waiting = await peer.open(submit())
        await origin.arrived(1)
        origin.loop.stop()
        origin.loop.run()
        assert await code_of(waiting) == "draining"


async def test_a_broken_pass_is_tried_again_and_nobody_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("boom")

    async with room() as (origin, peer, _):
        stream = await peer.open(submit((4, 5, 6, EOS), stream=True))
        await origin.arrived(1)
        await origin.step()
        with monkeypatch.context() as patch:
            patch.setattr(EchoEngine, "run", explode)
            await origin.step()
        await origin.step(4)
        *tokens, end = await all_of(stream)
        assert [*tokens] == [Tokens(pack_ids([token])) for token in (6, 5, 4)], "what was said is not said again"
        assert isinstance(end, Finished) and tuple(unpack_ids(end.ids)) == (6, 5, 4)


@pytest.mark.parametrize(
    ("fault", "others", "code", "retryable"),
    [("", 0, "internal_error", False), ("engine", 0, "unavailable", True), ("engine", 1, "internal_error", False)],
)
async def test_what_a_failed_sequence_is_told(
    fault: Fault, others: int, code: str, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's logits were no numbers; nothing at all went on; others went on, so that it is itself at fault."""
    real = EchoEngine.run

    def faulty(self: EchoEngine, plan: Plan) -> Result:
        outcomes = [
            o if o.sequence > 1 else Outcome(o.sequence, finish="failed", fault=fault)
            for o in real(self, plan).outcomes
        ]
        return Result(tuple(outcomes))

    async with room() as (origin, peer, _):
        monkeypatch.setattr(EchoEngine, "run", faulty)
        stream = await peer.open(submit())
        rest = [await peer.open(submit((*[7] * 9, EOS))) for _ in range(others)]
        await origin.arrived(1 + others)
        await origin.step(2)
        with pytest.raises(NearsayError) as caught:
            await all_of(stream)
        assert (caught.value.code, caught.value.retryable) == (code, retryable)
        monkeypatch.undo()
        await origin.step(12)
        for each in rest:
            assert len(await all_of(each)) == 1


async def test_out_of_memory_is_overloaded_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(_: EchoEngine, plan: Plan) -> Result:
        return Result(tuple(Outcome(row.sequence, finish="failed", fault="memory") for row in plan.batches[0].rows))

    async with room() as (origin, peer, _):
        monkeypatch.setattr(EchoEngine, "run", starved)
        stream = await peer.open(submit())
        await origin.arrived(1)
        await origin.step()
        with pytest.raises(NearsayError) as caught:
            await all_of(stream)
        assert (caught.value.code, caught.value.retry_after_ms) == ("overloaded", 1000.0)
        assert origin.metrics.snapshot()["counters"]["sequences{reason=overloaded}"] == 1
        monkeypatch.undo()


async def test_the_final_message_is_the_last() -> None:
    async with room() as (origin, peer, _):
        stream = await peer.open(submit((EOS,)))
        await origin.arrived(1)
        await origin.step()
        (answer,) = await all_of(stream)
        assert isinstance(answer, Finished) and (answer.ids, answer.finish_reason) == (b"", "stop")
        with pytest.raises(EndOfStream):
            await stream.receive()
