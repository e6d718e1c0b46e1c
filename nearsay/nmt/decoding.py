"""Whole translations of a fixed batch: greedy and beam search. A scheduler uses the same pieces step by step.

Decides: how the model's steps and the search rules are put together. Must not know: text, vocabularies, requests.
Sources are complete encoder ids, `</s>` included. Results have neither prefix nor `</s>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nearsay.nmt.beam import BeamState, Hypothesis, place_rows
from nearsay.nmt.cache import SlotCache
from nearsay.nmt.config import START
from nearsay.nmt.transformer import Seq2Seq


def pad_ids(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Ragged rows as ids [B, longest] and lengths [B]."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([len(row) for row in rows])


def suppress(logits: Tensor, suppressed_ids: Sequence[int]) -> Tensor:
    """logits [..., V] in place: ids that are never generated get -inf."""
    for unwanted in suppressed_ids:
        logits[..., unwanted] = float("-inf")
    return logits


def best_ids(logits: Tensor, suppressed_ids: Sequence[int]) -> list[int]:
    """logits [R, V]: the likeliest id of each row."""
    return suppress(logits, suppressed_ids).argmax(-1).tolist()


def best_candidates(
    logits: Tensor, count: int, suppressed_ids: Sequence[int]
) -> tuple[list[list[float]], list[list[int]]]:
    """logits [R, V]: log-probabilities and ids of each row's `count` likeliest, for `BeamState.advance`."""
    log_probs = suppress(logits, suppressed_ids).float().log_softmax(-1)
    top = log_probs.topk(min(count, log_probs.shape[-1]))
    return top.values.tolist(), top.indices.tolist()


class Leaning(NamedTuple):
    """At `place` of `row`, `token` is preferred with weight `bias`."""

    row: int
    place: int
    token: int
    bias: float


def lean(logits: Tensor, best: Tensor, chosen: Tensor, leanings: Sequence[Leaning]) -> None:
    """Biased decoding (Arivazhagan et al. 2020, "Re-translation versus Streaming for Simultaneous Translation").

    logits [R, Q, V]; best, chosen [R, Q], in place: their maxima. A preferred token is chosen where it would be the
    likeliest of (1 - bias) * p + bias * [it is the token]. Each choice depends on its own logits alone, so a draft
    changes none of them. Nothing waits for the device.
    """
    if not leanings:
        return
    rows, places, tokens, biases = (torch.tensor(each, device=logits.device) for each in zip(*leanings, strict=True))
    there = logits[rows, places].float()  # [N, V]
    total = there.logsumexp(-1)
    wanted, likeliest = logits[rows, places, tokens], best[rows, places]
    lead = (likeliest.float() - total).exp() - (wanted.float() - total).exp()
    taken = (lead * (1.0 - biases) <= biases) & wanted.isfinite()
    chosen[rows, places] = torch.where(taken, tokens, chosen[rows, places])
    best[rows, places] = torch.where(taken, wanted, likeliest)


def start(model: Seq2Seq, cache: SlotCache, slots: Sequence[int], sources: Sequence[Sequence[int]]) -> None:
    """Encodes sources into slots, one each."""
    ids, lens = pad_ids(sources, model.config.pad_id)
    model.start_source(cache, torch.tensor(slots), model.encode(ids.to(model.device), lens), lens)


def feed_prefix(model: Seq2Seq, cache: SlotCache, slots: Sequence[int], prefix_ids: Sequence[int]) -> Tensor:
    """START and the prefix in fresh slots: logits [R, V] of the first id to choose."""
    rows = torch.tensor([[START, *prefix_ids]] * len(slots))
    counts = torch.full((len(slots),), rows.shape[1])
    return model.verify(cache, torch.tensor(slots), rows.to(model.device), counts)[:, -1]


def step(model: Seq2Seq, cache: SlotCache, slots: Sequence[int], ids: Sequence[int]) -> Tensor:
    """One decode step from host lists: logits [R, V]."""
    return model.decode_step(cache, torch.tensor(slots), torch.tensor(ids, device=model.device))


def tokens_limit(model: Seq2Seq, asked: int | None, prefix_ids: Sequence[int]) -> int:
    """How many ids a translation may have, `</s>` included."""
    limit = model.config.target_tokens_max - len(prefix_ids)
    return limit if asked is None else min(asked, limit)


@torch.inference_mode()
def greedy(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    target_tokens_max: int | None = None,
    prefix_ids: Sequence[int] | None = None,
) -> list[list[int]]:
    """The likeliest next id, each time.

    target_tokens_max: ids a translation may have, `</s>` included: one that doesn't end by then is cut off there.
    prefix_ids: what follows START before the first id is chosen (default: the config's).
    """
    config = model.config
    prefix = config.prefix_ids if prefix_ids is None else prefix_ids
    limit = tokens_limit(model, target_tokens_max, prefix)
    cache = model.new_cache(len(sources), max(map(len, sources)), limit + len(prefix))
    running = list(range(len(sources)))
    results: list[list[int]] = [[] for _ in sources]
    start(model, cache, running, sources)
    logits = feed_prefix(model, cache, running, prefix)
    for length in range(1, limit + 1):
        chosen = dict(zip(running, best_ids(logits, config.suppressed_ids), strict=True))
        if length == limit and config.forced_eos:
            break
        running = [row for row in running if chosen[row] != config.eos_id]
        for row in running:
            results[row].append(chosen[row])
        if not running or length == limit:
            break
        logits = step(model, cache, running, [chosen[row] for row in running])
    return results


@torch.inference_mode()
def beam_search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    width: int = 4,
    n_best: int = 1,
    length_penalty: float = 1.0,
    target_tokens_max: int | None = None,
    prefix_ids: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` <= width best hypotheses of each source, best first; arguments as for `greedy` and `BeamState`."""
    config = model.config
    prefix = config.prefix_ids if prefix_ids is None else prefix_ids
    limit = tokens_limit(model, target_tokens_max, prefix)
    cache = model.new_cache(len(sources) * width, max(map(len, sources)), limit + len(prefix))
    owned = [list(range(i * width, (i + 1) * width)) for i in range(len(sources))]
    firsts = [slots[0] for slots in owned]
    start(model, cache, firsts, sources)
    copies = [(slots[0], slot) for slots in owned for slot in slots[1:]]
    cache.copy([f for f, _ in copies], [t for _, t in copies], source=True)
    beams = [
        BeamState(
            width,
            eos_id=config.eos_id,
            target_tokens_max=limit,
            length_penalty=length_penalty,
            forced_eos=config.forced_eos,
            prefix_tokens=len(prefix),
        )
        for _ in sources
    ]
    rows = [[first] for first in firsts]
    logits = feed_prefix(model, cache, firsts, prefix)
    while True:
        slots, ids = _advance(beams, owned, rows, cache, best_candidates(logits, 2 * width, config.suppressed_ids))
        if not slots:
            return [beam.best(n_best) for beam in beams]
        logits = step(model, cache, slots, ids)


def _advance(
    beams: Sequence[BeamState],
    owned: Sequence[Sequence[int]],
    rows: list[list[int]],
    cache: SlotCache,
    candidates: tuple[list[list[float]], list[list[int]]],
) -> tuple[list[int], list[int]]:
    """Lets every beam choose from its share of the candidates; slots and ids of the next step, all beams together."""
    log_probs, tokens = candidates
    at, ids, copies = 0, list[int](), list[tuple[int, int]]()
    for number, beam in enumerate(beams):
        present = rows[number]
        mine = slice(at, at + len(present))
        at += len(present)
        if not present:
            continue
        extensions = beam.advance(log_probs[mine], tokens[mine])
        moves = place_rows(present, owned[number], [e.parent for e in extensions])
        rows[number] = moves.slots
        copies += moves.copies
        ids += [e.token for e in extensions]
    cache.copy([f for f, _ in copies], [t for _, t in copies])
    return [slot for slots in rows for slot in slots], ids
