"""Origins as this edge sees them: which models they have, who gets a sequence, and its ids as they come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from nearsay.runtime.clock import Clock
from nearsay.runtime.link import Peer, Stream
from nearsay.traffic.picker import pick
from nearsay.traffic.rendezvous import key_of, ranked
from nearsay.wire.errors import DeadlineExceeded, InternalError, LinkLost, Unavailable
from nearsay.wire.messages import Finished, ModelInfo, Submit, Tokens, unpack_ids

OnIds = Callable[[Sequence[int]], None]  # all ids of the sequence so far
ATTEMPTS_MAX = 2  # the second on another replica, when the link of the first was lost


class OriginClient:
    """Submits sequences to whichever origin has the model and the least to do."""

    def __init__(self, peers: Sequence[Peer], *, clock: Clock, rng: random.Random) -> None:
        self.peers = tuple(peers)
        self._clock = clock
        self._rng = rng
        self._callbacks: list[Callable[[], None]] = []
        self._models: dict[Peer, tuple[ModelInfo, ...]] = {}  # the latest of each peer; kept while its link is down
        for peer in self.peers:
            peer.on_change(self._changed)

    async def start(self) -> None:
        """Begin to connect; returns at once."""
        for peer in self.peers:
            await peer.start()

    async def close(self) -> None:
        """Close all links."""
        await asyncio.gather(*(peer.close() for peer in self.peers))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call when an origin comes up, goes down or reports."""
        self._callbacks.append(callback)

    @property
    def unseen(self) -> bool:
        """There is an origin that was never reached: nobody knows which models it has."""
        return any(peer not in self._models for peer in self.peers)

    def models(self) -> Iterator[ModelInfo]:
        """Models of all origins that were ever reached, each name once."""
        return iter({info.name: info for infos in self._models.values() for info in infos}.values())

    def ready(self, model: str) -> bool:
        """Whether an origin with this `model@version` can be reached now."""
        return any(self._serves(peer, model) for peer in self.peers)

    def wants_drafts(self, model: str) -> bool:
        """Whether verifying drafts pays at every origin that may get the sequence."""
        loads = [peer.load for peer in self.peers if self._serves(peer, model)]
        return bool(loads) and all(load is not None and model in load.wants_drafts for load in loads)

    async def submit(self, submit: Submit, *, deadline: float, on_ids: OnIds | None = None) -> Finished:
        """Decode one sequence; `on_ids` gets the ids as they come (of the attempt that is under way).

        When the caller is cancelled, so is the sequence. Raises what the origin rejects with, Unavailable
        (origin_unavailable, link_lost), DeadlineExceeded; never hangs past `deadline` (monotonic seconds).
        """
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())):
                return await self._attempts(submit, deadline, on_ids)
        except TimeoutError:
            raise DeadlineExceeded("the origin did not answer in time") from None

    async def _attempts(self, submit: Submit, deadline: float, on_ids: OnIds | None) -> Finished:
        tried: set[Peer] = set()
        lost: Unavailable = Unavailable("no origin with this model can be reached", code="origin_unavailable")
        for attempt in range(1, ATTEMPTS_MAX + 1):
            peer = self._pick(submit, tried)
            if peer is None:
                break
            tried.add(peer)
            remaining_ms = (deadline - self._clock()) * 1000.0
            try:
                stream = await peer.open(
                    msgspec.structs.replace(
                        submit, stream=on_ids is not None, budget_ms=remaining_ms, attempt=submit.attempt + attempt - 1
                    )
                )
            except Unavailable:
                continue  # it went away since it was picked
            try:
                return await _finished(stream, on_ids)
            except LinkLost as error:
                lost = error
            finally:
                stream.cancel()  # no effect on a stream that has ended
        raise lost

    def _pick(self, submit: Submit, tried: set[Peer]) -> Peer | None:
        """Of two replicas drawn at random, the one with less to do; a session's always the same, which remembers it."""
        peers = [peer for peer in self.peers if peer not in tried and self._serves(peer, submit.model)]
        if not peers:
            return None
        if submit.session:
            order = ranked(key_of(submit.tenant, submit.session), [key_of(peer.url) for peer in peers])
            return peers[order[0]]
        return peers[pick(len(peers), lambda index: _load(peers[index]), self._rng.randrange)]

    def _serves(self, peer: Peer, model: str) -> bool:
        if not peer.ready or (peer.load is not None and peer.load.state != "ready"):
            return False
        return any(info.name == model for info in self._models.get(peer, ()))

    def _changed(self) -> None:
        for peer in self.peers:
            if peer.hello is not None:
                reported = peer.load.models if peer.load is not None else ()
                self._models[peer] = reported or peer.hello.models
        for callback in tuple(self._callbacks):
            callback()


async def _finished(stream: Stream, on_ids: OnIds | None) -> Finished:
    """Read a stream to its end. Raises what ended it early."""
    ids: list[int] = []
    async for message in stream:
        match message:
            case Tokens(ids=packed) if on_ids is not None:
                ids += unpack_ids(packed)
                on_ids(ids)
            case Finished():
                return message
    raise InternalError("the origin ended a sequence without its last message")


def _load(peer: Peer) -> float:
    """Sequences that this edge has there, or that the origin says it has, whichever are more."""
    report = peer.load
    return max(peer.in_flight, report.queued + report.running if report is not None else 0)
