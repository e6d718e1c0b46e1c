"""What a decoder pass costs beside the tokens it reads, in tokens: how many drafted ids can be verified for the price
of one more pass. Measured at the start on the machine at hand; the fastest of a few, to outlive a busy moment.
"""

from __future__ import annotations

import torch

from nearsay.nmt.cache import SlotCache
from nearsay.nmt.config import START
from nearsay.nmt.decoding import start
from nearsay.nmt.transformer import Seq2Seq
from nearsay.runtime.clock import Clock

PASS_TOKENS = 16.0  # until it has been measured, and where it can't be
PASS_TOKENS_MIN, PASS_TOKENS_MAX = 1.0, 1024.0
MANY, TIMES, SOURCE_TOKENS = 32, 8, 16


@torch.inference_mode()
def pass_tokens(model: Seq2Seq, cache: SlotCache, clock: Clock) -> float:
    """Uses slot 0, which must be free."""
    many = min(MANY, cache.target_tokens_max)
    length = min(SOURCE_TOKENS, cache.source_tokens_max)
    start(model, cache, [0], [[model.config.eos_id] * length])

    def seconds(tokens: int) -> float:
        began = clock()
        ids = torch.full((1, tokens), START, device=model.device)
        model.verify(cache, torch.tensor([0]), ids, torch.tensor([tokens])).argmax(-1).tolist()
        ended = clock()
        cache.rewind([0], [0])
        return ended - began

    # In turns, so that a busy moment spoils both or neither: a wrong answer would switch drafts off for good.
    rounds = [(seconds(1), seconds(many)) for _ in range(TIMES)]
    one, all_of_them = min(short for short, _ in rounds), min(long for _, long in rounds)
    token_s = (all_of_them - one) / max(many - 1, 1)
    if not 0.0 < token_s < one:
        return PASS_TOKENS
    return min(max(one / token_s - 1.0, PASS_TOKENS_MIN), PASS_TOKENS_MAX)
