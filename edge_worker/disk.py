"""What models are on this edge's disk, and their vocabularies.

A vocabulary is read once and kept as long as it lies there: equal ones are one object, so that ids made with the one
need not be made again for the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from nearsay.runtime.config import ConfigError
from nearsay.text.entry import ModelEntry, load_vocabs
from nearsay.text.errors import TextError
from nearsay.text.registry import Registry
from nearsay.text.vocab import Vocab

_log = logging.getLogger(__name__)

VocabKey = tuple[str, str, str]
Vocabs = Mapping[VocabKey, tuple[Vocab, Vocab]]
"""Source and target vocabulary by pair and hashes: a multilingual model's hashes are the same for all its pairs."""


class Disk:
    """`entries`, `vocabs` and `problems` are those of the latest look. `pairs`: look at these only, at all if empty."""

    def __init__(self, discover: Callable[[], Registry], pairs: Sequence[str]) -> None:
        self._discover = discover
        self._pairs = pairs
        self.entries: tuple[ModelEntry, ...] = ()
        self.vocabs: Vocabs = {}
        self.problems: tuple[str, ...] = ()

    def look(self) -> None:
        """Look again; takes a moment. Raises ConfigError, with nothing changed, for a pair that should be there."""
        registry = self._discover()
        entries = [entry for entry in registry.entries if not self._pairs or entry.pair in self._pairs]
        if missing := set(self._pairs) - {entry.pair for entry in entries}:
            raise ConfigError([f"'pairs': no model for {pair}" for pair in sorted(missing)])
        problems, vocabs = list(registry.problems), dict[VocabKey, tuple[Vocab, Vocab]]()
        for entry in entries:
            key = vocab_key(entry)
            try:
                vocabs[key] = vocabs.get(key) or self.vocabs.get(key) or load_vocabs(entry)
            except TextError as error:
                problems.append(f"{entry.name} is skipped: {error}")
        for problem in problems:
            _log.warning("a model is left out: %s", problem)
        self.entries = tuple(entry for entry in entries if vocab_key(entry) in vocabs)
        self.vocabs, self.problems = vocabs, tuple(problems)

    def here(self) -> list[ModelEntry]:
        """The models to run here: for each pair the first that is meant for an edge."""
        found: dict[str, ModelEntry] = {}
        for entry in self.entries:
            if entry.tier == "edge":
                found.setdefault(entry.pair, entry)
        return list(found.values())

    def readable(self) -> tuple[ModelEntry, ...]:
        """The models of origins whose ids can be made and read here."""
        return tuple(entry for entry in self.entries if entry.tier == "origin")


def vocab_key(entry: ModelEntry) -> VocabKey:
    """What an entry's vocabularies are known by."""
    return entry.pair, entry.src_vocab_hash, entry.trg_vocab_hash
