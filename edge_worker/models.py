"""What this edge can translate: pairs with a model here, and pairs that an origin has."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from edge_worker.core.placement import OriginState
from edge_worker.local_model import LocalModel
from edge_worker.origin_client import OriginClient
from nearsay.text.entry import ModelEntry, load_vocabs
from nearsay.text.vocab import Vocab
from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import LoadReport, ModelInfo, State

_log = logging.getLogger(__name__)


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

    def __init__(self, local: Sequence[Local], entries: Sequence[ModelEntry], origins: OriginClient) -> None:
        """`local`: the models that run here; `entries`: every model whose vocabularies are on this machine."""
        self._origins = origins
        self._pairs = {each.entry.pair: Pair(each.entry.pair, each) for each in local}
        self._expected = {entry.pair for entry in entries if entry.tier == "origin"}
        self._vocabs = {_vocab_key(each.entry): (each.source, each.target) for each in local}
        for entry in entries:
            if _vocab_key(entry) not in self._vocabs:
                self._vocabs[_vocab_key(entry)] = load_vocabs(entry)
        self._unreadable: set[str] = set()  # models told of once
        origins.on_change(self._refresh)
        self._refresh()

    def pair(self, source: str, target: str) -> Pair:
        """Raises InvalidRequest (unsupported_pair)."""
        pair = self._pairs.get(f"{source}-{target}")
        if pair is None or (pair.local is None and pair.origin_state == "none"):
            raise InvalidRequest(f"{source}-{target}", code="unsupported_pair")
        return pair

    def infos(self) -> tuple[ModelInfo, ...]:
        """The models here, then those that an origin has for us."""
        here = [p.local.entry.info(str(p.local.model.engine.info)) for p in self._pairs.values() if p.local]
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
            vocabs = self._vocabs.get((pair, info.src_vocab_hash, info.trg_vocab_hash))
            if vocabs is not None:
                found.setdefault(pair, OriginModel(info, *vocabs))
            elif info.name not in self._unreadable:
                self._unreadable.add(info.name)
                _log.warning("an origin has %s, but its vocabularies are not here", info.name)
        return found


def _vocab_key(entry: ModelEntry) -> tuple[str, str, str]:
    """Vocabularies are known by pair and hashes: a multilingual model's hashes are the same for all its pairs."""
    return entry.pair, entry.src_vocab_hash, entry.trg_vocab_hash
