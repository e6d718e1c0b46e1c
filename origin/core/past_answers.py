"""The last answers of a tenant, whatever model version gave them: after a change of model they draft the new one's.

Decides: which answer is known for a source, and what is forgotten when.
Must not know: texts, tensors, clocks, sessions.
Invariants: a tenant meets its own answers only; bytes stay within the limit, the least recently used goes first; losing
any of it costs time, never correctness, because what comes out of here is only ever a draft.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

ANSWER_BYTES = 300  # about what one costs beside its ids


class PastKey(NamedTuple):
    """model_id: without the version; ids mean the same under the same vocabulary."""

    tenant: str
    model_id: str
    trg_vocab_hash: str
    source: tuple[int, ...]


class PastAnswers:
    """The single writer of all. `bytes_max` 0 keeps nothing."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()  # the last used last

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: PastKey) -> tuple[int, ...]:
        """The ids of the last answer; none if there is none."""
        name = _packed(key)
        packed = self._answers.get(name)
        if packed is None:
            return ()
        self._answers.move_to_end(name)
        return tuple(array("I", packed))

    def remember(self, key: PastKey, ids: Sequence[int]) -> None:
        """Keep an answer; an earlier one to the same source makes way."""
        name, packed = _packed(key), array("I", ids).tobytes()
        if (old := self._answers.pop(name, None)) is not None:
            self.bytes -= _size(name, old)
        self._answers[name] = packed
        self.bytes += _size(name, packed)
        while self.bytes > self._bytes_max:
            self.bytes -= _size(*self._answers.popitem(last=False))


def _packed(key: PastKey) -> bytes:
    """All of a key in its least room: a tuple of ints takes ten times as much."""
    names = f"{len(key.tenant)} {key.tenant} {len(key.model_id)} {key.model_id} {key.trg_vocab_hash} "
    return names.encode() + array("I", key.source).tobytes()


def _size(name: bytes, packed: bytes) -> int:
    return len(name) + len(packed) + ANSWER_BYTES
