"""What this edge can translate: pairs with a model here, and pairs that an origin has.

Both may change while it runs. An origin that speaks of a model whose ids can't be read here makes the edge look at the
disk again, once for each model: somebody may have put its vocabularies there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from copy import copy
from typing import TypeVar

import msgspec

from edge_worker.core.placement import OriginState
from edge_worker.disk import VocabKey, Vocabs
from edge_worker.local_model import LocalModel
from edge_worker.origin_client import OriginClient
from nearsay.runtime.tasks import Tasks
from nearsay.text.entry import ModelEntry
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import InvalidRequest, Unavailable
from nearsay.wire.messages import LoadReport, ModelInfo, State

_log = logging.getLogger(__name__)
T = TypeVar("T")

STALE = ("unknown_model", "model_mismatch")  # an origin's refusals that only a newer model of it can mend
LOOKS_MAX = 256  # models for which the disk is looked at again
LOOK_WAIT_S = 2.0  # that a request waits for such a look


class OriginModel(msgspec.Struct, frozen=True):
    """A model of an origin whose ids this edge can make and read."""

    info: ModelInfo
    source: Vocab
    target: Vocab


class Local(msgspec.Struct, frozen=True):
    """A model that runs here."""

    entry: ModelEntry
    model: LocalModel
    source: Vocab
    target: Vocab


class Pair(msgspec.Struct):
    """One language pair; `origin` follows what the origins say."""

    name: str  # "en-de"
    local: Local | None = None
    origin: OriginModel | None = None
    origin_state: OriginState = "none"

    @property
    def models(self) -> frozenset[str]:
        """`model@version` of those that a segment may come from now."""
        names = (self.local and self.local.entry.name, self.origin and self.origin.info.name)
        return frozenset(name for name in names if name)


class Models:
    """All pairs."""

    def __init__(
        self,
        local: Sequence[Local],
        entries: Sequence[ModelEntry],
        vocabs: Vocabs,
        origins: OriginClient,
        *,
        look: Callable[[], Awaitable[None]],
        tasks: Tasks,
    ) -> None:
        """`local`: the models that run here; `entries`: every model that is on this machine, `vocabs` theirs. `look`:
        look at the disk again, and `learn` what is there."""
        self._origins = origins
        self._look = look
        self._tasks = tasks
        self._pairs = {each.entry.pair: Pair(each.entry.pair, each) for each in local}
        self._expected: set[str] = set()
        self._vocabs: Vocabs = {}
        self._unreadable: set[str] = set()  # models for which the disk was looked at
        self._looking: asyncio.Task[None] | None = None
        self._wondering = False
        self.learn(entries, vocabs)
        origins.on_change(self._refresh)

    def learn(self, entries: Sequence[ModelEntry], vocabs: Vocabs) -> None:
        """What is on this machine now. Vocabularies that are gone stay known while an origin has a model of theirs."""
        self._expected = {entry.pair for entry in entries if entry.tier == "origin"}
        needed = {_key_of(info) for info in self._origins.models()}
        self._vocabs = {key: pair for key, pair in self._vocabs.items() if key in needed} | dict(vocabs)
        self._refresh()

    def put(self, local: Local) -> None:
        """A model of ours takes the place of the one that ran for its pair. Who has that in hand goes on with it."""
        self._pairs.setdefault(local.entry.pair, Pair(local.entry.pair)).local = local
        self._refresh()

    async def find(self, source: str, target: str) -> Pair:
        """The pair, as it is after a look at the disk that is under way. Raises InvalidRequest (unsupported_pair)."""
        pair = self._pairs.get(f"{source}-{target}")
        if self._looking is not None and (pair is None or pair.origin_state != "ready"):
            await asyncio.wait((self._looking,), timeout=LOOK_WAIT_S)
        return self.pair(source, target)

    def pair(self, source: str, target: str) -> Pair:
        """Raises InvalidRequest (unsupported_pair)."""
        pair = self._pairs.get(f"{source}-{target}")
        if pair is None or (pair.local is None and pair.origin_state == "none"):
            raise InvalidRequest(f"{source}-{target}", code="unsupported_pair")
        return pair

    async def steadily(self, pair: Pair, attempt: Callable[[Pair, bool], Awaitable[T]]) -> T:
        """Run `attempt` with the models that a pair has now, whatever takes their place meanwhile.

        When the origin says that it has the model no more, or with other vocabularies, `attempt` is run once again, as
        its second argument says: with what the pair has by then, or as if no origin could be reached. Raises what
        `attempt` raises; Unavailable (origin_unavailable) for a second such refusal.
        """
        renewed = True
        for again in (False, True):
            now = copy(pair)
            if not renewed:
                now.origin_state = "down"
            try:
                with now.local.model.held() if now.local is not None else nullcontext():
                    return await attempt(now, again)
            except InvalidRequest as error:
                if error.code not in STALE or now.origin is None:
                    raise
                if again:
                    raise Unavailable("the origin has another model by now", code="origin_unavailable") from error
                renewed = await self._renewed(pair, now.origin.info, error.code)
        raise AssertionError("the second time returns or raises")

    async def _renewed(self, pair: Pair, refused: ModelInfo, code: str) -> bool:
        """Whether a pair has something else to ask for than what was refused; a look at the disk may bring it."""
        if code == "model_mismatch":
            self._wonder(refused.name)
            if self._looking is not None:
                await asyncio.wait((self._looking,), timeout=LOOK_WAIT_S)
        return pair.origin is not None and pair.origin.info != refused

    def infos(self) -> tuple[ModelInfo, ...]:
        """The models here, then those that an origin has for us."""
        here = [p.local.entry.info(str(p.local.model.info)) for p in self._pairs.values() if p.local]
        return (*here, *(pair.origin.info for pair in self._pairs.values() if pair.origin))

    def origin_pairs(self) -> tuple[str, ...]:
        """Pairs that an origin has, now or later."""
        return tuple(name for name, pair in self._pairs.items() if pair.origin_state != "none")

    def load(self, state: State) -> LoadReport:
        """How busy this edge is."""
        models = [pair.local.model for pair in self._pairs.values() if pair.local]
        return LoadReport(
            state=state,
            queued=sum(model.waiting for model in models),
            running=sum(model.running for model in models),
            slots_free=sum(model.room for model in models),
            models=self.infos(),
            origin_ready=tuple(name for name, pair in self._pairs.items() if pair.origin_state == "ready"),
        )

    def _refresh(self) -> None:
        """Take in what the origins say they have."""
        origin = self._origin_models()
        expected = self._expected if self._origins.unseen else set()
        for name in (*origin, *expected):
            self._pairs.setdefault(name, Pair(name))
        for name, pair in self._pairs.items():
            pair.origin = origin.get(name)
            if pair.origin is not None and self._origins.ready(pair.origin.info.name):
                pair.origin_state = "ready"
            else:
                pair.origin_state = "down" if pair.origin is not None or name in expected else "none"

    def _origin_models(self) -> dict[str, OriginModel]:
        """By pair the model to use: one that can be reached, if any."""
        found: dict[str, OriginModel] = {}
        for info in sorted(self._origins.models(), key=lambda info: not self._origins.ready(info.name)):
            pair = f"{info.source}-{info.target}"
            vocabs = self._vocabs.get(_key_of(info))
            if vocabs is not None:
                found.setdefault(pair, OriginModel(info, *vocabs))
            else:
                self._wonder(info.name)
        return found

    def _wonder(self, model: str) -> None:
        """An origin has a model that can't be read here: its vocabularies may have come to the disk since we looked."""
        if model in self._unreadable or len(self._unreadable) >= LOOKS_MAX:
            return
        _log.warning("an origin has %s, but its vocabularies are not known here", model)
        self._unreadable.add(model)
        self._wondering = True
        if self._looking is None:
            self._looking = self._tasks.spawn(self._look_while_wondering(), name="look for vocabularies")

    async def _look_while_wondering(self) -> None:
        try:
            while self._wondering:
                self._wondering = False
                await self._look()
        finally:
            self._looking = None


def _key_of(info: ModelInfo) -> VocabKey:
    return f"{info.source}-{info.target}", info.src_vocab_hash, info.trg_vocab_hash
