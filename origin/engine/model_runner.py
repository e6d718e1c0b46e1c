"""One resident model: its weights, its slots, and the passes of one step over them.

A step encodes the new sources that it doesn't know yet, then takes all rows on: those that feed one id, and those that
feed several (a decoder prefix, a draft to verify), in as many passes as cost least. Neighbours never change a row's
result, so who shares a pass is only a matter of speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nearsay.nmt.align import align
from nearsay.nmt.decoding import best_candidates, lean, pad_ids, suppress
from nearsay.nmt.transformer import Seq2Seq
from nearsay.runtime.clock import Clock
from origin.core.plan import Batch, Encode, Fault, Outcome, Result
from origin.engine.base import failures
from origin.engine.encoder_cache import EncoderCache, key_of
from origin.engine.ragged import groups
from origin.engine.running import BROKEN, Beam, Feed, Greedy
from origin.engine.self_measure import PASS_TOKENS, pass_tokens
from origin.engine.survive import Part, Survivor


class ModelRunner:
    """Must be used on one thread, under torch.inference_mode()."""

    def __init__(self, name: str, model: Seq2Seq, slots: int, encoder_cache: EncoderCache, clock: Clock) -> None:
        self._name = name
        self._model = model
        self._encoder_cache = encoder_cache
        self._config = model.config
        self._cache = model.new_cache(slots)
        self._clock = clock
        self._running: dict[int, Greedy | Beam] = {}
        self._lost: dict[int, Fault] = {}  # in this step, whose source could not be encoded
        self._survivor = Survivor()
        self._encoded = self._reused = 0  # sources of this step
        self.pass_tokens = PASS_TOKENS
        # Attention writes the same keys again when a pass is repeated; an SSRU's state is overwritten as it goes.
        self._repeatable = model.config.decoder_kind == "attention"

    def share(self, encoder_cache: EncoderCache) -> None:
        """Keep encoder output there from now on."""
        self._encoder_cache = encoder_cache

    def forget(self, sequence: int) -> None:
        """The sequence's slots may be another's from now on."""
        self._running.pop(sequence, None)

    def measure(self) -> None:
        """Find out what a pass costs beside its tokens. Only while nothing runs."""
        self.pass_tokens = pass_tokens(self._model, self._cache, self._clock)

    def run(self, batch: Batch) -> Result:
        """One outcome for every row of the batch."""
        cut = self._survivor.cut
        self._encode(batch.encode)
        works, alone, outcomes = list[_Work](), list[_Work](), list[Outcome]()
        for row in batch.rows:
            if row.sequence in self._lost:
                outcomes += failures([row], self._lost[row.sequence])
                continue
            running = self._running[row.sequence]
            (alone if row.alone else works).append(_Work(row.sequence, running, running.feeds(row.draft)))
        lengths, rows = [len(work.feeds[0].ids) for work in works], [len(work.feeds) for work in works]
        for group in groups(lengths, self.pass_tokens, rows):
            outcomes += self._pass([works[index] for index in sorted(group)])
        for work in alone:
            outcomes += self._pass([work])
        outcomes = [outcome if outcome.finish is None else self._end(outcome) for outcome in outcomes]
        return Result(tuple(outcomes), self._encoded, self._reused, self._survivor.cut - cut)

    def _end(self, outcome: Outcome) -> Outcome:
        """Forgets a sequence, and adds what is known only at its end."""
        running = self._running.pop(outcome.sequence, None)
        if running is None or not running.want_alignment or outcome.finish != "stop":
            return outcome
        part = self._survivor.attempt([outcome], lambda _: align(self._model, self._cache, running.slot, running.said))
        return msgspec.structs.replace(outcome, alignment=tuple(part.result or ()))

    # ---- sources -----------------------------------------------------------------------------------------------------

    def _encode(self, new: Sequence[Encode]) -> None:
        """Sources into slots. Those that could not be encoded are in `_lost` afterwards, and not running."""
        self._encoded = self._reused = 0
        self._lost = {}
        if not new:
            return
        started = self._clock()
        for group in groups([len(item.source) for item in new], self.pass_tokens):
            for part in self._survivor.run([new[index] for index in group], self._encode_group, repeatable=True):
                if part.fault:
                    self._lost |= {item.sequence: part.fault for item in part.items}
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)  # or the time would be counted as decoding
        seconds = self._clock() - started
        for item in new:
            if item.sequence in self._running:
                self._running[item.sequence].encode_s = seconds

    def _encode_group(self, new: list[Encode]) -> None:
        states = pad_sequence(self._states(new), batch_first=True)  # [R, S, d]
        slots, lens = torch.tensor([item.slots[0] for item in new]), torch.tensor([len(item.source) for item in new])
        self._model.start_source(self._cache, slots, states, lens)
        copies = [(item.slots[0], slot) for item in new for slot in item.slots[1:]]
        self._cache.copy([f for f, _ in copies], [t for _, t in copies], source=True)
        for item in new:
            kind = Beam if len(item.slots) > 1 else Greedy
            self._running[item.sequence] = kind(item, self._config)

    def _states(self, new: Sequence[Encode]) -> list[Tensor]:
        """Encoder output [S, d] of each source; what isn't known yet is encoded, each source once."""
        keys = [key_of(self._name, item.scope, item.source) for item in new]
        known = {key: self._encoder_cache.get(key) for key in dict.fromkeys(keys)}
        missing = {key: item.source for key, item in zip(keys, new, strict=True) if known[key] is None}
        if missing:
            ids, lens = pad_ids(list(missing.values()), self._config.pad_id)
            encoded = self._model.encode(ids.to(self._model.device), lens)
            for key, row, length in zip(missing, encoded, lens.tolist(), strict=True):
                known[key] = states = row[:length].clone()
                self._encoder_cache.put(key, states)
        self._encoded += len(missing)
        self._reused += len(new) - len(missing)
        return [states for key in keys if (states := known[key]) is not None]

    # ---- passes ------------------------------------------------------------------------------------------------------

    def _pass(self, works: list[_Work]) -> list[Outcome]:
        """One decoder pass over all rows of some sequences."""
        outcomes = list[Outcome]()
        for part in self._survivor.run(works, self._advance, repeatable=self._repeatable):
            outcomes += part.result or _lost(part)
        return outcomes

    def _advance(self, works: list[_Work]) -> list[Outcome]:
        """Forward, which may be repeated, and what follows from it, which may not."""
        logits = self._forward(works)
        part = self._survivor.attempt(works, lambda done: self._settle(done, logits))
        return part.result or _lost(part)

    def _forward(self, works: list[_Work]) -> Tensor:
        """Logits [N, Q, V] of all N rows; a row that feeds fewer than Q ids has no meaning past them."""
        feeds = [feed for work in works for feed in work.feeds]
        slots = torch.tensor([feed.slot for feed in feeds])
        ids, lens = pad_ids([feed.ids for feed in feeds], self._config.pad_id)
        ids = ids.to(self._model.device)
        if ids.shape[1] == 1:
            return self._model.decode_step(self._cache, slots, ids[:, 0])[:, None]
        return self._model.verify(self._cache, slots, ids, lens)

    def _settle(self, works: list[_Work], logits: Tensor) -> list[Outcome]:
        """What the logits [N, Q, V] mean for each sequence."""
        suppress(logits, self._config.suppressed_ids)
        greedy: list[tuple[Greedy, Feed]] = []
        beams: list[tuple[Beam, list[Feed]]] = []
        greedy_rows, beam_rows, at = list[int](), list[int](), 0
        for _, running, feeds in works:
            rows = range(at, at := at + len(feeds))
            if isinstance(running, Greedy):
                greedy.append((running, feeds[0]))
                greedy_rows += rows
            else:
                beams.append((running, feeds))
                beam_rows += rows
        outcomes = self._settle_greedy(greedy, _take(logits, greedy_rows)) if greedy else []
        return outcomes + (self._settle_beams(beams, _take(logits, beam_rows)) if beams else [])

    def _settle_greedy(self, greedy: list[tuple[Greedy, Feed]], logits: Tensor) -> list[Outcome]:
        """logits [R, Q, V], a row each."""
        best, chosen = logits.max(-1)  # a NaN anywhere is the maximum
        lean(logits, best, chosen, [each for row, (one, _) in enumerate(greedy) for each in one.leanings(row)])
        ids = torch.where(best.isfinite(), chosen, BROKEN).tolist()
        log_probs: list[list[float]] = [[] for _ in greedy]
        if any(running.log_prob is not None for running, _ in greedy):
            log_probs = (best.float() - logits.float().logsumexp(-1)).tolist()
        outcomes: list[Outcome] = []
        slots, keep = list[int](), list[int]()
        for (running, feed), row_ids, row_log_probs in zip(greedy, ids, log_probs, strict=True):
            outcome, fallen = running.settle(row_ids, row_log_probs)
            outcomes.append(outcome)
            if fallen:
                slots.append(feed.slot)
                keep.append(self._cache.lengths[feed.slot] - fallen)
        self._cache.rewind(slots, keep)
        return outcomes

    def _settle_beams(self, beams: list[tuple[Beam, list[Feed]]], logits: Tensor) -> list[Outcome]:
        """logits [N, Q, V], a row for each hypothesis; the last that was fed counts."""
        last = [len(feed.ids) - 1 for _, feeds in beams for feed in feeds]
        final = logits[range(len(last)), last] if any(last) else logits[:, 0]  # [N, V]
        log_probs, tokens = best_candidates(final, max(beam.candidates for beam, _ in beams), ())
        outcomes, copies, at = list[Outcome](), list[tuple[int, int]](), 0
        for beam, feeds in beams:
            mine = slice(at, at := at + len(feeds))
            outcome, moves = beam.settle(log_probs[mine], tokens[mine])
            outcomes.append(outcome)
            copies += moves
        self._cache.copy([f for f, _ in copies], [t for _, t in copies])
        return outcomes


class _Work(NamedTuple):
    """A sequence's share of a pass."""

    sequence: int
    running: Greedy | Beam
    feeds: list[Feed]


def _lost(part: Part[_Work, list[Outcome]]) -> list[Outcome]:
    """What has only run out of memory together may fit alone."""
    return failures(part.items, part.fault if len(part.items) == 1 else "engine")


def _take(logits: Tensor, rows: list[int]) -> Tensor:
    """Some rows of logits [N, ...]; no copy when they are all."""
    return logits if len(rows) == logits.shape[0] else logits[rows]
