"""First runs of a model, before anybody waits for it: caches fill, and the queue learns what its batches cost."""

from __future__ import annotations

import asyncio

from edge_worker.local_model import LocalModel
from nearsay.runtime.clock import Clock
from nearsay.text.engine import LocalInput
from nearsay.text.vocab import Vocab

ROUNDS = (1, 1, 4)  # sentences at once
WORDS = (3, 8, 16, 24)
TIMEOUT_S = 30.0


async def warm_up(model: LocalModel, source: Vocab, clock: Clock) -> None:
    """Run a few sentences of the model's own frequent pieces: any language, real lengths. Raises as `translate`."""
    frequent = [piece for piece in source.table[:400] if piece.startswith("▁") and piece[1:].isalpha()]
    sentences = [source.decode(source.ids(frequent[:words])) for words in WORDS]
    for rows in ROUNDS:
        batch = [LocalInput(text, tuple(source.encode(text))) for text in sentences[: min(rows, model.room)]]
        deadline = clock() + TIMEOUT_S
        await asyncio.gather(*(model.translate(row, priority="interactive", deadline=deadline) for row in batch))
