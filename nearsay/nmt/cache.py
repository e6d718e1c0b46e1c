"""The decoder's memory: one slot per running sequence, allocated once.

Decides: where a slot's past (self-attention KV, or the SSRU's vector) and its projected source (cross KV) lie, and
which rows of those tables a batch reads.
Must not know: weights, ids, who owns a slot or why.
Invariants: `lengths[slot]` positions are filled and nothing past them is ever read, so a reused slot needs no
cleaning. Lengths live on the host: planning a step never waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nearsay.nmt.config import ModelConfig

SPAN_WASTE_MAX = 1.0
"""Rows are read in place while the span of slots they lie in is at most this many times as wide as the batch. On a CPU
idle rows cost more than copying the keys and values of the busy ones: 16 to 32 rows in a span twice as wide took 30 to
45 % longer in place, and copied no longer than side by side."""

KEYS_MIN = 16
"""Attention looks at no fewer positions than this, the rest hidden: shorter batched products are slow on a CPU."""

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Window:
    """Where the next Q positions of a batch of R rows go and what they may look at. N = rows read, N >= R.

    index: the slots [R]. counts: the real positions of each row, at most Q.
    first, width: the span of slots read in place; `place` [R] is each row's index in it, None when that is 0 .. R-1.
    gather: the slot of each row [R] when the slots lie too far apart to be read in place, else None.
    real: row and query [M] of the M real positions, None when all R * Q are real.
    puts: where in a flattened self table [slots * heads * T, head_dim] their keys and values go, [M * heads].
    positions: [R, Q]. self_bias [N, 1, Q, keys], cross_bias [N, 1, 1, sources]: 0 where attention may look, -inf
    elsewhere; None when it may look everywhere.
    """

    slots: tuple[int, ...]
    base: tuple[int, ...]
    counts: tuple[int, ...]
    keys: int
    sources: int
    first: int
    width: int
    index: Tensor
    place: Tensor | None
    gather: Tensor | None
    positions: Tensor
    real: tuple[Tensor, Tensor] | None
    puts: Tensor
    self_bias: Tensor | None
    cross_bias: Tensor | None


class SlotCache:
    """Static tables for `slots` sequences of up to source_tokens_max and target_tokens_max tokens.

    On a CPU they are best float32 whatever the weights are (`Seq2Seq.new_cache` does that): batched products of
    bfloat16 are slow there.
    """

    def __init__(
        self,
        config: ModelConfig,
        slots: int,
        source_tokens_max: int | None = None,
        target_tokens_max: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.slots = slots
        self.source_tokens_max = min(source_tokens_max or config.source_tokens_max, config.source_tokens_max)
        self.target_tokens_max = min(target_tokens_max or config.target_tokens_max, config.target_tokens_max)
        self.lengths = [0] * slots
        self.source_lengths = [1] * slots
        self.device = torch.device(device)
        self.dtype = dtype
        self._heads = config.heads
        self._keys = max(self.target_tokens_max, KEYS_MIN)
        self._sources = max(self.source_tokens_max, KEYS_MIN)
        layers, heads, head_dim = config.decoder_layers, config.heads, config.head_dim

        def table(*shape: int) -> tuple[Tensor, ...]:
            return torch.zeros(layers, slots, *shape, device=self.device, dtype=dtype).unbind(0)

        attention = config.decoder_kind == "attention"
        self.self_k = table(heads, self._keys, head_dim) if attention else ()
        self.self_v = table(heads, self._keys, head_dim) if attention else ()
        self.state = () if attention else table(config.d_model)
        self.cross_k = table(heads, self._sources, head_dim)
        self.cross_v = table(heads, self._sources, head_dim)
        self.cross_bias = torch.zeros(slots, self._sources, device=self.device, dtype=dtype)
        hidden = torch.full((self._keys, self._keys), NEVER, device=self.device, dtype=dtype)
        self._causal = hidden.triu_(1)  # row p: what position p may look at
        # SSRU only, of the last window: states after 0 .. Q positions, [R, Q + 1, d] a layer, so that it can rewind.
        self._trail: dict[int, Tensor] = {}
        self._trail_rows: dict[int, tuple[int, int]] = {}

    def window(self, slots: Sequence[int], counts: Sequence[int]) -> Window:
        """The next counts[r] >= 1 positions of each slot. Asserts that they fit."""
        assert len(set(slots)) == len(slots) == len(counts) > 0, "a slot may appear only once in a batch"
        base = [self.lengths[s] for s in slots]
        filled = max(b + c for b, c in zip(base, counts, strict=True))
        assert filled <= self.target_tokens_max, "a sequence outgrew its slot"
        queries, keys = max(counts), max(filled, KEYS_MIN)
        first, width = min(slots), max(slots) - min(slots) + 1
        in_place = width <= SPAN_WASTE_MAX * len(slots)
        ordered = all(s == first + r for r, s in enumerate(slots))
        index = self._tensor(slots)
        gather = None if in_place else index
        positions = self._positions(base, queries)
        real = self._real(counts, queries)
        read = base if ordered or not in_place else self.lengths[first : first + width]
        return Window(
            slots=tuple(slots),
            base=tuple(base),
            counts=tuple(counts),
            keys=keys,
            sources=max(KEYS_MIN, *(self.source_lengths[s] for s in slots)),
            first=first,
            width=width,
            index=index,
            place=None if ordered or not in_place else index - first,
            gather=gather,
            positions=positions,
            real=real,
            puts=self._puts(index, positions, real),
            self_bias=self._self_bias(read, base, queries, keys),
            cross_bias=self._cross_bias([self.source_lengths[s] for s in slots], first, width, gather),
        )

    def _tensor(self, numbers: Sequence[int] | Sequence[tuple[int, int]]) -> Tensor:
        return torch.tensor(numbers, device=self.device)

    def _positions(self, base: Sequence[int], queries: int) -> Tensor:
        """[R, Q]; those past the end of the table belong to no real token."""
        starts = self._tensor(base)[:, None]
        if queries == 1:
            return starts
        return (starts + torch.arange(queries, device=self.device)).clamp(max=self.target_tokens_max - 1)

    def _real(self, counts: Sequence[int], queries: int) -> tuple[Tensor, Tensor] | None:
        if min(counts) == queries:
            return None
        pairs = [(row, query) for row, count in enumerate(counts) for query in range(count)]
        row, query = self._tensor(pairs).unbind(1)
        return row, query

    def _puts(self, index: Tensor, positions: Tensor, real: tuple[Tensor, Tensor] | None) -> Tensor:
        slot = index[:, None].expand_as(positions)
        slot, position = (slot.flatten(), positions.flatten()) if real is None else (slot[real], positions[real])
        heads = torch.arange(self._heads, device=self.device)
        return ((slot[:, None] * self._heads + heads) * self._keys + position[:, None]).flatten()  # [M * H]

    def _self_bias(self, read: Sequence[int], base: Sequence[int], queries: int, keys: int) -> Tensor | None:
        if not self.self_k or (queries == 1 and min(base) == keys - 1):
            return None
        last = self._positions(read, queries).clamp(max=self._keys - 1)  # [N, Q]; an idle row may be full
        return self._causal[last, :keys].unsqueeze(1)  # [N, 1, Q, keys]

    def _cross_bias(self, lengths: Sequence[int], first: int, width: int, gather: Tensor | None) -> Tensor | None:
        sources = max(KEYS_MIN, *lengths)
        if min(lengths) == sources:
            return None
        rows = self.cross_bias[first : first + width] if gather is None else self.cross_bias.index_select(0, gather)
        return rows[:, None, None, :sources]

    def reset(self, slots: Sequence[int], source_lengths: Sequence[int]) -> None:
        """Gives slots to new sequences. Their cross KV must be written next (`put_cross`)."""
        assert all(1 <= n <= self.source_tokens_max for n in source_lengths), "a source is empty or outgrew its slot"
        index = self._tensor(slots)
        for slot, length in zip(slots, source_lengths, strict=True):
            self.lengths[slot] = 0
            self.source_lengths[slot] = length
        limit = self._tensor(source_lengths)[:, None]
        hidden = torch.arange(self._sources, device=self.device) >= limit  # [R, S]
        bias = torch.zeros(hidden.shape, device=self.device, dtype=self.dtype)
        self.cross_bias.index_copy_(0, index, bias.masked_fill_(hidden, NEVER))
        for state in self.state:
            state.index_fill_(0, index, 0.0)

    def put_cross(self, layer: int, slots: Sequence[int], k: Tensor, v: Tensor) -> None:
        """k, v: [R, heads, S, head_dim], the layer's projections of the sources now in the slots."""
        index = self._tensor(slots)
        for table, new in ((self.cross_k[layer], k), (self.cross_v[layer], v)):
            table[:, :, : new.shape[2]].index_copy_(0, index, new.to(self.dtype))

    def cross(self, layer: int, window: Window) -> tuple[Tensor, Tensor]:
        """Keys and values [N, heads, S, head_dim] of the sources."""
        s = window.sources
        return self._read(self.cross_k[layer], window, s), self._read(self.cross_v[layer], window, s)

    def extend(self, layer: int, window: Window, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Stores k, v [R, Q, heads, head_dim] of the window; keys and values [N, heads, K, head_dim] so far."""
        self._put(self.self_k[layer], window, k)
        self._put(self.self_v[layer], window, v)
        n = window.keys
        return self._read(self.self_k[layer], window, n), self._read(self.self_v[layer], window, n)

    def _put(self, table: Tensor, window: Window, new: Tensor) -> None:
        rows = new if window.real is None else new[window.real]  # [R, Q, H, D] or [M, H, D]
        flat = table.view(-1, table.shape[-1])
        flat.index_copy_(0, window.puts, rows.reshape(-1, table.shape[-1]).to(self.dtype))

    @staticmethod
    def _read(table: Tensor, window: Window, length: int) -> Tensor:
        if window.gather is not None:
            return table[:, :, :length].index_select(0, window.gather)
        return table[window.first : window.first + window.width, :, :length]

    def states(self, layer: int, window: Window) -> Tensor:
        """The SSRU's vectors [R, d] before the window."""
        return self.state[layer].index_select(0, window.index)

    def put_states(self, layer: int, window: Window, trail: Tensor) -> None:
        """trail: [R, Q + 1, d], the state before the window and after each of its positions."""
        last = self._tensor(window.counts)
        rows = torch.arange(len(window.slots), device=self.device)
        self.state[layer].index_copy_(0, window.index, trail[rows, last].to(self.dtype))
        self._trail[layer] = trail

    def advance(self, window: Window) -> None:
        """Counts the window's real positions as filled."""
        for slot, count in zip(window.slots, window.counts, strict=True):
            self.lengths[slot] += count
        if self.state:
            self._trail_rows = {s: (r, b) for r, (s, b) in enumerate(zip(window.slots, window.base, strict=True))}

    def rewind(self, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """Forgets all positions from lengths[r] on. An SSRU's slots can go back as far as their last window began."""
        for slot, length in zip(slots, lengths, strict=True):
            assert 0 <= length <= self.lengths[slot], "rewind only goes back"
            if self.state and length < self.lengths[slot]:
                row, base = self._trail_rows[slot]
                assert length >= base, "an SSRU can't go back past its last window"
                for layer, state in enumerate(self.state):
                    state[slot] = self._trail[layer][row, length - base]
            self.lengths[slot] = length

    def copy(self, from_slots: Sequence[int], to_slots: Sequence[int], *, source: bool = False) -> None:
        """Copies pasts all at once (a permutation is fine), and the projected source too when asked."""
        pairs = [(f, t) for f, t in zip(from_slots, to_slots, strict=True) if f != t]
        if not pairs:
            return
        index_from = self._tensor([f for f, _ in pairs])
        index_to = self._tensor([t for _, t in pairs])
        length = max(self.lengths[f] for f, _ in pairs)
        tables = [t[:, :, :length] for t in (*self.self_k, *self.self_v)] if length else []
        tables += list(self.state)
        if source:
            longest = max(self.source_lengths[f] for f, _ in pairs)
            tables += [t[:, :, :longest] for t in (*self.cross_k, *self.cross_v)]
            tables.append(self.cross_bias)
        for table in tables:
            table.index_copy_(0, index_to, table.index_select(0, index_from))
        moved = [(t, self.lengths[f], self.source_lengths[f]) for f, t in pairs]
        for slot, filled, source_length in moved:
            self.lengths[slot] = filled
            self.source_lengths[slot] = source_length if source else self.source_lengths[slot]
            self._trail_rows.pop(slot, None)
