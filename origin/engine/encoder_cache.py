"""Encoder output of sources that may come again: a retry, a hedge, a duplicate, the origin's part of a `refine`.

Two tiers of bytes, each least recently used out first: on the device, and in the host's memory, where what falls out of
the first goes when there is a device. Kept is the encoder's output, not the decoder's projections of it: those are 12
times as many bytes in our en-de teacher, and making them is a sixth of the work.
Used on the engine thread alone.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

KEY_BYTES = 200  # about what an entry costs beside its numbers


class Key(NamedTuple):
    """model: `model@version`. scope: whose it is; others never see it, not even by the time that it saves.
    source: packed ids."""

    model: str
    scope: str
    source: bytes


def key_of(model: str, scope: str, source: Sequence[int]) -> Key:
    return Key(model, scope, array("I", source).tobytes())


class EncoderCache:
    """`device_bytes_max`, `host_bytes_max`: bounds of the two tiers; 0 keeps nothing there."""

    def __init__(self, device: torch.device | str, device_bytes_max: int, host_bytes_max: int = 0) -> None:
        self._device = torch.device(device)
        self._near = _Tier(device_bytes_max)
        self._far = _Tier(host_bytes_max if self._device.type != "cpu" else 0)

    def __len__(self) -> int:
        return len(self._near.entries) + len(self._far.entries)

    @property
    def device_bytes(self) -> int:
        return self._near.bytes

    @property
    def host_bytes(self) -> int:
        return self._far.bytes

    def get(self, key: Key) -> Tensor | None:
        """States [S, d] on the device, or None."""
        states = self._near.take(key)
        if states is None and (far := self._far.take(key)) is not None:
            states = far.to(self._device)
        if states is not None:
            self.put(key, states)
        return states

    def put(self, key: Key, states: Tensor) -> None:
        """Keep states [S, d], which must not be a view into more."""
        for old_key, old in self._near.put(key, states):
            self._far.put(old_key, old.cpu())

    def forget(self, model: str) -> None:
        """Drop what came from a model."""
        for tier in (self._near, self._far):
            for key in [key for key in tier.entries if key.model == model]:
                tier.take(key)


class _Tier:
    """Entries in the order of their last use."""

    def __init__(self, bytes_max: int) -> None:
        self.entries: OrderedDict[Key, Tensor] = OrderedDict()
        self.bytes = 0
        self._bytes_max = bytes_max

    def take(self, key: Key) -> Tensor | None:
        states = self.entries.pop(key, None)
        if states is not None:
            self.bytes -= _size(key, states)
        return states

    def put(self, key: Key, states: Tensor) -> list[tuple[Key, Tensor]]:
        """Returns what has no room any more, which may be the new entry itself."""
        self.take(key)
        self.entries[key] = states
        self.bytes += _size(key, states)
        out: list[tuple[Key, Tensor]] = []
        while self.bytes > self._bytes_max:
            old_key, old = self.entries.popitem(last=False)
            self.bytes -= _size(old_key, old)
            out.append((old_key, old))
        return out


def _size(key: Key, states: Tensor) -> int:
    return states.numel() * states.element_size() + len(key.source) + KEY_BYTES
